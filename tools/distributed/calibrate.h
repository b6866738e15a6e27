#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "distributed/ranks.h"

namespace quanta::cli {

struct CalibrateCommand {
  RanksOptions ranks;
  std::string model = "fashion_resnet";
  std::string weights;  ///< empty: those that come with Quanta
  std::string data;     ///< a folder with Fashion-MNIST
  std::string observer = "histogram";
  bool per_tensor = false;
  std::int64_t images = 1024;
  std::int64_t batch = 64;
  std::string save;
  bool packed = false;
};

void add_calibrate_command(CLI::App& app, CalibrateCommand& options);
/// Calibrates a float network, converts it and writes the int8 one. Returns the exit status.
int run_calibrate(const CalibrateCommand& options);

}  // namespace quanta::cli
