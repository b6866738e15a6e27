#pragma once

#include <cstdint>
#include <vector>

#include "quanta/nn/optim/optimizer.h"

// Constructors and functions throw ArgumentError for numbers out of range. A schedule is for one
// thread at a time, as its optimizer is.

namespace quanta::optim {

/// A learning rate that changes with the number of steps. Construct it after the optimizer, which
/// has to outlive it, and call step() after the optimizer's (each batch or each epoch, as the
/// schedule is meant). Learning rates are calculated from the optimizer's initial ones, so that a
/// training that was stopped goes on with set_last_step.
class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  void step() { set_last_step(last_step_ + 1); }
  std::int64_t last_step() const noexcept { return last_step_; }
  /// Sets the learning rates of step `step` (>= 0).
  void set_last_step(std::int64_t step);

 protected:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(&optimizer) {}
  /// The learning rate of a group at a step.
  virtual double lr_at(std::int64_t step, double initial_lr) const = 0;

 private:
  Optimizer* optimizer_;
  std::int64_t last_step_ = 0;
};

/// initial * gamma^(step / step_size), whole steps.
class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1);

 private:
  double lr_at(std::int64_t step, double initial_lr) const override;
  std::int64_t step_size_;
  double gamma_;
};

/// initial * gamma^(milestones that have passed).
class MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<std::int64_t> milestones, double gamma = 0.1);

 private:
  double lr_at(std::int64_t step, double initial_lr) const override;
  std::vector<std::int64_t> milestones_;
  double gamma_;
};

/// eta_min + (initial - eta_min) * (1 + cos(pi * step / t_max)) / 2.
class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min = 0.0);

 private:
  double lr_at(std::int64_t step, double initial_lr) const override;
  std::int64_t t_max_;
  double eta_min_;
};

struct OneCycleOptions {
  double max_lr = 0.0;
  std::int64_t total_steps = 0;
  double pct_start = 0.3;         ///< share of the steps in which the rate rises
  double div_factor = 25.0;       ///< it starts at max_lr / div_factor
  double final_div_factor = 1e4;  ///< and ends at that / final_div_factor
};

/// Up to max_lr and down again along cosines (Smith and Topin 2018), as torch's OneCycleLR with
/// anneal_strategy "cos" (momentum stays as it is). Throws ArgumentError beyond total_steps, the
/// number of steps after the last one.
class OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options);

 private:
  double lr_at(std::int64_t step, double initial_lr) const override;
  OneCycleOptions options_;
};

}  // namespace quanta::optim
