// Float modules of torch.nn, called once: the suite float_modules.

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "float_modules.h"
#include "network.h"
#include "quanta/runtime/autograd.h"
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

std::string numbered(std::string_view name, std::size_t number) {
  return number == 0 ? std::string(name) : fmt::format("{}{}", name, number);
}

bool is_expected(const Case& test, std::string_view name) {
  return test.expected.get_if<Object>()->find(name) != nullptr;
}

bool wants_gradients(const Case& test) {
  const auto& items = test.expected.get_if<Object>()->items;
  return std::any_of(items.begin(), items.end(),
                     [](const auto& item) { return item.first.starts_with("grad"); });
}

// Inputs and parameters that gradients are expected of, in the order of `names`.
struct Leaves {
  std::vector<Tensor> inputs;
  std::vector<std::size_t> counts;  // of the tensors of each such input
  std::vector<std::string> names;
  std::vector<nn::Module::NamedTensor> parameters;
};

Leaves ask_for_gradients(const Case& test, nn::Module& module, std::vector<ModuleInput>& inputs) {
  Leaves leaves;
  module.requires_grad_();
  leaves.parameters = module.named_parameters();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = numbered("grad_x", i);
    if (!is_expected(test, name)) continue;
    leaves.names.push_back(name);
    leaves.counts.push_back(inputs[i].size());
    for (Tensor& tensor : inputs[i]) leaves.inputs.push_back(tensor.set_requires_grad());
  }
  return leaves;
}

// Backward from all results at once.
void add_gradients(const Case& test, const std::vector<Tensor>& results, const Leaves& leaves,
                   Outputs& outputs) {
  std::vector<Tensor> from;
  std::vector<Tensor> weights;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].requires_grad()) continue;
    from.push_back(results[i]);
    weights.push_back(test.tensor(numbered("grad_out", i)));
  }
  std::vector<Tensor> to = leaves.inputs;
  for (const nn::Module::NamedTensor& parameter : leaves.parameters) to.push_back(parameter.tensor);
  const std::vector<Tensor> gradients = autograd::grad(from, to, {.grad_outputs = weights});
  std::size_t next = 0;
  for (std::size_t i = 0; i < leaves.names.size(); ++i) {
    List list;
    for (std::size_t k = 0; k < leaves.counts[i]; ++k) list.emplace_back(gradients[next++]);
    outputs.set(leaves.names[i], list.size() == 1 ? list[0] : Value(std::move(list)));
  }
  if (leaves.parameters.empty()) return;
  Object by_name;
  for (const nn::Module::NamedTensor& parameter : leaves.parameters) {
    by_name.set(parameter.path, gradients[next++]);
  }
  outputs.set("grads", std::move(by_name));
}

Outputs run_module(const Case& test) {
  const std::string type = test.text("class");
  const ForwardRegistration::Entry& entry = forward_of(type);
  check_attributes(test, entry);
  const std::shared_ptr<nn::Module> module = make_module(type, test.attr("args"));
  module->load_state_dict(state_dict_from(test.object("state_dict")));
  module->train(test.flag("train", false));
  std::vector<ModuleInput> inputs = inputs_of(test);
  Leaves leaves;
  if (wants_gradients(test)) leaves = ask_for_gradients(test, *module, inputs);
  const std::vector<Tensor> results = entry.forward({*module, inputs, test});
  Outputs outputs;
  for (std::size_t i = 0; i < results.size(); ++i) outputs.set(numbered("out", i), results[i]);
  if (wants_gradients(test)) add_gradients(test, results, leaves, outputs);
  if (is_expected(test, "state")) {
    Object state;
    for (const nn::Module::NamedTensor& buffer : module->named_buffers()) {
      state.set(buffer.path, buffer.tensor);
    }
    outputs.set("state", std::move(state));
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
