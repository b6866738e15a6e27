#pragma once

#include <optional>

#include "quanta/runtime/tensor.h"

namespace quanta {

// Float32 or per-tensor quantized (QUInt8, QInt8; max_pool also QInt32); quantized results keep
// the input's parameters. Input [N, C, spatial...] or [C, spatial...], any memory order; the result
// has the input's order. Each Dims has one number per spatial dimension, or one for all; an empty
// stride means the kernel size. Throws ArgumentError for a kernel or stride < 1, a
// padding > kernel / 2, an output size < 1, or a wrong number of dimensions.

struct MaxPoolOptions {
  Dims kernel_size{};
  Dims stride{};
  Dims padding{0};
  Dims dilation{1};
  bool ceil_mode = false;
};
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
Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& options);
Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& options);
Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& options);

/// `output_size`: one number per spatial dimension or one for all; -1 keeps the input's size.
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output_size);

}  // namespace quanta
