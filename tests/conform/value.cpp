#include "value.h"

namespace quanta::conform {

void Object::set(std::string name, Value value) {
  items.emplace_back(std::move(name), std::move(value));
}

const Value* Object::find(std::string_view name) const {
  for (const auto& [key, value] : items) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string kind_of(const Value& value) {
  struct Visitor {
    std::string operator()(Value::Null) const { return "null"; }
    std::string operator()(bool) const { return "bool"; }
    std::string operator()(std::int64_t) const { return "integer"; }
    std::string operator()(double) const { return "number"; }
    std::string operator()(const std::string&) const { return "string"; }
    std::string operator()(const Tensor& tensor) const {
      if (!tensor.defined()) return "undefined tensor";
      return std::string(to_string(tensor.dtype())) + " tensor";
    }
    std::string operator()(const List&) const { return "list"; }
    std::string operator()(const Object&) const { return "object"; }
  };
  return std::visit(Visitor{}, value.get());
}

}  // namespace quanta::conform
