#include "quanta/observers/detail/fake_quantize_state.h"

#include "quanta/observers/uniform_observer.h"
#include "quanta/runtime/check.h"

namespace quanta::detail {

bool switch_state(const StateDict& state, const std::string& name) {
  const Tensor& value = require_state(state, name);
  QUANTA_CHECK(value.numel() == 1 && !value.is_floating_point() && !value.is_quantized(),
               "load_state_dict: {}: expected one integer or bool, got {} {}", name, value.dtype(),
               value.sizes());
  return value.item() != 0.0;
}

Tensor vector_state(const StateDict& state, const std::string& name, DType dtype) {
  const Tensor& values = require_state(state, name);
  QUANTA_CHECK(!values.is_quantized() && values.dtype() != DType::Bool &&
                   values.is_floating_point() == is_floating_point(dtype),
               "load_state_dict: {}: expected {}, got {}", name, dtype, values.dtype());
  QUANTA_CHECK(values.dim() <= 1 && values.numel() > 0,
               "load_state_dict: {}: expected one value or one for each channel, got {}", name,
               values.sizes());
  return values.detach().to(dtype).reshape({-1}).clone();
}

}  // namespace quanta::detail
