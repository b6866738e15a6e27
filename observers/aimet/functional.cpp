#include "quanta/observers/aimet/functional.h"

#include "quanta/observers/aimet/grid.h"
#include "quanta/ops/quantize_affine.h"
#include "quanta/runtime/check.h"

namespace quanta::aimet::functional {
namespace {

AffineOptions options_from(std::string_view op, const Codes& codes) {
  const bool by_ends = codes.qmin.has_value() || codes.qmax.has_value();
  const int forms = (codes.bitwidth.has_value() ? 1 : 0) + (codes.num_steps.has_value() ? 1 : 0) +
                    (by_ends ? 1 : 0);
  QUANTA_CHECK(forms == 1,
               "{}: bitwidth: expected one of bitwidth, num_steps, or qmin and qmax, got {}", op,
               forms == 0 ? "none" : "several");
  AffineOptions options;
  if (by_ends) {
    // One code alone is allowed, which no grid is.
    QUANTA_CHECK(codes.qmin.has_value() && codes.qmax.has_value(),
                 "{}: {}: expected qmin and qmax, got one end", op,
                 codes.qmin.has_value() ? "qmax" : "qmin");
    QUANTA_CHECK(!codes.is_signed.has_value(),
                 "{}: is_signed: expected none beside qmin and qmax, got {}", op, *codes.is_signed);
    options.qmin = *codes.qmin;
    options.qmax = *codes.qmax;
  } else {
    const bool is_signed = codes.is_signed.value_or(false);
    const Grid grid = codes.bitwidth.has_value()
                          ? Grid::from_bitwidth(*codes.bitwidth, is_signed)
                          : Grid::from_num_steps(*codes.num_steps, is_signed);
    options.qmin = grid.qmin();
    options.qmax = grid.qmax();
  }
  options.block_size = codes.block_size;
  options.zero_point_shift = codes.zero_point_shift;
  return options;
}

Codes codes_of(std::int64_t bitwidth, bool is_signed, const Dims& block_size) {
  return {.bitwidth = bitwidth, .is_signed = is_signed, .block_size = block_size};
}

}  // namespace

Tensor quantize(const Tensor& x, const Tensor& scale, const Tensor& offset, const Codes& codes) {
  QUANTA_CHECK(codes.zero_point_shift == 0.0,
               "quantize: zero_point_shift: expected 0 (quantize_dequantize takes others), got {}",
               codes.zero_point_shift);
  return quantize_affine(x, scale, offset, options_from("quantize", codes));
}

Tensor quantize(const Tensor& x, const Tensor& scale, const Tensor& offset, std::int64_t bitwidth,
                bool is_signed, const Dims& block_size) {
  return quantize(x, scale, offset, codes_of(bitwidth, is_signed, block_size));
}

Tensor quantize_dequantize(const Tensor& x, const Tensor& scale, const Tensor& offset,
                           const Codes& codes) {
  return quantize_dequantize_affine(x, scale, offset, options_from("quantize_dequantize", codes));
}

Tensor quantize_dequantize(const Tensor& x, const Tensor& scale, const Tensor& offset,
                           std::int64_t bitwidth, bool is_signed, const Dims& block_size) {
  return quantize_dequantize(x, scale, offset, codes_of(bitwidth, is_signed, block_size));
}

Tensor dequantize(const Tensor& q, const Tensor& scale, const Tensor& offset,
                  const Dims& block_size) {
  AffineOptions options;
  options.block_size = block_size;
  return dequantize_affine(q, scale, offset, options);
}

}  // namespace quanta::aimet::functional
