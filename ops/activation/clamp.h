#pragma once

// Private: relu and its kin, which only cut values off.

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "quanta/ops/activation/cpu_clamp.h"
#include "quanta/ops/activation/pointwise.h"
#include "quanta/ops/cuda/floats.h"
#include "quanta/ops/detail/look_up.h"

namespace quanta::activation {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Floats are dense and of one order, codes may lie anywhere; `out` may be x. Gives the kernel.
inline std::string_view clamp_on_cuda(const Tensor& x, const Tensor& out,
                                      const cpu::ClampBounds& bounds) {
  if (x.is_quantized()) {
    cuda::look_up(x, out, *cpu::clamp_table(x.dtype(), bounds));
    return "look_up_codes";
  }
  cuda::clamp(x, out, static_cast<float>(bounds.low), static_cast<float>(bounds.high));
  return "clamp_floats";
}

/// min(max(x, low), high), with the parameters of x for codes. `Derived` gives bounds(x), and the
/// gradient unless that passes where low < result < high.
template <typename Derived>
struct ClampOperation : Op<Derived> {
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_unary(this->name(), x);
    if constexpr (requires(const Derived& self) { self.check(); }) self().check();
    const MemoryFormat format = x.suggested_format();
    out.arrange(0, format);
    out.add_like(x, x.sizes(), format);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    cpu::clamp(in[0], out[0], self().bounds(in[0]));
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return clamp_on_cuda(in[0], out[0], self().bounds(in[0]));
  }
  std::span<const DType> cuda_dtypes() const noexcept override {
    return detail::kCudaFloatQ8Dtypes;
  }
  PlanUse plan_use(const Arguments& in, std::span<const Tensor>) const override {
    return {.in_place = true, .table = cpu::clamp_table(in[0].dtype(), self().bounds(in[0]))};
  }
  std::shared_ptr<const Operation> with_table(
      std::shared_ptr<const ByteTable> table) const override {
    return std::make_shared<detail::LookUp>(std::move(table));
  }
  /// The result lies on a bound where x does or is beyond it. It is kept anyway, as the next
  /// operation's argument.
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0, 1); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor result = context.output();
    cpu::ClampBounds limits = self().bounds(result);
    if (detail::is_float_of_16_bits(result.dtype())) {
      // The result lies on a bound as it was rounded.
      const auto rounded = [&](double bound) {
        return Tensor::full({}, bound, result.dtype()).item();
      };
      limits.low = rounded(limits.low);
      limits.high = rounded(limits.high);
    }
    return {detail::through_gate(context.grad(), result, limits.low, limits.high)};
  }

 private:
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

/// The bounds as codes of x, where it is quantized.
inline cpu::ClampBounds clamp_bounds(const Tensor& x, std::optional<double> low,
                                     std::optional<double> high) {
  cpu::ClampBounds bounds{low.value_or(-kInfinity), high.value_or(kInfinity), 0, 0};
  if (x.is_quantized()) {
    const Quantizer& quantizer = x.impl()->quantizer;
    const cpu::ScalarQuantizer to_code(quantizer.scale, quantizer.zero_point, x.dtype());
    bounds.low_code = low ? to_code(static_cast<float>(bounds.low)) : to_code.min;
    bounds.high_code = high ? to_code(static_cast<float>(bounds.high)) : to_code.max;
  }
  return bounds;
}

/// From the zero point on; the upper end is the dtype's.
inline cpu::ClampBounds relu_bounds(const Tensor& x) {
  cpu::ClampBounds bounds{0.0, kInfinity, 0, 0};
  if (x.is_quantized()) {
    bounds.low_code = static_cast<std::int32_t>(x.impl()->quantizer.zero_point);
    bounds.high_code = static_cast<std::int32_t>(cpu::code_range(x.dtype()).max);
  }
  return bounds;
}

struct ReLU final : ClampOperation<ReLU> {
  static constexpr std::string_view kName = "relu";
  static cpu::ClampBounds bounds(const Tensor& x) { return relu_bounds(x); }
};

struct ReLU6 final : ClampOperation<ReLU6> {
  static constexpr std::string_view kName = "relu6";
  static cpu::ClampBounds bounds(const Tensor& x) { return clamp_bounds(x, 0.0, 6.0); }
};

struct HardTanh final : ClampOperation<HardTanh> {
  static constexpr std::string_view kName = "hardtanh";
  double min_val = -1.0;
  double max_val = 1.0;

  HardTanh() = default;
  HardTanh(double low, double high) : min_val(low), max_val(high) {}
  void check() const {
    QUANTA_CHECK(!std::isnan(min_val), "hardtanh: low: expected a number, got NaN");
    QUANTA_CHECK(!std::isnan(max_val), "hardtanh: high: expected a number, got NaN");
  }
  cpu::ClampBounds bounds(const Tensor& x) const { return clamp_bounds(x, min_val, max_val); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<HardTanh, &HardTanh::min_val>("min_val"),
                                       attribute<HardTanh, &HardTanh::max_val>("max_val")};
    return kTable;
  }
};

struct Clamp final : ClampOperation<Clamp> {
  static constexpr std::string_view kName = "clamp";
  std::optional<double> min;
  std::optional<double> max;

  Clamp() = default;
  Clamp(std::optional<double> low, std::optional<double> high) : min(low), max(high) {}
  void check() const {
    QUANTA_CHECK(min || max, "clamp: low: expected at least one bound, got none");
    QUANTA_CHECK(!min || !std::isnan(*min), "clamp: low: expected a number, got NaN");
    QUANTA_CHECK(!max || !std::isnan(*max), "clamp: high: expected a number, got NaN");
  }
  cpu::ClampBounds bounds(const Tensor& x) const { return clamp_bounds(x, min, max); }
  /// It passes on the bounds too, which the result cannot tell.
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(1); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const double least = min.value_or(-kInfinity);
    const double most = max.value_or(kInfinity);
    if (context.input(0).device().is_cuda()) {
      return {detail::gate_on_cuda(context.grad(), context.input(0),
                                   {.low = static_cast<float>(least),
                                    .high = static_cast<float>(most),
                                    .passes_bounds = true})};
    }
    return {detail::map_pair(context.grad(), context.input(0), [&](auto gradient, auto value) {
      using T = decltype(value);
      return value >= static_cast<T>(least) && value <= static_cast<T>(most) ? gradient : T{0};
    })};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Clamp, &Clamp::min>("min"),
                                       attribute<Clamp, &Clamp::max>("max")};
    return kTable;
  }
};

struct ReLUInPlace final : Op<ReLUInPlace> {
  static constexpr std::string_view kName = "relu_";
  static constexpr ArgumentCount kArguments{1};
  void infer(const Arguments& in, Results& out) const override;
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override;
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override;
  std::span<const DType> cuda_dtypes() const noexcept override {
    return detail::kCudaFloatQ8Dtypes;
  }
};

}  // namespace quanta::activation
