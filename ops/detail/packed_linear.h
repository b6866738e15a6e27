#pragma once

// Private: what the packed parameters of linear layers hold, which linear and recurrent layers
// share.

#include <cstdint>
#include <span>
#include <string_view>

#include "quanta/ops/cpu/gemm/linear_dynamic.h"
#include "quanta/ops/cpu/gemm/linear_half.h"
#include "quanta/ops/detail/cuda_float_weight.h"
#include "quanta/ops/detail/cuda_gate_weight.h"
#include "quanta/ops/detail/cuda_int8_weight.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/linear_dynamic.h"

namespace quanta::quantized {

struct LinearPackedParams::Impl : cpu::LinearWeight {
  using LinearWeight::LinearWeight;

  /// The weight on CUDA devices.
  mutable detail::CudaInt8Weight on_cuda{};
  /// The same as the hidden weight of a recurrent layer.
  mutable detail::CudaGateWeight gates_on_cuda{};
};

struct LinearPackedParamsFp16::Impl : cpu::HalfLinearWeight {
  using HalfLinearWeight::HalfLinearWeight;

  /// The weight on CUDA devices.
  mutable detail::CudaFloatWeight on_cuda{};
};

}  // namespace quanta::quantized

namespace quanta::detail {

/// What CUDA devices pack.
FloatWeight float_weight_of(const quantized::LinearPackedParamsFp16& packed);

}  // namespace quanta::detail

namespace quanta::cpu {

/// The bits of codes whose range is reduced or not.
inline CodeBits code_bits(quantized::ReduceRange reduce_range) {
  return reduce_range == quantized::ReduceRange::Yes ? CodeBits::Seven : CodeBits::Eight;
}

inline std::string_view linear_dynamic_rows(const float* x, std::int64_t rows,
                                            std::span<const LinearDynamicTarget> targets,
                                            quantized::ReduceRange reduce_range,
                                            const LinearTail& tail,
                                            const LinearRanges& ranges = {}) {
  return linear_dynamic_rows(x, rows, targets, code_bits(reduce_range), tail, ranges);
}

inline std::string_view linear_dynamic_rows(const float* x, std::int64_t rows,
                                            const LinearWeight& packed,
                                            quantized::ReduceRange reduce_range, Fusion fusion,
                                            float* out) {
  const LinearDynamicTarget target{&packed, out};
  const LinearTail tail{fusion == Fusion::ReLU ? GemmEnd::ReLU : GemmEnd::None, nullptr};
  return linear_dynamic_rows(x, rows, {&target, 1}, code_bits(reduce_range), tail);
}

inline std::string_view linear_dynamic_fp16_rows(const float* x, std::int64_t rows,
                                                 const HalfLinearWeight& packed, Fusion fusion,
                                                 float* out) {
  return linear_half_rows(x, rows, packed, fusion == Fusion::ReLU, out);
}

}  // namespace quanta::cpu
