#pragma once

#include <string>

namespace quanta::cli {

struct ProfileOptions {
  std::string model = "resnet18";
  std::string weights;  ///< empty: random weights, inputs and calibration data
  std::string calib;
  std::string input;
  std::string dtype;   ///< empty: int8 where the network has it, else dynamic-int8
  std::string device;  ///< where it runs; "": on the CPU
  int batch = 1;
  int threads = 0;  ///< 0: all
  int repeats = 20;
  bool wide = false;  ///< all columns, however long the lines get
  std::string trace;  ///< where to write a Chrome trace
  std::string json;   ///< where to write the figures
};

/// Runs the float network, the quantized one and that as a frozen plan in turns and prints, for
/// every module that runs ops: time (the median), share of the whole, GOP/s and GB/s with their
/// shares of what the machine was measured to give, the kernel, its time in the plan and that of
/// the same module in float; then what time was spent outside of ops, and which modules are slower
/// than in float. Returns the exit status.
int run_profile(const ProfileOptions& options);

}  // namespace quanta::cli
