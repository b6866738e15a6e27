#pragma once

#include <string>
#include <vector>

namespace quanta::cli {

struct BenchOptions {
  std::string onnx;                    ///< an ONNX file instead of `model`
  std::vector<std::string> constants;  ///< of its inputs: "sr=16000"
  std::vector<std::string> sizes;      ///< of its inputs: "x=1,3,224,224"
  std::string model = "resnet18";
  std::string weights;
  std::string calib;
  std::string input;
  std::string dtype = "int8";
  std::string device;  ///< where to run it; "": on the CPU
  int batch = 1;
  int streams = 0;  ///< requests side by side; 0: one after the other
  int threads = 0;  ///< 0: all, or 1 for each of `streams`
  double seconds = 2.0;
  std::string json;     ///< where to write the figures
  std::string output;   ///< where to write the network's outputs for all inputs
  std::string save;     ///< where to write the quantized model
  bool packed = false;  ///< with `save`: with packed weights
  bool eager = false;   ///< run the modules instead of the frozen plan
  bool worker = false;
  bool first = false;  ///< only the first result, see first_result.h
  bool map = false;    ///< with `first`: FileAccess::Map
};

/// Times a network on inputs from a file, and prints latency, GOP/s, memory, and SQNR and top-1
/// agreement with the float outputs when the file holds them. As a worker it speaks the line
/// protocol of the side-by-side harness on stdin and stdout instead. With `streams` it is asked by so
/// many threads at once, and prints requests per second as well. Returns the exit status.
int run_bench(const BenchOptions& options);

}  // namespace quanta::cli
