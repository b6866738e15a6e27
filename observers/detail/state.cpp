#include "quanta/observers/detail/state.h"

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/whole_number.h"

namespace quanta::detail {
namespace {

bool is_integer(const Tensor& value) { return !value.is_floating_point() && !value.is_quantized(); }

}  // namespace

const Tensor* find_state(const StateDict& state, const std::string& name) {
  const Tensor* tensor = state.find(name);
  QUANTA_CHECK(tensor == nullptr || tensor->defined(),
               "load_state_dict: state: '{}': expected a tensor, got an undefined one", name);
  return tensor;
}

const Tensor& require_state(const StateDict& state, const std::string& name) {
  const Tensor* tensor = find_state(state, name);
  QUANTA_CHECK(tensor != nullptr, "load_state_dict: {}: expected a tensor of that name, got none",
               name);
  return *tensor;
}

std::vector<float> float_state(const Tensor& tensor, const std::string& name) {
  QUANTA_CHECK(tensor.is_floating_point() && tensor.dim() <= 1,
               "load_state_dict: {}: expected a floating tensor of at most one dimension, got {} "
               "{}",
               name, tensor.dtype(), tensor.sizes());
  return tensor.to_float_vector();
}

float scalar_state(const StateDict& state, const std::string& name) {
  const std::vector<float> values = float_state(require_state(state, name), name);
  QUANTA_CHECK(values.size() == 1, "load_state_dict: {}: expected one value, got {}", name,
               values.size());
  return values[0];
}

Tensor tensor_state(const StateDict& state, const std::string& name) {
  const Tensor& value = require_state(state, name);
  QUANTA_CHECK(value.is_floating_point(), "load_state_dict: {}: expected a floating tensor, got {}",
               name, value.dtype());
  return value.detach().to(DType::Float32).clone(MemoryFormat::Contiguous);
}

Tensor optional_state(const StateDict& state, const std::string& name) {
  return state.contains(name) ? tensor_state(state, name) : Tensor();
}

std::int64_t count_state(const StateDict& state, const std::string& name) {
  const Tensor& value = require_state(state, name);
  QUANTA_CHECK(is_integer(value) && value.numel() == 1,
               "load_state_dict: {}: expected one whole number, got {} {}", name, value.dtype(),
               value.sizes());
  const double count = value.item();
  QUANTA_CHECK(count >= 0.0 && is_whole_number(count),
               "load_state_dict: {}: expected a whole number from 0 to 2^53, got {}", name, count);
  return static_cast<std::int64_t>(count);
}

bool switch_state(const StateDict& state, const std::string& name) {
  const Tensor& value = require_state(state, name);
  QUANTA_CHECK(value.numel() == 1 && is_integer(value),
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

void save_range(StateDict& state, const std::string& prefix, const ValueRange& range,
                const Dims& shape) {
  state.set(prefix + "min_val", Tensor::from_values(range.min, shape));
  state.set(prefix + "max_val", Tensor::from_values(range.max, shape));
}

ValueRange load_range(const StateDict& state, const std::string& prefix, std::size_t entries) {
  const auto read = [&](const std::string& name) {
    std::vector<float> values = tensor_state(state, name).to_float_vector();
    QUANTA_CHECK(values.size() == entries, "load_state_dict: {}: expected {} values, got {}", name,
                 entries, values.size());
    return values;
  };
  return {read(prefix + "min_val"), read(prefix + "max_val")};
}

}  // namespace quanta::detail
