#include "reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "quanta/runtime/error.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::api_fuzz {
namespace {

using Unary = double (*)(double);
using Binary = double (*)(double, double);

double relu(double x) { return x > 0 ? x : 0.0; }
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

const std::map<std::string_view, Unary>& unary() {
  static const std::map<std::string_view, Unary> kFunctions{
      {"abs", [](double x) { return std::abs(x); }},
      {"asinh", [](double x) { return std::asinh(x); }},
      {"atan", [](double x) { return std::atan(x); }},
      {"ceil", [](double x) { return std::ceil(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"cosh", [](double x) { return std::cosh(x); }},
      {"erf", [](double x) { return std::erf(x); }},
      {"exp", [](double x) { return std::exp(x); }},
      {"floor", [](double x) { return std::floor(x); }},
      {"hardsigmoid", [](double x) { return std::clamp(x + 3, 0.0, 6.0) / 6; }},
      {"hardswish", [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }},
      {"log", [](double x) { return std::log(x); }},
      {"logsigmoid", [](double x) { return -std::log1p(std::exp(-x)); }},
      {"mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
      {"neg", [](double x) { return -x; }},
      {"relu", relu},
      {"relu6", [](double x) { return std::clamp(x, 0.0, 6.0); }},
      {"sigmoid", sigmoid},
      {"sign", [](double x) { return static_cast<double>((x > 0) - (x < 0)); }},
      {"silu", [](double x) { return x * sigmoid(x); }},
      {"sin", [](double x) { return std::sin(x); }},
      {"sinh", [](double x) { return std::sinh(x); }},
      {"softsign", [](double x) { return x / (1 + std::abs(x)); }},
      {"sqrt", [](double x) { return std::sqrt(x); }},
      {"tanh", [](double x) { return std::tanh(x); }},
  };
  return kFunctions;
}

const std::map<std::string_view, Binary>& binary() {
  static const std::map<std::string_view, Binary> kFunctions{
      {"add", [](double x, double y) { return x + y; }},
      {"add_relu", [](double x, double y) { return relu(x + y); }},
      {"div", [](double x, double y) { return x / y; }},
      {"maximum", [](double x, double y) { return std::max(x, y); }},
      {"minimum", [](double x, double y) { return std::min(x, y); }},
      {"mul", [](double x, double y) { return x * y; }},
      {"sub", [](double x, double y) { return x - y; }},
  };
  return kFunctions;
}

std::vector<double> numbers_of(const Tensor& x) {
  const std::vector<float> values = x.to_float_vector();
  return {values.begin(), values.end()};
}

bool is_float32(const Tensor& x) { return x.defined() && x.dtype() == DType::Float32; }

// The sizes that two broadcast to; they do, since there is a result.
Dims broadcast(const Dims& a, const Dims& b) {
  Dims sizes = a.size() > b.size() ? a : b;
  const Dims& fewer = a.size() > b.size() ? b : a;
  const std::size_t skip = sizes.size() - fewer.size();
  for (std::size_t d = 0; d < fewer.size(); ++d) {
    if (sizes[skip + d] == 1) sizes[skip + d] = fewer[d];
  }
  return sizes;
}

Tensor from_doubles(const std::vector<double>& values, const Dims& sizes) {
  std::vector<float> floats;
  floats.reserve(values.size());
  for (const double value : values) floats.push_back(static_cast<float>(value));
  return Tensor::from_values(floats, sizes);
}

Tensor dequantized(const Tensor& x) {
  const std::vector<std::int64_t> codes = x.to_int64_vector();
  const Quantizer& quantizer = x.impl()->quantizer;
  std::vector<double> values;
  for (const std::int64_t code : codes) {
    values.push_back(math::dequantize(static_cast<std::int32_t>(code),
                                      static_cast<float>(quantizer.scale),
                                      static_cast<std::int32_t>(quantizer.zero_point)));
  }
  return from_doubles(values, x.sizes());
}

}  // namespace

std::optional<Tensor> reference_of(const Call& call) {
  if (!call.plain_settings || call.inputs.empty()) return std::nullopt;
  const std::string_view name = call.entry->name;
  const Tensor& x = call.inputs[0];
  if (name == "dequantize" && x.is_quantized() && x.dtype() != DType::QInt32 &&
      x.impl()->quantizer.scheme == QScheme::PerTensorAffine) {
    return dequantized(x);
  }
  if (!is_float32(x)) return std::nullopt;
  if (const auto found = unary().find(name); found != unary().end() && call.inputs.size() == 1) {
    std::vector<double> values = numbers_of(x);
    std::ranges::transform(values, values.begin(), found->second);
    return from_doubles(values, x.sizes());
  }
  if (const auto found = binary().find(name);
      found != binary().end() && call.inputs.size() == 2 && is_float32(call.inputs[1])) {
    const Dims sizes = broadcast(x.sizes(), call.inputs[1].sizes());
    std::vector<double> values = numbers_of(x.expand(sizes));
    const std::vector<double> others = numbers_of(call.inputs[1].expand(sizes));
    std::ranges::transform(values, others, values.begin(), found->second);
    return from_doubles(values, sizes);
  }
  return std::nullopt;
}

}  // namespace quanta::api_fuzz
