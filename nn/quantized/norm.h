#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/nn/norm.h"
#include "quanta/nn/quantized/module.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized {

// Input per-tensor QUInt8 or QInt8, result of the same dtype with the module's scale and zero
// point. Weights and biases stay float.

/// What the quantized batch norms share. State as of the float one, and `scale`, `zero_point`.
class BatchNormNd : public OutputQuantized {
 public:
  /// [num_features] each, all defined.
  Tensor weight;
  Tensor bias;
  Tensor running_mean;
  Tensor running_var;
  Tensor num_batches_tracked;

  const BatchNormOptions& options() const noexcept { return options_; }
  /// Parameters and statistics of the float module; an absent weight or bias becomes 1 or 0.
  void copy_from(const nn::BatchNormNd& source);
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 protected:
  BatchNormNd(const BatchNormOptions& options, std::int64_t spatial, double scale,
              std::int64_t zero_point);
  /// Throws ArgumentError for an input of another rank.
  void check_input(const Tensor& x) const;

 private:
  BatchNormOptions options_;
  std::int64_t spatial_;
};

/// BatchNorm2d and BatchNorm3d; N is the number of spatial dimensions.
template <int N>
class BatchNorm : public BatchNormNd {
 public:
  explicit BatchNorm(const BatchNormOptions& options, double scale = 1.0,
                     std::int64_t zero_point = 0)
      : BatchNormNd(options, N, scale, zero_point) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};
using BatchNorm2d = BatchNorm<2>;
using BatchNorm3d = BatchNorm<3>;
extern template class BatchNorm<2>;
extern template class BatchNorm<3>;

/// What the norms by the input's own statistics share.
class AffineNorm : public OutputQuantized {
 public:
  /// Float32 as in the float module, or undefined.
  Tensor weight;
  Tensor bias;

 protected:
  /// Keeps copies: the float model goes on training without an effect here.
  AffineNorm(const Tensor& weight, const Tensor& bias, double scale, std::int64_t zero_point);
};

class LayerNorm : public AffineNorm {
 public:
  LayerNorm(const LayerNormOptions& options, const Tensor& weight, const Tensor& bias, double scale,
            std::int64_t zero_point)
      : AffineNorm(weight, bias, scale, zero_point), options_(options) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  LayerNormOptions options_;
};

class GroupNorm : public AffineNorm {
 public:
  GroupNorm(const GroupNormOptions& options, const Tensor& weight, const Tensor& bias, double scale,
            std::int64_t zero_point)
      : AffineNorm(weight, bias, scale, zero_point), options_(options) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  GroupNormOptions options_;
};

/// What the quantized instance norms share.
class InstanceNormNd : public AffineNorm {
 public:
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 protected:
  InstanceNormNd(const InstanceNormOptions& options, std::int64_t spatial, const Tensor& weight,
                 const Tensor& bias, double scale, std::int64_t zero_point)
      : AffineNorm(weight, bias, scale, zero_point), options_(options), spatial_(spatial) {}

 private:
  InstanceNormOptions options_;
  std::int64_t spatial_;
};

/// InstanceNorm1d, InstanceNorm2d and InstanceNorm3d; N is the number of spatial dimensions.
template <int N>
class InstanceNorm : public InstanceNormNd {
 public:
  InstanceNorm(const InstanceNormOptions& options, const Tensor& weight, const Tensor& bias,
               double scale, std::int64_t zero_point)
      : InstanceNormNd(options, N, weight, bias, scale, zero_point) {}
  static std::shared_ptr<Module> from_float(const Module& module);
};
using InstanceNorm1d = InstanceNorm<1>;
using InstanceNorm2d = InstanceNorm<2>;
using InstanceNorm3d = InstanceNorm<3>;
extern template class InstanceNorm<1>;
extern template class InstanceNorm<2>;
extern template class InstanceNorm<3>;

}  // namespace quanta::nn::quantized
