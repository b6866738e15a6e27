#include "quanta/observers/modelopt/calibrator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/float_format.h"

namespace quanta::modelopt {
namespace {

void check_floating(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined() && x.is_floating_point(), "{}: x: expected a floating tensor, got {}",
               op, x.defined() ? to_string(x.dtype()) : "an undefined one");
}

std::vector<float> steps_between(const MseCalibrator::Options& options) {
  const double start = options.start_multiplier;
  const double stop = options.stop_multiplier;
  QUANTA_CHECK(start > 0.0 && start <= stop && std::isfinite(stop),
               "MseCalibrator: start_multiplier: expected 0 < start <= stop, got {} and {}", start,
               stop);
  QUANTA_CHECK(options.step_size > 0.0 && (stop - start) / options.step_size < 1e6,
               "MseCalibrator: step_size: expected a number > 0 with fewer than 1e6 steps, got {}",
               options.step_size);
  const auto count = static_cast<std::int64_t>(std::ceil((stop - start) / options.step_size)) + 1;
  // torch.linspace: from both ends towards the middle.
  const auto first = static_cast<float>(start);
  const auto last = static_cast<float>(stop);
  const float step = count > 1 ? (last - first) / static_cast<float>(count - 1) : 0.0F;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(i < count / 2 ? first + step * static_cast<float>(i)
                                   : last - step * static_cast<float>(count - 1 - i));
  }
  return values;
}

// The positive finite numbers of E4M3 as parts of the largest.
std::vector<float> e4m3_parts() {
  std::vector<float> parts;
  for (std::uint16_t code = 1; code <= math::kE4M3FN.max_code(); ++code) {
    parts.push_back(math::decode_float(code, math::kE4M3FN) / math::kE4M3FN.max());
  }
  return parts;
}

// Running elementwise choice.
template <typename Choose>
void update(const Tensor& running, const Tensor& batch, Choose&& choose) {
  auto* to = running.mutable_data<float>();
  const auto* from = static_cast<const float*>(batch.data_ptr());
  for (std::int64_t i = 0; i < running.numel(); ++i) to[i] = choose(to[i], from[i]);
}

template <typename Reduce>
Tensor over_axes(const Tensor& x, const Dims& axes, Reduce&& reduce) {
  Tensor result = x;
  for (const std::int64_t axis : axes) result = reduce(result, axis).values;
  return result.contiguous();
}

}  // namespace

void MaxCalibrator::collect(const Tensor& x) {
  check_floating("MaxCalibrator", x);
  if (x.numel() == 0) return;
  const Tensor amax = reduce_amax(x, axis_);
  const auto* values = static_cast<const float*>(amax.data_ptr());
  for (std::int64_t i = 0; i < amax.numel(); ++i) {
    QUANTA_CHECK(std::isfinite(values[i]), "MaxCalibrator: x: expected finite values, got amax {}",
                 values[i]);
  }
  if (!amax_.defined()) {
    amax_ = amax.clone();
  } else {
    QUANTA_CHECK(amax.sizes() == amax_.sizes(),
                 "MaxCalibrator: x: expected amax to keep the shape {}, got {}", amax_.sizes(),
                 amax.sizes());
    // A new tensor: whoever asked for amax before keeps what was true then.
    amax_ = amax_.clone();
    update(amax_, amax, [](float a, float b) { return std::max(a, b); });
  }
  if (track_ == Track::EveryAmax) amaxs_.push_back(amax);
}

void MaxCalibrator::reset() {
  amax_ = {};
  amaxs_.clear();
}

std::unique_ptr<Calibrator> MaxCalibrator::clone() const {
  return std::make_unique<MaxCalibrator>(*this);
}

MseCalibrator::MseCalibrator(Tensor initial_amax, Options options)
    : MseCalibrator(std::move(initial_amax), options, steps_between(options)) {}

MseCalibrator::MseCalibrator(Tensor initial_amax, Options options, std::vector<float> multipliers)
    : multipliers_(std::move(multipliers)), options_(std::move(options)) {
  check_floating("MseCalibrator: initial_amax", initial_amax);
  initial_amax_ = initial_amax.detach().to(DType::Float32).contiguous();
}

Tensor MseCalibrator::candidate(std::size_t i) const {
  return mul(initial_amax_, Tensor::scalar(static_cast<double>(multipliers_[i])));
}

void MseCalibrator::collect(const Tensor& x) {
  const std::string op = name();
  check_floating(op, x);
  QUANTA_CHECK(static_cast<bool>(options_.quant_func),
               "{}: quant_func: expected a quantization function, got none", op);
  if (x.numel() == 0) return;
  const autograd::NoGradGuard guard;
  const Tensor values = x.detach().to(DType::Float32);
  Dims reduced;
  const Dims kept = wrap_axes(options_.axis, x.dim(), op, "axis");
  for (std::int64_t axis = 0; axis < x.dim(); ++axis) {
    if (std::find(kept.begin(), kept.end(), axis) == kept.end()) reduced.push_back(axis);
  }
  std::vector<std::vector<double>> losses = losses_;
  losses.resize(multipliers_.size());
  for (std::size_t i = 0; i < multipliers_.size(); ++i) {
    const Tensor error = sub(values, options_.quant_func(values, candidate(i)));
    const Tensor squares = mul(error, error);
    const std::vector<float> sums =
        (reduced.empty() ? squares : sum(squares, reduced, {true})).to_float_vector();
    QUANTA_CHECK(static_cast<std::int64_t>(sums.size()) == initial_amax_.numel(),
                 "{}: axis: expected as many kept elements as initial_amax has ({}), got {}", op,
                 initial_amax_.numel(), sums.size());
    losses[i].resize(sums.size());
    for (std::size_t c = 0; c < sums.size(); ++c) losses[i][c] += static_cast<double>(sums[c]);
  }
  losses_ = std::move(losses);
}

Tensor MseCalibrator::compute_amax() const {
  if (losses_.empty()) return {};
  Tensor amax = Tensor::empty(initial_amax_.sizes());
  auto* to = static_cast<float*>(amax.data_ptr());
  std::vector<std::vector<float>> amaxs;
  for (std::size_t i = 0; i < multipliers_.size(); ++i) {
    amaxs.push_back(candidate(i).expand(initial_amax_.sizes()).to_float_vector());
  }
  for (std::size_t c = 0; c < losses_[0].size(); ++c) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < losses_.size(); ++i) {
      if (losses_[i][c] < losses_[best][c]) best = i;
    }
    to[c] = amaxs[best][c];
  }
  return amax;
}

Tensor MseCalibrator::losses() const {
  if (losses_.empty()) return {};
  const auto steps = static_cast<std::int64_t>(losses_.size());
  const bool single = initial_amax_.dim() == 0;
  Tensor result =
      Tensor::empty(single ? Dims{steps} : Dims{steps, initial_amax_.numel()}, DType::Float32);
  auto* to = static_cast<float*>(result.data_ptr());
  for (const std::vector<double>& each : losses_) {
    for (const double loss : each) *to++ = static_cast<float>(loss);
  }
  return result;
}

std::unique_ptr<Calibrator> MseCalibrator::clone() const {
  return std::make_unique<MseCalibrator>(*this);
}

NvFp4MseCalibrator::NvFp4MseCalibrator(const Tensor& initial_amax, const Tensor& global_amax,
                                       Options options)
    : MseCalibrator(initial_amax, std::move(options), e4m3_parts()) {
  check_floating("NvFp4MseCalibrator: global_amax", global_amax);
  QUANTA_CHECK(global_amax.numel() == 1,
               "NvFp4MseCalibrator: global_amax: expected one element, got {}",
               global_amax.sizes());
  global_amax_ = global_amax.detach().to(DType::Float32).reshape({});
}

Tensor NvFp4MseCalibrator::candidate(std::size_t i) const {
  const Tensor each = mul(global_amax_, Tensor::scalar(static_cast<double>(multipliers_[i])));
  return each.expand(initial_amax_.sizes()).contiguous();
}

void NvFp4MseCalibrator::collect(const Tensor& x) {
  QUANTA_CHECK(!has_data(),
               "NvFp4MseCalibrator: x: expected one tensor between resets, got another");
  MseCalibrator::collect(x);
}

std::unique_ptr<Calibrator> NvFp4MseCalibrator::clone() const {
  return std::make_unique<NvFp4MseCalibrator>(*this);
}

BiasCalibrator::Method BiasCalibrator::method_from_name(std::string_view name) {
  if (name == "mean") return Method::Mean;
  QUANTA_CHECK(name == "max_min", "BiasCalibrator: method: expected mean or max_min, got {}", name);
  return Method::MaxMin;
}

void BiasCalibrator::collect(const Tensor& x) {
  constexpr std::string_view kOp = "BiasCalibrator";
  check_floating(kOp, x);
  if (x.numel() == 0) return;
  const Tensor values = x.detach().to(DType::Float32);
  const Dims axes = wrap_axes(axis_, x.dim(), kOp, "axis");
  const ReduceOptions keep{true};
  const Tensor batch_mean = axes.empty() ? values.clone() : quanta::mean(values, axes, keep);
  const Tensor batch_min = over_axes(
      values, axes, [&](const Tensor& t, std::int64_t axis) { return quanta::min(t, axis, keep); });
  const Tensor batch_max = over_axes(
      values, axes, [&](const Tensor& t, std::int64_t axis) { return quanta::max(t, axis, keep); });
  if (batches_ == 0) {
    mean_ = batch_mean.contiguous();
    min_ = batch_min.clone();
    max_ = batch_max.clone();
  } else {
    QUANTA_CHECK(batch_mean.sizes() == mean_.sizes(),
                 "{}: x: expected the bias to keep the shape {}, got {}", kOp, mean_.sizes(),
                 batch_mean.sizes());
    const auto seen = static_cast<float>(batches_);
    update(mean_, batch_mean.contiguous(),
           [&](float a, float b) { return (a * seen + b) / (seen + 1.0F); });
    update(min_, batch_min, [](float a, float b) { return std::min(a, b); });
    update(max_, batch_max, [](float a, float b) { return std::max(a, b); });
  }
  ++batches_;
}

Tensor BiasCalibrator::compute_bias() const {
  if (batches_ == 0) return {};
  if (method_ == Method::Mean) return mean_.clone();
  return mul(add(min_, max_), Tensor::scalar(0.5));
}

void BiasCalibrator::reset() {
  batches_ = 0;
  mean_ = min_ = max_ = {};
}

}  // namespace quanta::modelopt
