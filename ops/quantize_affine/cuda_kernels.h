#pragma once

// Private: affine quantizers whose scales are broadcast or belong to blocks, and their gradients, on
// a CUDA device. Sums are taken in the CPU's order.

#include <cstdint>

#include "quanta/ops/cuda/affine_places.h"
#include "quanta/ops/quantize_affine/affine_op.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

/// float, or double.
struct AffineCallParams {
  AffineOp op = AffineOp::Quantize;
  AffineStep step = AffineStep::Native;
  bool is_double = false;
  math::AffineLimits<double> limits;
  math::AffineSpike<double> spike;
  AffinePlaces places;
  const void* src = nullptr;
  const void* scale = nullptr;
  const void* offset = nullptr;
  void* dst = nullptr;  // y; the gradient of x
};
QUANTA_CUDA_ENTRY(apply_affine, AffineCallParams)
/// dst = math::affine_spike(dst, src ...).
QUANTA_CUDA_ENTRY(spike_affine, AffineCallParams)

struct AffineSumsParams {
  AffineCallParams call;
  const void* grad = nullptr;
  // Memory as rows, which come in parts: cpu::AffineRows, cpu::gradient_parts.
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::int64_t parts = 1;
  double* lanes = nullptr;     // [rows, 2, 16]: scale and offset; null: elements are added in order
  double* sums = nullptr;      // [parts, 2, parameters]
  void* scale_grad = nullptr;  // [parameters]
  void* offset_grad = nullptr;
};
/// With lanes only, and first: the sums of each row.
QUANTA_CUDA_ENTRY(sum_affine_rows, AffineSumsParams)
/// The sums of each part.
QUANTA_CUDA_ENTRY(sum_affine_parts, AffineSumsParams)
QUANTA_CUDA_ENTRY(join_affine_parts, AffineSumsParams)

}  // namespace quanta::cuda
