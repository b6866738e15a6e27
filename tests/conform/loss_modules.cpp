// The losses among the float modules.

#include <string>

#include "float_modules.h"
#include "network.h"
#include "quanta/nn/loss.h"

namespace quanta::conform {
namespace {

using Module = std::shared_ptr<nn::Module>;

Reduction reduction_of(const Arguments& arguments) {
  const std::string name = arguments.text("reduction", "mean");
  if (name == "none") return Reduction::None;
  if (name == "mean") return Reduction::Mean;
  if (name == "sum") return Reduction::Sum;
  throw FormatError("args: reduction: unknown value '" + name + "'");
}

template <typename T>
Module make_plain_loss(const Arguments& arguments) {
  return nn::make_module<T>(reduction_of(arguments));
}

Module make_smooth_l1(const Arguments& arguments) {
  return nn::make_module<nn::SmoothL1Loss>(reduction_of(arguments), arguments.number("beta", 1.0));
}

Module make_binary(const Arguments& arguments) {
  return nn::make_module<nn::BCEWithLogitsLoss>(
      BinaryLossOptions{.reduction = reduction_of(arguments)});
}

template <typename T>
Module make_class_loss(const Arguments& arguments) {
  ClassLossOptions options;
  options.reduction = reduction_of(arguments);
  options.ignore_index = arguments.integer("ignore_index", options.ignore_index);
  options.label_smoothing = arguments.number("label_smoothing", options.label_smoothing);
  return nn::make_module<T>(options);
}

std::vector<Tensor> call_loss(const ModuleCall& call) {
  return {call.as<nn::Loss>().forward(call.tensor(0), call.tensor(1))};
}

const ModuleRegistration kTypes{
    {"MSELoss", make_plain_loss<nn::MSELoss>},
    {"L1Loss", make_plain_loss<nn::L1Loss>},
    {"SmoothL1Loss", make_smooth_l1},
    {"BCEWithLogitsLoss", make_binary},
    {"NLLLoss", make_class_loss<nn::NLLLoss>},
    {"CrossEntropyLoss", make_class_loss<nn::CrossEntropyLoss>},
};

const ForwardRegistration kForwards{
    {"MSELoss", call_loss},           {"L1Loss", call_loss},  {"SmoothL1Loss", call_loss},
    {"BCEWithLogitsLoss", call_loss}, {"NLLLoss", call_loss}, {"CrossEntropyLoss", call_loss},
};

}  // namespace
}  // namespace quanta::conform
