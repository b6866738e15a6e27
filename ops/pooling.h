#pragma once

#include <optional>

#include "quanta/runtime/tensor.h"

/// Pooling over windows, and adaptive pooling to a given size.
///
/// `x` is Float32 or per-tensor quantized (QUInt8, QInt8; max_pool also QInt32), [N, C, spatial...]
/// or [C, spatial...] in any memory order, which the result has as well; quantized results keep the
/// input's parameters. Each Dims has one number per spatial dimension, or one for all; an empty
/// stride means the kernel size.
///
/// All throw ArgumentError for a kernel or stride < 1, a padding > kernel / 2, an output size < 1,
/// or a wrong number of dimensions, UnsupportedError for other dtypes. Many threads may call them
/// at once while nobody writes to the arguments.
namespace quanta {

struct MaxPoolOptions {
  Dims kernel_size{};
  Dims stride{};
  Dims padding{0};
  Dims dilation{1};
  bool ceil_mode = false;
};
// The largest element of each window; padding never counts.
Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& options);
Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& options);
Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& options);

struct AvgPoolOptions {
  Dims kernel_size{};
  Dims stride{};
  Dims padding{0};
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<std::int64_t> divisor_override{};  ///< not 0
};
// The mean of each window, of codes rounded to the nearest code.
Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& options);
Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& options);
Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& options);

// Windows of about equal size such that the result has `output_size`: one number per spatial
// dimension or one for all; -1 keeps the input's size.
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output_size);

}  // namespace quanta
