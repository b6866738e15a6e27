#pragma once

#include <string>

#include "quanta/nn/pooling.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized {

/// nn::MaxPool2d that takes quantized tensors only. convert leaves the float class, which takes
/// both, where it is.
class MaxPool2d : public nn::MaxPool2d {
 public:
  using nn::MaxPool2d::MaxPool2d;
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string type_name() const override { return "QuantizedMaxPool2d"; }
};

}  // namespace quanta::nn::quantized
