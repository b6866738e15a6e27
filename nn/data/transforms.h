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

/// These transforms one after the other.
Transform compose(std::vector<Transform> transforms);

/// (x - mean[c]) / std[c] as Float32, with one number for each channel; UInt8 is divided by 255
/// first. Throws ArgumentError for lists of different lengths or std that is not > 0, and when
/// called for another number of channels or another dtype.
Transform normalize(std::vector<float> mean, std::vector<float> std);

/// Moves the picture by up to `pixels` rows and columns in every direction; what comes in is
/// `fill`, what goes out is lost. Any plain dtype, before or after normalize.
Transform random_shift(std::int64_t pixels, double fill = 0.0);

/// Mirrors left and right in this share of the calls. Any plain dtype.
Transform random_horizontal_flip(double probability = 0.5);

/// Resizes the picture, bilinear in Float32; UInt8 is rounded to UInt8 again.
Transform resize(std::int64_t height, std::int64_t width);

}  // namespace quanta::data
