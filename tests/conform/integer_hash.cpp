#include "integer_hash.h"

#include <fmt/core.h>

namespace quanta::conform {

void IntegerHash::add_byte(std::uint8_t byte) { state_ = (state_ ^ byte) * 1099511628211ULL; }

void IntegerHash::add(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  for (int shift = 0; shift < 64; shift += 8) {
    add_byte(static_cast<std::uint8_t>((bits >> shift) & 0xFFU));
  }
}

void IntegerHash::add(const std::string& text) {
  for (const char c : text) add_byte(static_cast<std::uint8_t>(c));
}

void IntegerHash::add(const Value& value) {
  if (const auto* whole = value.get_if<std::int64_t>()) return add(*whole);
  if (const auto* list = value.get_if<List>()) {
    for (const Value& item : *list) add(item);
  } else if (const auto* object = value.get_if<Object>()) {
    for (const auto& [name, item] : object->items) {
      add(name);
      add(item);
    }
  } else if (const auto* tensor = value.get_if<Tensor>()) {
    if (!tensor->defined() || tensor->is_floating_point()) return;
    add(std::string(to_string(tensor->dtype())));
    for (const std::int64_t size : tensor->sizes()) add(size);
    const Tensor plain = tensor->dtype() == DType::Bool ? tensor->to(DType::UInt8) : *tensor;
    for (const std::int64_t element : plain.to_int64_vector()) add(element);
  }
}

std::string IntegerHash::hex() const { return fmt::format("{:016x}", state_); }

}  // namespace quanta::conform
