#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx_inputs.h"
#include "quanta/fusion/graph/quantize_jit.h"

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
  std::string encodings;             ///< AIMET's file, instead of calibration; "": none
  std::string qconfig;               ///< a file of save_qconfig_mapping; "": as the options say
  std::vector<std::string> methods;  ///< names of accuracy methods, in their order
  std::string format = "qdq";
  std::string target = "any";
  std::int64_t batch = 8;
  std::int64_t samples = 512;
  int threads = 0;  ///< 0: all
};

/// Which layers are quantized how: qconfig, or observer, target and per_tensor, with exclude.
QConfigMapping static_qconfigs(const QuantizeOptions& options);

/// Sums are observed behind their ReLU, layers behind their ReLU6, and means: the most exact form.
graph::PrepareJitOptions exact_preparation();

/// Calibration with `samples`, with a bar on the console that has this label.
graph::RunFunction feed(const Samples& samples, std::string label);

/// The network in static int8, calibrated with `samples`, after the options' methods: qconfig,
/// observer, target, per_tensor and exclude count as well. Shows its progress.
graph::Model quantize_static(const graph::Model& net, const QuantizeOptions& options,
                             const Samples& samples);

/// Quantizes an ONNX file and writes another; prints what became of the layers, the files' sizes and,
/// with calibration inputs, how near the results are to those in float. Returns the exit status.
int quantize_onnx(const QuantizeOptions& options);

}  // namespace quanta::cli
