// Float modules of torch.nn, called once: the suite float_modules.

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "float_modules.h"
#include "network.h"
#include "quanta/runtime/error.h"
#include "registry.h"

namespace quanta::conform {
namespace {

std::map<std::string, ForwardRegistration::Entry, std::less<>>& forwards() {
  static std::map<std::string, ForwardRegistration::Entry, std::less<>> table;
  return table;
}

// Modules that nobody registered take x and give one tensor.
const ForwardRegistration::Entry& forward_of(const std::string& type) {
  static const ForwardRegistration::Entry kPlain{
      "", [](const ModuleCall& call) { return std::vector{call.module.forward(call.tensor(0))}; }};
  const auto found = forwards().find(type);
  return found == forwards().end() ? kPlain : found->second;
}

void check_attributes(const Case& test, const ForwardRegistration::Entry& entry) {
  for (const auto& [name, value] : test.attrs.items()) {
    const bool known =
        name == "class" || name == "args" || name == "train" ||
        std::find(entry.attributes.begin(), entry.attributes.end(), name) != entry.attributes.end();
    if (!known) {
      throw UnsupportedError(fmt::format("{}: no argument {} here", test.text("class"), name));
    }
  }
}

// x, x1, ... as far as there are.
std::vector<ModuleInput> inputs_of(const Case& test) {
  std::vector<ModuleInput> inputs;
  for (std::string name = "x"; test.has_input(name); name = fmt::format("x{}", inputs.size())) {
    const bool is_tuple = test.inputs.find(name)->get_if<List>() != nullptr;
    inputs.push_back(is_tuple ? test.tensors(name) : ModuleInput{test.tensor(name)});
  }
  return inputs;
}

bool wants_gradients(const Case& test) {
  const auto& items = test.expected.get_if<Object>()->items;
  return std::any_of(items.begin(), items.end(),
                     [](const auto& item) { return item.first.starts_with("grad"); });
}

Outputs run_module(const Case& test) {
  if (wants_gradients(test)) {
    throw UnsupportedError("no gradients of modules here (--forward-only leaves them out)");
  }
  const std::string type = test.text("class");
  const ForwardRegistration::Entry& entry = forward_of(type);
  check_attributes(test, entry);
  const std::shared_ptr<nn::Module> module = make_module(type, test.attr("args"));
  module->load_state_dict(state_dict_from(test.object("state_dict")));
  module->train(test.flag("train", false));
  const std::vector<Tensor> results = entry.forward({*module, inputs_of(test), test});
  Outputs outputs;
  for (std::size_t i = 0; i < results.size(); ++i) {
    outputs.set(i == 0 ? "out" : fmt::format("out{}", i), results[i]);
  }
  return outputs;
}

const Registration kOps{{"module", run_module}};

}  // namespace

const Tensor& ModuleCall::tensor(std::size_t input) const {
  if (!has(input) || inputs[input].size() != 1) {
    throw FormatError(fmt::format("inputs: expected one tensor at position {}", input));
  }
  return inputs[input][0];
}

Tensor ModuleCall::optional_tensor(std::size_t input) const {
  return has(input) ? tensor(input) : Tensor();
}

void ModuleCall::throw_other_type() const {
  throw UnsupportedError(fmt::format("a {} is not called so here", module.type_name()));
}

ForwardRegistration::ForwardRegistration(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) {
    if (!forwards().emplace(entry.type, entry).second) {
      throw std::logic_error(fmt::format("conform: forward of '{}' is there twice", entry.type));
    }
  }
}

}  // namespace quanta::conform
