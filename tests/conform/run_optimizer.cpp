#include <memory>
#include <string>
#include <vector>

#include "options.h"
#include "quanta/runtime/error.h"
#include "registry.h"

namespace quanta::conform {
namespace {

template <typename T, typename Options>
std::unique_ptr<optim::Optimizer> make(const Case& test, const std::vector<Tensor>& parameters,
                                       Options options = {}) {
  const Arguments given(test.attr("args"));
  take(given, options);
  given.require_all_used(test.text("class"));
  return std::make_unique<T>(parameters, options);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Case& test,
                                                 const std::vector<Tensor>& parameters) {
  const std::string type = test.text("class");
  if (type == "SGD") return make<optim::SGD, optim::SGDOptions>(test, parameters);
  if (type == "Adam") return make<optim::Adam, optim::AdamOptions>(test, parameters);
  if (type == "AdamW") {
    return make<optim::AdamW, optim::AdamOptions>(test, parameters, {.weight_decay = 0.01});
  }
  throw UnsupportedError("optimizer " + type);
}

// The parameters after each of the steps whose gradients are given.
Outputs run_optimizer(const Case& test) {
  std::vector<Tensor> parameters;
  for (const Tensor& start : test.tensors("params")) {
    parameters.push_back(start.clone());
    parameters.back().set_requires_grad();
  }
  const std::unique_ptr<optim::Optimizer> optimizer = make_optimizer(test, parameters);
  List after;
  const Value* given = test.inputs.find("grads");
  const List* steps = given == nullptr ? nullptr : given->get_if<List>();
  if (steps == nullptr) throw FormatError("inputs: no list 'grads'");
  for (const Value& step : *steps) {
    const List* gradients = step.get_if<List>();
    if (gradients == nullptr || gradients->size() != parameters.size()) {
      throw FormatError("grads: expected a list of gradients for each step");
    }
    List values;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor* gradient = (*gradients)[i].get_if<Tensor>();
      if (gradient == nullptr) throw FormatError("grads: expected tensors");
      parameters[i].set_grad(*gradient);
    }
    optimizer->step();
    for (const Tensor& parameter : parameters) values.emplace_back(parameter.detach().clone());
    after.emplace_back(std::move(values));
  }
  Outputs outputs;
  outputs.set("params", std::move(after));
  return outputs;
}

const Registration kOps{{"optimizer", run_optimizer}};

}  // namespace
}  // namespace quanta::conform
