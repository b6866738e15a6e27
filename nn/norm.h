#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quanta/nn/module.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta {
struct BatchNormTrainOptions;
}

namespace quanta::nn {

struct BatchNormOptions {
  std::int64_t num_features = 0;
  double eps = 1e-5;
  /// How far a batch moves the running statistics; none: they are the average of all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;
  /// Without, a batch is normalized by its own statistics, in train and eval mode alike.
  bool track_running_stats = true;
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
using BatchNorm3dOptions = BatchNormOptions;

/// What the batch norms share; use BatchNorm1d, BatchNorm2d, BatchNorm3d.
///
/// (x - mean) / sqrt(var + eps) * weight + bias for each channel (dimension 1): in eval mode with
/// the running statistics, in train mode with those of the batch, towards which the running ones
/// move (ops/norm.h: batch_norm_train), so that forward of one module is for one thread at a time
/// then. Files without num_batches_tracked, of old versions, load too.
class BatchNormNd : public Module {
 public:
  using Options = BatchNormOptions;
  /// [num_features] each; weight and bias are undefined when not affine, what follows them when
  /// running statistics are not tracked.
  Tensor weight;
  Tensor bias;
  Tensor running_mean;
  Tensor running_var;
  /// A 0-d Int64.
  Tensor num_batches_tracked;

  const BatchNormOptions& options() const noexcept { return options_; }
  Tensor forward(const Tensor& x) const override;
  /// forward(x / divisor + shift) in train mode, without that tensor (ops/norm.h:
  /// batch_norm_train); both [num_features], the shift may be undefined. Throws ArgumentError in
  /// eval mode.
  Tensor forward_quotient(const Tensor& x, const Tensor& divisor, const Tensor& shift) const;
  std::string extra_repr() const override;

 protected:
  /// Accepts inputs of `min_rank` to `max_rank` dimensions. Throws ArgumentError for
  /// num_features < 1.
  BatchNormNd(const BatchNormOptions& options, std::int64_t min_rank, std::int64_t max_rank);
  static BatchNormOptions with_features(std::int64_t num_features, BatchNormOptions more);
  /// The normalization by the batch's statistics, towards which the running ones move where there
  /// are some. For batch norms that take the statistics from more than x.
  virtual Tensor normalize_batch(const Tensor& x, const BatchNormTrainOptions& options) const;

 private:
  void check_input(const Tensor& x) const;
  Tensor normalize_and_track(const Tensor& x, const Tensor& divisor, const Tensor& shift) const;

  BatchNormOptions options_;
  std::int64_t min_rank_;
  std::int64_t max_rank_;
};

/// BatchNorm1d (x [B, C] or [B, C, L]), BatchNorm2d (x [B, C, H, W]) and BatchNorm3d
/// (x [B, C, D, H, W]); N is the number of spatial dimensions.
template <int N>
class BatchNorm : public BatchNormNd {
 public:
  explicit BatchNorm(const BatchNormOptions& options)
      : BatchNormNd(options, N == 1 ? 2 : N + 2, N + 2) {}
  /// BatchNorm2d(8), BatchNorm2d(8, {.eps = 1e-3}). Throws ArgumentError if `more` has another
  /// num_features.
  template <std::integral T>
  explicit BatchNorm(T num_features, const BatchNormOptions& more = {})
      : BatchNorm(with_features(static_cast<std::int64_t>(num_features), more)) {}
};
using BatchNorm1d = BatchNorm<1>;
using BatchNorm2d = BatchNorm<2>;
using BatchNorm3d = BatchNorm<3>;

struct LayerNormOptions {
  Dims normalized_shape{};
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
};

/// Normalizes over the last dimensions, whose sizes are normalized_shape.
class LayerNorm : public Module {
 public:
  using Options = LayerNormOptions;
  /// [normalized_shape...], or undefined.
  Tensor weight;
  Tensor bias;

  /// Throws ArgumentError for an empty normalized_shape or a size < 1.
  explicit LayerNorm(const LayerNormOptions& options);
  /// LayerNorm(32), LayerNorm({4, 32}).
  template <std::integral T>
  explicit LayerNorm(T size, double eps = 1e-5)
      : LayerNorm(LayerNormOptions{.normalized_shape = size, .eps = eps}) {}
  template <std::integral T, std::size_t N>
  explicit LayerNorm(const T (&normalized_shape)[N], double eps = 1e-5)
      : LayerNorm(LayerNormOptions{.eps = eps}, normalized_shape, N) {}
  const LayerNormOptions& options() const noexcept { return options_; }
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  template <typename T>
  LayerNorm(LayerNormOptions options, const T* sizes, std::size_t count)
      : LayerNorm((options.normalized_shape = Dims(std::vector<std::int64_t>(sizes, sizes + count)),
                   options)) {}

  LayerNormOptions options_;
};

struct GroupNormOptions {
  std::int64_t num_groups = 0;
  std::int64_t num_channels = 0;
  double eps = 1e-5;
  bool affine = true;
};

/// Normalizes over groups of channels (dimension 1) and all that follows.
class GroupNorm : public Module {
 public:
  using Options = GroupNormOptions;
  /// [num_channels], or undefined when not affine.
  Tensor weight;
  Tensor bias;

  /// Throws ArgumentError unless num_channels is a multiple of num_groups.
  explicit GroupNorm(const GroupNormOptions& options);
  explicit GroupNorm(std::int64_t num_groups, std::int64_t num_channels, double eps = 1e-5)
      : GroupNorm(
            GroupNormOptions{.num_groups = num_groups, .num_channels = num_channels, .eps = eps}) {}
  const GroupNormOptions& options() const noexcept { return options_; }
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  GroupNormOptions options_;
};

struct InstanceNormOptions {
  std::int64_t num_features = 0;
  double eps = 1e-5;
  double momentum = 0.1;
  bool affine = false;
  bool track_running_stats = false;
};
using InstanceNorm1dOptions = InstanceNormOptions;
using InstanceNorm2dOptions = InstanceNormOptions;
using InstanceNorm3dOptions = InstanceNormOptions;

/// What the instance norms share; use InstanceNorm1d, InstanceNorm2d, InstanceNorm3d.
///
/// Normalizes each channel of each sample by its own statistics, in train and eval mode alike;
/// with track_running_stats in train mode, where the running ones move towards the average of the
/// samples', and by the running ones in eval mode. Input [N, C, spatial...] or
/// [C, spatial...].
class InstanceNormNd : public Module {
 public:
  using Options = InstanceNormOptions;
  /// [num_features] each, or undefined when not affine or not tracked.
  Tensor weight;
  Tensor bias;
  Tensor running_mean;
  Tensor running_var;
  /// A 0-d Int64.
  Tensor num_batches_tracked;

  const InstanceNormOptions& options() const noexcept { return options_; }
  std::int64_t spatial() const noexcept { return spatial_; }
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 protected:
  InstanceNormNd(const InstanceNormOptions& options, std::int64_t spatial);

 private:
  void track(const Tensor& x) const;

  InstanceNormOptions options_;
  std::int64_t spatial_;
};

/// InstanceNorm1d, InstanceNorm2d and InstanceNorm3d; N is the number of spatial dimensions.
template <int N>
class InstanceNorm : public InstanceNormNd {
 public:
  explicit InstanceNorm(const InstanceNormOptions& options) : InstanceNormNd(options, N) {}
};
using InstanceNorm1d = InstanceNorm<1>;
using InstanceNorm2d = InstanceNorm<2>;
using InstanceNorm3d = InstanceNorm<3>;

}  // namespace quanta::nn
