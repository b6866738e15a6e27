#pragma once

#include <cstdint>

#include "quanta/runtime/tensor.h"

/// Reductions: extrema, sums, means and deviations, of a whole tensor or along dimensions.
///
/// Per-tensor quantized tensors (QUInt8, QInt8, QInt32) keep their scale and zero point;
/// per-channel and sub-byte ones are refused with UnsupportedError. Strides may be any. Functions
/// throw ArgumentError for dimensions that a tensor does not have. Many threads may call them at
/// once while nobody writes to the arguments; those whose names end in _out write to the first
/// ones.
namespace quanta {

/// Values with their positions along a dimension (Int64).
struct ValuesIndices {
  Tensor values;
  Tensor indices;
};

struct ReduceOptions {
  bool keepdim = false;  ///< reduced dimensions stay, with size 1
};

/// The largest or smallest element as a 0-d tensor of the same dtype and parameters. Codes are
/// compared as integers; NaN wins. Float32, Float64, integers, Bool or quantized. Same as
/// torch.max and torch.min. Throws ArgumentError for a tensor without elements.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
/// The largest or smallest elements along `dim`, with the positions of the first of them.
ValuesIndices max(const Tensor& x, std::int64_t dim, const ReduceOptions& options = {});
ValuesIndices min(const Tensor& x, std::int64_t dim, const ReduceOptions& options = {});
/// The position of the largest element: of the flattened tensor, or along `dim`. Plain dtypes, as
/// in torch; a quantized tensor is refused (max(x, dim) gives its indices).
Tensor argmax(const Tensor& x);
Tensor argmax(const Tensor& x, std::int64_t dim, const ReduceOptions& options = {});
/// The same of the smallest element.
Tensor argmin(const Tensor& x);
Tensor argmin(const Tensor& x, std::int64_t dim, const ReduceOptions& options = {});

/// The largest or smallest element over `dims` (all when they are empty); NaN wins. What has no
/// elements gives the dtype's lowest or highest value, which is infinite for floats. Float32, Float64, integers or Bool. Same as torch.amax and torch.amin, which refuse to
/// reduce what has no elements.
Tensor amax(const Tensor& x, const Dims& dims = {}, const ReduceOptions& options = {});
Tensor amin(const Tensor& x, const Dims& dims = {}, const ReduceOptions& options = {});
/// The product over `dims`, 1 without elements: Float32 and Float64 keep their dtype, integers and
/// Bool give Int64, which wraps around. Same as torch.prod.
Tensor prod(const Tensor& x, const Dims& dims = {}, const ReduceOptions& options = {});

struct CumulativeOptions {
  bool exclusive = false;  ///< each element's result leaves the element itself out
  bool reverse = false;    ///< from the end of the dimension to its begin
};

/// Running sums and products along `dim`, accumulated in double (integers wrap around). Float32,
/// Float64 or integers, whose dtype stays (torch's integers become Int64). Same as torch.cumsum and
/// torch.cumprod, with ONNX's options.
Tensor cumsum(const Tensor& x, std::int64_t dim, const CumulativeOptions& options = {});
Tensor cumprod(const Tensor& x, std::int64_t dim, const CumulativeOptions& options = {});

/// The mean over `dims` (all without them, or when they are empty). Float32, Float64 or quantized.
///
/// Quantized as torch does it: over the last dimensions of a contiguous tensor
/// round_half_even(float32(sum of codes) / count); otherwise dequantize, mean, quantize.
/// Quantized tensors need at least one element in each mean. Same as torch.mean.
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, const Dims& dims, const ReduceOptions& options = {});

/// The divisor of std and var is the number of elements less `correction`. Where that is 0 or less,
/// the result is NaN or infinite, as in torch (of quantized tensors: the code that
/// quantize_per_tensor gives for it).
struct StdOptions {
  double correction = 1.0;
  bool keepdim = false;
};

/// The standard deviation, accumulated in double. Float32, Float64 or quantized (the result keeps
/// the parameters, so that a deviation beyond their range saturates). No `dims` means all of them.
/// Same as torch.std.
Tensor std(const Tensor& x);
Tensor std(const Tensor& x, const Dims& dims, const StdOptions& options = {});
/// The variance, the square of std, for Float32 and Float64 only. Same as torch.var.
Tensor var(const Tensor& x);
Tensor var(const Tensor& x, const Dims& dims, const StdOptions& options = {});

/// The sum: Float32 and Float64 keep their dtype, integers and Bool give Int64. Quantized tensors
/// are refused, as in torch. Same as torch.sum.
Tensor sum(const Tensor& x);
Tensor sum(const Tensor& x, const Dims& dims, const ReduceOptions& options = {});

// The same functions into tensors that exist, results first. `out` has the result's dtype, and its
// sizes unless it is empty, when it takes them; a quantized one takes over the parameters of `x`.
// Throws ArgumentError before anything is written.
void max_out(const Tensor& out, const Tensor& x);
void min_out(const Tensor& out, const Tensor& x);
void max_out(const Tensor& values, const Tensor& indices, const Tensor& x, std::int64_t dim,
             const ReduceOptions& options = {});
void min_out(const Tensor& values, const Tensor& indices, const Tensor& x, std::int64_t dim,
             const ReduceOptions& options = {});
void mean_out(const Tensor& out, const Tensor& x, const Dims& dims,
              const ReduceOptions& options = {});
void std_out(const Tensor& out, const Tensor& x, const Dims& dims, const StdOptions& options = {});

}  // namespace quanta
