#pragma once

// Private: elementwise kernels on codes, which several families call on a CUDA device.

#include <array>
#include <cstdint>

#include "quanta/ops/cuda/operand_walk.h"
#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta {
class Tensor;
}

namespace quanta::cuda {

struct LookUpParams {
  StridedWalk walk;  // first: to, second: from
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
  std::uint8_t table[256] = {};
};
QUANTA_CUDA_ENTRY(look_up_codes, LookUpParams)

/// to = table[from] for each byte; tensors of one size, any strides.
void look_up(const Tensor& from, const Tensor& to, const std::array<std::uint8_t, 256>& table);

/// Numbers of one element, or one for each channel: element i of dense memory belongs to channel
/// i / inner % channels.
struct CodeParams {
  double scale = 1.0;
  std::int64_t zero_point = 0;
  const double* scales = nullptr;             // of the channels; null: per tensor
  const std::int64_t* zero_points = nullptr;  // null with float zero points
  const float* float_zero_points = nullptr;
  std::int64_t inner = 1;
  std::int64_t channels = 1;
};

struct QuantizeParams {
  std::int64_t count = 0;
  const float* floats = nullptr;  // the codes of these, or what the codes stand for
  float* results = nullptr;
  void* codes = nullptr;
  DType dtype{};
  std::int32_t low = 0;
  std::int32_t high = 0;
  CodeParams qparams;
};
QUANTA_CUDA_ENTRY(quantize_floats, QuantizeParams)
QUANTA_CUDA_ENTRY(dequantize_codes, QuantizeParams)

/// As quantize_per_tensor and quantize_per_channel: x and codes dense and of one memory order.
void quantize_tensor(const Tensor& x, const Tensor& codes);
void dequantize_tensor(const Tensor& codes, const Tensor& x);

/// The arithmetic of quantized::add, sub and mul on codes of one dtype.
struct CodeBinaryParams {
  OperandWalk<3> walk;  // the result, lhs, rhs
  int at_once = 1;      // codes of a thread; 4: of 8 bits, dense and on 4 bytes in all three
  const void* lhs = nullptr;
  const void* rhs = nullptr;
  void* out = nullptr;
  DType dtype{};
  bool is_product = false;
  // Of a sum: fma(code, scale, offset) for each operand.
  float lhs_scale = 1.0F;
  float lhs_offset = 0.0F;
  float rhs_scale = 1.0F;
  float rhs_offset = 0.0F;
  // Of a product.
  std::int32_t lhs_zero_point = 0;
  std::int32_t rhs_zero_point = 0;
  float inv_scale = 1.0F;  // of a product: with both scales in it
  std::int32_t zero_point = 0;
  std::int32_t low = 0;
  std::int32_t high = 255;
};
QUANTA_CUDA_ENTRY(combine_codes, CodeBinaryParams)

/// Fills in places: operands are broadcast to the result.
void set_places(CodeBinaryParams& params, const Tensor& lhs, const Tensor& rhs, const Tensor& out);

}  // namespace quanta::cuda
