#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/ops/pooling.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

// Pooling over Float32 or per-tensor quantized tensors, as in ops/pooling.h: quantized results keep
// the input's parameters, so these stay in place in a converted network.

using MaxPool1dOptions = MaxPoolOptions;
using MaxPool2dOptions = MaxPoolOptions;
using MaxPool3dOptions = MaxPoolOptions;
using AvgPool1dOptions = AvgPoolOptions;
using AvgPool2dOptions = AvgPoolOptions;
using AvgPool3dOptions = AvgPoolOptions;

/// What the max pools share; use MaxPool1d, MaxPool2d, MaxPool3d.
class MaxPoolNd : public Module {
 public:
  const MaxPoolOptions& options() const noexcept { return options_; }
  std::string extra_repr() const override;

 protected:
  /// Throws ArgumentError when kernel_size is missing or no number is given per dimension.
  MaxPoolNd(MaxPoolOptions options, std::int64_t spatial);
  static MaxPoolOptions with_kernel(const Dims& kernel_size, MaxPoolOptions more);

 private:
  MaxPoolOptions options_;
};

class MaxPool1d : public MaxPoolNd {
 public:
  using Options = MaxPool1dOptions;
  explicit MaxPool1d(const MaxPool1dOptions& options) : MaxPoolNd(options, 1) {}
  /// MaxPool1d(2), MaxPool1d(3, {.stride = 2}). Throws ArgumentError if `more` has another
  /// kernel_size.
  template <std::integral T>
  explicit MaxPool1d(T kernel_size, const MaxPool1dOptions& more = {})
      : MaxPoolNd(with_kernel(kernel_size, more), 1) {}
  Tensor forward(const Tensor& x) const override { return max_pool1d(x, options()); }
};

class MaxPool2d : public MaxPoolNd {
 public:
  using Options = MaxPool2dOptions;
  explicit MaxPool2d(const MaxPool2dOptions& options) : MaxPoolNd(options, 2) {}
  /// MaxPool2d(2), MaxPool2d(3, {.stride = 2}). Throws ArgumentError if `more` has another
  /// kernel_size.
  template <std::integral T>
  explicit MaxPool2d(T kernel_size, const MaxPool2dOptions& more = {})
      : MaxPoolNd(with_kernel(kernel_size, more), 2) {}
  Tensor forward(const Tensor& x) const override { return max_pool2d(x, options()); }
};

class MaxPool3d : public MaxPoolNd {
 public:
  using Options = MaxPool3dOptions;
  explicit MaxPool3d(const MaxPool3dOptions& options) : MaxPoolNd(options, 3) {}
  /// MaxPool3d(2), MaxPool3d(3, {.stride = 2}). Throws ArgumentError if `more` has another
  /// kernel_size.
  template <std::integral T>
  explicit MaxPool3d(T kernel_size, const MaxPool3dOptions& more = {})
      : MaxPoolNd(with_kernel(kernel_size, more), 3) {}
  Tensor forward(const Tensor& x) const override { return max_pool3d(x, options()); }
};

/// What the average pools share; use AvgPool1d, AvgPool2d, AvgPool3d.
class AvgPoolNd : public Module {
 public:
  const AvgPoolOptions& options() const noexcept { return options_; }
  std::string extra_repr() const override;

 protected:
  /// Throws ArgumentError when kernel_size is missing or no number is given per dimension.
  AvgPoolNd(AvgPoolOptions options, std::int64_t spatial);
  static AvgPoolOptions with_kernel(const Dims& kernel_size, AvgPoolOptions more);

 private:
  AvgPoolOptions options_;
};

class AvgPool1d : public AvgPoolNd {
 public:
  using Options = AvgPool1dOptions;
  explicit AvgPool1d(const AvgPool1dOptions& options) : AvgPoolNd(options, 1) {}
  /// AvgPool1d(2), AvgPool1d(3, {.stride = 2}). Throws ArgumentError if `more` has another
  /// kernel_size.
  template <std::integral T>
  explicit AvgPool1d(T kernel_size, const AvgPool1dOptions& more = {})
      : AvgPoolNd(with_kernel(kernel_size, more), 1) {}
  Tensor forward(const Tensor& x) const override { return avg_pool1d(x, options()); }
};

class AvgPool2d : public AvgPoolNd {
 public:
  using Options = AvgPool2dOptions;
  explicit AvgPool2d(const AvgPool2dOptions& options) : AvgPoolNd(options, 2) {}
  /// AvgPool2d(2), AvgPool2d(3, {.stride = 2}). Throws ArgumentError if `more` has another
  /// kernel_size.
  template <std::integral T>
  explicit AvgPool2d(T kernel_size, const AvgPool2dOptions& more = {})
      : AvgPoolNd(with_kernel(kernel_size, more), 2) {}
  Tensor forward(const Tensor& x) const override { return avg_pool2d(x, options()); }
};

class AvgPool3d : public AvgPoolNd {
 public:
  using Options = AvgPool3dOptions;
  explicit AvgPool3d(const AvgPool3dOptions& options) : AvgPoolNd(options, 3) {}
  /// AvgPool3d(2), AvgPool3d(3, {.stride = 2}). Throws ArgumentError if `more` has another
  /// kernel_size.
  template <std::integral T>
  explicit AvgPool3d(T kernel_size, const AvgPool3dOptions& more = {})
      : AvgPoolNd(with_kernel(kernel_size, more), 3) {}
  Tensor forward(const Tensor& x) const override { return avg_pool3d(x, options()); }
};

/// What the adaptive pools share; use AdaptiveAvgPool1d, AdaptiveMaxPool1d ... `output_size` has
/// one number per spatial dimension or one for all; -1 keeps the input's size.
class AdaptivePoolNd : public Module {
 public:
  const Dims& output_size() const noexcept { return output_size_; }
  std::string extra_repr() const override;

 protected:
  AdaptivePoolNd(const Dims& output_size, std::int64_t spatial);

 private:
  Dims output_size_;
};

class AdaptiveAvgPool1d : public AdaptivePoolNd {
 public:
  explicit AdaptiveAvgPool1d(const Dims& output_size) : AdaptivePoolNd(output_size, 1) {}
  explicit AdaptiveAvgPool1d(std::initializer_list<std::int64_t> output_size)
      : AdaptiveAvgPool1d(Dims(output_size)) {}
  Tensor forward(const Tensor& x) const override { return adaptive_avg_pool1d(x, output_size()); }
};

class AdaptiveMaxPool1d : public AdaptivePoolNd {
 public:
  explicit AdaptiveMaxPool1d(const Dims& output_size) : AdaptivePoolNd(output_size, 1) {}
  explicit AdaptiveMaxPool1d(std::initializer_list<std::int64_t> output_size)
      : AdaptiveMaxPool1d(Dims(output_size)) {}
  Tensor forward(const Tensor& x) const override { return adaptive_max_pool1d(x, output_size()); }
};

class AdaptiveAvgPool2d : public AdaptivePoolNd {
 public:
  explicit AdaptiveAvgPool2d(const Dims& output_size) : AdaptivePoolNd(output_size, 2) {}
  explicit AdaptiveAvgPool2d(std::initializer_list<std::int64_t> output_size)
      : AdaptiveAvgPool2d(Dims(output_size)) {}
  Tensor forward(const Tensor& x) const override { return adaptive_avg_pool2d(x, output_size()); }
};

class AdaptiveMaxPool2d : public AdaptivePoolNd {
 public:
  explicit AdaptiveMaxPool2d(const Dims& output_size) : AdaptivePoolNd(output_size, 2) {}
  explicit AdaptiveMaxPool2d(std::initializer_list<std::int64_t> output_size)
      : AdaptiveMaxPool2d(Dims(output_size)) {}
  Tensor forward(const Tensor& x) const override { return adaptive_max_pool2d(x, output_size()); }
};

class AdaptiveAvgPool3d : public AdaptivePoolNd {
 public:
  explicit AdaptiveAvgPool3d(const Dims& output_size) : AdaptivePoolNd(output_size, 3) {}
  explicit AdaptiveAvgPool3d(std::initializer_list<std::int64_t> output_size)
      : AdaptiveAvgPool3d(Dims(output_size)) {}
  Tensor forward(const Tensor& x) const override { return adaptive_avg_pool3d(x, output_size()); }
};

class AdaptiveMaxPool3d : public AdaptivePoolNd {
 public:
  explicit AdaptiveMaxPool3d(const Dims& output_size) : AdaptivePoolNd(output_size, 3) {}
  explicit AdaptiveMaxPool3d(std::initializer_list<std::int64_t> output_size)
      : AdaptiveMaxPool3d(Dims(output_size)) {}
  Tensor forward(const Tensor& x) const override { return adaptive_max_pool3d(x, output_size()); }
};

}  // namespace quanta::nn
