// Quantizers of integer codes; those of float formats are in formats.cpp.

#include "quanta/ops/tensor_quant.h"

#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/detail/amax.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/meta.h"
#include "quanta/ops/tensor_quant/formats.h"
#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/half.h"

namespace quanta {
namespace {

using autograd::BackwardContext;
using detail::amax_values;
using detail::AmaxFunction;
using detail::AmaxOperation;
using detail::AmaxStep;
using detail::check_amax;
using detail::check_quantizable;
using detail::map_amax;
using detail::OnBothDevices;

math::AmaxGrid checked_grid(std::string_view op, const TensorQuantOptions& options) {
  const std::int64_t fewest = options.is_unsigned ? 1 : 2;
  QUANTA_CHECK(options.num_bits >= fewest && options.num_bits <= 32,
               "{}: num_bits: expected {}..32{}, got {}", op, fewest,
               options.is_unsigned ? " unsigned" : "", options.num_bits);
  return math::amax_grid(options.num_bits, options.is_unsigned, options.narrow_range);
}

void check_sign(std::string_view op, const Tensor& x, const TensorQuantOptions& options) {
  if (!options.is_unsigned || x.numel() == 0) return;
  const float lowest = detail::smallest_of(detail::dense_float(x));
  QUANTA_CHECK(!(lowest < 0.0F), "{}: x: expected no negative values for unsigned codes, got {}",
               op, lowest);
}

template <typename Op, auto... options>
constexpr std::array kCodeSettings{
    attribute<Op, options..., &TensorQuantOptions::num_bits>("num_bits"),
    attribute<Op, options..., &TensorQuantOptions::is_unsigned>("unsigned"),
    attribute<Op, options..., &TensorQuantOptions::narrow_range>("narrow_range")};

float bfloat16(float value) { return math::bfloat16_to_float(math::float_to_bfloat16(value)); }

// The scale of each amax: what codes are multiplied with, or divided by.
enum class ScaleUse : bool { Multiply, Divide };

Tensor compute_scale(const Tensor& amax, const math::AmaxGrid& grid, ScaleUse use) {
  Tensor scale =
      Tensor::empty(amax.sizes(), DType::Float32, MemoryFormat::Contiguous, amax.device());
  const AmaxStep step = use == ScaleUse::Multiply ? AmaxStep::Scale : AmaxStep::Divisor;
  map_amax({.step = step, .grid = grid}, amax, amax, scale);
  return scale;
}

void write_codes(const Tensor& x, const Tensor& amax, const math::AmaxGrid& grid,
                 const Tensor& out) {
  if (x.dtype() != DType::BFloat16) {
    return map_amax({.step = AmaxStep::Codes, .grid = grid}, x, amax, out);
  }
  const Tensor steps = compute_scale(amax, grid, ScaleUse::Multiply).to(DType::BFloat16);
  map_amax({.step = AmaxStep::CodesInBFloat16, .grid = {bfloat16(grid.min), bfloat16(grid.max)}}, x,
           steps.to(DType::Float32), out);
}

// Results: codes, and what to divide them by.
struct TensorQuant final : AmaxOperation<TensorQuant> {
  static constexpr std::string_view kName = "tensor_quant";
  static constexpr ArgumentCount kArguments{2};
  TensorQuantOptions options;
  std::optional<DType> output_dtype;  // of the codes; none: that of x

  TensorQuant() = default;
  explicit TensorQuant(const TensorQuantOptions& given,
                       std::optional<DType> codes_dtype = std::nullopt)
      : options(given), output_dtype(codes_dtype) {}
  static GradientRule rule() { return GradientRule::Clip; }
  void infer(const Arguments& in, Results& out) const override {
    check_quantizable(kName, in[0]);
    check_amax(kName, in[0].sizes(), in[1]);
    checked_grid(kName, options);
    check_output_dtype();
    const MemoryFormat format = in[0].suggested_format();
    out.arrange(0, format);
    out.add(in[0].sizes(), output_dtype.value_or(in[0].dtype()), format);
    out.add(in[1].sizes(), in[0].dtype());
  }
  GradientUse gradient_use(std::uint64_t needed) const override {
    return output_dtype == DType::Int32 ? GradientUse::none() : AmaxOperation::gradient_use(needed);
  }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    std::vector<Tensor> results = AmaxOperation::gradient(context);
    results[0] = results[0].to(context.input_dtype(0));
    return results;
  }
  std::string_view calculate(const Arguments& in, std::span<const Tensor> out) const {
    const Tensor& x = in[0];
    const Tensor values = amax_values(kName, in[1]);
    const math::AmaxGrid grid = checked_grid(kName, options);
    const Tensor scale = compute_scale(values, grid, ScaleUse::Divide);
    if (x.dtype() == DType::Float16 && values.numel() > 0) {
      const float largest = detail::largest_of(scale);
      QUANTA_CHECK(!(largest > 65504.0F),
                   "tensor_quant: amax: expected scales within Float16 (at most 65504), got {}",
                   largest);
    }
    check_sign(kName, x, options);
    if (x.numel() > 0) write_codes_as(x, values, grid, out[0]);
    copy_result(scale.to(x.dtype()), out[1]);
    return "simd";
  }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = TensorQuant;
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &TensorQuantOptions::num_bits>("num_bits"),
        attribute<Self, &Self::options, &TensorQuantOptions::is_unsigned>("unsigned"),
        attribute<Self, &Self::options, &TensorQuantOptions::narrow_range>("narrow_range"),
        attribute<Self, &Self::output_dtype>("output_dtype")};
    return kTable;
  }

 private:
  void check_output_dtype() const {
    if (!output_dtype) return;
    QUANTA_CHECK(output_dtype == DType::Int32 || output_dtype == DType::Float32,
                 "{}: output_dtype: expected Int32 or Float32, got {}", kName, *output_dtype);
    // Beyond that codes are no exact floats any more.
    const std::int64_t most = options.is_unsigned ? 24 : 25;
    QUANTA_CHECK(output_dtype != DType::Int32 || options.num_bits <= most,
                 "{}: num_bits: expected at most {} with output_dtype Int32, got {}", kName, most,
                 options.num_bits);
  }
  static void write_codes_as(const Tensor& x, const Tensor& amax, const math::AmaxGrid& grid,
                             const Tensor& out) {
    if (out.dtype() != DType::Int32) return write_codes(x, amax, grid, out);
    const Tensor codes = Tensor::empty(x.sizes(), DType::Float32, x.suggested_format(), x.device());
    write_codes(x, amax, grid, codes);
    copy_result(codes.to(DType::Int32), out);
  }
};

struct LegacyFakeTensorQuant final : AmaxOperation<LegacyFakeTensorQuant> {
  static constexpr std::string_view kName = "legacy_fake_tensor_quant";
  static constexpr ArgumentCount kArguments{2};
  static constexpr bool kLearnsAmax = true;
  TensorQuantOptions options;
  GradientRule gradient_rule = GradientRule::Clip;

  LegacyFakeTensorQuant() = default;
  explicit LegacyFakeTensorQuant(const TensorQuantOptions& given,
                                 GradientRule passes = GradientRule::Clip)
      : options(given), gradient_rule(passes) {}
  GradientRule rule() const { return gradient_rule; }
  void infer(const Arguments& in, Results& out) const override {
    check_quantizable(kName, in[0]);
    check_amax(kName, in[0].sizes(), in[1]);
    checked_grid(kName, options);
    infer_like(in[0], out);
  }
  std::string_view calculate(const Arguments& in, std::span<const Tensor> out) const {
    const Tensor& x = in[0];
    const Tensor values = amax_values(kName, in[1]);
    const math::AmaxGrid grid = checked_grid(kName, options);
    check_sign(kName, x, options);
    const Tensor codes = Tensor::empty(x.sizes(), x.dtype(), x.suggested_format(), x.device());
    write_codes(x, values, grid, codes);
    const Tensor scale = compute_scale(values, grid, ScaleUse::Divide).to(x.dtype());
    const Tensor y = div(codes.to(DType::Float32), scale.to(DType::Float32));
    copy_result(y.to(x.dtype()), out[0]);
    return "simd";
  }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = LegacyFakeTensorQuant;
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &TensorQuantOptions::num_bits>("num_bits"),
        attribute<Self, &Self::options, &TensorQuantOptions::is_unsigned>("unsigned"),
        attribute<Self, &Self::options, &TensorQuantOptions::narrow_range>("narrow_range"),
        attribute<Self, &Self::gradient_rule>("gradient")};
    return kTable;
  }
};

// Arguments: x, amax, and a bias that may be left out.
struct FakeTensorQuant final : AmaxOperation<FakeTensorQuant> {
  static constexpr std::string_view kName = "fake_tensor_quant";
  static constexpr ArgumentCount kArguments{3};
  static constexpr bool kLearnsAmax = true;
  TensorQuantOptions codes;
  GradientRule gradient_rule = GradientRule::Clip;

  FakeTensorQuant() = default;
  FakeTensorQuant(const TensorQuantOptions& given, GradientRule passes)
      : codes(given), gradient_rule(passes) {}
  GradientRule rule() const { return gradient_rule; }
  void infer(const Arguments& in, Results& out) const override {
    check_quantizable(kName, in[0]);
    checked_grid(kName, codes);
    check_amax(kName, in[0].sizes(), in[1]);
    detail::check_bias(kName, in[0], in[2]);
    infer_like(in[0], out);
  }
  std::string_view calculate(const Arguments& in, std::span<const Tensor> out) const {
    const Tensor& bias = in[2];
    const Tensor values = amax_values(kName, in[1]);
    const math::AmaxGrid grid = checked_grid(kName, codes);
    const Tensor seen = detail::without_bias(in[0], bias);
    check_sign(kName, seen, codes);
    detail::with_bias(seen, bias, out[0], [&](const Tensor& y) {
      map_amax({.step = AmaxStep::FakeTensorQuant, .grid = grid}, seen, values, y);
    });
    return "simd";
  }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = FakeTensorQuant;
    static constexpr std::array kTable{
        attribute<Self, &Self::codes, &TensorQuantOptions::num_bits>("num_bits"),
        attribute<Self, &Self::codes, &TensorQuantOptions::is_unsigned>("unsigned"),
        attribute<Self, &Self::codes, &TensorQuantOptions::narrow_range>("narrow_range"),
        attribute<Self, &Self::gradient_rule>("gradient")};
    return kTable;
  }
};

// The gradient passes where low <= x <= high.
Tensor gradient_within(const Tensor& gradient, const Tensor& x, float low, float high) {
  const Tensor inside = Tensor::empty(x.sizes(), DType::Float32, x.suggested_format(), x.device());
  map_amax({.step = AmaxStep::Inside, .grid = {low, high}}, x, Tensor(), inside);
  return mul(gradient.to(DType::Float32), inside).to(gradient.dtype());
}

// Arguments: x, min_range, max_range.
struct FakeAffineTensorQuant final : OnBothDevices<FakeAffineTensorQuant> {
  static constexpr std::string_view kName = "fake_affine_tensor_quant";
  static constexpr ArgumentCount kArguments{3};
  std::int64_t num_bits = 8;

  FakeAffineTensorQuant() = default;
  explicit FakeAffineTensorQuant(std::int64_t bits) : num_bits(bits) {}
  void infer(const Arguments& in, Results& out) const override {
    check_quantizable(kName, in[0]);
    check_end("min_range", in[1]);
    check_end("max_range", in[2]);
    QUANTA_CHECK(num_bits >= 1 && num_bits <= 24, "{}: num_bits: expected 1..24, got {}", kName,
                 num_bits);
    const MemoryFormat format = in[0].suggested_format();
    out.arrange(0, format);
    out.add(in[0].sizes(), in[0].dtype(), format);
  }
  std::string_view calculate(const Arguments& in, std::span<const Tensor> out) const {
    const auto low = static_cast<float>(in[1].item());
    const auto high = static_cast<float>(in[2].item());
    QUANTA_CHECK(std::isfinite(low) && std::isfinite(high) && low < high,
                 "{}: max_range: expected a finite number above min_range {}, got {}", kName, low,
                 high);
    const math::AffineRange range = math::affine_range(low, high, num_bits);
    map_amax({.step = AmaxStep::FakeAffine, .affine = range}, in[0], Tensor(), out[0]);
    return "scalar";
  }
  /// The ends of the range get no gradient, and one that asks for it is refused.
  GradientUse gradient_use(std::uint64_t needed) const override {
    return (needed & ~std::uint64_t{1}) != 0 ? GradientUse{} : GradientUse::of(0b111);
  }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    const auto low = static_cast<float>(context.input(1).item());
    const auto high = static_cast<float>(context.input(2).item());
    return {gradient_within(context.grad(), context.input(0), low, high), {}, {}};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<FakeAffineTensorQuant, &FakeAffineTensorQuant::num_bits>("num_bits")};
    return kTable;
  }

 private:
  static void check_end(std::string_view argument, const Tensor& values) {
    QUANTA_CHECK(values.defined() && values.is_floating_point() && values.numel() == 1,
                 "{}: {}: expected a floating tensor of one element, got {}", kName, argument,
                 values.defined() ? to_string(values.sizes()) : "an undefined one");
  }
};

struct IntCast final : OnBothDevices<IntCast> {
  static constexpr std::string_view kName = "int_cast_ste";
  static constexpr ArgumentCount kArguments{1};
  TensorQuantOptions options;

  IntCast() = default;
  explicit IntCast(const TensorQuantOptions& given) : options(given) {}
  void infer(const Arguments& in, Results& out) const override {
    check_quantizable(kName, in[0]);
    checked_grid(kName, options);
    const MemoryFormat format = in[0].suggested_format();
    out.arrange(0, format);
    out.add(in[0].sizes(), in[0].dtype(), format);
  }
  std::string_view calculate(const Arguments& in, std::span<const Tensor> out) const {
    const math::AmaxGrid grid = checked_grid(kName, options);
    map_amax({.step = AmaxStep::IntCast, .grid = grid}, in[0], Tensor(), out[0]);
    return "scalar";
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(1); }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    const math::AmaxGrid grid = checked_grid(kName, options);
    return {gradient_within(context.grad(), context.input(0), grid.min, grid.max)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    return kCodeSettings<IntCast, &IntCast::options>;
  }
};

}  // namespace

TensorQuantResult tensor_quant(const Tensor& x, const Tensor& amax,
                               const TensorQuantOptions& options,
                               std::optional<DType> output_dtype) {
  const Results results = run_all(TensorQuant{options, output_dtype}, x, amax);
  return {results[0], results[1].detach()};
}

Tensor legacy_fake_tensor_quant(const Tensor& x, const Tensor& amax,
                                const TensorQuantOptions& options, GradientRule gradient) {
  return run(LegacyFakeTensorQuant{options, gradient}, x, amax);
}

Tensor fake_tensor_quant(const Tensor& x, const Tensor& amax,
                         const FakeTensorQuantOptions& options) {
  return run(FakeTensorQuant{options.codes, options.gradient}, x, amax, options.bias);
}

Tensor fake_affine_tensor_quant(const Tensor& x, const Tensor& min_range, const Tensor& max_range,
                                std::int64_t num_bits) {
  return run(FakeAffineTensorQuant{num_bits}, x, min_range, max_range);
}

Tensor fake_affine_tensor_quant(const Tensor& x, double min_range, double max_range,
                                std::int64_t num_bits) {
  const auto where_x_is = [&](double value) {
    const Tensor end = Tensor::scalar(value);
    return x.defined() ? end.to(x.device()) : end;
  };
  return fake_affine_tensor_quant(x, where_x_is(min_range), where_x_is(max_range), num_bits);
}

Tensor int_cast_ste(const Tensor& x, const TensorQuantOptions& options) {
  return run(IntCast{options}, x);
}

Tensor meta::empty(const Dims& sizes, DType dtype) {
  const autograd::NoGradGuard no_grad;
  return Tensor::zeros({}, dtype).expand(sizes);
}

Tensor meta::fake_tensor_quant(const Tensor& x, const Tensor& amax,
                               const FakeTensorQuantOptions& options) {
  return detail::infer_meta(FakeTensorQuant{options.codes, options.gradient}, 0, x, amax,
                            options.bias);
}

Tensor meta::legacy_fake_tensor_quant(const Tensor& x, const Tensor& amax,
                                      const TensorQuantOptions& options) {
  return detail::infer_meta(LegacyFakeTensorQuant{options}, 0, x, amax);
}

TensorQuantResult meta::tensor_quant(const Tensor& x, const Tensor& amax,
                                     const TensorQuantOptions& options,
                                     std::optional<DType> output_dtype) {
  const TensorQuant operation(options, output_dtype);
  return {detail::infer_meta(operation, 0, x, amax), detail::infer_meta(operation, 1, x, amax)};
}

Tensor meta::fake_affine_tensor_quant(const Tensor& x, std::int64_t num_bits) {
  const Tensor end = empty({});
  return detail::infer_meta(FakeAffineTensorQuant{num_bits}, 0, x, end, end);
}

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/tensor_quant.h";
constexpr TensorQuantOptions kSixBits{.num_bits = 6, .is_unsigned = false, .narrow_range = false};

Tensor sample_image(DType dtype) { return sample_tensor({2, 3, 5, 4}, dtype); }
Tensor sample_amax(DType dtype) {
  return Tensor::from_values({0.5F, 1.0F, 2.0F}, {3, 1, 1}).to(dtype);
}

template <typename Kind>
Sample make_sample(DType dtype) {
  return sample_call(Kind{kSixBits}, {sample_image(dtype), sample_amax(dtype)});
}

}  // namespace

void detail::add_tensor_quant(Catalogue& catalogue) {
  const auto add = [&](std::string_view name, SampleFunction sample) {
    catalogue.add({.name = name, .header = kHeader, .dtypes = dtypes::kFloating}, sample);
  };
  add(TensorQuant::kName, make_sample<TensorQuant>);
  add(LegacyFakeTensorQuant::kName, make_sample<LegacyFakeTensorQuant>);
  // With and without a bias.
  add(FakeTensorQuant::kName, [](DType dtype) {
    const bool has_bias = dtype != DType::Float64;
    return sample_call(FakeTensorQuant{kSixBits, GradientRule::Clip},
                       {sample_image(dtype), sample_amax(dtype),
                        has_bias ? Tensor::full({4}, 0.125, dtype) : Tensor()});
  });
  add(FakeAffineTensorQuant::kName, [](DType dtype) {
    return sample_call(FakeAffineTensorQuant{6},
                       {sample_image(dtype), Tensor::scalar(-1.0), Tensor::scalar(1.5)});
  });
  add(IntCast::kName,
      [](DType dtype) { return sample_call(IntCast{kSixBits}, {sample_image(dtype)}); });
  tensor_quant_formats::add(catalogue);
}

}  // namespace quanta
