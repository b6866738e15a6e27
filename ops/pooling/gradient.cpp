#include "quanta/ops/pooling/gradient.h"

#include <algorithm>
#include <vector>

#include "quanta/ops/pooling/cpu_scalar.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/parallel.h"

namespace quanta::gradients {
namespace {

using autograd::BackwardContext;
using cpu::PoolGeometry;
using cpu::PoolLayout;
using cpu::PoolTaps;

// Elements from one pixel, and from one channel, to the next.
struct Steps {
  std::int64_t pixel, in_channel, out_channel;
};

Steps steps_of(const PoolGeometry& geometry) {
  if (geometry.layout == PoolLayout::ChannelsLast) return {geometry.channels, 1, 1};
  return {1, geometry.input_volume(), geometry.output_volume()};
}

// `x` (or a gradient of the same rank) as the geometry says: batched and dense in its order.
Tensor laid_out(const Tensor& x, const PoolGeometry& geometry, std::int64_t rank) {
  return (x.dim() < rank ? x.unsqueeze(0) : x)
      .contiguous(geometry.layout == PoolLayout::ChannelsLast ? MemoryFormat::ChannelsLast
                                                              : MemoryFormat::Contiguous);
}

// visit(taps, output pixel) for all pixels of an image.
template <typename Visit>
void for_each_output(const PoolGeometry& geometry, std::int64_t pixel, Visit&& visit) {
  const auto& axes = geometry.axes;
  std::int64_t position = 0;
  for (std::int64_t d = 0; d < axes[0].output; ++d) {
    for (std::int64_t h = 0; h < axes[1].output; ++h) {
      for (std::int64_t w = 0; w < axes[2].output; ++w, ++position) {
        visit(cpu::pool_taps(geometry, axes[0].window(d), axes[1].window(h), axes[2].window(w),
                             pixel),
              position);
      }
    }
  }
}

// body(offset) for each tap of a window, in torch's order.
template <typename Body>
void for_each_offset(const PoolTaps& taps, Body&& body) {
  for (std::int64_t d = 0; d < taps.depth_count; ++d) {
    for (std::int64_t h = 0; h < taps.height_count; ++h) {
      for (std::int64_t w = 0; w < taps.width_count; ++w) {
        body(taps.first + d * taps.depth_step + h * taps.height_step + w * taps.width_step);
      }
    }
  }
}

// Channels that go through a window together: all of a pixel's in channels-last images, so that
// reads are contiguous.
constexpr std::int64_t kChannelBlock = 64;

template <typename T>
struct MaxBackward {
  const T* x;
  const T* gradient;
  T* result;

  void operator()(const PoolGeometry& geometry, const Steps& steps, std::int64_t image,
                  std::int64_t first, std::int64_t count) const {
    const std::int64_t in =
        image * geometry.channels * geometry.input_volume() + first * steps.in_channel;
    const std::int64_t out =
        image * geometry.channels * geometry.output_volume() + first * steps.out_channel;
    std::vector<T> best(static_cast<std::size_t>(count));
    std::vector<std::int64_t> where(static_cast<std::size_t>(count));
    for_each_output(geometry, steps.pixel, [&](const PoolTaps& taps, std::int64_t position) {
      if (taps.count() == 0) return;
      std::fill(best.begin(), best.end(), cpu::pool_lowest<T>());
      std::fill(where.begin(), where.end(), taps.first);
      for_each_offset(taps, [&](std::int64_t offset) {
        for (std::int64_t c = 0; c < count; ++c) {
          const auto i = static_cast<std::size_t>(c);
          const T value = x[in + offset + c * steps.in_channel];
          if (value > best[i] || value != value) {
            best[i] = value;
            where[i] = offset;
          }
        }
      });
      for (std::int64_t c = 0; c < count; ++c) {
        result[in + where[static_cast<std::size_t>(c)] + c * steps.in_channel] +=
            gradient[out + position * steps.pixel + c * steps.out_channel];
      }
    });
  }
};

template <typename T>
struct AverageBackward {
  const cpu::AverageRule& rule;
  const T* gradient;
  T* result;

  void operator()(const PoolGeometry& geometry, const Steps& steps, std::int64_t image,
                  std::int64_t first, std::int64_t count) const {
    const std::int64_t in =
        image * geometry.channels * geometry.input_volume() + first * steps.in_channel;
    const std::int64_t out =
        image * geometry.channels * geometry.output_volume() + first * steps.out_channel;
    for_each_output(geometry, steps.pixel, [&](const PoolTaps& taps, std::int64_t position) {
      const T factor = T{1} / static_cast<T>(cpu::divisor_of(rule, taps));
      for_each_offset(taps, [&](std::int64_t offset) {
        for (std::int64_t c = 0; c < count; ++c) {
          result[in + offset + c * steps.in_channel] +=
              gradient[out + position * steps.pixel + c * steps.out_channel] * factor;
        }
      });
    });
  }
};

// body for each image and block of channels, over threads.
template <typename Body>
void for_each_block(const PoolGeometry& geometry, const Body& body) {
  const Steps steps = steps_of(geometry);
  const std::int64_t block = geometry.layout == PoolLayout::ChannelsLast ? kChannelBlock : 1;
  const std::int64_t blocks = (geometry.channels + block - 1) / block;
  parallel_for(geometry.batch * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % blocks * block;
      body(geometry, steps, i / blocks, first, std::min(block, geometry.channels - first));
    }
  });
}

Dims batched_sizes(const Dims& sizes, std::int64_t rank) {
  Dims result = sizes;
  if (static_cast<std::int64_t>(sizes.size()) < rank) result.insert(0, 1);
  return result;
}

// `run` fills the gradient: run(T{}, x laid out (or undefined), gradient laid out, result).
template <typename Run>
std::vector<Tensor> backward(const BackwardContext& context, const PoolGeometry& geometry,
                             const Dims& sizes, std::int64_t rank, Run&& run) {
  const Tensor gradient = laid_out(context.grad(), geometry, rank);
  Tensor result =
      Tensor::empty(batched_sizes(sizes, rank), gradient.dtype(),
                    geometry.layout == PoolLayout::ChannelsLast ? MemoryFormat::ChannelsLast
                                                                : MemoryFormat::Contiguous);
  result.fill_(0.0);
  if (result.numel() > 0) {
    if (gradient.dtype() == DType::Float64) {
      run(double{}, gradient, result);
    } else {
      run(float{}, gradient, result);
    }
  }
  return {result.dim() == static_cast<std::int64_t>(sizes.size()) ? result : result.squeeze(0)};
}

}  // namespace

Tensor record_max_pool(std::string_view op, Tensor y, const Tensor& x, std::size_t spatial,
                       const PoolGeometry& geometry) {
  return autograd::record(
      op, {x}, std::move(y), {x},
      [geometry, rank = static_cast<std::int64_t>(spatial) + 2](const BackwardContext& context) {
        const Tensor x = context.saved(0);
        const Tensor values = laid_out(x, geometry, rank);
        return backward(context, geometry, x.sizes(), rank,
                        [&](auto zero, const Tensor& gradient, const Tensor& result) {
                          using T = decltype(zero);
                          for_each_block(geometry,
                                         MaxBackward<T>{values.data<T>(), gradient.data<T>(),
                                                        result.mutable_data<T>()});
                        });
      });
}

Tensor record_avg_pool(std::string_view op, Tensor y, const Tensor& x, std::size_t spatial,
                       const PoolGeometry& geometry, const cpu::AverageRule& rule) {
  return autograd::record(
      op, {x}, std::move(y), {},
      [geometry, rule, sizes = x.sizes(),
       rank = static_cast<std::int64_t>(spatial) + 2](const BackwardContext& context) {
        return backward(context, geometry, sizes, rank,
                        [&](auto zero, const Tensor& gradient, const Tensor& result) {
                          using T = decltype(zero);
                          for_each_block(geometry, AverageBackward<T>{rule, gradient.data<T>(),
                                                                      result.mutable_data<T>()});
                        });
      });
}

}  // namespace quanta::gradients
