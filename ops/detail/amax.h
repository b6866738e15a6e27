#pragma once

// Private: what the quantizers that are described by amax share.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "quanta/ops/cpu/amax.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// Throws ArgumentError unless `x` is Float32, Float64, Float16 or BFloat16.
void check_quantizable(std::string_view op, const Tensor& x);

/// `amax` as contiguous Float32. Throws ArgumentError unless it is a floating tensor that
/// broadcasts to `sizes` and has no negative element, UnsupportedError when it asks for a gradient.
Tensor prepare_amax(std::string_view op, const Dims& sizes, const Tensor& amax);

/// `x` as dense Float32, without its place on the tape.
Tensor dense_float(const Tensor& x);

/// Calls run(offset, cpu::AmaxRun) for stretches of the dense `x`, whose elements begin at
/// `offset`. `values` is contiguous Float32 and broadcasts to x.
template <typename Run>
void for_each_amax_run(const Tensor& x, const Tensor& values, Run&& run) {
  const Dims strides = cpu::broadcast_strides(values, x.sizes());
  const cpu::StridedLoop<2> loop(x.sizes(), {&x.strides(), &strides});
  const auto* data = static_cast<const float*>(values.data_ptr());
  const std::int64_t step = loop.inner_strides()[1];
  const cpu::Store store =
      loop.rows() == 1 && step == 0 ? cpu::store_for(x.nbytes()) : cpu::Store::Cached;
  loop.run([&](const std::array<std::int64_t, 2>& offsets, std::int64_t count) {
    if (step == 0 || step == 1 || count == 1) {
      run(offsets[0], cpu::AmaxRun{data + offsets[1], count == 1 ? 0 : step, count, store});
      return;
    }
    constexpr std::int64_t kChunk = 512;
    std::array<float, kChunk> gathered;
    for (std::int64_t begin = 0; begin < count; begin += kChunk) {
      const std::int64_t length = std::min(kChunk, count - begin);
      for (std::int64_t i = 0; i < length; ++i) {
        gathered[static_cast<std::size_t>(i)] = data[offsets[1] + (begin + i) * step];
      }
      run(offsets[0] + begin, cpu::AmaxRun{gathered.data(), 1, length});
    }
  });
}

/// kernel(src, cpu::AmaxRun, dst) over the dense Float32 `x`.
template <typename Kernel>
Tensor map_amax_runs(const Tensor& x, const Tensor& values, Kernel&& kernel) {
  Tensor y = Tensor::empty(x.sizes(), DType::Float32, x.suggested_format());
  const auto* src = static_cast<const float*>(x.data_ptr());
  auto* dst = static_cast<float*>(y.data_ptr());
  for_each_amax_run(x, values, [&](std::int64_t offset, const cpu::AmaxRun& run) {
    kernel(src + offset, run, dst + offset);
  });
  return y;
}

/// Notes on the tape that `y` follows from `x`; the gradient passes where |seen| <= amax, or
/// everywhere. `seen` is what was quantized: x, or x without its bias.
Tensor record_straight_through(std::string_view op, const Tensor& x, Tensor y, const Tensor& seen,
                               const Tensor& amax, GradientRule rule);

}  // namespace quanta::detail
