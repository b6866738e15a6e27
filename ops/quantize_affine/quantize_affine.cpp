#include "quanta/ops/quantize_affine.h"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/fake_quantize.h"
#include "quanta/ops/detail/affine_layout.h"
#include "quanta/ops/detail/cuda_fake_quantize.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/ops/quantize_affine/cpu_kernels.h"
#include "quanta/ops/quantize_affine/cuda.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/half.h"

namespace quanta {

static std::span<const std::string_view> enumerators(AffineRounding) {
  static constexpr std::array<std::string_view, 2> kNames{"HalfEven", "HalfAwayFromZero"};
  return kNames;
}
static std::span<const std::string_view> enumerators(AffineKernel) {
  static constexpr std::array<std::string_view, 3> kNames{"Automatic", "Divide", "InverseMultiply"};
  return kNames;
}

namespace {

using autograd::BackwardContext;
using cpu::AffineLayout;

double rounded_to(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  switch (dtype) {
    case DType::Float64:
      return value;
    case DType::Float32:
      return static_cast<double>(single);
    case DType::Float16:
      return static_cast<double>(math::float16_to_float(math::float_to_float16(single)));
    default:
      return static_cast<double>(math::bfloat16_to_float(math::float_to_bfloat16(single)));
  }
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return std::numeric_limits<double>::epsilon();
    case DType::Float32:
      return static_cast<double>(std::numeric_limits<float>::epsilon());
    case DType::Float16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

bool holds_grid(DType dtype, std::int64_t qmin, std::int64_t qmax) {
  for (const std::int64_t code : {qmin, qmin + 1, qmax - 1, qmax}) {
    const auto value = static_cast<double>(code);
    if (rounded_to(value, dtype) != value) return false;
  }
  return true;
}

bool is_stable(DType dtype, std::int64_t qmin, std::int64_t qmax) {
  const auto steps = static_cast<double>(qmax - qmin);
  return holds_grid(dtype, qmin, qmax) && epsilon_of(dtype) * steps <= 0.25;
}

// The narrowest dtype, from the one of x up, that the grid can be calculated in.
DType internal_dtype(DType dtype, std::int64_t qmin, std::int64_t qmax) {
  if (dtype == DType::Float64 || is_stable(dtype, qmin, qmax)) return dtype;
  return dtype != DType::Float32 && is_stable(DType::Float32, qmin, qmax) ? DType::Float32
                                                                          : DType::Float64;
}

void check_floating(std::string_view op, std::string_view argument, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
  const DType dtype = x.dtype();
  QUANTA_CHECK(dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Float16 ||
                   dtype == DType::BFloat16,
               "{}: {}: expected Float32, Float64, Float16 or BFloat16, got {}", op, argument,
               dtype);
}

// What is calculated in, for x of a dtype: a float type whose steps may be rounded to a smaller one.
class Precision {
 public:
  Precision(DType x, const AffineOptions& options)
      : rounded_(internal_dtype(x, options.qmin, options.qmax)),
        real_(rounded_ == DType::Float64 ? DType::Float64 : DType::Float32) {}
  Tensor of(const Tensor& value) const { return value.to(rounded_).to(real_); }
  /// A gradient of what `of` gives, as one of what it was given.
  Tensor back(const Tensor& gradient, DType dtype) const { return gradient.to(rounded_).to(dtype); }
  AffineStep step() const {
    if (rounded_ == DType::Float16) return AffineStep::Float16;
    return rounded_ == DType::BFloat16 ? AffineStep::BFloat16 : AffineStep::Native;
  }

 private:
  DType rounded_;
  DType real_;
};

template <typename T>
math::AffineLimits<T> limits_of(const AffineOptions& options) {
  return {static_cast<T>(options.qmin), static_cast<T>(options.qmax),
          static_cast<T>(options.zero_point_shift), options.rounding};
}

Tensor sums_as(const std::vector<double>& sums, const Tensor& like) {
  Tensor result = Tensor::empty(like.sizes(), like.dtype());
  detail::visit_floats(like.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto* dst = static_cast<T*>(result.data_ptr());
    for (std::size_t i = 0; i < sums.size(); ++i) dst[i] = static_cast<T>(sums[i]);
  });
  return result;
}

math::AffineSpike<double> spike_of(const AffineOptions& options) {
  return {(1.0 - options.spike_epsilon) / 2.0, options.spike_multiplier};
}

// Multiplies the gradients of what lies near a tie.
template <typename T>
void spike(const AffineOptions& options, const T* src, const AffineLayout& layout, const T* scale,
           T* gradient) {
  const math::AffineSpike<double> exact = spike_of(options);
  const math::AffineSpike<T> rule{static_cast<T>(exact.border), static_cast<T>(exact.multiplier)};
  const math::AffineLimits<T> limits = limits_of<T>(options);
  const cpu::AffineRows rows(layout);
  rows.for_each_run(0, rows.count(), [&](std::int64_t first, std::int64_t count, std::int64_t at) {
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t i = 0; i < rows.length(); ++i) {
        const std::int64_t element = (first + row) * rows.length() + i;
        const std::int64_t parameter = at + row * rows.run_stride() + i * rows.step();
        gradient[element] =
            math::affine_spike(gradient[element], src[element], scale[parameter], limits, rule);
      }
    }
  });
}

void check_options(std::string_view op, AffineOp kind, const AffineOptions& options) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 52;
  QUANTA_CHECK(
      options.qmin <= options.qmax && options.qmin >= -kLargest && options.qmax <= kLargest,
      "{}: qmin: expected qmin <= qmax within 2^52, got {} and {}", op, options.qmin, options.qmax);
  const double shift = options.zero_point_shift;
  const bool may_shift = kind == AffineOp::QuantizeDequantize;
  QUANTA_CHECK(shift == 0.0 || (may_shift && shift == 0.5),
               "{}: zero_point_shift: expected {}, got {}", op,
               may_shift ? "0 or 0.5" : "0 (others belong to quantize_dequantize_affine)", shift);
  QUANTA_CHECK(options.spike_multiplier == 1.0 ||
                   (options.spike_epsilon > 0.0 && options.spike_epsilon <= 1.0),
               "{}: spike_epsilon: expected a number in (0, 1] with spike_multiplier {}, got {}",
               op, options.spike_multiplier, options.spike_epsilon);
}

// What the three operations share. Arguments: x, scale, offset. Derived says which it is by kKind.
template <typename Derived>
struct AffineOperation : Op<Derived> {
  static constexpr ArgumentCount kArguments{3};
  AffineOptions options;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_floating(Derived::kName, "x", x);
    check_floating(Derived::kName, "scale", in[1]);
    check_floating(Derived::kName, "offset", in[2]);
    check_options(Derived::kName, Derived::kKind, options);
    QUANTA_CHECK(in[2].sizes() == in[1].sizes(),
                 "{}: offset: expected the sizes of scale, {}, got {}", Derived::kName,
                 in[1].sizes(), in[2].sizes());
    QUANTA_CHECK(
        Derived::kKind != AffineOp::Quantize || holds_grid(x.dtype(), options.qmin, options.qmax),
        "{}: x: expected a dtype that can represent the range {}..{}, got {}", Derived::kName,
        options.qmin, options.qmax, x.dtype());
    layout(x.sizes(), in[1].sizes(), MemoryFormat::Contiguous);
    const MemoryFormat format = x.suggested_format();
    out.arrange(0, format);
    out.arrange(1, MemoryFormat::Contiguous);
    out.arrange(2, MemoryFormat::Contiguous);
    out.add(x.sizes(), x.dtype(), format);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    calculate(in, out);
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    calculate(in, out);
    return "apply_affine";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloating; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b111); }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    const Precision precision(context.input_dtype(0), options);
    const Tensor x = precision.of(context.input(0));
    const MemoryFormat format = x.suggested_format();
    const Tensor src = x.contiguous(format);
    const Tensor grad = context.grad().to(x.dtype()).contiguous(format);
    const Tensor scales = precision.of(context.input(1)).contiguous();
    const Tensor offsets = precision.of(context.input(2)).contiguous();
    const AffineLayout parameters = layout(x.sizes(), scales.sizes(), format);
    const Tensor x_grad = Tensor::empty(x.sizes(), x.dtype(), format, x.device());
    if (!x.device().is_cpu()) {
      const Tensor scale_grad =
          Tensor::empty(scales.sizes(), scales.dtype(), MemoryFormat::Contiguous, x.device());
      const Tensor offset_grad =
          Tensor::empty(scales.sizes(), scales.dtype(), MemoryFormat::Contiguous, x.device());
      const cuda::AffineCall call = call_of(precision);
      cuda::affine_backward(call, src, grad, parameters, scales, offsets,
                            {x_grad, scale_grad, offset_grad});
      if (spikes()) {
        cuda::affine_spike(call, spike_of(options), src, parameters, scales, x_grad);
      }
      return {precision.back(x_grad, context.input_dtype(0)),
              precision.back(scale_grad, context.input_dtype(1)),
              precision.back(offset_grad, context.input_dtype(2))};
    }
    std::vector<double> scale_grad(static_cast<std::size_t>(parameters.parameters));
    std::vector<double> offset_grad(scale_grad.size());
    detail::visit_floats(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      auto* dst = static_cast<T*>(x_grad.data_ptr());
      cpu::affine_backward<T>(Derived::kKind, src.data<T>(), grad.data<T>(), parameters,
                              scales.data<T>(), offsets.data<T>(), limits_of<T>(options), dst,
                              scale_grad.data(), offset_grad.data());
      if (spikes()) {
        spike<T>(options, src.data<T>(), parameters, scales.data<T>(), dst);
      }
    });
    return {precision.back(x_grad, context.input_dtype(0)),
            precision.back(sums_as(scale_grad, scales), context.input_dtype(1)),
            precision.back(sums_as(offset_grad, offsets), context.input_dtype(2))};
  }

 protected:
  // On either device.
  void calculate(const Arguments& in, std::span<const Tensor> out) const {
    const Precision precision(in[0].dtype(), options);
    const Tensor x = precision.of(in[0]);
    const Tensor scale = precision.of(in[1]);
    const Tensor offset = precision.of(in[2]);
    const bool is_direct = x.dtype() == out[0].dtype();
    const MemoryFormat format = x.suggested_format();
    const Tensor y = is_direct ? out[0] : Tensor::empty(x.sizes(), x.dtype(), format, x.device());
    const AffineLayout parameters = layout(x.sizes(), scale.sizes(), format);
    if (x.device().is_cpu()) {
      detail::visit_floats(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        cpu::affine_forward<T>(Derived::kKind, x.data<T>(), parameters, scale.data<T>(),
                               offset.data<T>(), limits_of<T>(options), precision.step(),
                               static_cast<T*>(y.data_ptr()));
      });
    } else {
      cuda::affine_forward(call_of(precision), x, parameters, scale, offset, y);
    }
    if (!is_direct) copy_result(y.to(out[0].dtype()), out[0]);
  }

 private:
  bool spikes() const {
    return options.spike_multiplier != 1.0 && Derived::kKind == AffineOp::QuantizeDequantize;
  }
  cuda::AffineCall call_of(const Precision& precision) const {
    return {Derived::kKind, precision.step(), limits_of<double>(options)};
  }
  AffineLayout layout(const Dims& sizes, const Dims& shape, MemoryFormat format) const {
    return detail::affine_layout(Derived::kName, "scale", sizes, shape, options.block_size, format);
  }
};

template <typename Op>
constexpr std::array kSettings{
    attribute<Op, &Op::options, &AffineOptions::qmin>("qmin"),
    attribute<Op, &Op::options, &AffineOptions::qmax>("qmax"),
    attribute<Op, &Op::options, &AffineOptions::block_size>("block_size"),
    attribute<Op, &Op::options, &AffineOptions::zero_point_shift>("zero_point_shift"),
    attribute<Op, &Op::options, &AffineOptions::rounding>("rounding"),
    attribute<Op, &Op::options, &AffineOptions::kernel>("kernel"),
    attribute<Op, &Op::options, &AffineOptions::spike_epsilon>("spike_epsilon"),
    attribute<Op, &Op::options, &AffineOptions::spike_multiplier>("spike_multiplier")};

struct QuantizeAffine final : AffineOperation<QuantizeAffine> {
  static constexpr std::string_view kName = "quantize_affine";
  static constexpr AffineOp kKind = AffineOp::Quantize;
  QuantizeAffine() = default;
  explicit QuantizeAffine(AffineOptions given) { options = std::move(given); }
  static std::span<const AttributeInfo> attribute_table() { return kSettings<QuantizeAffine>; }
};

// Codes count as they are: no range decides about the precision.
struct DequantizeAffine final : AffineOperation<DequantizeAffine> {
  static constexpr std::string_view kName = "dequantize_affine";
  static constexpr AffineOp kKind = AffineOp::Dequantize;
  DequantizeAffine() : DequantizeAffine(Dims{}) {}
  explicit DequantizeAffine(const Dims& block_size) {
    options.block_size = block_size;
    options.qmin = options.qmax = 0;
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<DequantizeAffine, &DequantizeAffine::options, &AffineOptions::block_size>(
            "block_size")};
    return kTable;
  }
};

// The axis of x that carries the scales, -1 for one scale, nothing for several axes.
std::optional<std::int64_t> channel_axis(const Tensor& x, const Tensor& scale) {
  std::optional<std::int64_t> axis;
  for (std::int64_t d = 0; d < scale.dim(); ++d) {
    if (scale.size(d) == 1) continue;
    if (axis.has_value()) return std::nullopt;
    axis = x.dim() - scale.dim() + d;
  }
  return axis.value_or(-1);
}

bool is_whole(float value) { return value == std::trunc(value) && std::fabs(value) < 0x1p31F; }

// Zero points as torch's fake quantization takes them, or nothing where it cannot. Offsets decide
// about the arithmetic, so that those of a device are copied to the host.
std::optional<Tensor> torch_zero_points(const Tensor& offset, const AffineOptions& options,
                                        bool in_range) {
  const std::vector<float> offsets = offset.detach().to_float_vector();
  Tensor zero_points = Tensor::empty({offset.numel()}, DType::Int32);
  auto* dst = static_cast<std::int32_t*>(zero_points.data_ptr());
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (!is_whole(offsets[i])) return std::nullopt;
    const auto zero_point = static_cast<std::int64_t>(-offsets[i]);
    if (in_range && (zero_point < options.qmin || zero_point > options.qmax)) return std::nullopt;
    dst[i] = static_cast<std::int32_t>(zero_point);
  }
  return zero_points;
}

// Torch's fake quantization of the same values.
struct Inverse {
  std::int64_t axis;
  Tensor scales;       // 1-d
  Tensor zero_points;  // 1-d, Int32
};

// Nothing where torch's fake quantization does not apply.
std::optional<Inverse> find_inverse(const Tensor& x, const Tensor& scale, const Tensor& offset,
                                    const AffineOptions& options) {
  constexpr std::int64_t kLargestCode = std::int64_t{1} << 24;
  if (options.kernel == AffineKernel::Divide || !options.block_size.empty() ||
      options.zero_point_shift != 0.0 || options.rounding != AffineRounding::HalfEven ||
      options.spike_multiplier != 1.0 || x.dtype() == DType::Float64 ||
      options.qmin < -kLargestCode || options.qmax > kLargestCode) {
    return std::nullopt;
  }
  const std::optional<std::int64_t> axis = channel_axis(x, scale);
  if (!axis.has_value()) return std::nullopt;
  const std::optional<Tensor> zero_points = torch_zero_points(offset, options, *axis >= 0);
  if (!zero_points.has_value()) return std::nullopt;
  return Inverse{*axis, scale.detach().reshape({scale.numel()}), zero_points->to(x.device())};
}

void require_automatic(std::string_view op, const AffineOptions& options, const Tensor& scale) {
  QUANTA_CHECK(options.kernel != AffineKernel::InverseMultiply,
               "{}: kernel: expected what InverseMultiply can do (one scale or one per channel, "
               "whole offsets in the range, no blocks, no gradient of scale and offset), got scale "
               "{}",
               op, scale.sizes());
}

struct QuantizeDequantizeAffine final : AffineOperation<QuantizeDequantizeAffine> {
  static constexpr std::string_view kName = "quantize_dequantize_affine";
  static constexpr AffineOp kKind = AffineOp::QuantizeDequantize;
  QuantizeDequantizeAffine() = default;
  explicit QuantizeDequantizeAffine(AffineOptions given) { options = std::move(given); }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const std::optional<Inverse> inverse = inverse_of(in);
    if (!inverse) return AffineOperation::cpu(in, out);
    cpu::fake_quantize_tensor(in[0], inverse->axis,
                              cpu::fake_quantize_channels(inverse->scales.to_float_vector(),
                                                          inverse->zero_points.to_float_vector(),
                                                          options.qmin, options.qmax),
                              out[0], nullptr);
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const std::optional<Inverse> inverse = inverse_of(in);
    if (!inverse) return AffineOperation::cuda(in, out);
    cuda::fake_quantize_tensor(in[0], inverse->axis,
                               {inverse->scales, inverse->zero_points, options.qmin, options.qmax},
                               out[0], Tensor());
    return "fake_quantize_rows";
  }
  /// By division where scale or offset ask for a gradient, else as fake quantization has it.
  std::shared_ptr<const Operation> for_gradient(std::uint64_t needed) const override;
  static std::span<const AttributeInfo> attribute_table() {
    return kSettings<QuantizeDequantizeAffine>;
  }

 private:
  // Nothing: by division, which the options allow then.
  std::optional<Inverse> inverse_of(const Arguments& in) const {
    std::optional<Inverse> inverse = find_inverse(in[0], in[1], in[2], options);
    if (!inverse) require_automatic(kName, options, in[1]);
    return inverse;
  }
};

// The form of quantize_dequantize_affine with a gradient that its kernel decides about.
struct WithGradient final : ComposedOp<WithGradient> {
  static constexpr std::string_view kName = QuantizeDequantizeAffine::kName;
  static constexpr ArgumentCount kArguments{3};
  AffineOptions options;
  bool is_learned = false;  // scale or offset

  WithGradient() = default;
  WithGradient(AffineOptions given, bool learned)
      : options(std::move(given)), is_learned(learned) {}
  std::vector<Tensor> compose(const Arguments& in) const override {
    const Tensor& x = in[0];
    AffineOptions by_division = options;
    by_division.kernel = AffineKernel::Divide;
    const QuantizeDequantizeAffine division(by_division);
    Results checked;
    division.infer(in, checked);
    if (!is_learned) {
      if (const std::optional<Inverse> inverse = find_inverse(x, in[1], in[2], options)) {
        const auto& [axis, scales, zero_points] = *inverse;
        return {axis < 0 ? fake_quantize_per_tensor_affine(x, scales, zero_points, options.qmin,
                                                           options.qmax)
                         : fake_quantize_per_channel_affine(x, scales, zero_points, axis,
                                                            options.qmin, options.qmax)};
      }
    }
    require_automatic(kName, options, in[1]);
    return {run(division, x, in[1], in[2])};
  }
};

std::shared_ptr<const Operation> QuantizeDequantizeAffine::for_gradient(
    std::uint64_t needed) const {
  if (options.kernel == AffineKernel::Divide) return nullptr;
  return std::make_shared<WithGradient>(options, (needed & 0b110U) != 0);
}

}  // namespace

Tensor quantize_affine(const Tensor& x, const Tensor& scale, const Tensor& offset,
                       const AffineOptions& options) {
  return run(QuantizeAffine{options}, x, scale, offset);
}

Tensor dequantize_affine(const Tensor& q, const Tensor& scale, const Tensor& offset,
                         const AffineOptions& options) {
  return run(DequantizeAffine{options.block_size}, q, scale, offset);
}

Tensor quantize_dequantize_affine(const Tensor& x, const Tensor& scale, const Tensor& offset,
                                  const AffineOptions& options) {
  return run(QuantizeDequantizeAffine{options}, x, scale, offset);
}

// The catalogue --------------------------------------------------------------------------------

namespace {

// One scale for each channel; one for each block where x is Float64.
template <typename Kind>
Sample make_sample(DType dtype) {
  Kind operation;
  const bool in_blocks = dtype == DType::Float64;
  if (in_blocks) operation.options.block_size = {1, 3, 2, 4};
  const Dims sizes = in_blocks ? Dims{2, 1, 2, 1} : Dims{3, 1, 1};
  const Tensor scale = Tensor::full(sizes, 0.25, dtype);
  const Tensor offset = Tensor::full(sizes, -3.0, dtype);
  return sample_call(std::move(operation), {sample_tensor({2, 3, 4, 4}, dtype), scale, offset});
}

template <typename Kind>
void add(Catalogue& catalogue) {
  catalogue.add(
      {.name = Kind::kName, .header = "quanta/ops/quantize_affine.h", .dtypes = dtypes::kFloating},
      make_sample<Kind>);
}

}  // namespace

void detail::add_quantize_affine(Catalogue& catalogue) {
  add<QuantizeAffine>(catalogue);
  add<DequantizeAffine>(catalogue);
  add<QuantizeDequantizeAffine>(catalogue);
}

}  // namespace quanta
