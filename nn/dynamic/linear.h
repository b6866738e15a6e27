#pragma once

#include <memory>
#include <string>

#include "quanta/nn/dynamic/gate_weight.h"
#include "quanta/nn/dynamic/module.h"
#include "quanta/nn/module.h"
#include "quanta/nn/reference.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized::dynamic {

/// A linear layer whose weight is QInt8 or Float16 and whose activation stays Float32: x
/// [..., in_features] to [..., out_features]. With a QInt8 weight every call quantizes x anew, with
/// parameters chosen from its minimum and maximum (ops/linear_dynamic.h). The weight is packed
/// once, when it is set.
///
/// State under torch's names: `scale` (1) and `zero_point` (0), which say nothing,
/// `_packed_params._packed_params/0` (weight) and `/1` (bias, absent without one), and where codes
/// of activations use 8 bits `reduce_range` (Int64 0). The file decides between QInt8 and Float16;
/// Float32 weights, as torch writes for Float16, become Float16.
class Linear : public Module, public DynamicModule {
 public:
  /// `weight` [out_features, in_features]: QInt8 per tensor or per channel along axis 0, or
  /// Float16, or Float32, which becomes Float16 (values beyond +-65504 saturate). `bias` Float32
  /// [out_features] or undefined. Throws ArgumentError for others.
  Linear(const Tensor& weight, const Tensor& bias) : Linear(GateWeight(weight, bias)) {}
  /// One that is packed already.
  explicit Linear(GateWeight weight);
  /// Takes an nn::Linear with a qconfig that observes weights as QInt8 or Float16
  /// (default_dynamic_qconfig, per_channel_dynamic_qconfig, float16_dynamic_qconfig). Throws
  /// ArgumentError for another one or none.
  static std::shared_ptr<Module> from_float(const Module& module);
  /// With the weight quantized as the reference module says; its bias.
  static std::shared_ptr<Module> from_reference(const reference::Linear& module);

  /// QInt8 or Float16.
  Tensor weight() const { return weight_.weight(); }
  const Tensor& bias() const { return weight_.bias(); }
  DType weight_dtype() const { return weight_.dtype(); }
  /// The packed weight; null when it is Float16.
  const quanta::quantized::LinearPackedParams* int8_weight() const noexcept {
    return weight_.int8().defined() ? &weight_.int8() : nullptr;
  }
  /// Packs again, also into the other dtype. Throws ArgumentError for other sizes.
  void set_weight_bias(const Tensor& weight, const Tensor& bias);

  Tensor forward(const Tensor& x) const override { return run(x, Fusion::None); }
  /// "DynamicQuantizedLinear", as torch prints.
  std::string type_name() const override;
  std::string extra_repr() const override;

 protected:
  Tensor run(const Tensor& x, Fusion fusion) const { return weight_(x, reduce_range_, fusion); }
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  GateWeight weight_;
};

}  // namespace quanta::nn::quantized::dynamic

namespace quanta::nn::intrinsic::quantized::dynamic {

/// Linear and ReLU in one step, of an nn::intrinsic::LinearReLU.
class LinearReLU : public nn::quantized::dynamic::Linear {
 public:
  using Linear::Linear;
  static std::shared_ptr<Module> from_float(const Module& module);
  static std::shared_ptr<Module> from_reference(const nn::reference::Linear& module);
  Tensor forward(const Tensor& x) const override { return run(x, Fusion::ReLU); }
};

}  // namespace quanta::nn::intrinsic::quantized::dynamic
