#pragma once

// A small training whose checkpoints are seeds, and into which a target loads changed ones.

#include <memory>
#include <vector>

#include "quanta/nn/linear.h"
#include "quanta/nn/optim/checkpoint.h"
#include "quanta/nn/optim/lr_scheduler.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/random.h"

namespace quanta::fuzz {

struct Training {
  std::shared_ptr<nn::Linear> net;
  std::unique_ptr<optim::Adam> adam;
  std::unique_ptr<optim::StepLR> schedule;
  Generator generator{1};

  Training() {
    manual_seed(1);
    net = nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 4, .out_features = 3});
    net->requires_grad_();
    adam = std::make_unique<optim::Adam>(net->parameters(),
                                         optim::AdamOptions{.lr = 0.1, .amsgrad = true});
    schedule = std::make_unique<optim::StepLR>(*adam, 2);
  }
  optim::TrainingParts parts() { return {*net, *adam, schedule.get(), generator}; }
  void step() {
    adam->zero_grad();
    mse_loss((*net)(Tensor::ones({2, 4})), Tensor::zeros({2, 3})).backward();
    adam->step();
    schedule->step();
  }
};

}  // namespace quanta::fuzz
