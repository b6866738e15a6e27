#include "quanta/ops/block_quant.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "quanta/ops/block_quant/cpu_kernels.h"
#include "quanta/ops/block_quant/cuda_kernels.h"
#include "quanta/ops/detail/amax.h"
#include "quanta/ops/detail/element_format.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/meta.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace {

// Results: values, and what each block was multiplied with at last. Arguments: x, and amax that may
// be left out.
struct DynamicBlockQuant final : detail::AmaxOperation<DynamicBlockQuant> {
  static constexpr std::string_view kName = "dynamic_block_quant";
  static constexpr ArgumentCount kArguments{2};
  DynamicBlockOptions options;

  DynamicBlockQuant() = default;
  explicit DynamicBlockQuant(const DynamicBlockOptions& given) : options(given) {}
  GradientRule rule() const { return options.gradient; }

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    const Tensor& amax = in[1];
    if (amax.defined()) {
      QUANTA_CHECK(amax.numel() > 0, "{}: amax: expected at least one element, got {}", kName,
                   amax.sizes());
      detail::check_amax(kName, amax.sizes(), amax);
    }
    detail::check_quantizable(kName, x);
    QUANTA_CHECK(x.dim() >= 1, "{}: x: expected at least one axis, got a scalar", kName);
    QUANTA_CHECK(options.block_size >= 1, "{}: block_size: expected at least 1, got {}", kName,
                 options.block_size);
    format();
    Dims scale_sizes = x.sizes();
    scale_sizes[scale_sizes.size() - 1] = blocks(x.size(-1));
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(x.sizes(), x.dtype());
    out.add(scale_sizes, DType::Float32);
  }

  std::string_view calculate(const Arguments& in, std::span<const Tensor> out) const {
    math::BlockFormat format = this->format();
    if (in[1].defined() && format.kind == math::BlockScaleKind::Plain) {
      format.kind = math::BlockScaleKind::TwoLevel;
      format.global_amax = largest(in[1]);
    }
    const Tensor rows = in[0].to(DType::Float32);
    const bool is_direct = out[0].dtype() == DType::Float32;
    const Tensor values = is_direct ? out[0]
                                    : Tensor::empty(rows.sizes(), DType::Float32,
                                                    MemoryFormat::Contiguous, rows.device());
    rows.device().is_cpu() ? quantize_on_cpu(format, rows, values, out[1])
                           : quantize_on_cuda(format, rows, values, out[1]);
    if (!is_direct) copy_result(values.to(out[0].dtype()), out[0]);
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    calculate(in, out);
    return "quantize_blocks";
  }

  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    if (rule() == GradientRule::PassThrough || !context.has_input(1)) return {context.grad(), {}};
    const Tensor amax = Tensor::scalar(static_cast<double>(largest(context.input(1))));
    const Tensor& grad = context.grad();
    return {detail::gradient_within_amax(grad, context.input(0), amax.to(grad.device())), {}};
  }

  static std::span<const AttributeInfo> attribute_table();

 private:
  static float largest(const Tensor& amax) {
    return detail::largest_of(detail::amax_values(kName, amax));
  }
  void quantize_on_cpu(const math::BlockFormat& format, const Tensor& rows, const Tensor& values,
                       const Tensor& scales) const {
    const std::int64_t length = rows.size(-1);
    const std::int64_t block_count = blocks(length);
    const auto* src = static_cast<const float*>(rows.data_ptr());
    auto* dst = static_cast<float*>(values.data_ptr());
    auto* unscales = static_cast<float*>(scales.data_ptr());
    parallel_for(rows.numel() / length, std::max<std::int64_t>(1, cpu::kElementGrain / length),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     cpu::dynamic_block_row(src + row * length, length, block(length), format,
                                            dst + row * length, unscales + row * block_count);
                   }
                 });
  }
  void quantize_on_cuda(const math::BlockFormat& format, const Tensor& rows, const Tensor& values,
                        const Tensor& scales) const {
    const std::int64_t length = rows.size(-1);
    cuda::quantize_blocks(rows.device(),
                          {.format = format,
                           .count = rows.numel() / length * blocks(length),
                           .length = length,
                           .block = block(length),
                           .blocks = blocks(length),
                           .src = reinterpret_cast<const float*>(rows.device_ptr()),
                           .dst = reinterpret_cast<float*>(values.device_ptr()),
                           .unscales = reinterpret_cast<float*>(scales.device_ptr())});
  }
  // No longer than a row: kernels add it to positions.
  std::int64_t block(std::int64_t length) const { return std::min(options.block_size, length); }
  std::int64_t blocks(std::int64_t length) const {
    return length / options.block_size + (length % options.block_size == 0 ? 0 : 1);
  }
  // Without an amax.
  math::BlockFormat format() const {
    const std::optional<math::FloatFormat> element = detail::element_format(options.num_bits);
    QUANTA_SUPPORTED(element.has_value(),
                     "{}: num_bits: expected 2..8, (4, 3), (5, 2), (3, 2), (2, 3), (2, 1), (1, 2), "
                     "(0, 3) or (3, 0), got {}",
                     kName, to_string(options.num_bits));
    math::BlockFormat format;
    format.element = *element;
    if (!options.scale_bits) {
      format.kind = math::BlockScaleKind::Unrounded;
      return format;
    }
    const NumBits& bits = *options.scale_bits;
    if (bits == NumBits::floating(8, 0)) return format;
    const std::optional<math::FloatFormat> scale =
        bits.is_float ? detail::element_format(bits) : std::nullopt;
    QUANTA_SUPPORTED(scale.has_value(), "{}: scale_bits: expected (8, 0), (4, 3) or none, got {}",
                     kName, to_string(bits));
    format.scale = *scale;
    format.kind = math::BlockScaleKind::Plain;
    return format;
  }
};

// [8] or [exponent, mantissa], as ModelOpt writes them.
Attribute attribute_of_bits(const NumBits& bits) {
  if (!bits.is_float) return std::vector<std::int64_t>{bits.bits};
  return std::vector<std::int64_t>{bits.exponent, bits.mantissa};
}
NumBits bits_of_attribute(std::string_view name, const Attribute& value) {
  const auto* numbers = std::get_if<std::vector<std::int64_t>>(&value);
  if (numbers == nullptr || numbers->empty() || numbers->size() > 2) {
    detail::throw_attribute_type(name, "one or two integers", value);
  }
  return numbers->size() == 1 ? NumBits::integer(numbers->front())
                              : NumBits::floating(numbers->front(), numbers->back());
}

constexpr AttributeInfo kNumBitsAttribute{
    "num_bits",
    [](const Operation& operation) -> Attribute {
      return attribute_of_bits(static_cast<const DynamicBlockQuant&>(operation).options.num_bits);
    },
    [](Operation& operation, const Attribute& value) {
      static_cast<DynamicBlockQuant&>(operation).options.num_bits =
          bits_of_attribute("num_bits", value);
    }};
constexpr AttributeInfo kScaleBitsAttribute{
    "scale_bits",
    [](const Operation& operation) -> Attribute {
      const auto& bits = static_cast<const DynamicBlockQuant&>(operation).options.scale_bits;
      return bits ? attribute_of_bits(*bits) : Attribute();
    },
    [](Operation& operation, const Attribute& value) {
      auto& bits = static_cast<DynamicBlockQuant&>(operation).options.scale_bits;
      bits.reset();
      if (!std::holds_alternative<std::monostate>(value)) {
        bits = bits_of_attribute("scale_bits", value);
      }
    }};

std::span<const AttributeInfo> DynamicBlockQuant::attribute_table() {
  using Self = DynamicBlockQuant;
  static constexpr std::array kTable{
      kNumBitsAttribute, kScaleBitsAttribute,
      attribute<Self, &Self::options, &DynamicBlockOptions::block_size>("block_size"),
      attribute<Self, &Self::options, &DynamicBlockOptions::gradient>("gradient")};
  return kTable;
}

}  // namespace

namespace detail {

std::optional<math::FloatFormat> element_format(const NumBits& bits) {
  if (!bits.is_float) {
    if (bits.bits < 2 || bits.bits > 8) return std::nullopt;
    return math::block_integers(static_cast<int>(bits.bits));
  }
  for (const math::FloatFormat& format : {math::kE4M3FN, math::kE5M2, math::kE3M2, math::kE2M3,
                                          math::kE2M1, math::kE1M2, math::kE0M3, math::kE3M0}) {
    if (format.exponent_bits == bits.exponent && format.mantissa_bits == bits.mantissa) {
      return format;
    }
  }
  return std::nullopt;
}

}  // namespace detail

std::string to_string(const NumBits& bits) {
  return bits.is_float ? fmt::format("({}, {})", bits.exponent, bits.mantissa)
                       : fmt::format("{}", bits.bits);
}

BlockQuantized dynamic_block_quant_with_scales(const Tensor& x, const Tensor& amax,
                                               const DynamicBlockOptions& options) {
  const autograd::NoGradGuard no_grad;
  const Results results = run_all(DynamicBlockQuant{options}, x, amax);
  return {results[0], results[1]};
}

Tensor dynamic_block_quant(const Tensor& x, const Tensor& amax,
                           const DynamicBlockOptions& options) {
  return run(DynamicBlockQuant{options}, x, amax);
}

Tensor meta::dynamic_block_quant(const Tensor& x, const Tensor& amax,
                                 const DynamicBlockOptions& options) {
  return detail::infer_meta(DynamicBlockQuant{options}, 0, x, amax);
}

void detail::add_block_quant(Catalogue& catalogue) {
  // NVFP4 with an amax; MXINT8 without for one dtype.
  catalogue.add({.name = DynamicBlockQuant::kName,
                 .header = "quanta/ops/block_quant.h",
                 .dtypes = dtypes::kFloating},
                [](DType dtype) {
                  const Tensor x = sample_tensor({2, 3, 40}, dtype);
                  if (dtype == DType::Float64) {
                    return sample_call(DynamicBlockQuant{{.num_bits = NumBits::integer(8),
                                                          .scale_bits = NumBits::floating(8, 0),
                                                          .block_size = 32}},
                                       {x, Tensor()});
                  }
                  return sample_call(DynamicBlockQuant{{.gradient = GradientRule::Clip}},
                                     {x, Tensor::scalar(1.5)});
                });
}

}  // namespace quanta
