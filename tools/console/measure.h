#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/nn/module.h"

namespace quanta::console {

/// Percent of the first `images` images that the model names rightly, with a progress bar.
double top1(const nn::Module& model, const data::FashionMnist& data, std::int64_t images,
            const std::string& label);

/// The median time of each call in milliseconds. The calls take turns, `rounds` times after some to
/// warm up, so that a busy machine slows all of them.
std::vector<double> median_ms(const std::vector<std::function<void()>>& calls, int rounds);

/// Bytes of everything that the model's state holds.
std::size_t weight_bytes(const nn::Module& model);

}  // namespace quanta::console
