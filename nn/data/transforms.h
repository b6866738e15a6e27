#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "quanta/runtime/random.h"
#include "quanta/runtime/tensor.h"

namespace quanta::data {

/// Changes the input of one item, [C, H, W]. Called from the loader's thread; random numbers come
/// from the generator alone, so that an epoch can be repeated.
using Transform = std::function<Tensor(const Tensor& input, Generator& generator)>;

/// One after the other.
Transform compose(std::vector<Transform> transforms);

/// (x - mean[c]) / std[c] as Float32, one number for each channel; of UInt8 x / 255 is taken first.
/// Throws ArgumentError for lists of different lengths or std that is not > 0, and when called for
/// another number of channels or another dtype.
Transform normalize(std::vector<float> mean, std::vector<float> std);

/// Moves the picture by up to `pixels` rows and columns in every direction; what comes in is
/// `fill`, what goes out is lost. Any plain dtype, before or after normalize.
Transform random_shift(std::int64_t pixels, double fill = 0.0);

/// Mirrors left and right in this share of the calls. Any plain dtype.
Transform random_horizontal_flip(double probability = 0.5);

/// Bilinear, to Float32 of the same range if it is UInt8 (and then rounded to UInt8 again).
Transform resize(std::int64_t height, std::int64_t width);

}  // namespace quanta::data
