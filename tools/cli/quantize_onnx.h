#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx_inputs.h"

namespace quanta::cli {

struct QuantizeOptions {
  std::string path;
  std::string out;
  std::string calib;                   ///< "": none, which only dynamic and weight_only allow
  std::vector<std::string> constants;  ///< "sr=16000"
  std::vector<std::string> sizes;      ///< of pictures and random inputs
  PictureOptions pictures;
  bool dynamic = false;
  std::string weight_only;  ///< "int8" or "int4"
  std::string observer = "histogram";
  bool per_tensor = false;
  std::vector<std::string> exclude;  ///< regular expressions on layers' names
  std::string format = "qdq";
  std::string target = "any";
  std::int64_t batch = 8;
  std::int64_t samples = 512;
  int threads = 0;  ///< 0: all
};

/// The network in static int8, calibrated with `samples`: observer, target, per_tensor and exclude of
/// the options count. Shows its progress.
graph::Model quantize_static(const graph::Model& net, const QuantizeOptions& options,
                             const Samples& samples);

/// Quantizes an ONNX file and writes another; prints what became of the layers, the files' sizes and,
/// with calibration inputs, how near the results are to those in float. Returns the exit status.
int quantize_onnx(const QuantizeOptions& options);

}  // namespace quanta::cli
