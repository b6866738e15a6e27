#pragma once

#include <string>
#include <vector>

#include "onnx_inputs.h"

namespace quanta::cli {

struct RunOptions {
  std::string path;
  std::vector<std::string> inputs;     ///< "x=image.png"; what is not given: random
  std::vector<std::string> constants;  ///< "sr=16000"
  std::vector<std::string> sizes;      ///< of random inputs
  PictureOptions pictures;
  std::string output;  ///< where to write the results: .npz, .npy or .safetensors
  std::string golden;  ///< a folder with input_*.pb and output_*.pb
  double rtol = 1e-3;  ///< of golden: |got - want| <= atol + rtol |want|
  double atol = 1e-5;
  int repeats = 1;
  int threads = 0;       ///< 0: all
  bool literal = false;  ///< QuantizeLinear and DequantizeLinear in float arithmetic
  std::string plan = "on";
};

/// Runs an ONNX file and prints its results and times. Returns the exit status: 1 when the results
/// are not those of the golden folder.
int run_onnx(const RunOptions& options);

}  // namespace quanta::cli
