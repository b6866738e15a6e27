#include "onnx_compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "suite.h"

namespace quanta::conform {
namespace {

std::vector<double> values_of(const Tensor& x) {
  if (x.dtype() == DType::Float64) {
    const Tensor flat = x.contiguous();
    return {flat.data<double>(), flat.data<double>() + flat.numel()};
  }
  if (x.is_floating_point()) {
    const std::vector<float> values = x.to_float_vector();
    return {values.begin(), values.end()};
  }
  const std::vector<std::int64_t> values = x.to_int64_vector();
  return {values.begin(), values.end()};
}

bool is_close(double got, double want, double rtol, double atol) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= atol + rtol * std::abs(want);
}

}  // namespace

OnnxTolerance read_onnx_tolerance(const std::filesystem::path& path) {
  OnnxTolerance tolerance;
  if (path.empty()) return tolerance;
  std::ifstream file(path);
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(file);
    if (json.contains("rtol")) tolerance.rtol = json.at("rtol").get<double>();
    if (json.contains("atol")) tolerance.atol = json.at("atol").get<double>();
    if (json.contains("min_sqnr_db")) {
      tolerance.min_sqnr_db = json.at("min_sqnr_db").get<double>();
      tolerance.elements = json.contains("rtol") || json.contains("atol");
    }
  } catch (const nlohmann::json::exception& error) {
    throw FormatError(fmt::format("{}: {}", path.string(), error.what()));
  }
  return tolerance;
}

std::string onnx_mismatch(const Tensor& got, const Tensor& expected,
                          const OnnxTolerance& tolerance) {
  if (!got.defined()) return "expected a tensor, got none";
  if (got.dtype() != expected.dtype()) {
    return fmt::format("expected {}, got {}", to_string(expected.dtype()), to_string(got.dtype()));
  }
  if (got.sizes() != expected.sizes()) {
    return fmt::format("expected sizes [{}], got [{}]", fmt::join(expected.sizes(), ", "),
                       fmt::join(got.sizes(), ", "));
  }
  const std::vector<double> have = values_of(got);
  const std::vector<double> want = values_of(expected);
  double signal = 0.0;
  double noise = 0.0;
  std::size_t wrong = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want[i])) {
      signal += want[i] * want[i];
      noise += (have[i] - want[i]) * (have[i] - want[i]);
    }
    const bool exact = !expected.is_floating_point();
    const bool close =
        exact ? is_close(have[i], want[i], 0.0, tolerance.atol >= 1.0 ? tolerance.atol : 0.0)
              : is_close(have[i], want[i], tolerance.rtol, tolerance.atol);
    if (!close && wrong++ == 0) first = i;
  }
  const double sqnr = noise == 0.0 ? 1000.0 : 10.0 * std::log10(signal / noise);
  if (tolerance.elements && wrong > 0) {
    return fmt::format("{} of {} elements are off ({:.1f} dB); first at {}: expected {}, got {}",
                       wrong, want.size(), sqnr, first, want[first], have[first]);
  }
  if (tolerance.min_sqnr_db && !(sqnr >= *tolerance.min_sqnr_db)) {
    return fmt::format("expected {:.1f} dB, got {:.1f} dB", *tolerance.min_sqnr_db, sqnr);
  }
  return "";
}

}  // namespace quanta::conform
