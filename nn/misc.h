#pragma once

#include <cstdint>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/ops/interpolate.h"
#include "quanta/ops/shuffle.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

/// Gives back what it gets.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return x; }
};

/// Joins the dimensions start_dim..end_dim into one. Any dtype; a view where possible.
class Flatten : public Module {
 public:
  explicit Flatten(std::int64_t start_dim = 1, std::int64_t end_dim = -1)
      : start_dim_(start_dim), end_dim_(end_dim) {}
  Tensor forward(const Tensor& x) const override { return x.flatten(start_dim_, end_dim_); }
  std::string extra_repr() const override;

 private:
  std::int64_t start_dim_;
  std::int64_t end_dim_;
};

/// In train mode zeroes each element with probability p and scales the rest by 1 / (1 - p), drawn
/// from default_generator(); in eval mode gives back what it gets.
class Dropout : public Module {
 public:
  /// Throws ArgumentError for p outside [0, 1].
  explicit Dropout(double p = 0.5);
  double p() const noexcept { return p_; }
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  double p_;
};

/// Resizes the spatial dimensions (ops/interpolate.h): `size` or `scale_factor`.
class Upsample : public Module {
 public:
  explicit Upsample(const InterpolateOptions& options) : options_(options) {}
  const InterpolateOptions& options() const noexcept { return options_; }
  Tensor forward(const Tensor& x) const override { return interpolate(x, options_); }

 private:
  InterpolateOptions options_;
};

/// [..., C * r^2, H, W] -> [..., C, H * r, W * r].
class PixelShuffle : public Module {
 public:
  explicit PixelShuffle(std::int64_t upscale_factor) : upscale_factor_(upscale_factor) {}
  Tensor forward(const Tensor& x) const override { return pixel_shuffle(x, upscale_factor_); }
  std::string extra_repr() const override;

 private:
  std::int64_t upscale_factor_;
};

/// [..., C, H * r, W * r] -> [..., C * r^2, H, W].
class PixelUnshuffle : public Module {
 public:
  explicit PixelUnshuffle(std::int64_t downscale_factor) : downscale_factor_(downscale_factor) {}
  Tensor forward(const Tensor& x) const override { return pixel_unshuffle(x, downscale_factor_); }
  std::string extra_repr() const override;

 private:
  std::int64_t downscale_factor_;
};

}  // namespace quanta::nn
