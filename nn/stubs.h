#pragma once

#include <memory>
#include <optional>

#include "quanta/nn/module.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

/// Marks where a float tensor enters the quantized part of a network: an identity until convert
/// puts a quantized::Quantize in its place.
class QuantStub : public Module {
 public:
  QuantStub() = default;
  explicit QuantStub(const QConfig& qconfig) { set_qconfig(qconfig); }
  Tensor forward(const Tensor& x) const override { return x; }
};

/// Marks where a quantized tensor becomes float again: an identity until convert puts a
/// quantized::DeQuantize in its place.
class DeQuantStub : public Module {
 public:
  DeQuantStub() = default;
  explicit DeQuantStub(const QConfig& qconfig) { set_qconfig(qconfig); }
  Tensor forward(const Tensor& x) const override { return x; }
};

/// A module between a QuantStub and a DeQuantStub, which get its qconfig if it has one. Children:
/// quant, dequant, module.
class QuantWrapper : public Module {
 public:
  Child<QuantStub> quant;
  Child<DeQuantStub> dequant;
  Child<Module> module;

  /// Throws ArgumentError for null. The wrapper is in train mode if the module is.
  explicit QuantWrapper(std::shared_ptr<Module> wrapped);
  Tensor forward(const Tensor& x) const override { return dequant(module(quant(x))); }
};

}  // namespace quanta::nn
