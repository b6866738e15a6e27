#pragma once

// Private: settings of quantizers as small tensors of a state.

#include <cstdint>
#include <string>
#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

namespace quanta::aimet::detail {

inline std::string extra_name(const std::string& prefix, std::string_view name) {
  return prefix + "_extra_state." + std::string(name);
}

inline void save_number(StateDict& state, const std::string& prefix, std::string_view name,
                        double value) {
  state.set(extra_name(prefix, name), Tensor::scalar(value, DType::Float64));
}

/// Throws ArgumentError when it is missing or no single number.
inline double read_number(const StateDict& state, const std::string& prefix,
                          std::string_view name) {
  const std::string full = extra_name(prefix, name);
  const Tensor& value = state.at(full);
  QUANTA_CHECK(!value.is_quantized() && value.numel() == 1,
               "load_state: {}: expected a single number, got {} {}", full, value.dtype(),
               value.sizes());
  return value.item();
}

inline std::int64_t read_integer(const StateDict& state, const std::string& prefix,
                                 std::string_view name) {
  const double value = read_number(state, prefix, name);
  QUANTA_CHECK(value >= -0x1p52 && value <= 0x1p52 &&
                   value == static_cast<double>(static_cast<std::int64_t>(value)),
               "load_state: {}: expected a whole number, got {}", extra_name(prefix, name), value);
  return static_cast<std::int64_t>(value);
}

inline void save_dims(StateDict& state, const std::string& prefix, std::string_view name,
                      const Dims& dims) {
  state.set(extra_name(prefix, name), Tensor::from_int64({dims.begin(), dims.size()}));
}

inline Dims read_dims(const StateDict& state, const std::string& prefix, std::string_view name) {
  const std::string full = extra_name(prefix, name);
  const Tensor& value = state.at(full);
  QUANTA_CHECK(value.dtype() == DType::Int64 && value.dim() == 1 &&
                   value.numel() <= static_cast<std::int64_t>(Dims::kMaxDims),
               "load_state: {}: expected up to {} Int64 numbers, got {} {}", full, Dims::kMaxDims,
               value.dtype(), value.sizes());
  return Dims(value.to_int64_vector());
}

/// A Float32 copy of a floating entry.
inline Tensor read_floats(const StateDict& state, const std::string& name) {
  const Tensor& value = state.at(name);
  QUANTA_CHECK(value.is_floating_point(), "load_state: {}: expected a floating tensor, got {}",
               name, value.dtype());
  return value.detach().to(DType::Float32).clone(MemoryFormat::Contiguous);
}

/// "(8, 2)", "(3,)", "()": as Python prints a tuple.
inline std::string tuple_text(const Dims& dims) {
  std::string text = "(";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", dims[i]);
  }
  return text + (dims.size() == 1 ? ",)" : ")");
}

}  // namespace quanta::aimet::detail
