// The losses among the float modules.

#include <vector>

#include "float_modules.h"
#include "network.h"
#include "options.h"
#include "quanta/nn/loss.h"

namespace quanta::conform {
namespace {

const Parameter kReduction{"reduction", "mean"};

std::vector<Tensor> call_loss(const ModuleCall& call) {
  return {call.as<nn::Loss>().forward(call.tensor(0), call.tensor(1))};
}

const ModuleRegistration kTypes{
    {"MSELoss", factory<nn::MSELoss, Reduction>({kReduction})},
    {"L1Loss", factory<nn::L1Loss, Reduction>({kReduction})},
    {"SmoothL1Loss", factory<nn::SmoothL1Loss, Reduction, double>({kReduction, {"beta", 1.0}})},
    {"BCEWithLogitsLoss", factory<nn::BCEWithLogitsLoss, BinaryLossOptions>()},
    {"NLLLoss", factory<nn::NLLLoss, ClassLossOptions>()},
    {"CrossEntropyLoss", factory<nn::CrossEntropyLoss, ClassLossOptions>()},
};

const ForwardRegistration kForwards{
    {"MSELoss", call_loss},           {"L1Loss", call_loss},  {"SmoothL1Loss", call_loss},
    {"BCEWithLogitsLoss", call_loss}, {"NLLLoss", call_loss}, {"CrossEntropyLoss", call_loss},
};

}  // namespace
}  // namespace quanta::conform
