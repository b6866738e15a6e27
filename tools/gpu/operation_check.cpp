#include "operation_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/quanta.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace {

using nlohmann::json;

std::vector<double> numbers(const Tensor& x) {
  if (x.is_floating_point()) {
    const Tensor wide = x.to(DType::Float64).contiguous();
    return {wide.data<double>(), wide.data<double>() + wide.numel()};
  }
  std::vector<double> result;
  for (const std::int64_t value : x.to_int64_vector()) result.push_back(static_cast<double>(value));
  return result;
}

struct Difference {
  double largest = 0.0;
  double magnitude = 0.0;  ///< of the largest finite number
};

// A number and none differ infinitely.
Difference difference_of(const Tensor& got, const Tensor& expected) {
  const std::vector<double> left = numbers(got);
  const std::vector<double> right = numbers(expected);
  Difference result;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (std::isfinite(right[i])) result.magnitude = std::max(result.magnitude, std::abs(right[i]));
    if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
    const double difference = std::abs(left[i] - right[i]);
    result.largest = std::max(result.largest, std::isnan(difference) ? HUGE_VAL : difference);
  }
  return result;
}

// Of float sums in another order, and of functions of another library.
constexpr double kFloatTolerance = 1e-4;

// Elements of what it makes are whatever the memory held.
bool is_unwritten(std::string_view op) { return op.starts_with("empty_"); }

json check_operation(const OperationEntry& entry, DType dtype, Device device) {
  json row{{"op", entry.name}, {"dtype", std::string(to_string(dtype))}};
  try {
    const auto run_on = [&](Device where) {
      manual_seed(1);
      const Sample sample = entry.sample(dtype);
      std::vector<Tensor> inputs;
      for (const Tensor& x : sample.inputs) inputs.push_back(x.defined() ? x.to(where) : x);
      std::vector<Tensor> results;
      for (const Tensor& x : run_all(*sample.operation, inputs)) results.push_back(x.cpu());
      return results;
    };
    const std::vector<Tensor> expected = run_on(Device::cpu());
    const std::vector<Tensor> got = run_on(device);
    double largest = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i].dtype() != expected[i].dtype() || got[i].sizes() != expected[i].sizes()) {
        row["error"] = "another dtype or other sizes";
        return row;
      }
      if (is_unwritten(entry.name)) continue;
      const Difference difference = difference_of(got[i], expected[i]);
      largest = std::max(largest, difference.largest);
      const double allowed =
          got[i].is_floating_point() ? kFloatTolerance * difference.magnitude : 0.0;
      if (difference.largest > allowed) row["error"] = "differs from the CPU";
    }
    row["equal"] = largest == 0.0;
    if (largest != 0.0) row["largest_difference"] = largest;
  } catch (const std::exception& error) {
    row["error"] = error.what();
  }
  return row;
}

}  // namespace

json check_operations(Device device) {
  json rows = json::array();
  int equal = 0;
  int failed = 0;
  for (const OperationEntry& entry : operations().entries()) {
    for (const DType dtype : entry.dtypes) {
      if (!supports(entry.name, device, dtype)) continue;
      const json row = check_operation(entry, dtype, device);
      equal += row.value("equal", false) ? 1 : 0;
      failed += row.contains("error") ? 1 : 0;
      if (!row.value("equal", false)) fmt::print("{}\n", row.dump());
      rows.push_back(row);
    }
  }
  fmt::print("{} operations with their dtypes on {}: {} equal, {} failed\n", rows.size(),
             to_string(device), equal, failed);
  return rows;
}

}  // namespace quanta
