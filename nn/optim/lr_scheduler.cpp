#include "quanta/nn/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "quanta/runtime/check.h"

namespace quanta::optim {
namespace {

void check_gamma(std::string_view op, double gamma) {
  QUANTA_CHECK(std::isfinite(gamma) && gamma > 0.0, "{}: gamma: expected a number > 0, got {}", op,
               gamma);
}

// From `begin` to `end` along half a cosine, `share` 0..1 of the way.
double anneal(double begin, double end, double share) {
  return end + (begin - end) / 2.0 * (1.0 + std::cos(std::numbers::pi * share));
}

}  // namespace

void LRScheduler::set_last_step(std::int64_t step) {
  QUANTA_CHECK(step >= 0, "LRScheduler: step: expected >= 0, got {}", step);
  std::vector<double> rates;
  for (const ParameterGroup& group : optimizer_->groups()) {
    rates.push_back(lr_at(step, group.initial_lr));
  }
  for (std::size_t i = 0; i < rates.size(); ++i) optimizer_->set_lr(i, rates[i]);
  last_step_ = step;
}

StepLR::StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  QUANTA_CHECK(step_size >= 1, "StepLR: step_size: expected at least 1, got {}", step_size);
  check_gamma("StepLR", gamma);
}

double StepLR::lr_at(std::int64_t step, double initial_lr) const {
  const std::int64_t periods = step / step_size_;
  return initial_lr * std::pow(gamma_, static_cast<double>(periods));
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<std::int64_t> milestones, double gamma)
    : LRScheduler(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  QUANTA_CHECK(std::is_sorted(milestones_.begin(), milestones_.end()),
               "MultiStepLR: milestones: expected rising numbers, got {} that are not",
               milestones_.size());
  check_gamma("MultiStepLR", gamma);
}

double MultiStepLR::lr_at(std::int64_t step, double initial_lr) const {
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), step);
  return initial_lr * std::pow(gamma_, static_cast<double>(passed - milestones_.begin()));
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min)
    : LRScheduler(optimizer), t_max_(t_max), eta_min_(eta_min) {
  QUANTA_CHECK(t_max >= 1, "CosineAnnealingLR: t_max: expected at least 1, got {}", t_max);
  QUANTA_CHECK(std::isfinite(eta_min) && eta_min >= 0.0,
               "CosineAnnealingLR: eta_min: expected a number >= 0, got {}", eta_min);
}

double CosineAnnealingLR::lr_at(std::int64_t step, double initial_lr) const {
  return anneal(initial_lr, eta_min_, static_cast<double>(step) / static_cast<double>(t_max_));
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options)
    : LRScheduler(optimizer), options_(options) {
  QUANTA_CHECK(options.total_steps >= 1, "OneCycleLR: total_steps: expected at least 1, got {}",
               options.total_steps);
  QUANTA_CHECK(std::isfinite(options.max_lr) && options.max_lr > 0.0,
               "OneCycleLR: max_lr: expected a number > 0, got {}", options.max_lr);
  QUANTA_CHECK(options.pct_start >= 0.0 && options.pct_start <= 1.0,
               "OneCycleLR: pct_start: expected 0..1, got {}", options.pct_start);
  QUANTA_CHECK(options.div_factor > 0.0, "OneCycleLR: div_factor: expected > 0, got {}",
               options.div_factor);
  QUANTA_CHECK(options.final_div_factor > 0.0, "OneCycleLR: final_div_factor: expected > 0, got {}",
               options.final_div_factor);
  set_last_step(0);
}

double OneCycleLR::lr_at(std::int64_t step, double) const {
  QUANTA_CHECK(step <= options_.total_steps,
               "OneCycleLR: step: expected at most the {} steps of the cycle, got {}",
               options_.total_steps, step);
  const double first = options_.max_lr / options_.div_factor;
  const double last = first / options_.final_div_factor;
  const auto at = static_cast<double>(step);
  const double top = options_.pct_start * static_cast<double>(options_.total_steps) - 1.0;
  const double end = static_cast<double>(options_.total_steps - 1);
  if (at >= end) return last;
  if (at <= top) return anneal(first, options_.max_lr, at / top);
  return anneal(options_.max_lr, last, (at - top) / (end - top));
}

}  // namespace quanta::optim
