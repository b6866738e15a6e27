#include "registry.h"

#include <fmt/core.h>

#include <map>
#include <stdexcept>

namespace quanta::conform {
namespace {

std::map<std::string, Runner, std::less<>>& table() {
  static std::map<std::string, Runner, std::less<>> runners;
  return runners;
}

}  // namespace

const Runner* find_runner(std::string_view op) {
  const auto found = table().find(op);
  return found == table().end() ? nullptr : &found->second;
}

Registration::Registration(std::initializer_list<std::pair<const char*, Runner>> runners) {
  for (const auto& [op, runner] : runners) {
    if (!table().emplace(op, runner).second) {
      throw std::logic_error(fmt::format("conform: op '{}' is registered twice", op));
    }
  }
}

Outputs single(Value out) {
  Outputs outputs;
  outputs.set("out", std::move(out));
  return outputs;
}

}  // namespace quanta::conform
