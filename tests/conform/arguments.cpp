#include "arguments.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "quanta/runtime/error.h"

namespace quanta::conform {
namespace {

template <typename T>
void get(std::string_view name, const Json& json, T& value) {
  try {
    value = json.get<T>();
  } catch (const Json::exception& error) {
    throw FormatError(fmt::format("'{}': {}", name, error.what()));
  }
}

template <typename T>
void get_list(std::string_view name, const Json& json, std::vector<T>& value) {
  get(name, json.is_array() ? json : Json::array({json}), value);
}

}  // namespace

const Json* Arguments::find(const char* name) const {
  used_.insert(name);
  const auto found = json_->find(name);
  return found == json_->end() ? nullptr : &*found;
}

void Arguments::require(const char* name) const {
  if (find(name) == nullptr) throw FormatError(fmt::format("'{}' is missing", name));
}

bool Arguments::is_text(const char* name) const {
  const Json* value = find(name);
  return value != nullptr && value->is_string();
}

void Arguments::require_all_used(std::string_view type) const {
  for (const auto& [name, value] : json_->items()) {
    if (!used_.contains(name)) {
      throw UnsupportedError(fmt::format("modules: {}: argument '{}'", type, name));
    }
  }
}

std::size_t Arguments::position(std::string_view name, const Json& json,
                                std::span<const std::string_view> names) {
  std::string text;
  get(name, json, text);
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) throw FormatError(fmt::format("{}: unknown value '{}'", name, text));
  return static_cast<std::size_t>(found - names.begin());
}

void Arguments::read_plain(std::string_view name, const Json& json, bool& value) {
  get(name, json, value);
}

void Arguments::read_plain(std::string_view name, const Json& json, std::int64_t& value) {
  get(name, json, value);
}

void Arguments::read_plain(std::string_view name, const Json& json, double& value) {
  get(name, json, value);
}

void Arguments::read_plain(std::string_view name, const Json& json, std::string& value) {
  get(name, json, value);
}

void Arguments::read_plain(std::string_view /*name*/, const Json& json, Dims& value) {
  value = dims_from_json(json);
}

void Arguments::read_plain(std::string_view name, const Json& json, DType& value) {
  std::string text;
  get(name, json, text);
  value = dtype_from_json(text);
}

void Arguments::read_plain(std::string_view name, const Json& json, std::vector<double>& value) {
  get_list(name, json, value);
}

void Arguments::read_plain(std::string_view name, const Json& json,
                           std::vector<std::int64_t>& value) {
  get_list(name, json, value);
}

const Parameter& Parameters::next() {
  if (rest_.empty()) throw std::logic_error("conform: a parameter has no name");
  const Parameter& parameter = rest_.front();
  rest_ = rest_.subspan(1);
  return parameter;
}

void Parameters::require_all_used() const {
  if (!rest_.empty()) {
    throw std::logic_error(fmt::format("conform: no parameter takes '{}'", rest_.front().name));
  }
}

}  // namespace quanta::conform
