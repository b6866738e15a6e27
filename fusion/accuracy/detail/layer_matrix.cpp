#include "quanta/fusion/accuracy/detail/layer_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "quanta/fusion/detail/module_hooks.h"
#include "quanta/nn/detail/float_conv.h"
#include "quanta/ops/cat.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"

namespace quanta::accuracy {
namespace {

template <typename Take>
Tensor drawn(nn::Module& model, const WeightedLayer& layer, const Calibrate& run,
             const DrawnPositions& positions, const Take& take) {
  const autograd::NoGradGuard no_grad;
  const LayerMatrix matrix(layer);
  std::size_t call = 0;
  std::vector<Tensor> parts;
  {
    ModuleHooks hooks;
    hooks.watch(*layer.layer, [&](const Tensor& x, const Tensor& y) {
      const bool fits = call < positions.size() &&
                        (positions[call].empty() || positions[call].back() < matrix.positions(y));
      QUANTA_CHECK(fits, "'{}': data.run: expected the same calls each time, got other ones",
                   layer.path);
      if (!positions[call].empty()) parts.push_back(take(matrix, x, y, positions[call]));
      ++call;
    });
    run(model);
  }
  QUANTA_CHECK(call == positions.size() && !parts.empty(),
               "'{}': data.run: expected the same calls each time, got {} of {}", layer.path, call,
               positions.size());
  return parts.size() == 1 ? parts[0] : cat(parts, 1);
}

}  // namespace

// A window that moves over an image of up to 3 dimensions (those that are missing have size 1).
struct LayerMatrix::Window {
  using Three = std::array<std::int64_t, 3>;
  Three in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0},
      dilation{1, 1, 1};
  Three in_strides{0, 0, 0};
  bool transposed = false;

  std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }

  /// The element that tap k of the window sees along dimension d from output o; -1: padding.
  std::int64_t source(std::size_t d, std::int64_t o, std::int64_t k) const {
    std::int64_t i = 0;
    if (transposed) {
      const std::int64_t steps = o + padding[d] - k * dilation[d];
      if (steps < 0 || steps % stride[d] != 0) return -1;
      i = steps / stride[d];
    } else {
      i = o * stride[d] - padding[d] + k * dilation[d];
    }
    return i >= 0 && i < in[d] ? i : -1;
  }

  /// For each tap the distance of its element from the channel's first; -1: padding.
  void offsets(std::int64_t position, std::vector<std::int64_t>& to) const {
    const Three o{position / (out[1] * out[2]), position / out[2] % out[1], position % out[2]};
    std::size_t tap = 0;
    for (std::int64_t k0 = 0; k0 < kernel[0]; ++k0) {
      const std::int64_t i0 = source(0, o[0], k0);
      for (std::int64_t k1 = 0; k1 < kernel[1]; ++k1) {
        const std::int64_t i1 = source(1, o[1], k1);
        for (std::int64_t k2 = 0; k2 < kernel[2]; ++k2) {
          const std::int64_t i2 = source(2, o[2], k2);
          to[tap++] = i0 < 0 || i1 < 0 || i2 < 0
                          ? -1
                          : i0 * in_strides[0] + i1 * in_strides[1] + i2 * in_strides[2];
        }
      }
    }
  }
};

LayerMatrix::LayerMatrix(const WeightedLayer& layer)
    : path_(layer.path),
      kind_(layer.kind),
      groups_(layer.groups),
      rows_(layer.out_channels() / layer.groups),
      columns_(layer.weight->numel() / layer.out_channels()),
      weight_sizes_(layer.weight->sizes()) {
  if (const auto* conv = dynamic_cast<const nn::ConvNd*>(layer.layer)) {
    options_ = conv->options();
  } else if (const auto* transposed = dynamic_cast<const nn::ConvTransposeNd*>(layer.layer)) {
    const nn::ConvTransposeNdOptions& from = transposed->options();
    options_ = {.in_channels = from.in_channels,
                .out_channels = from.out_channels,
                .kernel_size = from.kernel_size,
                .stride = from.stride,
                .padding = from.padding,
                .dilation = from.dilation,
                .groups = from.groups};
    output_padding_ = from.output_padding;
  }
}

Tensor LayerMatrix::as_matrix(const Tensor& weight) const {
  if (kind_ != WeightedLayer::Kind::ConvTranspose) {
    return weight.contiguous().reshape({groups_, rows_, columns_});
  }
  // [inputs, rows, taps] of each group to [rows, inputs, taps].
  const std::int64_t inputs = weight_sizes_[0] / groups_;
  return weight.contiguous()
      .reshape({groups_, inputs, rows_, columns_ / inputs})
      .permute({0, 2, 1, 3})
      .reshape({groups_, rows_, columns_});
}

Tensor LayerMatrix::as_weight(const Tensor& matrix) const {
  if (kind_ != WeightedLayer::Kind::ConvTranspose) return matrix.reshape(weight_sizes_);
  const std::int64_t inputs = weight_sizes_[0] / groups_;
  return matrix.reshape({groups_, rows_, inputs, columns_ / inputs})
      .permute({0, 2, 1, 3})
      .reshape(weight_sizes_);
}

LayerMatrix::Window LayerMatrix::window(const Tensor& x) const {
  Window window;
  window.transposed = kind_ == WeightedLayer::Kind::ConvTranspose;
  const std::size_t spatial = weight_sizes_.size() - 2;
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::size_t d = 3 - spatial + i;
    const std::size_t dim = x.sizes().size() - spatial + i;
    window.in[d] = x.sizes()[dim];
    window.in_strides[d] = x.strides()[dim];
    window.kernel[d] = options_.kernel_size[i];
    window.stride[d] = options_.stride[i];
    window.dilation[d] = options_.dilation[i];
    // pad_for has padded already what is not padded with zeros.
    const bool zeros = options_.padding_mode == nn::PaddingMode::Zeros;
    window.padding[d] = zeros ? options_.padding[i] : 0;
    const std::int64_t reach = window.dilation[d] * (window.kernel[d] - 1);
    window.out[d] = window.transposed
                        ? (window.in[d] - 1) * window.stride[d] - 2 * window.padding[d] + reach +
                              output_padding_[i] + 1
                        : (window.in[d] + 2 * window.padding[d] - reach - 1) / window.stride[d] + 1;
  }
  return window;
}

void LayerMatrix::check_finite(const Tensor& x) const {
  // A sum of squares is finite only where all are (and none so large that nothing can be fitted).
  const std::span<const float> values = x.span<float>();
  const double sum =
      std::transform_reduce(values.begin(), values.end(), 0.0, std::plus<>(),
                            [](float value) { return static_cast<double>(value) * value; });
  QUANTA_CHECK(std::isfinite(sum), "'{}': data.run: expected finite numbers, got NaN or infinity",
               path_);
}

Tensor LayerMatrix::patches(const Tensor& x, std::span<const std::int64_t> positions) const {
  QUANTA_CHECK(x.dtype() == DType::Float32, "'{}': data.run: expected Float32 inputs, got {}",
               path_, x.dtype());
  const auto count = static_cast<std::int64_t>(positions.size());
  Tensor to = Tensor::empty({groups_, count, columns_}, DType::Float32);
  float* const values = to.mutable_data<float>();
  if (kind_ == WeightedLayer::Kind::Linear) {
    const Tensor rows = x.reshape({-1, columns_}).contiguous();
    const float* const from = rows.data<float>();
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(from + positions[static_cast<std::size_t>(i)] * columns_, columns_,
                  values + i * columns_);
    }
    check_finite(to);
    return to;
  }
  Tensor images = kind_ == WeightedLayer::Kind::Conv ? nn::detail::pad_for(x, options_) : x;
  if (images.sizes().size() < weight_sizes_.size()) images = images.unsqueeze(0);
  const Window window = this->window(images);
  const std::int64_t taps = window.taps();
  const std::int64_t channels = columns_ / taps;
  const std::int64_t places = window.out[0] * window.out[1] * window.out[2];
  const Dims& strides = images.strides();
  const float* const from = images.data<float>();
  parallel_for(count, std::max<std::int64_t>(1, 8192 / (groups_ * columns_)),
               [&](auto begin, auto end) {
                 std::vector<std::int64_t> offsets(static_cast<std::size_t>(taps));
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t position = positions[static_cast<std::size_t>(i)];
                   window.offsets(position % places, offsets);
                   const float* const image = from + position / places * strides[0];
                   for (std::int64_t group = 0; group < groups_; ++group) {
                     float* row = values + (group * count + i) * columns_;
                     for (std::int64_t channel = 0; channel < channels; ++channel) {
                       const float* const plane = image + (group * channels + channel) * strides[1];
                       for (const std::int64_t offset : offsets)
                         *row++ = offset < 0 ? 0.0F : plane[offset];
                     }
                   }
                 }
               });
  check_finite(to);
  return to;
}

Tensor LayerMatrix::results(const Tensor& y, std::span<const std::int64_t> positions) const {
  const auto count = static_cast<std::int64_t>(positions.size());
  const std::int64_t channels = groups_ * rows_;
  Tensor rows = y;
  if (kind_ != WeightedLayer::Kind::Linear) {
    // Channels last: [..., channels].
    if (rows.sizes().size() < weight_sizes_.size()) rows = rows.unsqueeze(0);
    rows = rows.reshape({rows.size(0), channels, -1}).transpose(1, 2);
  }
  rows = rows.reshape({-1, channels}).contiguous();
  Tensor to = Tensor::empty({groups_, count, rows_}, DType::Float32);
  const float* const from = rows.data<float>();
  float* const values = to.mutable_data<float>();
  for (std::int64_t group = 0; group < groups_; ++group) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(from + positions[static_cast<std::size_t>(i)] * channels + group * rows_, rows_,
                  values + (group * count + i) * rows_);
    }
  }
  check_finite(to);
  return to;
}

CallSizes sizes_of_calls(std::string_view method, nn::Module& model,
                         const std::vector<WeightedLayer>& layers, const Calibrate& run) {
  const autograd::NoGradGuard no_grad;
  CallSizes sizes;
  {
    ModuleHooks hooks;
    for (const WeightedLayer& layer : layers) {
      hooks.watch(*layer.layer, [&sizes, path = layer.path, matrix = LayerMatrix(layer)](
                                    const Tensor&, const Tensor& y) {
        std::vector<std::int64_t>& calls = sizes.positions[path];
        if (calls.empty()) sizes.order.push_back(path);
        calls.push_back(matrix.positions(y));
      });
    }
    run(model);
  }
  for (const WeightedLayer& layer : layers) {
    const auto found = sizes.positions.find(layer.path);
    const bool has_data =
        found != sizes.positions.end() && std::any_of(found->second.begin(), found->second.end(),
                                                      [](std::int64_t count) { return count > 0; });
    QUANTA_CHECK(
        has_data,
        "{}: data.run: expected data that reaches every layer (one that is not used gets the "
        "QConfig std::nullopt), got none at '{}'",
        method, layer.path);
  }
  return sizes;
}

DrawnPositions draw_positions(const std::vector<std::int64_t>& calls, std::int64_t count,
                              Generator& generator) {
  std::int64_t left = std::accumulate(calls.begin(), calls.end(), std::int64_t{0});
  std::int64_t wanted = std::min(count, left);
  DrawnPositions positions(calls.size());
  for (std::size_t call = 0; call < calls.size(); ++call) {
    // Knuth's selection sampling: each of those left is taken with the chance wanted / left.
    for (std::int64_t i = 0; i < calls[call]; ++i, --left) {
      if (generator.integer(0, left - 1) >= wanted) continue;
      positions[call].push_back(i);
      --wanted;
    }
  }
  return positions;
}

Tensor drawn_patches(nn::Module& model, const WeightedLayer& layer, const Calibrate& run,
                     const DrawnPositions& positions) {
  return drawn(model, layer, run, positions,
               [](const LayerMatrix& matrix, const Tensor& x, const Tensor&,
                  const std::vector<std::int64_t>& here) { return matrix.patches(x, here); });
}

Tensor drawn_results(nn::Module& model, const WeightedLayer& layer, const Calibrate& run,
                     const DrawnPositions& positions) {
  return drawn(model, layer, run, positions,
               [](const LayerMatrix& matrix, const Tensor&, const Tensor& y,
                  const std::vector<std::int64_t>& here) { return matrix.results(y, here); });
}

void for_all_patches(nn::Module& model, const WeightedLayer& layer, const Calibrate& run,
                     std::int64_t count, const std::function<void(const Tensor&)>& see) {
  const autograd::NoGradGuard no_grad;
  const LayerMatrix matrix(layer);
  std::vector<std::int64_t> positions;
  ModuleHooks hooks;
  hooks.watch(*layer.layer, [&](const Tensor& x, const Tensor& y) {
    const std::int64_t all = matrix.positions(y);
    for (std::int64_t begin = 0; begin < all; begin += count) {
      positions.resize(static_cast<std::size_t>(std::min(count, all - begin)));
      std::iota(positions.begin(), positions.end(), begin);
      see(matrix.patches(x, positions));
    }
  });
  run(model);
}

}  // namespace quanta::accuracy
