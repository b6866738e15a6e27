#pragma once

#include <string>
#include <vector>

namespace quanta::cli {

struct InspectOptions {
  std::string path;
  std::vector<std::string> sizes;      ///< of an ONNX file's inputs: "x=1,3,224,224"
  std::vector<std::string> constants;  ///< "sr=16000"
};

/// Prints name, dtype, sizes and quantization parameters of every tensor in the file, of a model of
/// save_model its modules before that (print_saved_model); of an ONNX file what is in it and how it would run (inspect_onnx). Returns the exit status; throws what the
/// readers throw.
int run_inspect(const InspectOptions& options);

/// Prints opset, producer, inputs, operators, parameters, what is quantized and how, what runs in
/// float although there are codes around it, and what Quanta cannot run (then 1 is returned). With
/// sizes: runs it on zeros and prints the sizes of every node's results.
int inspect_onnx(const InspectOptions& options);

struct InfoOptions {
  bool onnx = false;  ///< list the ONNX operators
};

/// Prints threads and instruction sets, or the ONNX operators that Quanta has.
int run_info(const InfoOptions& options);

}  // namespace quanta::cli
