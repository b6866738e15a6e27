#pragma once

// Private: what the quantizers that are described by amax share.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/amax.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/detail/amax_function.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/tensor.h"

namespace quanta {

inline std::span<const std::string_view> enumerators(GradientRule) {
  static constexpr std::array<std::string_view, 2> kNames{"Clip", "PassThrough"};
  return kNames;
}

}  // namespace quanta

namespace quanta::detail {

/// Throws ArgumentError unless `x` is Float32, Float64, Float16 or BFloat16.
void check_quantizable(std::string_view op, const Tensor& x);

/// Throws ArgumentError unless `amax` is a floating tensor that broadcasts to `sizes`.
void check_amax(std::string_view op, const Dims& sizes, const Tensor& amax);

/// `amax` as contiguous Float32. Throws ArgumentError when an element is negative; a device finds
/// that out itself and is waited for.
Tensor amax_values(std::string_view op, const Tensor& amax);

/// `x` as dense Float32, without its place on the tape.
Tensor dense_float(const Tensor& x);

/// Calls run(offset, cpu::AmaxRun) for stretches of the dense `x`, whose elements begin at
/// `offset`, as do their results from `dst` on. `values` is contiguous Float32 and broadcasts to x.
template <typename Run>
void for_each_amax_run(const Tensor& x, const Tensor& values, const void* dst, Run&& run) {
  const Dims strides = cpu::broadcast_strides(values, x.sizes());
  const cpu::StridedLoop<2> loop(x.sizes(), {&x.strides(), &strides});
  const auto* data = static_cast<const float*>(values.data_ptr());
  const std::int64_t step = loop.inner_strides()[1];
  const cpu::Store store =
      loop.rows() == 1 && step == 0 ? cpu::store_for(x.nbytes(), dst) : cpu::Store::Cached;
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

/// out = function(x, amax) of every element, in float32: `x` is floating, `out` dense, of x's sizes
/// and suggested format. `values` as above, undefined where the function needs no amax.
void map_amax(const AmaxFunction& function, const Tensor& x, const Tensor& values,
              const Tensor& out);

/// The smallest and the largest of Float32 values without gaps, at least one; NaN if there is one.
/// Those of a device are waited for.
float smallest_of(const Tensor& values);
float largest_of(const Tensor& values);

/// The gradient where |seen| <= amax, else 0; `amax` as amax_values gives it.
Tensor gradient_within_amax(const Tensor& gradient, const Tensor& seen, const Tensor& amax);

/// The gradient of amax, of `sizes` and `dtype`: the sum over elements beyond it of the gradient,
/// whose sign is turned below -amax. `amax` as amax_values gives it.
Tensor gradient_of_amax(const Tensor& gradient, const Tensor& seen, const Tensor& amax,
                        DType dtype);

/// Throws ArgumentError unless `bias` is undefined or broadcasts to the sizes of x.
void check_bias(std::string_view op, const Tensor& x, const Tensor& bias);
/// What is quantized in place of x: x itself, or x - bias as Float32.
Tensor without_bias(const Tensor& x, const Tensor& bias);
/// out = y + bias.
void add_bias(const Tensor& y, const Tensor& bias, const Tensor& out);
/// write(y) and, if there is a bias, y + bias into `out`; `seen` is x without it.
template <typename Write>
void with_bias(const Tensor& seen, const Tensor& bias, const Tensor& out, Write&& write) {
  if (!bias.defined()) return write(out);
  const Tensor y =
      Tensor::empty(seen.sizes(), DType::Float32, seen.suggested_format(), seen.device());
  write(y);
  add_bias(y, bias, out);
}

/// An operation whose calculate(in, out) is made of what runs on either device; it gives the name of
/// the CPU's kernel.
template <typename Derived>
struct OnBothDevices : Op<Derived> {
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return static_cast<const Derived&>(*this).calculate(in, out);
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    static_cast<const Derived&>(*this).calculate(in, out);
    return "map_by_amax";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloating; }
};

/// What the operations that are described by amax share: how results look and what the gradient is.
/// Arguments are x, amax (may be left out where the operation says so) and, if the operation has
/// one, a bias. Derived has rule(), and kLearnsAmax where amax may have a gradient.
template <typename Derived>
struct AmaxOperation : OnBothDevices<Derived> {
  static constexpr bool kLearnsAmax = false;

  /// A bias gets no gradient, nor does an amax that is not learned or where gradients pass through;
  /// one that asks for it is refused.
  GradientUse gradient_use(std::uint64_t needed) const override {
    const bool clips = self().rule() == GradientRule::Clip;
    const std::uint64_t has_gradient = Derived::kLearnsAmax && clips ? 0b11 : 0b01;
    if ((needed & ~has_gradient) != 0) return {};
    return GradientUse::of(clips ? 0b111 : 0);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor bias = context.input_count() > 2 ? context.input(2) : Tensor();
    return gradient_with_bias(context, bias);
  }

 protected:
  std::vector<Tensor> gradient_with_bias(const autograd::BackwardContext& context,
                                         const Tensor& bias) const {
    std::vector<Tensor> results(context.input_count());
    results[0] = context.grad();
    if (self().rule() == GradientRule::PassThrough || !context.has_input(1)) return results;
    const Tensor seen = without_bias(context.input(0), bias);
    const Tensor amax = amax_values(Derived::kName, context.input(1));
    results[0] = gradient_within_amax(context.grad(), seen, amax);
    if (context.needs(1)) {
      results[1] = gradient_of_amax(context.grad(), seen, amax, context.input_dtype(1));
    }
    return results;
  }
  /// The result for x, of its sizes, dtype and memory order.
  static void infer_like(const Tensor& x, Results& out) {
    const MemoryFormat format = x.suggested_format();
    out.arrange(0, format);
    out.add(x.sizes(), x.dtype(), format);
  }

 private:
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

}  // namespace quanta::detail
