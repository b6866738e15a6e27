#pragma once

// Private: all steps of a recurrent layer on a CUDA device.

#include <cstdint>
#include <span>

#include "quanta/ops/cuda/gate_weight.h"
#include "quanta/ops/rnn/loop.h"

namespace quanta::detail {

/// The product of hidden states with a packed weight on CUDA devices: what HiddenProduct::on_cuda
/// gives.
class CudaProduct {
 public:
  virtual ~CudaProduct() = default;
  /// The weight [gates * units, depth] on the device, packed now if it is not yet.
  virtual cuda::GateWeight weight_on(Device device, std::int64_t gates) const = 0;
  virtual bool reduces_range() const noexcept = 0;
};

/// A layer's steps; dense arrays of the device.
struct CudaLayer {
  RecurrentKind kind;
  std::int64_t hidden_size;
  std::int64_t output_size;
  std::span<const RecurrentStep> steps;
  const CudaProduct* hidden;
  const CudaProduct* projection;  ///< null: none
  const float* input_gates;       ///< [rows of all steps, gates * hidden_size]
  const float* h_0;               ///< [sequences, output_size]
  float* cell;                    ///< [sequences, hidden_size], Lstm only: c_0, becomes c_n
  float* output;                  ///< [rows of all steps, output_size]
  float* h_n;                     ///< [sequences, output_size]
};
/// Asks for all steps and waits once, behind the last one. Throws ArgumentError when a hidden state
/// that a step starts from is not finite.
void run_cuda_layer(Device device, const CudaLayer& layer);

}  // namespace quanta::detail
