#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx_inputs.h"

namespace quanta::cli {

struct CompareOptions {
  std::string float_path;
  std::string path;                    ///< the quantized one
  std::string inputs;                  ///< as --calib of quantize
  std::vector<std::string> constants;  ///< "sr=16000"
  std::vector<std::string> sizes;      ///< of pictures and random inputs
  PictureOptions pictures;
  std::string labels;              ///< a .npy file; "": no top-1
  std::vector<std::string> write;  ///< report.html, report.json, report.svg, report.txt
  std::int64_t batch = 8;
  std::int64_t samples = 32;
  int repeats = 5;
  int threads = 0;  ///< 0: all
};

/// Prints what quantization did to each layer of an ONNX network, from the float and the quantized
/// file, and writes reports. Returns the exit status.
int compare_onnx(const CompareOptions& options);

}  // namespace quanta::cli
