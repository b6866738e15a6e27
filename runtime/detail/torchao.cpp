#include "quanta/runtime/detail/torchao.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quanta/runtime/check.h"

namespace quanta::detail {
namespace {

/// One number for each row: [N, 1] or [N]. Contiguous, as an expanded tensor can be far larger than
/// its storage.
bool is_column(const Tensor& tensor, std::int64_t rows) {
  if (!tensor.is_contiguous() || tensor.is_quantized()) return false;
  return tensor.sizes() == Dims{rows, 1} || tensor.sizes() == Dims{rows};
}

}  // namespace

QTensor restore_torchao_int8(const TorchaoInt8& parts, std::string_view where) {
  const auto require = [&](bool condition, std::string_view expected, const auto& given) {
    if (condition) return;
    throw FileError(fmt::format(
        "{}: torchao Int8Tensor: expected {}, got {} (dequantize other weights in Python)", where,
        expected, given));
  };
  const Tensor& codes = parts.qdata;
  require(
      codes.defined() && codes.dtype() == DType::Int8 && codes.dim() == 2 && codes.is_contiguous(),
      "contiguous qdata of Int8 [N, K]", codes.defined() ? to_string(codes.sizes()) : "none");
  const std::int64_t rows = codes.size(0);
  require(parts.block_size == Dims{1, codes.size(1)}, "a block_size of [1, K]",
          to_string(parts.block_size));
  require(parts.scale.defined() && is_floating_point(parts.scale.dtype()) &&
              is_column(parts.scale, rows),
          "a scale of floats for each row",
          parts.scale.defined() ? to_string(parts.scale.sizes()) : "none");
  if (parts.zero_point.defined()) {
    require(is_column(parts.zero_point, rows), "a zero point for each row",
            to_string(parts.zero_point.sizes()));
    const std::vector<float> zeros = parts.zero_point.to_float_vector();
    require(std::all_of(zeros.begin(), zeros.end(), [](float zero) { return zero == 0.0F; }),
            "zero points 0", "others");
  }
  const std::vector<float> values = parts.scale.to_float_vector();
  require(std::all_of(values.begin(), values.end(),
                      [](float scale) { return std::isfinite(scale) && scale > 0.0F; }),
          "scales that are finite and > 0", "others");
  std::vector<double> scales(values.begin(), values.end());
  std::vector<std::int64_t> zero_points(values.size(), 0);
  return QTensor::from_int_repr(
      codes, Quantizer::per_channel(std::move(scales), std::move(zero_points), 0));
}

}  // namespace quanta::detail
