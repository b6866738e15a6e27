#pragma once

// Private: all steps of a recurrent layer on a CUDA device.

#include <cstdint>
#include <span>

#include "quanta/ops/cuda/gate_weight.h"
#include "quanta/ops/rnn/loop.h"

namespace quanta::detail {

/// The product of hidden states with a packed weight on CUDA devices, which HiddenProduct::on_cuda
/// gives: one of the two below.
class CudaProduct {
 public:
  virtual ~CudaProduct() = default;
};

/// States become codes, and the product is one with the gates.
class CudaCodeProduct : public CudaProduct {
 public:
  /// The weight [gates * units, depth] on the device, packed now if it is not yet.
  virtual cuda::GateWeight weight_on(Device device, std::int64_t gates) const = 0;
  virtual bool reduces_range() const noexcept = 0;
};

/// Of floats, by itself.
class CudaFloatProduct : public CudaProduct {
 public:
  /// h [rows, K] to out [rows, N], both dense; rows >= 1.
  virtual void multiply(Device device, const float* h, std::int64_t rows, float* out) const = 0;
};

/// With a dense weight [N, K] and a dense bias [N] or none on that device, by NVIDIA's library.
class CudaLibraryProduct final : public CudaFloatProduct {
 public:
  CudaLibraryProduct(const float* weight, const float* bias, std::int64_t n, std::int64_t k)
      : weight_(weight), bias_(bias), n_(n), k_(k) {}
  void multiply(Device device, const float* h, std::int64_t rows, float* out) const override;

 private:
  const float* weight_;
  const float* bias_;
  std::int64_t n_, k_;
};

/// A layer's steps; dense arrays of the device.
struct CudaLayer {
  RecurrentKind kind;
  std::int64_t hidden_size;
  std::int64_t output_size;
  std::span<const RecurrentStep> steps;
  const float* input_gates;  ///< [rows of all steps, gates * hidden_size]
  const float* h_0;          ///< [sequences, output_size]
  float* cell;               ///< [sequences, hidden_size], Lstm only: c_0, becomes c_n
  float* output;             ///< [rows of all steps, output_size]
  float* h_n;                ///< [sequences, output_size]
};
/// The products of a layer; projection null: none.
template <typename Product>
struct CudaProducts {
  const Product* hidden;
  const Product* projection;
};

/// Asks for all steps. A hidden state that is not finite makes the results of the steps that start
/// from it NaN.
void run_cuda_layer(Device device, const CudaLayer& layer,
                    const CudaProducts<CudaCodeProduct>& products);
/// Asks for all steps.
void run_cuda_layer(Device device, const CudaLayer& layer,
                    const CudaProducts<CudaFloatProduct>& products);

}  // namespace quanta::detail
