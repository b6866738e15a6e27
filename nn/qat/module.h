#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "quanta/nn/module.h"

// Constructors and calls throw ArgumentError for what does not fit. While a module is trained one
// thread at a time may call it; in eval mode with observers switched off many may (see
// nn/module.h).

/// Float modules that train with quantization in the loop: forward uses the weight as quantizing
/// would leave it, backward goes straight through (torch.ao.nn.qat). prepare_qat puts them in the
/// place of float ones, convert makes quantized ones of them.
namespace quanta::nn::qat {

/// What they share: the fake quantizer of the weight, from the qconfig. State: that of the float
/// module and the fake quantizer's below `weight_fake_quant`.
class QatModule {
 public:
  virtual ~QatModule() = default;
  const std::shared_ptr<Observer>& weight_fake_quant() const noexcept { return fake_quant_; }
  /// The float module that gives the same in eval mode without fake quantization, batch norms
  /// folded. Parameters are copies.
  virtual std::shared_ptr<Module> to_float() const = 0;

 protected:
  /// Throws ArgumentError `op: qconfig: ...` when there is none for the weight.
  QatModule(std::string_view op, const QConfig& qconfig);
  QatModule(const QatModule& other) : fake_quant_(other.fake_quant_->clone()) {}
  QatModule& operator=(const QatModule& other);
  Tensor fake_quantized(const Tensor& weight) const { return fake_quant_->forward(weight); }
  std::vector<Module::NamedObserver> weight_observers() const {
    return {{"weight_fake_quant", fake_quant_}};
  }

 private:
  std::shared_ptr<Observer> fake_quant_;
};

}  // namespace quanta::nn::qat
