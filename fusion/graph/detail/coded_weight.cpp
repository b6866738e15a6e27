#include "quanta/fusion/graph/detail/coded_weight.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "quanta/runtime/check.h"

namespace quanta::graph::detail {

CodedWeight coded_of(const QTensor& tensor) {
  const DType dtype = tensor.dtype();
  if (dtype != DType::QInt8 && dtype != DType::QUInt8 && dtype != DType::QInt32) {
    throw UnsupportedError(fmt::format("to_onnx: a constant of {}", dtype));
  }
  CodedWeight coded{.codes = tensor.int_repr_view().contiguous(), .scales = {}};
  const DType stored = coded.codes.dtype();
  if (!tensor.is_per_channel()) {
    coded.scales = Tensor::scalar(tensor.q_scale(), DType::Float32);
    coded.zero_points = Tensor::scalar(static_cast<double>(tensor.q_zero_point()), stored);
    return coded;
  }
  const Quantizer& quantizer = tensor.quantizer();
  if (quantizer.scheme == QScheme::PerChannelAffineFloatQParams) {
    throw UnsupportedError("to_onnx: a constant with zero points that are no integers");
  }
  coded.scales = tensor.q_per_channel_scales().to(DType::Float32);
  coded.zero_points = tensor.q_per_channel_zero_points().to(stored);
  coded.axis = quantizer.axis;
  return coded;
}

CodedWeight transposed(const CodedWeight& matrix) {
  CodedWeight result = matrix;
  result.codes = matrix.codes.t().contiguous();
  if (matrix.axis >= 0) result.axis = 1 - matrix.axis;
  if (matrix.block_size > 0) {
    result.scales = matrix.scales.t().contiguous();
    if (matrix.zero_points.defined()) result.zero_points = matrix.zero_points.t().contiguous();
  }
  return result;
}

CodedWeight as_unsigned(const CodedWeight& coded) {
  const auto grown = [](const Tensor& x) {
    std::vector<std::int64_t> codes = x.to_int64_vector();
    for (std::int64_t& code : codes) code += 128;
    return Tensor::from_int64(codes).to(DType::UInt8).reshape(x.sizes());
  };
  CodedWeight result = coded;
  result.codes = grown(coded.codes);
  result.zero_points = grown(coded.zero_points);
  return result;
}

CodedWeight coded_bias(const Tensor& bias, double x_scale, const QTensor& weight) {
  const auto x_unit = static_cast<float>(x_scale);
  std::vector<float> units;
  if (weight.is_per_channel()) {
    for (const double scale : weight.quantizer().channel->scales) {
      units.push_back(x_unit * static_cast<float>(scale));
    }
  } else {
    units.push_back(x_unit * static_cast<float>(weight.q_scale()));
  }
  CodedWeight coded{.codes = bias, .scales = {}, .type = OnnxType::Int32};
  if (units.size() > 1) {
    coded.axis = 0;
    coded.scales = Tensor::from_values(units, {static_cast<std::int64_t>(units.size())});
  } else {
    coded.scales = Tensor::scalar(static_cast<double>(units[0]), DType::Float32);
  }
  if (bias.dtype() == DType::Int32) return coded;
  const std::vector<float> values = bias.to_float_vector();
  std::vector<std::int64_t> codes;
  for (std::size_t i = 0; i < values.size(); ++i) {
    QUANTA_CHECK(!std::isnan(values[i]), "to_onnx: bias: expected numbers, got NaN at {}", i);
    constexpr double kLow = std::numeric_limits<std::int32_t>::min();
    constexpr double kHigh = std::numeric_limits<std::int32_t>::max();
    const double unit = units[units.size() > 1 ? i : 0];
    const double code = std::nearbyint(static_cast<double>(values[i]) / unit);
    // 0 of units that are 0.
    codes.push_back(std::isnan(code) ? 0
                                     : static_cast<std::int64_t>(std::clamp(code, kLow, kHigh)));
  }
  coded.codes = Tensor::from_int64(codes).to(DType::Int32);
  return coded;
}

}  // namespace quanta::graph::detail
