#pragma once

// Private: settings of quantizers as small tensors of a state, and copies of them.

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "quanta/nn/module.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/whole_number.h"
#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

namespace quanta::aimet::detail {

inline std::string extra_name(std::string_view name) { return "_extra_state." + std::string(name); }

inline void save_number(StateDict& state, const std::string& prefix, std::string_view name,
                        double value) {
  state.set(prefix + extra_name(name), Tensor::scalar(value, DType::Float64));
}

inline void save_dims(StateDict& state, const std::string& prefix, std::string_view name,
                      const Dims& dims) {
  state.set(prefix + extra_name(name), Tensor::from_int64({dims.begin(), dims.size()}));
}

// What is missing or no such entry is noted in the reader, and then there is nothing.

inline std::optional<double> read_number(nn::StateReader& reader, std::string_view name) {
  const Tensor* value = reader.require(extra_name(name));
  if (value == nullptr) return std::nullopt;
  if (!value->is_quantized() && value->numel() == 1) return value->item();
  reader.problem(fmt::format("{}: expected a single number, got {} {}",
                             reader.full_name(extra_name(name)), value->dtype(), value->sizes()));
  return std::nullopt;
}

inline std::optional<std::int64_t> read_integer(nn::StateReader& reader, std::string_view name) {
  const std::optional<double> value = read_number(reader, name);
  if (!value.has_value()) return std::nullopt;
  if (quanta::detail::is_whole_number(*value)) {
    return static_cast<std::int64_t>(*value);
  }
  reader.problem(fmt::format("{}: expected a whole number, got {}",
                             reader.full_name(extra_name(name)), *value));
  return std::nullopt;
}

inline std::optional<Dims> read_dims(nn::StateReader& reader, std::string_view name) {
  const Tensor* value = reader.require(extra_name(name));
  if (value == nullptr) return std::nullopt;
  if (value->dtype() == DType::Int64 && value->dim() == 1 &&
      value->numel() <= static_cast<std::int64_t>(Dims::kMaxDims)) {
    return Dims(value->to_int64_vector());
  }
  reader.problem(fmt::format("{}: expected up to {} Int64 numbers, got {} {}",
                             reader.full_name(extra_name(name)), Dims::kMaxDims, value->dtype(),
                             value->sizes()));
  return std::nullopt;
}

/// A Float32 copy of a floating entry that was found; undefined when it is none.
inline Tensor as_floats(nn::StateReader& reader, std::string_view name, const Tensor* value) {
  if (value == nullptr) return {};
  if (value->is_floating_point()) {
    return value->detach().to(Device::cpu()).to(DType::Float32).clone(MemoryFormat::Contiguous);
  }
  reader.problem(fmt::format("{}: expected a floating tensor, got {}", reader.full_name(name),
                             value->dtype()));
  return {};
}

/// Whether blocks are such as a quantizer of that shape can have.
inline bool check_blocks(nn::StateReader& reader, const Dims& blocks, const Dims& shape) {
  bool fits = blocks.empty() || blocks.size() == shape.size();
  for (const std::int64_t block : blocks) fits = fits && (block == -1 || block > 0);
  if (fits) return true;
  reader.problem(fmt::format("{}: expected one entry for each dimension of {}, -1 or > 0, got {}",
                             reader.full_name(extra_name("block_size")), shape, blocks));
  return false;
}

/// A copy with tensors of its own, which networks can hold.
template <typename T>
std::shared_ptr<T> clone_of(const T& quantizer) {
  return nn::make_module<T>(nn::deep_copy(quantizer));
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
