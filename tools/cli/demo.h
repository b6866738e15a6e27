#pragma once

#include <string>

namespace quanta::cli {

struct DemoOptions {
  std::string model = "fashion_resnet";
  /// Empty: an int8 network. Else the numbers of a format of quanta::number_formats() are simulated
  /// in the float network.
  std::string format;
  std::string observer = "histogram";
  bool per_tensor = false;
  int images = 10000;
  int threads = 0;        ///< 0: all
  std::string device;     ///< where the int8 network runs as well; empty: the CPU alone
  std::string save_path;  ///< empty: nothing is written
  std::string report;     ///< report.html, .json, .svg or .txt; empty: none
  std::string data_folder = "/usr/share/datasets/fashion-mnist";
  std::string weights_folder;
};

/// The main job: float weights in, int8 network out, both measured; with a format, float beside the
/// simulated format. Returns the exit status: 1 when the outputs of the reloaded model, or those on
/// the device, differ.
int run_demo(const DemoOptions& options);

}  // namespace quanta::cli
