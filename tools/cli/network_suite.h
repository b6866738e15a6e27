#pragma once

#include <string>
#include <tuple>
#include <vector>

namespace quanta::cli {

struct NetworkSuiteOptions {
  std::vector<std::string> models;  ///< empty: all
  /// ONNX files beside them: a name, the path, and sizes as "x=1,3,640,640".
  std::vector<std::tuple<std::string, std::string, std::string>> onnx;
  /// Where the networks of `models` run, quantized, and in float where float operations have kernels
  /// there; "": on the CPU.
  std::string device;
  std::vector<int> batches{1, 8};
  int threads = 0;       ///< 0: all
  double seconds = 1.0;  ///< for each network and batch
  std::string json;      ///< where to write the figures
};

/// Times the networks of the side-by-side benchmarks with random weights, so that no file is
/// needed, and networks of ONNX files: float and quantized in turns, frozen where that can be. Prints a line for each network
/// and batch. Returns the exit status.
int run_network_suite(const NetworkSuiteOptions& options);

}  // namespace quanta::cli
