#pragma once

// Private: weights that float activations are multiplied with, on CUDA devices.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "quanta/ops/cuda/weight_product.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// A weight [N, K] of codes, as it is quantized.
struct FloatWeight {
  int bits = 16;  ///< 16 (Float16), 8 or 4
  std::int64_t out_features = 0;
  std::int64_t in_features = 0;
  std::int64_t group = 0;                  ///< of K with one scale: a power of two >= 16, or K
  std::vector<std::uint16_t> halves{};     ///< of 16 bits
  std::vector<std::int8_t> codes{};        ///< else; signed
  std::vector<float> scales{};             ///< [N, K / group]
  std::vector<std::int8_t> zero_points{};  ///< the same, or empty: 0
  Tensor bias{};                           ///< Float32 [N], contiguous, or undefined
};

/// The packed weight of a linear layer on each device that it is used on: made when an input first
/// comes from there. Safe from many threads.
class CudaFloatWeight {
 public:
  /// Dense rows [rows, K] and their results [rows, N], both on `device`, and Float32 or BFloat16.
  struct Rows {
    Device device;
    DType dtype = DType::Float32;
    std::int64_t rows = 0;
    const void* x = nullptr;
    void* y = nullptr;
  };
  void run(const std::function<FloatWeight()>& weight, bool relu, const Rows& rows);
  /// x [..., K] to out [..., N]. `weight` gives the same in all calls, and is asked once a device.
  void run(const std::function<FloatWeight()>& weight, bool relu, const Tensor& x,
           const Tensor& out);

 private:
  struct Packed {
    cuda::Buffer codes, scales, zero_points, bias;
    cuda::WeightProductParams params;  // all but those of a call
  };
  static Packed pack(Device device, const FloatWeight& weight);

  std::mutex mutex_;
  std::map<std::int8_t, Packed> devices_;
};

}  // namespace quanta::detail
