#pragma once

// Private: linear layers on plain memory whose activation is quantized in the call, and what the
// packed parameters of the public ops hold. No allocation in steady state; safe from many threads.

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/gemm/gemm_int8.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/linear/cpu_int8.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// What turns integer sums of each output channel n into floats.
struct ChannelTerms {
  explicit ChannelTerms(const QuantizedWeight& weight);
  std::vector<float> scales;
  /// Sums of w - (zero point of w).
  std::vector<std::int32_t> sums;
  /// Empty when all are 0.
  std::vector<std::int32_t> zero_points;
};

struct GatePanels;

}  // namespace quanta::cpu

namespace quanta::quantized {

struct LinearPackedParams::Impl {
  explicit Impl(cpu::QuantizedWeight weight);
  cpu::LinearInt8 kernel;
  cpu::ChannelTerms terms;

  /// A copy for products of many rows (see gemv_int8.h), made when it is first asked for.
  const std::int8_t* panels() const;
  /// The same for products of a few rows; null for a large weight.
  const std::int8_t* small_panels() const;

  /// The weight [gate_count * hidden, hidden] for the steps of a recurrent layer (rnn_int8.h), made
  /// when it is first asked for.
  std::shared_ptr<const cpu::GatePanels> gate_panels(std::int64_t gate_count) const;

 private:
  mutable std::once_flag panels_once_;
  mutable Tensor panels_;
  mutable std::mutex gate_panels_mutex_;
  mutable std::shared_ptr<const cpu::GatePanels> gate_panels_;
};

struct LinearPackedParamsFp16::Impl {
  /// `weight` Float16 [N, K], contiguous.
  Impl(const Tensor& weight, Tensor packed_bias);
  Tensor weight() const;
  std::int64_t out_features, in_features;
  Tensor panels;  ///< Float16, see linear_dynamic_kernels.h
  Tensor bias;    ///< Float32 [N], contiguous, or undefined

  /// A Float32 copy of a small weight's panels, made when it is first asked for; null for a large
  /// one.
  const float* floats() const;

 private:
  mutable std::once_flag floats_once_;
  mutable Tensor floats_;
};

}  // namespace quanta::quantized

namespace quanta::cpu {

/// What follows on each float: a function, then a sum with the same element of [rows, N] floats.
struct LinearTail {
  GemmEnd end = GemmEnd::None;
  const float* addend = nullptr;  ///< null: nothing is added
};

/// x [rows, K] to outs [rows, N], one for each weight, all dense; rows >= 1. All of x gets one
/// scale and zero point, once for all weights. Throws ArgumentError for NaN and infinities in x.
/// Returns the last kernel's name.
struct LinearDynamicTarget {
  const quantized::LinearPackedParams::Impl* packed;
  float* out;
};
std::string_view linear_dynamic_rows(const float* x, std::int64_t rows,
                                     std::span<const LinearDynamicTarget> targets,
                                     quantized::ReduceRange reduce_range, const LinearTail& tail);
std::string_view linear_dynamic_rows(const float* x, std::int64_t rows,
                                     const quantized::LinearPackedParams::Impl& packed,
                                     quantized::ReduceRange reduce_range, Fusion fusion,
                                     float* out);

/// The same for a Float16 weight. The result does not depend on `rows`, threads or instruction set.
std::string_view linear_dynamic_fp16_rows(const float* x, std::int64_t rows,
                                          const quantized::LinearPackedParamsFp16::Impl& packed,
                                          Fusion fusion, float* out);

}  // namespace quanta::cpu
