#include "quanta/ops/block_quant.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "quanta/ops/block_quant/cpu_kernels.h"
#include "quanta/ops/detail/amax.h"
#include "quanta/ops/detail/element_format.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

constexpr std::string_view kOp = "dynamic_block_quant";

math::BlockFormat checked_format(const DynamicBlockOptions& options, const Tensor& global) {
  const std::optional<math::FloatFormat> element = detail::element_format(options.num_bits);
  QUANTA_SUPPORTED(element.has_value(),
                   "{}: num_bits: expected 8, (4, 3), (5, 2), (3, 2), (2, 3), (2, 1), (1, 2), "
                   "(0, 3) or (3, 0), got {}",
                   kOp, to_string(options.num_bits));
  math::BlockFormat format;
  format.element = *element;
  if (options.scale_bits == NumBits::floating(8, 0)) return format;
  const std::optional<math::FloatFormat> scale =
      options.scale_bits.is_float ? detail::element_format(options.scale_bits) : std::nullopt;
  QUANTA_SUPPORTED(scale.has_value(), "{}: scale_bits: expected (8, 0) or (4, 3), got {}", kOp,
                   to_string(options.scale_bits));
  format.scale = *scale;
  format.kind = global.defined() ? math::BlockScaleKind::TwoLevel : math::BlockScaleKind::Plain;
  if (global.defined()) format.global_amax = static_cast<float>(global.item());
  return format;
}

// The largest amax, or an undefined tensor.
Tensor global_of(const Tensor& amax) {
  if (!amax.defined()) return {};
  QUANTA_CHECK(amax.numel() > 0, "{}: amax: expected at least one element, got {}", kOp,
               amax.sizes());
  return max(detail::prepare_amax(kOp, amax.sizes(), amax));
}

BlockQuantized quantize(const Tensor& x, const Tensor& global, const DynamicBlockOptions& options) {
  detail::check_quantizable(kOp, x);
  QUANTA_CHECK(x.dim() >= 1, "{}: x: expected at least one axis, got a scalar", kOp);
  QUANTA_CHECK(options.block_size >= 1, "{}: block_size: expected at least 1, got {}", kOp,
               options.block_size);
  const math::BlockFormat format = checked_format(options, global);
  const Tensor rows = x.detach().to(DType::Float32).contiguous();
  const std::int64_t length = x.size(-1);
  const std::int64_t blocks =
      length / options.block_size + (length % options.block_size == 0 ? 0 : 1);
  Dims scale_sizes = x.sizes();
  scale_sizes[scale_sizes.size() - 1] = blocks;
  Tensor values = Tensor::empty(x.sizes());
  Tensor scales = Tensor::empty(scale_sizes);
  if (x.numel() == 0) return {values.to(x.dtype()), scales};
  const auto* src = static_cast<const float*>(rows.data_ptr());
  auto* dst = static_cast<float*>(values.data_ptr());
  auto* unscales = static_cast<float*>(scales.data_ptr());
  parallel_for(x.numel() / length, std::max<std::int64_t>(1, cpu::kElementGrain / length),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   cpu::dynamic_block_row(src + row * length, length, options.block_size, format,
                                          dst + row * length, unscales + row * blocks);
                 }
               });
  return {values.to(x.dtype()), scales};
}

}  // namespace

namespace detail {

std::optional<math::FloatFormat> element_format(const NumBits& bits) {
  if (!bits.is_float) {
    return bits.bits == 8 ? std::optional(math::kBlockInt8) : std::nullopt;
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
  if (replay::is_recording()) {
    const auto both = replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b) {
          BlockQuantized result = dynamic_block_quant_with_scales(a, b, options);
          return std::pair(std::move(result.values), std::move(result.scales));
        },
        x, amax);
    return {both.first, both.second};
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  return quantize(x, global_of(amax), options);
}

Tensor dynamic_block_quant(const Tensor& x, const Tensor& amax,
                           const DynamicBlockOptions& options) {
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const Tensor& a, const Tensor& b) { return dynamic_block_quant(a, b, options); },
        x, amax);
  }
  OpScope scope(kOp);
  scope.kernel("simd");
  const Tensor global = global_of(amax);
  BlockQuantized result = quantize(x, global, options);
  const GradientRule rule = global.defined() ? options.gradient : GradientRule::PassThrough;
  return detail::record_straight_through(kOp, x, std::move(result.values), x.detach(), global,
                                         rule);
}

}  // namespace quanta
