#include "quanta/nn/quantized/pooling.h"

#include "quanta/nn/detail/from_float.h"

namespace quanta::nn::quantized {

std::shared_ptr<Module> MaxPool2d::from_float(const Module& module) {
  const auto& source =
      detail::expect_module<nn::MaxPool2d>("MaxPool2d.from_float", module, "MaxPool2d");
  return make_module<MaxPool2d>(source.options());
}

Tensor MaxPool2d::forward(const Tensor& x) const {
  return max_pool2d(x.as_quantized("quantized::max_pool2d", "x"), options());
}

}  // namespace quanta::nn::quantized
