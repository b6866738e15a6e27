#pragma once

// Private: float attention on a CUDA device. Floats of 16 bits are widened when they are read, and the
// results rounded once. The floats are the CPU's to the last bit (cpu_kernels.h
// says how they are made): products are chains of fused multiply-adds, exp is math::exp_normal, and
// nothing is rescaled, so that the products are calculated twice where keys fill more than a tile:
// for the largest, and for the weights.

#include <cstdint>

#include "quanta/ops/attention/cpu_attention.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

/// All of one dtype: Float32, Float16 or BFloat16.
struct AttentionOperands {
  DType dtype{};
  const void* query = nullptr;
  const void* key = nullptr;
  const void* value = nullptr;
  const void* mask = nullptr;  // null: none
  void* out = nullptr;
};

struct AttentionParams {
  cpu::AttentionShape shape{};
  AttentionOperands operands;
  std::int64_t block = 0;  // queries that a block of threads takes: 16, 32 or 64
  /// Queries beside each other whose keys end where those of the last one do, if causal; a multiple
  /// of `block`. Values of keys behind that are not looked at, be they infinite or NaN.
  std::int64_t span = 0;
};
QUANTA_CUDA_ENTRY(attend_queries, AttentionParams)

/// The same as cpu::attention for memory of the device.
void attention(Device device, const cpu::AttentionShape& shape, const AttentionOperands& operands);

struct AdditiveMaskParams {
  std::int64_t count = 0;
  const bool* mask = nullptr;
  DType dtype{};  // Float32, Float16 or BFloat16
  void* out = nullptr;
  bool left_out = false;  // the value that becomes minus infinity; the other becomes 0
};
QUANTA_CUDA_ENTRY(make_additive_mask, AdditiveMaskParams)

}  // namespace quanta::cuda
