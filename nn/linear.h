#pragma once

#include <cstdint>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/nn/packed_cache.h"
#include "quanta/ops/linear.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

struct LinearOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  bool bias = true;
};

/// x [..., in_features] times weight transposed, plus bias. Float32. A new layer's weight and bias
/// are uniform in +-1/sqrt(in_features), from default_generator(). In eval mode the weight is
/// packed once and again after it was changed.
class Linear : public Module {
 public:
  using Options = LinearOptions;
  /// [out_features, in_features]
  Tensor weight;
  /// [out_features], or undefined.
  Tensor bias;

  /// Throws ArgumentError for features < 1.
  explicit Linear(const LinearOptions& options);
  explicit Linear(std::int64_t in_features, std::int64_t out_features, bool with_bias = true)
      : Linear(LinearOptions{in_features, out_features, with_bias}) {}
  const LinearOptions& options() const noexcept { return options_; }

  Tensor forward(const Tensor& x) const override { return forward(x, Fusion::None); }
  /// The product and what follows it in one step.
  Tensor forward(const Tensor& x, Fusion fusion) const;
  std::string extra_repr() const override;

 private:
  LinearOptions options_;
  mutable detail::PackedCache<PackedLinear> packed_;
};

}  // namespace quanta::nn
