#pragma once

// Private: linear layers on plain memory whose activation is quantized in the call. No allocation
// in steady state; safe from many threads.

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/gemm/gate_panels.h"
#include "quanta/ops/cpu/gemm/gemm_int8.h"
#include "quanta/ops/cpu/gemm/linear_int8.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// A weight [N, K] in every form that products with it ask for. Each is made when it is first asked
/// for.
struct LinearWeight {
  explicit LinearWeight(QuantizedWeight weight);
  LinearInt8 kernel;
  ChannelTerms terms;

  /// The weight in panels for products of a few rows; null for a large weight.
  const CodePanels* small_panels() const;
  /// The weight [gate_count * hidden, hidden] for the steps of a recurrent layer.
  std::shared_ptr<const GatePanels> gate_panels(std::int64_t gate_count) const;

 private:
  mutable std::mutex gate_panels_mutex_;
  mutable std::shared_ptr<const GatePanels> gate_panels_;
};

/// What follows on each float: a function, then a sum with the same element of [rows, N] floats.
struct LinearTail {
  GemmEnd end = GemmEnd::None;
  const float* addend = nullptr;  ///< null: nothing is added
};

/// What is known of the numbers that go in, and wanted of those that come out.
struct LinearRanges {
  const FloatRange* of_x = nullptr;  ///< null: not known
  FloatRange* of_out = nullptr;      ///< of the last weight's floats; null: not wanted
};

/// x [rows, K] to outs [rows, N], one for each weight, all dense; rows >= 1. All of x gets one
/// scale and zero point, once for all weights, within `bits`. Throws ArgumentError for NaN and
/// infinities in x. Returns the last kernel's name.
struct LinearDynamicTarget {
  const LinearWeight* packed;
  float* out;
};
std::string_view linear_dynamic_rows(const float* x, std::int64_t rows,
                                     std::span<const LinearDynamicTarget> targets, CodeBits bits,
                                     const LinearTail& tail, const LinearRanges& ranges = {});

}  // namespace quanta::cpu
