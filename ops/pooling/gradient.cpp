#include "quanta/ops/pooling/gradient.h"

#include <algorithm>
#include <vector>

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/pooling/cpu_scalar.h"
#include "quanta/ops/pooling/cuda_gradient.h"
#include "quanta/ops/pooling/cuda_kernels.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

namespace quanta::pooling {
namespace {

using cpu::PoolGeometry;
using cpu::PoolLayout;
using cpu::PoolTaps;

// Elements from one pixel, and from one channel, to the next.
struct Steps {
  std::int64_t pixel, in_channel, out_channel;
};

Steps element_steps(const PoolGeometry& geometry) {
  if (geometry.layout == PoolLayout::ChannelsLast) return {geometry.channels, 1, 1};
  return {1, geometry.input_volume(), geometry.output_volume()};
}

MemoryFormat format_of(const PoolGeometry& geometry) {
  return geometry.layout == PoolLayout::ChannelsLast ? MemoryFormat::ChannelsLast
                                                     : MemoryFormat::Contiguous;
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
      const T factor = cpu::gradient_factor<T>(rule, taps);
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
  const Steps steps = element_steps(geometry);
  const std::int64_t block = geometry.layout == PoolLayout::ChannelsLast ? kChannelBlock : 1;
  const std::int64_t blocks = ceil_div(geometry.channels, block);
  parallel_for(geometry.batch * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % blocks * block;
      body(geometry, steps, i / blocks, first, std::min(block, geometry.channels - first));
    }
  });
}

// fill(T{}, gradient, result), both dense in the geometry's order: adds to the result's zeros.
template <typename Fill>
Tensor backward(const Tensor& given, const Dims& sizes, const PoolGeometry& geometry,
                const Fill& fill) {
  const MemoryFormat format = format_of(geometry);
  const Tensor gradient = given.contiguous(format);
  Tensor result = Tensor::empty(sizes, gradient.dtype(), format);
  result.fill_(0.0);
  if (result.numel() > 0) {
    detail::visit_floats(gradient.dtype(), [&](auto zero) { fill(zero, gradient, result); });
  }
  return result;
}

// The same on a device: spread(device, params) writes every element of the result.
template <typename Spread>
Tensor backward_on_cuda(const Tensor& given, const Dims& sizes, cuda::PoolGradientParams params,
                        const Spread& spread) {
  const MemoryFormat format = format_of(params.geometry);
  const Tensor gradient = given.contiguous(format);
  const Tensor result = Tensor::empty(sizes, gradient.dtype(), format, gradient.device());
  if (result.numel() == 0) return result;
  params.dtype = gradient.dtype();
  params.gradient = gradient.device_ptr();
  params.result = result.device_ptr();
  spread(gradient.device(), params);
  return result;
}

Tensor max_pool_gradient_on_cuda(const Tensor& gradient, const Tensor& x,
                                 const PoolGeometry& geometry) {
  const Tensor values = x.contiguous(format_of(geometry));
  const Tensor where =
      Tensor::empty(gradient.sizes(), DType::Int64, format_of(geometry), x.device());
  cuda::PoolGradientParams params;
  params.geometry = geometry;
  params.where = reinterpret_cast<const std::int64_t*>(where.device_ptr());
  return backward_on_cuda(gradient, x.sizes(), params,
                          [&](Device device, const cuda::PoolGradientParams& spread) {
                            cuda::FindLargestParams find;
                            find.pool = {.geometry = geometry,
                                         .rule = {},
                                         .dtype = x.dtype(),
                                         .x = values.device_ptr(),
                                         .y = where.device_ptr()};
                            cuda::find_largest(device, find);
                            cuda::spread_to_largest(device, spread);
                          });
}

}  // namespace

Tensor max_pool_gradient(const Tensor& gradient, const Tensor& x, const PoolGeometry& geometry) {
  if (x.device().is_cuda()) return max_pool_gradient_on_cuda(gradient, x, geometry);
  const Tensor values = x.contiguous(format_of(geometry));
  return backward(
      gradient, x.sizes(), geometry, [&](auto zero, const Tensor& from, const Tensor& result) {
        using T = decltype(zero);
        for_each_block(geometry,
                       MaxBackward<T>{values.data<T>(), from.data<T>(), result.mutable_data<T>()});
      });
}

Tensor avg_pool_gradient(const Tensor& gradient, const Dims& sizes, const PoolGeometry& geometry,
                         const cpu::AverageRule& rule) {
  if (gradient.device().is_cuda()) {
    cuda::PoolGradientParams params;
    params.geometry = geometry;
    params.rule = rule;
    return backward_on_cuda(gradient, sizes, params, cuda::spread_to_all);
  }
  return backward(
      gradient, sizes, geometry, [&](auto zero, const Tensor& from, const Tensor& result) {
        using T = decltype(zero);
        for_each_block(geometry,
                       AverageBackward<T>{rule, from.data<T>(), result.mutable_data<T>()});
      });
}

}  // namespace quanta::pooling
