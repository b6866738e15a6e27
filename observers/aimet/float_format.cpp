#include "quanta/observers/aimet/float_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::aimet {
namespace {

struct NamedFormat {
  std::string_view name;
  FloatSpec spec;
  math::FloatFormat grid;
};

constexpr NamedFormat kBuiltins[] = {
    {"float16", {5, 10, false, false}, math::kFloat16},
    {"bfloat16", {8, 7, false, false}, math::kBFloat16},
    {"float8_e4m3fn", {4, 3, true, false}, math::kE4M3FN},
    {"float8_e4m3fnuz", {4, 3, true, true}, math::kE4M3FNUZ},
    {"float8_e5m2", {5, 2, false, false}, math::kE5M2},
    {"float8_e5m2fnuz", {5, 2, true, true}, math::kE5M2FNUZ},
    {"float4_e2m1fn", {2, 1, true, false}, math::kE2M1},
};

const NamedFormat* builtin(const FloatSpec& spec) {
  for (const NamedFormat& format : kBuiltins) {
    if (format.spec == spec) return &format;
  }
  return nullptr;
}

void check_bits(std::string_view op, std::int64_t exponent_bits, std::int64_t mantissa_bits) {
  QUANTA_CHECK(exponent_bits >= 1 && exponent_bits <= 8, "{}: exponent_bits: expected 1..8, got {}",
               op, exponent_bits);
  QUANTA_CHECK(mantissa_bits >= 0 && mantissa_bits <= 23,
               "{}: mantissa_bits: expected 0..23, got {}", op, mantissa_bits);
}

// What a fake cast of one element needs.
struct FakeCast {
  float maxval;
  float bias;
  float mantissa_bits;
  bool finite;

  float operator()(float x) const {
    if (std::isinf(x) && !finite) return x;
    const float clamped = math::clamp(x, -maxval, maxval);
    const float magnitude = std::fabs(clamped);
    const float exponent = magnitude == 0.0F ? 1.0F : std::floor(std::log2(magnitude) + bias);
    const float step = std::exp2(std::max(exponent, 1.0F) - mantissa_bits - bias);
    return math::round_half_even(clamped / step) * step;
  }
};

void check_x(const Tensor& x) {
  constexpr std::string_view kName = "fake_cast_to_ieee_float";
  QUANTA_CHECK(x.defined() && x.dtype() == DType::Float32, "{}: x: expected Float32, got {}", kName,
               x.defined() ? to_string(x.dtype()) : "an undefined one");
}

float bias_in_float(float maxval, std::int64_t exponent_bits, std::int64_t mantissa_bits) {
  const auto codes = std::exp2(static_cast<float>(exponent_bits));
  const float widest = std::log2(2.0F - std::exp2(static_cast<float>(-mantissa_bits)));
  return codes - std::log2(maxval) + widest - 1.0F;
}

constexpr std::string_view kOp = "fake_cast_to_ieee_float";

// Arguments: x, and the largest value of each element where it is not one for all.
struct FakeCastToIeeeFloat final : Op<FakeCastToIeeeFloat> {
  static constexpr std::string_view kName = kOp;
  static constexpr ArgumentCount kArguments{1, 2};
  std::optional<double> maxval;
  std::int64_t exponent_bits = 4;
  std::int64_t mantissa_bits = 3;
  bool finite = false;

  FakeCastToIeeeFloat() = default;
  FakeCastToIeeeFloat(std::optional<double> largest, std::int64_t exponent, std::int64_t mantissa,
                      bool is_finite)
      : maxval(largest), exponent_bits(exponent), mantissa_bits(mantissa), finite(is_finite) {}

  ArgumentCount argument_count() const noexcept override { return ArgumentCount(maxval ? 1 : 2); }
  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_bits(kOp, exponent_bits, mantissa_bits);
    check_x(x);
    if (in.size() > 1) {
      QUANTA_CHECK(in[1].defined() && in[1].dtype() == DType::Float32 &&
                       detail::broadcasts_to(in[1].sizes(), x.sizes()),
                   "{}: maxval: expected Float32 that can be expanded to {}, got {}", kOp,
                   x.sizes(), in[1].defined() ? to_string(in[1].sizes()) : "an undefined one");
    } else {
      QUANTA_CHECK(maxval && *maxval > 0.0, "{}: maxval: expected a number > 0, got {}", kOp,
                   maxval.value_or(0.0));
    }
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(x.sizes(), DType::Float32);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (in.size() > 1) {
      cast_each(in[0], in[1], out[0]);
    } else {
      cast_all(in[0], *maxval, out[0]);
    }
    return "scalar";
  }
  /// Nothing passes, as rounding is written in torch's own operations in AIMET.
  GradientUse gradient_use(std::uint64_t needed) const override {
    return (needed & 1U) != 0 ? GradientUse::of(0) : GradientUse::none();
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    std::vector<Tensor> results(context.input_count());
    results[0] = Tensor::zeros(context.input_sizes(0), context.input_dtype(0));
    return results;
  }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = FakeCastToIeeeFloat;
    static constexpr std::array kTable{attribute<Self, &Self::maxval>("maxval"),
                                       attribute<Self, &Self::exponent_bits>("exponent_bits"),
                                       attribute<Self, &Self::mantissa_bits>("mantissa_bits"),
                                       attribute<Self, &Self::finite>("finite")};
    return kTable;
  }

 private:
  void cast_each(const Tensor& x, const Tensor& largest, const Tensor& y) const {
    for (const float value : largest.to_float_vector()) {
      QUANTA_CHECK(value > 0.0F, "{}: maxval: expected numbers > 0, got {}", kOp, value);
    }
    const Tensor ends = largest.expand(x.sizes());
    cpu::broadcast_binary<float>(x, ends, y,
                                 [&](const float* from, const float* max, float* to,
                                     std::int64_t count, cpu::Rhs rhs, cpu::Store) {
                                   for (std::int64_t i = 0; i < count; ++i) {
                                     const float end = max[rhs == cpu::Rhs::Scalar ? 0 : i];
                                     to[i] = FakeCast{
                                         end, bias_in_float(end, exponent_bits, mantissa_bits),
                                         static_cast<float>(mantissa_bits), finite}(from[i]);
                                   }
                                 });
  }
  void cast_all(const Tensor& x, double largest, const Tensor& y) const {
    const double bias = std::exp2(static_cast<double>(exponent_bits)) - std::log2(largest) +
                        std::log2(2.0 - std::exp2(static_cast<double>(-mantissa_bits))) - 1.0;
    const FakeCast cast{static_cast<float>(largest), static_cast<float>(bias),
                        static_cast<float>(mantissa_bits), finite};
    const auto* from = x.data<float>();
    auto* to = static_cast<float*>(y.data_ptr());
    cpu::parallel_elements(y.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = cast(from[i]);
    });
  }
};

}  // namespace

FloatSpec FloatSpec::from_name(std::string_view name) {
  std::string_view bare = name;
  if (bare.starts_with("torch.")) bare.remove_prefix(6);
  for (const NamedFormat& format : kBuiltins) {
    if (format.name == bare) return format.spec;
  }
  throw ArgumentError(with_module_path(
      fmt::format("FloatSpec: dtype: expected float16, bfloat16, float8_e4m3fn, float8_e4m3fnuz, "
                  "float8_e5m2, float8_e5m2fnuz or float4_e2m1fn, got {}",
                  name)));
}

bool FloatSpec::is_builtin() const noexcept { return builtin(*this) != nullptr; }

bool FloatSpec::has_conversion() const noexcept {
  return is_builtin() && !(*this == FloatSpec{2, 1, true, false});
}

std::string FloatSpec::name() const {
  if (const NamedFormat* format = builtin(*this)) return std::string(format->name);
  return fmt::format("float{}_e{}m{}{}{}", bitwidth(), exponent_bits, mantissa_bits,
                     finite ? "fn" : "", unsigned_zero ? "uz" : "");
}

std::string FloatSpec::onnx_name() const {
  if (*this == FloatSpec{2, 1, true, false}) return "float4e2m1";
  std::string text = name();
  std::erase(text, '_');
  return text;
}

FloatSpec FloatSpec::from_onnx_name(std::string_view name) {
  for (const NamedFormat& format : kBuiltins) {
    if (format.spec.onnx_name() == name) return format.spec;
  }
  std::string_view rest = name;
  const auto take = [&rest](std::string_view word) {
    if (!rest.starts_with(word)) return false;
    rest.remove_prefix(word.size());
    return true;
  };
  const auto number = [&rest]() -> std::int64_t {
    std::int64_t value = -1;
    for (int digits = 0; digits < 2 && !rest.empty() && rest[0] >= '0' && rest[0] <= '9';
         ++digits) {
      value = std::max<std::int64_t>(value, 0) * 10 + (rest[0] - '0');
      rest.remove_prefix(1);
    }
    return value;
  };
  FloatSpec spec;
  const bool has_bits = take("float");
  const std::int64_t bits = number();
  const bool has_exponent = take("e");
  spec.exponent_bits = number();
  const bool has_mantissa = take("m");
  spec.mantissa_bits = number();
  spec.finite = take("fn");
  spec.unsigned_zero = take("uz");
  const bool is_format = has_bits && has_exponent && has_mantissa && rest.empty() &&
                         spec.exponent_bits >= 1 && spec.exponent_bits <= 8 &&
                         spec.mantissa_bits >= 0 && spec.mantissa_bits <= 23 &&
                         bits == spec.bitwidth();
  QUANTA_CHECK(is_format,
               "FloatSpec: output_dtype: expected float16, float8e4m3fn and the like, got {}",
               name.substr(0, 40));
  return spec;
}

namespace {

// Of formats that are not builtin.
math::FloatFormat::Specials specials_of(const FloatSpec& spec) {
  using Specials = math::FloatFormat::Specials;
  if (!spec.finite) return Specials::Ieee;
  if (spec.unsigned_zero) return Specials::NegativeZero;
  return spec.bitwidth() >= 8 ? Specials::Nan : Specials::None;
}

std::int64_t bias_of(const FloatSpec& spec) {
  return (std::int64_t{1} << (spec.exponent_bits - 1)) - (spec.unsigned_zero ? 0 : 1);
}

}  // namespace

double FloatSpec::full_max() const {
  check_bits("FloatSpec", exponent_bits, mantissa_bits);
  // The top exponent holds no numbers where there are infinities, and where its only mantissa is
  // that of the NaN.
  const bool all_ones_is_nan = specials_of(*this) == math::FloatFormat::Specials::Nan &&
                               builtin(*this) == nullptr && mantissa_bits == 0;
  const std::int64_t top =
      (std::int64_t{1} << exponent_bits) - (!finite || all_ones_is_nan ? 2 : 1) - bias_of(*this);
  QUANTA_CHECK(top <= 127, "FloatSpec: exponent_bits: expected numbers within float32's, got {}",
               name());
  return (2.0 - std::exp2(static_cast<double>(-mantissa_bits))) *
         std::exp2(static_cast<double>(top));
}

double FloatSpec::max() const {
  const double full = full_max();
  if (const NamedFormat* format = builtin(*this)) return static_cast<double>(format->grid.max());
  const bool is_less = specials_of(*this) == math::FloatFormat::Specials::Nan && mantissa_bits > 0;
  if (!is_less) return full;
  const auto step = std::exp2(static_cast<double>(-mantissa_bits));
  return full / (2.0 - step) * (2.0 - 2.0 * step);
}

double FloatSpec::released_max() const {
  QUANTA_CHECK(
      is_builtin() || (!finite && !unsigned_zero),
      "FloatSpec: finite: expected a format whose maximum AIMET's release knows (builtin, or "
      "with finite and unsigned_zero false), got {}",
      name());
  return max();
}

std::optional<math::FloatFormat> FloatSpec::grid() const {
  if (const NamedFormat* format = builtin(*this)) return format->grid;
  const bool is_ieee = !finite && !unsigned_zero;
  constexpr std::int64_t kLargestBias = 127;
  const std::int64_t bias = bias_of(*this) + (is_ieee ? 1 : 0);
  if (bitwidth() > 16 || bias > kLargestBias) return std::nullopt;
  return math::FloatFormat{static_cast<int>(exponent_bits), static_cast<int>(mantissa_bits),
                           static_cast<int>(bias),
                           is_ieee ? math::FloatFormat::Specials::None : specials_of(*this)};
}

Tensor fake_cast_to_ieee_float(const Tensor& x, const Tensor& maxval, std::int64_t exponent_bits,
                               std::int64_t mantissa_bits, bool finite) {
  return run(FakeCastToIeeeFloat{std::nullopt, exponent_bits, mantissa_bits, finite}, x, maxval);
}

Tensor fake_cast_to_ieee_float(const Tensor& x, double maxval, std::int64_t exponent_bits,
                               std::int64_t mantissa_bits, bool finite) {
  return run(FakeCastToIeeeFloat{maxval, exponent_bits, mantissa_bits, finite}, x);
}

}  // namespace quanta::aimet
