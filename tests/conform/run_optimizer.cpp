#include <memory>
#include <vector>

#include "network.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/runtime/error.h"
#include "registry.h"

namespace quanta::conform {
namespace {

std::unique_ptr<optim::Optimizer> make_optimizer(const Case& test,
                                                 const std::vector<Tensor>& parameters) {
  const Arguments arguments(test.attr("args"));
  const std::string type = test.text("class");
  std::unique_ptr<optim::Optimizer> optimizer;
  if (type == "SGD") {
    optimizer = std::make_unique<optim::SGD>(
        parameters, optim::SGDOptions{.lr = arguments.number("lr", 1e-3),
                                      .momentum = arguments.number("momentum", 0.0),
                                      .dampening = arguments.number("dampening", 0.0),
                                      .weight_decay = arguments.number("weight_decay", 0.0),
                                      .nesterov = arguments.flag("nesterov", false)});
  } else if (type == "Adam" || type == "AdamW") {
    optim::AdamOptions options{
        .lr = arguments.number("lr", 1e-3),
        .eps = arguments.number("eps", 1e-8),
        .weight_decay = arguments.number("weight_decay", type == "AdamW" ? 0.01 : 0.0),
        .amsgrad = arguments.flag("amsgrad", false)};
    const std::vector<double> betas = arguments.numbers("betas", {0.9, 0.999});
    options.beta1 = betas.at(0);
    options.beta2 = betas.at(1);
    if (type == "Adam") {
      optimizer = std::make_unique<optim::Adam>(parameters, options);
    } else {
      optimizer = std::make_unique<optim::AdamW>(parameters, options);
    }
  } else {
    throw UnsupportedError("optimizer " + type);
  }
  arguments.require_all_used(type);
  return optimizer;
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
