#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/ops/linear_weight_only.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Layers whose weights alone are quantized: activations come and go as floats.
namespace quanta::nn::weight_only {

/// x [..., in_features], Float32 or BFloat16, to [..., out_features] of the same dtype, with a
/// weight of 8 or 4 bits that becomes floats inside the kernel (see linear_weight_only).
///
/// State, described byte by byte in docs/files.md: `weight_packed`, `weight_scale`,
/// `weight_zero_point` (asymmetric only), `weight_format` and `bias` (absent without one). A state
/// decides on bits, group size, symmetry and bias; the features have to be the layer's own. A state
/// with a QInt8 `weight` per channel (torchao's int8 weights) is taken as well.
class Linear : public Module {
 public:
  /// Throws ArgumentError for empty parameters.
  explicit Linear(WeightOnlyPackedParams packed);
  /// Quantizes the weight of an nn::Linear; the bias stays in float. Throws ArgumentError for
  /// another module and as quantize_weight_only does.
  static std::shared_ptr<Module> from_float(const Module& module,
                                            const WeightOnlyOptions& options = {});

  const WeightOnlyPackedParams& packed() const noexcept { return packed_; }
  const WeightOnlyOptions& options() const { return packed_.options(); }
  /// The float weight that the codes stand for.
  Tensor weight() const { return packed_.dequantize(); }
  const Tensor& bias() const { return packed_.bias(); }

  Tensor forward(const Tensor& x) const override { return linear_weight_only(x, packed_); }
  std::string type_name() const override { return "WeightOnlyLinear"; }
  std::string extra_repr() const override;

 protected:
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  bool load_codes(StateReader& reader);

  WeightOnlyPackedParams packed_;
};

}  // namespace quanta::nn::weight_only
