#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "quanta/runtime/tensor.h"

namespace quanta::conform {

/// How far a case in ONNX's layout may be off; the defaults are those of onnx's own runner.
struct OnnxTolerance {
  double rtol = 1e-3;
  double atol = 1e-7;
  std::optional<double> min_sqnr_db{};
  /// Whether elements are looked at one by one; otherwise only min_sqnr_db counts.
  bool elements = true;
};

/// Reads expect.json; the defaults for an empty path. Throws FormatError.
OnnxTolerance read_onnx_tolerance(const std::filesystem::path& path);

/// What is wrong with `got`; empty where nothing is. Sizes and dtypes have to be equal; floats are
/// within the tolerance, other elements are equal (or off by at most atol where that is 1 and more);
/// NaN equals NaN.
std::string onnx_mismatch(const Tensor& got, const Tensor& expected,
                          const OnnxTolerance& tolerance);

}  // namespace quanta::conform
