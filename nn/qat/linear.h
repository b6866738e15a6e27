#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/linear.h"
#include "quanta/nn/qat/module.h"

// Constructors and calls throw ArgumentError for what does not fit. While a module is trained one
// thread at a time may call it; in eval mode with observers switched off many may (see
// nn/module.h).

namespace quanta::nn::qat {

/// x times the fake-quantized weight transposed, plus bias.
class Linear : public nn::Linear, public QatModule {
 public:
  Linear(const LinearOptions& options, const QConfig& qconfig);
  /// Takes nn::Linear (or NonDynamicallyQuantizableLinear) with a qconfig; parameters are shared
  /// with it. Throws ArgumentError.
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::shared_ptr<Module> to_float() const override;
  std::string type_name() const override { return "Linear"; }

 protected:
  std::vector<NamedObserver> own_observers() const override { return weight_observers(); }
};

}  // namespace quanta::nn::qat

namespace quanta::nn::qat::dynamic {

/// For training what quantize_dynamic will make: once prepared its input is fake-quantized by the
/// memoryless activation of the qconfig, then as qat::Linear. No default mapping makes one:
///   auto mapping = ModuleMapping().add<nn::Linear>(&nn::qat::dynamic::Linear::from_float);
///   auto prepared = prepare_qat(net, default_dynamic_qat_qconfig(), mapping);
///   ... train ...
///   auto dynamic = convert(prepared, {.mapping = default_dynamic_quant_module_mappings()});
class Linear : public qat::Linear {
 public:
  /// Throws ArgumentError unless the activation is memoryless (default_dynamic_qat_qconfig).
  Linear(const LinearOptions& options, const QConfig& qconfig);
  static std::shared_ptr<Module> from_float(const Module& module);
};

}  // namespace quanta::nn::qat::dynamic

namespace quanta::nn::intrinsic::qat {

/// Linear and ReLU.
class LinearReLU : public nn::qat::Linear {
 public:
  using nn::qat::Linear::Linear;
  /// Takes intrinsic::LinearReLU with a qconfig.
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::shared_ptr<Module> to_float() const override;
  std::string type_name() const override { return "LinearReLU"; }
};

}  // namespace quanta::nn::intrinsic::qat
