#pragma once

// Private: how one packed weight is multiplied with codes of one size, zero points and scales: the
// kernel and all that it needs. Convolutions and linear layers keep a cache of plans.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/gemm/gemm_codes.h"
#include "quanta/ops/cpu/gemm/int8_kernel.h"
#include "quanta/ops/cpu/gemm/quantized_weight.h"
#include "quanta/ops/cpu/gemm/requantize_rows.h"
#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/ops/cpu/onednn/plans.h"

namespace quanta::cpu {

struct Int8Plan {
  Int8Plan() = default;
  /// With what turns exact sums into codes, when codes are wanted.
  Int8Plan(const QuantizedWeight& weight, const CallQParams& qparams, SumOutput output);
  // `requantize` points into the plan.
  Int8Plan(const Int8Plan&) = delete;
  Int8Plan& operator=(const Int8Plan&) = delete;

  Int8Kernel kernel = Int8Kernel::Exact;
  std::string_view name = "quanta:exact";
  int threads = 1;
  std::vector<float> bias, multiplier;
  std::vector<float> added_bias;  ///< what oneDNN adds to sums; set by epilog()
  RequantizeParams requantize;
  std::vector<std::int32_t> compensation;  ///< what sums lack for the input's zero point; empty: 0
  PanelRequantize panels;                  ///< Codes, Gather and Implicit
  std::optional<onednn::Executable> executable;  ///< OneDnn
  bool gives_sums = false;                       ///< OneDnn: sums come out, not codes

  const std::int32_t* compensation_or_null() const {
    return compensation.empty() ? nullptr : compensation.data();
  }

  /// Sets the compensation for the input's zero point, if that is not 0.
  void compensate(const QuantizedWeight& weight, std::int32_t src_zero_point);
  /// Makes it a plan of gemm_codes.
  void use_codes(Int8Kernel which, const CodePanels& weight, int with_threads);

  /// What oneDNN is to do behind the sums: nothing where float32 would not be exact, or where adding
  /// a bias is not enough.
  Int8Epilog epilog(const QuantizedWeight& weight, const CallQParams& qparams, SumOutput output);
  /// Descriptors of the epilogue's constants.
  struct EpilogDescs {
    onednn::Md bias;  ///< what the primitive calls its bias
    onednn::Md row;   ///< a number for each channel
    onednn::Md one;   ///< one number
  };
  /// The arguments of a primitive with `weights` and this epilogue.
  std::vector<onednn::Executable::Argument> constants(const dnnl::memory& weights,
                                                      const Int8Epilog& epilog,
                                                      const Int8EpilogIndex& index,
                                                      const EpilogDescs& descs,
                                                      std::int32_t dst_zero_point) const;
  /// Makes it a plan of a primitive.
  void use_onednn(const dnnl::primitive& primitive, const dnnl::primitive_desc_base& descs,
                  std::vector<onednn::Executable::Argument> constants, const Int8Epilog& epilog,
                  int with_threads);
};

/// The calling thread's buffer for so many sums.
std::int32_t* sums_buffer(std::int64_t count);

}  // namespace quanta::cpu
