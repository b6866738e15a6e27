#pragma once

#include <cstdint>
#include <optional>

#include "quanta/runtime/tensor.h"

/// Pooling over windows, and adaptive pooling to a given size.
///
/// `x` is Float32 or per-tensor quantized (QUInt8, QInt8; max_pool also QInt32, UInt8 and Int8),
/// [N, C, spatial...]
/// or [C, spatial...] in any memory order, which the result has as well; quantized results keep the
/// input's parameters. Each Dims has one number per spatial dimension, or one for all; an empty
/// stride means the kernel size. Padding stands before and behind the input; `padding_end`, where it
/// is not empty, is what stands behind it instead.
///
/// All throw ArgumentError for a kernel or stride < 1, a padding > kernel / 2 (with a padding_end:
/// one as long as the kernel reaches), an output size < 1,
/// or a wrong number of dimensions, UnsupportedError for other dtypes. Many threads may call them
/// at once while nobody writes to the arguments.
namespace quanta {

struct MaxPoolOptions {
  Dims kernel_size{};
  Dims stride{};
  Dims padding{0};
  Dims dilation{1};
  bool ceil_mode = false;
  Dims padding_end{};
};
// The largest element of each window; padding never counts.
Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& options);
Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& options);
Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& options);

/// How elements are counted.
enum class IndexOrder : std::uint8_t {
  RowMajor,     ///< as they lie in a contiguous tensor
  ColumnMajor,  ///< the same, but within each channel's plane the first spatial dimension is fastest
};
/// Where the largest elements of max_pool stand in `x`, the first of equals: Int64, contiguous; -1
/// where a window has no element. `spatial` is 1, 2 or 3. The Indices of ONNX's MaxPool.
Tensor max_pool_indices(const Tensor& x, const MaxPoolOptions& options, std::int64_t spatial,
                        IndexOrder order = IndexOrder::RowMajor);

struct AvgPoolOptions {
  Dims kernel_size{};
  Dims stride{};
  Dims padding{0};
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<std::int64_t> divisor_override{};  ///< not 0
  Dims dilation{1};
  Dims padding_end{};
};
// The mean of each window, of codes rounded to the nearest code.
Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& options);
Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& options);
Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& options);

struct LpPoolOptions {
  Dims kernel_size{};
  Dims stride{};
  Dims padding{0};
  Dims dilation{1};
  bool ceil_mode = false;
  Dims padding_end{};
  double p = 2.0;  ///< > 0
};
/// (sum of |x|^p)^(1/p) of each window, summed in double; Float32 or Float64, contiguous. `spatial`
/// is 1, 2 or 3. torch's lp_pool without its sign, and ONNX's LpPool.
Tensor lp_pool(const Tensor& x, const LpPoolOptions& options, std::int64_t spatial);

// Windows of about equal size such that the result has `output_size`: one number per spatial
// dimension or one for all; -1 keeps the input's size.
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output_size);

}  // namespace quanta
