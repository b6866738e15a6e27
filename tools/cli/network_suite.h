#pragma once

#include <string>
#include <vector>

namespace quanta::cli {

struct NetworkSuiteOptions {
  std::vector<std::string> models;  ///< empty: all
  std::vector<int> batches{1, 8};
  int threads = 0;       ///< 0: all
  double seconds = 1.0;  ///< for each network and batch
  std::string json;      ///< where to write the figures
};

/// Times the networks of the side-by-side benchmarks with random weights, so that no file is
/// needed: float and quantized in turns, frozen where that can be. Prints a line for each network
/// and batch. Returns the exit status.
int run_network_suite(const NetworkSuiteOptions& options);

}  // namespace quanta::cli
