#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace quanta::cli {

struct ExportCommand {
  std::string model = "resnet18";
  /// "float", "int8", "dynamic-int8", "qat", or a format of quanta::number_formats().
  std::string mode = "float";
  std::string out;
  std::string weights;  ///< "": random ones
  std::string calib;    ///< "": random inputs
  std::int64_t batch = 1;
  bool dynamic_batch = false;
  std::int64_t opset = 0;  ///< 0: the lowest that will do
  std::string target = "any";
  int threads = 0;  ///< 0: all
};

void add_export_command(CLI::App& app, ExportCommand& options,
                        const std::vector<std::string>& networks);

/// Writes a built-in network as an ONNX file and compares what the file says with what the network
/// gives. Returns the exit status.
int export_network(const ExportCommand& options);

}  // namespace quanta::cli
