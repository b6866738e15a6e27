#include "quanta/nn/quantized/lstm.h"

#include <string_view>

#include "quanta/nn/detail/converted_parts.h"
#include "quanta/nn/detail/from_float.h"

namespace quanta::nn::quantized {

LSTM::LSTM(const quantizable::LSTM& converted) : quantizable::LSTM(converted) {
  nn::detail::finish_converted("quantized::LSTM", *this);
}

std::shared_ptr<Module> LSTM::from_observed(const Module& module) {
  return make_module<LSTM>(nn::detail::expect_module<quantizable::LSTM>(
      "quantized::LSTM.from_observed", module, "quantizable LSTM"));
}

}  // namespace quanta::nn::quantized
