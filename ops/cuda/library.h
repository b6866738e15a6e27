#pragma once

// Private: products and convolutions of floats on a CUDA device. NVIDIA's libraries calculate them
// on a GPU: cuBLASLt (library_cublaslt.cpp) and cuDNN (library_cudnn.cpp), opened when the first
// call comes; a kernel of plain loops (library_loops.cu) does on the emulated device.
//
// Each number is a sum of products that is taken in float, in an order that nobody knows, and
// rounded to the dtype once: it differs from the exact sum by at most
// (depth + 2) * 2^-24 * (sum of |a * b|), and by the rounding to a dtype of 16 bits. In 16 bits
// cuBLASLt may round a product before it adds a bias (in PyTorch, too), so that such a result is
// rounded twice: seen on an H100 with cuBLAS 13.

#include <cstdint>
#include <string_view>

#include "quanta/ops/cpu/conv_shape.h"
#include "quanta/runtime/device.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

/// What factors of Float32 may be rounded to: TF32 has 10 bits behind the point, for which tensor
/// cores have products.
enum class FloatFactors : std::uint8_t { Full, TF32 };

/// How a batch of matrices lies in memory. Strides in elements.
struct MatrixLayout {
  /// From one row to the next; of a transposed matrix, from one column to the next. The elements
  /// in between are neighbours.
  std::int64_t stride = 0;
  /// From one matrix to the next; 0: one for all.
  std::int64_t batch_stride = 0;
  bool transposed = false;
  bool operator==(const MatrixLayout&) const = default;
};

/// out = alpha * lhs x rhs + beta * out + bias for each matrix of a batch: [rows, depth] x
/// [depth, columns]. No size is 0.
struct FloatProduct {
  DType dtype = DType::Float32;  ///< of all tensors: Float32, Float16 or BFloat16
  FloatFactors factors = FloatFactors::Full;
  std::int64_t batch = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t depth = 1;
  MatrixLayout lhs, rhs, out;  ///< out is not transposed
  float alpha = 1.0F;
  float beta = 0.0F;  ///< 0: out is not read
  bool has_bias = false;
  bool operator==(const FloatProduct&) const = default;
};

struct ProductOperands {
  const void* lhs = nullptr;
  const void* rhs = nullptr;
  const void* bias = nullptr;  // [columns]
  void* out = nullptr;
};

/// Gives the name of what calculates it. Throws BackendError: no library, or what it reports.
std::string_view multiply_floats(Device device, const FloatProduct& product,
                                 const ProductOperands& operands);

/// What is calculated from the two others of a convolution's tensors.
enum class ConvPass : std::uint8_t { Output, Input, Weight };

/// A convolution y = x * w or its gradients. A transposed convolution is the gradient of the input
/// of one from its output to its input. Tensors are dense: images channels-last [N, D, H, W, C],
/// weights [O, D, H, W, C / groups]. No size is 0.
struct FloatConvolution {
  ConvPass pass = ConvPass::Output;
  DType dtype = DType::Float32;  ///< of all tensors: Float32, Float16 or BFloat16
  FloatFactors factors = FloatFactors::Full;
  int spatial = 2;  ///< 2 or 3
  /// A number for each channel of the result is added before it is rounded. Not to weights.
  bool has_bias = false;
  cpu::ConvShape shape;  ///< not transposed
  bool operator==(const FloatConvolution&) const = default;
};

struct ConvOperands {
  void* input = nullptr;
  void* weight = nullptr;
  void* output = nullptr;
  void* bias = nullptr;
};

/// Gives the name of what calculates it. Throws BackendError: no library, or what it reports.
std::string_view convolve_floats(Device device, const FloatConvolution& convolution,
                                 const ConvOperands& operands);

/// Whether convolve_floats takes it with its bias: cuDNN has no such plan for each convolution of 16
/// bits, and none for Float32.
bool convolves_with_bias(Device device, const FloatConvolution& convolution,
                         const ConvOperands& operands);

/// The convolution from the output of a transposed one to its input.
cpu::ConvShape turned_around(const cpu::ConvShape& transposed);

// NVIDIA's libraries, on a GPU. In a build without CUDA they throw.
namespace libraries {
void multiply(Device device, const FloatProduct& product, const ProductOperands& operands);
void convolve(Device device, const FloatConvolution& convolution, const ConvOperands& operands);
bool has_plan(Device device, const FloatConvolution& convolution, const ConvOperands& operands);
}  // namespace libraries

}  // namespace quanta::cuda
