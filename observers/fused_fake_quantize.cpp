#include "quanta/observers/fused_fake_quantize.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/observers/detail/reduce.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quant_math.h"

namespace quanta {
namespace {

constexpr std::string_view kOp = "fused_moving_avg_obs_fake_quant";

void check_tensor(const Tensor& x) {
  QUANTA_CHECK(x.defined() && x.is_floating_point(), "{}: x: expected a floating tensor, got {}",
               kOp, x.defined() ? to_string(x.dtype()) : "an undefined one");
}

void check_call(const Tensor& x, const MovingAverageState& state,
                const FusedFakeQuantOptions& options) {
  check_tensor(x);
  QUANTA_CHECK(options.averaging_const >= 0.0 && options.averaging_const <= 1.0,
               "{}: averaging_const: expected 0..1, got {}", kOp, options.averaging_const);
  QUANTA_CHECK(options.quant_min < options.quant_max && options.quant_min >= -(1LL << 30) &&
                   options.quant_max <= 1LL << 30,
               "{}: quant_min: expected quant_min < quant_max within 31 bits, got {} and {}", kOp,
               options.quant_min, options.quant_max);
  QUANTA_CHECK(state.running_min.defined() && state.running_max.defined() &&
                   state.running_min.is_floating_point() && state.running_max.is_floating_point() &&
                   state.running_min.numel() == state.running_max.numel() &&
                   state.running_min.dim() <= 1,
               "{}: running_min: expected floating tensors of at most one dimension and equal "
               "sizes for running_min and running_max",
               kOp);
}

using BatchReduction = RangeObserver::BatchReduction;

ValueRange batch_range(const Tensor& x, const FusedFakeQuantOptions& options) {
  std::optional<std::int64_t> axis;
  if (options.per_row_fake_quant) axis = wrap_dim(options.ch_axis, x.dim(), kOp, "ch_axis");
  ValueRange batch = detail::batch_range(x.detach(), axis);
  if (x.numel() == 0) return batch;
  for (std::size_t c = 0; c < batch.min.size(); ++c) {
    QUANTA_CHECK(std::isfinite(batch.min[c]) && std::isfinite(batch.max[c]),
                 "{}: x: expected finite values, got a range of {}..{}", kOp, batch.min[c],
                 batch.max[c]);
  }
  return batch;
}

float moved(float running, float batch, float constant) {
  return std::isinf(running) ? batch : running + constant * (batch - running);
}

ValueRange running_range(const MovingAverageState& state) {
  return {state.running_min.to_float_vector(), state.running_max.to_float_vector()};
}

// The batch's range, of all of its parts where they are elsewhere; none where all are empty.
std::optional<ValueRange> observed_range(const Tensor& x, const FusedFakeQuantOptions& options,
                                         const BatchReduction& reduce) {
  ValueRange batch = batch_range(x, options);
  if (reduce) reduce(batch);
  if (batch.min.empty() || batch.min[0] > batch.max[0]) return std::nullopt;
  return batch;
}

void observe(const ValueRange& batch, const FusedFakeQuantOptions& options, ValueRange& running) {
  if (running.min.empty()) {
    running = batch;
    return;
  }
  QUANTA_CHECK(running.min.size() == batch.min.size(),
               "{}: x: expected {} rows along axis {} as before, got {}", kOp, running.min.size(),
               options.ch_axis, batch.min.size());
  const auto constant = static_cast<float>(options.averaging_const);
  for (std::size_t c = 0; c < batch.min.size(); ++c) {
    running.min[c] = moved(running.min[c], batch.min[c], constant);
    running.max[c] = moved(running.max[c], batch.max[c], constant);
  }
}

Tensor tensor_like(const std::vector<float>& values, const Tensor& before) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor::from_values(values, before.numel() == count ? before.sizes() : Dims{count});
}

void choose_parameters(const ValueRange& running, const FusedFakeQuantOptions& options,
                       MovingAverageState& state) {
  const auto count = static_cast<std::int64_t>(running.min.size());
  state.scale = Tensor::empty({count});
  state.zero_point = Tensor::empty({count}, DType::Int32);
  auto* scale = state.scale.mutable_data<float>();
  auto* zero_point = state.zero_point.mutable_data<std::int32_t>();
  math::ChooseOptions choose;
  choose.preserve_sparsity = options.symmetric_quant;
  choose.of_fbgemm = true;
  for (std::size_t c = 0; c < running.min.size(); ++c) {
    const math::QParams chosen = math::choose_qparams(
        running.min[c], running.max[c], static_cast<std::int32_t>(options.quant_min),
        static_cast<std::int32_t>(options.quant_max), choose);
    scale[c] = static_cast<float>(chosen.scale);
    zero_point[c] = static_cast<std::int32_t>(chosen.zero_point);
  }
}

void require_observed(const ValueRange& running) {
  bool observed = !running.min.empty();
  for (std::size_t c = 0; c < running.min.size(); ++c) {
    observed = observed && running.min[c] <= running.max[c] && std::isfinite(running.min[c]) &&
               std::isfinite(running.max[c]);
  }
  QUANTA_CHECK(observed,
               "{}: running_min: expected a finite range (let the observer see data first), got "
               "none",
               kOp);
}

// Takes in x and chooses anew, as asked for; gives whether x is to be fake-quantized.
bool advance(const Tensor& x, MovingAverageState& state, const FusedFakeQuantOptions& options,
             const BatchReduction& reduce = {}) {
  check_call(x, state, options);
  const bool is_reduced = options.observer_on && reduce;
  if ((!options.observer_on && !options.fake_quant_on) || (x.numel() == 0 && !is_reduced)) {
    return false;
  }
  ValueRange running = running_range(state);
  MovingAverageState next = state;
  if (options.observer_on) {
    const std::optional<ValueRange> batch = observed_range(x, options, reduce);
    if (!batch) return false;
    observe(*batch, options, running);
    next.running_min = tensor_like(running.min, state.running_min);
    next.running_max = tensor_like(running.max, state.running_max);
  }
  if (options.fake_quant_on) {
    require_observed(running);
    choose_parameters(running, options, next);
  }
  state = next;
  return options.fake_quant_on;
}

// `scale` and `zero_point` are where x is.
Tensor fake_quantized(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                      const FusedFakeQuantOptions& options) {
  return options.per_row_fake_quant
             ? fake_quantize_per_channel_affine(x, scale, zero_point, options.ch_axis,
                                                options.quant_min, options.quant_max)
             : fake_quantize_per_tensor_affine(x, scale, zero_point, options.quant_min,
                                               options.quant_max);
}

}  // namespace

Tensor fused_moving_avg_obs_fake_quant(const Tensor& x, MovingAverageState& state,
                                       const FusedFakeQuantOptions& options) {
  MovingAverageState next = state;
  const bool changes = advance(x, next, options);
  Tensor y = x;
  if (changes) {
    y = fake_quantized(x, next.scale.to(x.device()), next.zero_point.to(x.device()), options);
  }
  state = next;
  return y;
}

FusedMovingAvgObsFakeQuantize::FusedMovingAvgObsFakeQuantize(const ObserverFactory& observer)
    : FakeQuantize("FusedMovingAvgObsFakeQuantize", observer) {
  const Settings settings = this->observer()->settings();
  const Setting* constant = settings.find("averaging_constant");
  QUANTA_CHECK(
      constant != nullptr && dynamic_cast<RangeObserver*>(this->observer().get()) != nullptr,
      "FusedMovingAvgObsFakeQuantize: observer: expected a MovingAverageMinMaxObserver or "
      "MovingAveragePerChannelMinMaxObserver, got a {}",
      this->observer()->name());
  QUANTA_CHECK(qscheme() != QScheme::PerChannelAffineFloatQParams,
               "FusedMovingAvgObsFakeQuantize: observer: expected integer zero points "
               "(FakeQuantize takes floating ones), got {}",
               qscheme());
  averaging_constant_ = std::get<double>(*constant);
}

ObserverFactory FusedMovingAvgObsFakeQuantize::with_args(const ObserverFactory& observer) {
  static_cast<void>(FusedMovingAvgObsFakeQuantize(observer));
  return {"FusedMovingAvgObsFakeQuantize(observer=" + observer.name + ")",
          [observer] { return std::make_shared<FusedMovingAvgObsFakeQuantize>(observer); }};
}

std::shared_ptr<Collector> FusedMovingAvgObsFakeQuantize::copy() const {
  const std::lock_guard lock(step_mutex_);
  return std::shared_ptr<FusedMovingAvgObsFakeQuantize>(new FusedMovingAvgObsFakeQuantize(*this));
}

RangeObserver& FusedMovingAvgObsFakeQuantize::range_observer() const {
  return static_cast<RangeObserver&>(*observer());
}

FusedFakeQuantOptions FusedMovingAvgObsFakeQuantize::step_options(Switches on) const {
  FusedFakeQuantOptions options;
  options.averaging_const = averaging_constant_;
  options.quant_min = quant_min();
  options.quant_max = quant_max();
  options.ch_axis = ch_axis();
  options.per_row_fake_quant = is_per_channel(qscheme());
  options.symmetric_quant =
      qscheme() == QScheme::PerTensorSymmetric || qscheme() == QScheme::PerChannelSymmetric;
  options.observer_on = on.observer;
  options.fake_quant_on = on.fake_quant;
  return options;
}

Digest FusedMovingAvgObsFakeQuantize::digest(const Tensor& x) const {
  check_tensor(x);
  const BatchReduction reduce = range_observer().batch_reduction();
  if (x.numel() == 0 && !reduce) return {};
  std::optional<ValueRange> batch =
      observed_range(x, step_options({.fake_quant = false, .observer = true}), reduce);
  if (!batch) return {};
  return {.range = std::move(*batch)};
}

bool FusedMovingAvgObsFakeQuantize::absorb(const Digest& digest) {
  const FusedFakeQuantOptions options = step_options({.fake_quant = false, .observer = true});
  const std::lock_guard lock(step_mutex_);
  const Tensor min = range_observer().min_val();
  const Tensor max = range_observer().max_val();
  ValueRange running{min.to_float_vector(), max.to_float_vector()};
  observe(digest.range, options, running);
  range_observer().set_range(tensor_like(running.min, min), tensor_like(running.max, max));
  return true;
}

// torch gives the range of all channels its size with the first x, be it observed or not.
void FusedMovingAvgObsFakeQuantize::size_range(const Tensor& x) {
  if (x.numel() == 0 || range_observer().min_val().numel() != 0) return;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Dims sizes{x.size(wrap_dim(ch_axis(), x.dim(), kOp, "ch_axis"))};
  range_observer().set_range(Tensor::full(sizes, kInfinity), Tensor::full(sizes, -kInfinity));
}

Tensor FusedMovingAvgObsFakeQuantize::forward(const Tensor& x) {
  const Switches on = switches();
  if (on.observer && !on.fake_quant) {
    update(x);
    return x;
  }
  const FusedFakeQuantOptions options = step_options(on);
  const std::lock_guard lock(step_mutex_);
  const QParams before = qparams();
  MovingAverageState state{range_observer().min_val(), range_observer().max_val(), before.scale,
                           before.zero_point};
  const bool changes = advance(x, state, options, range_observer().batch_reduction());
  if (on.observer) {
    range_observer().set_range(state.running_min, state.running_max);
  } else if (options.per_row_fake_quant) {
    size_range(x);
  }
  set_qparams({state.scale, state.zero_point});
  if (!changes) return x;
  const QParams used = qparams_on(x.device());
  return fake_quantized(x, used.scale, used.zero_point, options);
}

}  // namespace quanta
