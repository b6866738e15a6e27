#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quantize_onnx.h"

namespace quanta::cli {

struct SensitivityCommand {
  QuantizeOptions quantize;  ///< path, calib and what says how layers are quantized
  std::int64_t compared = 16;
  std::string resume;
  std::string out;
  // What has to be reached; none: sensitivities alone.
  std::optional<double> min_sqnr;  ///< dB
  std::optional<double> max_ms;
  std::optional<double> max_mb;
  bool int4 = false;
};

/// Prints how much each layer of an ONNX file costs in int8, as the SQNR of the results, and with a
/// budget chooses a precision for each. Returns the exit status.
int run_sensitivity(const SensitivityCommand& options);

}  // namespace quanta::cli
