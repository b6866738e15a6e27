#include "quanta/observers/modelopt/calibrator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/reduce.h"
#include "quanta/observers/detail/state.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/float_format.h"

namespace quanta::modelopt {
namespace {

constexpr std::array<std::string_view, 2> kBiasMethods{"mean", "max_min"};

// What the constructors of calibrators take, as far as it can be named.
struct MaxOptions {
  Dims axis{};
  bool track_amax = false;
};
void describe(MaxOptions& options, SettingFields& fields) {
  fields("axis", options.axis);
  fields("track_amax", options.track_amax);
}

struct BiasOptions {
  BiasCalibrator::Method method = BiasCalibrator::Method::Mean;
  Dims axis{};
};
void describe(BiasOptions& options, SettingFields& fields) {
  fields.choice("method", options.method, kBiasMethods);
  fields("axis", options.axis);
}

Tensor own_floats(std::string_view argument, const Tensor& values) {
  QUANTA_CHECK(values.defined() && values.is_floating_point(),
               "{}: expected a floating tensor, got {}", argument,
               values.defined() ? to_string(values.dtype()) : "an undefined one");
  return values.detach().to(DType::Float32).contiguous();
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

Tensor elementwise_max(const Tensor& lhs, const Tensor& rhs) {
  Tensor result = lhs.clone();
  auto* to = result.mutable_data<float>();
  const auto* from = rhs.data<float>();
  for (std::int64_t i = 0; i < result.numel(); ++i) to[i] = std::max(to[i], from[i]);
  return result;
}

}  // namespace

// Max --------------------------------------------------------------------------------------------

Settings MaxCalibrator::settings() const {
  return settings_of(MaxOptions{axis_, track_ == Track::EveryAmax});
}

// Called with the lock.
void MaxCalibrator::take(const Tensor& amax, std::string_view what) {
  if (!amax_.defined()) {
    amax_ = amax.clone();
    return;
  }
  QUANTA_CHECK(amax.sizes() == amax_.sizes(),
               "MaxCalibrator: {}: expected amax to keep the shape {}, got {}", what, amax_.sizes(),
               amax.sizes());
  amax_ = elementwise_max(amax_, amax);
}

Digest MaxCalibrator::digest(const Tensor& x) const {
  require_floating(x, Devices::All);
  if (x.numel() == 0) return {};
  const Tensor amax = reduce_amax(x, axis_);
  Digest found{.values = amax.to_float_vector(), .shape = amax.sizes()};
  for (const float value : found.values) {
    QUANTA_CHECK(std::isfinite(value), "MaxCalibrator: x: expected finite values, got amax {}",
                 value);
  }
  return found;
}

bool MaxCalibrator::absorb(const Digest& digest) {
  const Tensor amax = Tensor::from_values(digest.values, digest.shape);
  const std::lock_guard lock(mutex_);
  take(amax, "x");
  if (track_ == Track::EveryAmax) amaxs_.push_back(amax);
  return true;
}

bool MaxCalibrator::has_data() const {
  const std::lock_guard lock(mutex_);
  return amax_.defined();
}

void MaxCalibrator::reset() {
  const std::lock_guard lock(mutex_);
  amax_ = {};
  amaxs_.clear();
}

void MaxCalibrator::merge(const Collector& other) {
  require_same_kind(other);
  const auto& source = static_cast<const MaxCalibrator&>(other);
  const Tensor theirs = source.compute_amax();
  const std::vector<Tensor> all = source.amaxs();
  if (!theirs.defined()) return;
  const std::lock_guard lock(mutex_);
  take(theirs, "merge");
  amaxs_.insert(amaxs_.end(), all.begin(), all.end());
}

Tensor MaxCalibrator::compute_amax() const {
  const std::lock_guard lock(mutex_);
  return amax_;
}

std::vector<Tensor> MaxCalibrator::amaxs() const {
  const std::lock_guard lock(mutex_);
  return amaxs_;
}

void MaxCalibrator::save_state(StateDict& state, const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  if (!amax_.defined()) return;
  state.set(prefix + "amax", amax_);
  if (track_ == Track::Nothing) return;
  Dims sizes = amax_.sizes();
  sizes.insert(0, static_cast<std::int64_t>(amaxs_.size()));
  std::vector<float> values;
  for (const Tensor& each : amaxs_) {
    const std::vector<float> one = each.to_float_vector();
    values.insert(values.end(), one.begin(), one.end());
  }
  state.set(prefix + "amaxs", Tensor::from_values(values, sizes));
}

void MaxCalibrator::load_state(const StateDict& state, const std::string& prefix) {
  const Tensor amax = quanta::detail::optional_state(state, prefix + "amax");
  std::vector<Tensor> all;
  if (amax.defined()) {
    for (const float value : amax.to_float_vector()) {
      QUANTA_CHECK(std::isfinite(value) && value >= 0.0F,
                   "load_state_dict: {}amax: expected finite values >= 0, got {}", prefix, value);
    }
  }
  if (amax.defined() && track_ == Track::EveryAmax) {
    const Tensor rows = quanta::detail::tensor_state(state, prefix + "amaxs");
    Dims sizes = rows.sizes();
    if (!sizes.empty()) sizes.erase(0);
    QUANTA_CHECK(rows.dim() > 0 && sizes == amax.sizes(),
                 "load_state_dict: {}amaxs: expected the sizes {} behind the first, got {}", prefix,
                 amax.sizes(), rows.sizes());
    for (std::int64_t i = 0; i < rows.size(0); ++i) all.push_back(rows.select(0, i).clone());
  }
  const std::lock_guard lock(mutex_);
  amax_ = amax;
  amaxs_ = std::move(all);
}

// Mean squared error -----------------------------------------------------------------------------

void describe(MseCalibrator::Options& options, SettingFields& fields) {
  fields("axis", options.axis);
  fields("step_size", options.step_size);
  fields("start_multiplier", options.start_multiplier);
  fields("stop_multiplier", options.stop_multiplier);
}

MseCalibrator::MseCalibrator(const Tensor& initial_amax, const Options& options)
    : MseCalibrator(initial_amax, options, steps_between(options)) {}

MseCalibrator::MseCalibrator(const Tensor& initial_amax, Options options,
                             std::vector<float> multipliers)
    : options_(std::move(options)),
      multipliers_(std::move(multipliers)),
      initial_amax_(own_floats("MseCalibrator: initial_amax", initial_amax)) {}

Settings MseCalibrator::settings() const { return settings_of(options_); }

Tensor MseCalibrator::candidate(std::size_t i) const {
  return mul(initial_amax_, Tensor::scalar(static_cast<double>(multipliers_[i])));
}

Digest MseCalibrator::digest(const Tensor& x) const {
  const std::string op = name();
  require_floating(x, Devices::All);
  QUANTA_CHECK(static_cast<bool>(options_.quant_func),
               "{}: quant_func: expected a quantization function, got none", op);
  const autograd::NoGradGuard guard;
  const std::lock_guard lock(mutex_);
  check_more();
  if (x.numel() == 0) return {};
  const Tensor values = x.detach().to(DType::Float32);
  quanta::detail::require_finite(
      op, quanta::detail::tensor_range(quanta::detail::dense_floats(values)));
  Dims reduced;
  const Dims kept = wrap_axes(options_.axis, x.dim(), op, "axis");
  for (std::int64_t axis = 0; axis < x.dim(); ++axis) {
    if (std::find(kept.begin(), kept.end(), axis) == kept.end()) reduced.push_back(axis);
  }
  // All sums come back at once. A candidate still waits once, for the check of its amax.
  std::vector<Tensor> of_candidates;
  for (std::size_t i = 0; i < multipliers_.size(); ++i) {
    const Tensor amax = candidate(i).to(values.device());
    const Tensor error = sub(values, options_.quant_func(values, amax));
    const Tensor squares = mul(error, error);
    const Tensor sums = reduced.empty() ? squares : sum(squares, reduced, {true});
    QUANTA_CHECK(sums.numel() == initial_amax_.numel(),
                 "{}: axis: expected as many kept elements as initial_amax has ({}), got {}", op,
                 initial_amax_.numel(), sums.numel());
    of_candidates.push_back(sums.reshape({-1}));
  }
  return {.values = cat(of_candidates).to_float_vector()};
}

bool MseCalibrator::absorb(const Digest& digest) {
  const std::vector<float>& sums = digest.values;
  const std::lock_guard lock(mutex_);
  check_more();
  const auto channels = static_cast<std::size_t>(initial_amax_.numel());
  QUANTA_CHECK(sums.size() == candidates() * channels,
               "{}: digest: expected errors of {} candidates for {} elements, got {}", name(),
               candidates(), channels, sums.size());
  losses_.resize(candidates());
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    losses_[i].resize(channels);
    for (std::size_t c = 0; c < channels; ++c) {
      losses_[i][c] += static_cast<double>(sums[i * channels + c]);
    }
  }
  return true;
}

bool MseCalibrator::has_data() const {
  const std::lock_guard lock(mutex_);
  return has_losses();
}

void MseCalibrator::reset() {
  const std::lock_guard lock(mutex_);
  losses_.clear();
}

void MseCalibrator::merge(const Collector& other) {
  require_same_kind(other);
  const std::shared_ptr<Collector> copied = other.clone();
  const auto& source = static_cast<const MseCalibrator&>(*copied);
  const std::lock_guard lock(mutex_);
  QUANTA_CHECK(source.candidate(0).equal(candidate(0)) &&
                   source.initial_amax_.sizes() == initial_amax_.sizes(),
               "{}: merge: expected the same initial_amax, got another", name());
  if (!source.has_losses()) return;
  if (!has_losses()) {
    losses_ = source.losses_;
    return;
  }
  check_more();
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    for (std::size_t c = 0; c < losses_[i].size(); ++c) losses_[i][c] += source.losses_[i][c];
  }
}

Tensor MseCalibrator::compute_amax() const {
  const std::lock_guard lock(mutex_);
  if (losses_.empty()) return {};
  Tensor amax = Tensor::empty(initial_amax_.sizes());
  auto* to = amax.mutable_data<float>();
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
  const std::lock_guard lock(mutex_);
  if (losses_.empty()) return {};
  const auto steps = static_cast<std::int64_t>(losses_.size());
  const bool single = initial_amax_.dim() == 0;
  Tensor result =
      Tensor::empty(single ? Dims{steps} : Dims{steps, initial_amax_.numel()}, DType::Float32);
  auto* to = result.mutable_data<float>();
  for (const std::vector<double>& each : losses_) {
    for (const double loss : each) *to++ = static_cast<float>(loss);
  }
  return result;
}

void MseCalibrator::save_state(StateDict& state, const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  state.set(prefix + "initial_amax", initial_amax_);
  if (losses_.empty()) return;
  Tensor losses = Tensor::empty({static_cast<std::int64_t>(losses_.size()), initial_amax_.numel()},
                                DType::Float64);
  auto* to = losses.mutable_data<double>();
  for (const std::vector<double>& each : losses_) to = std::copy(each.begin(), each.end(), to);
  state.set(prefix + "losses", losses);
}

void MseCalibrator::load_state(const StateDict& state, const std::string& prefix) {
  const Tensor amax = quanta::detail::tensor_state(state, prefix + "initial_amax");
  std::vector<std::vector<double>> loaded;
  if (const Tensor* losses = quanta::detail::find_state(state, prefix + "losses")) {
    const Dims sizes{static_cast<std::int64_t>(candidates()), amax.numel()};
    QUANTA_CHECK(losses->dtype() == DType::Float64 && losses->sizes() == sizes,
                 "load_state_dict: {}losses: expected Float64 {}, got {} {}", prefix, sizes,
                 losses->dtype(), losses->sizes());
    const Tensor rows = losses->contiguous();
    const auto* from = rows.data<double>();
    for (std::size_t i = 0; i < candidates(); ++i, from += amax.numel()) {
      loaded.emplace_back(from, from + amax.numel());
    }
  }
  const std::lock_guard lock(mutex_);
  initial_amax_ = amax;
  losses_ = std::move(loaded);
}

NvFp4MseCalibrator::NvFp4MseCalibrator(const Tensor& initial_amax, const Tensor& global_amax,
                                       Options options)
    : MseCalibrator(initial_amax, std::move(options), e4m3_parts()),
      global_amax_(own_floats("NvFp4MseCalibrator: global_amax", global_amax)) {
  QUANTA_CHECK(global_amax.numel() == 1,
               "NvFp4MseCalibrator: global_amax: expected one element, got {}",
               global_amax.sizes());
  global_amax_ = global_amax_.reshape({});
}

Tensor NvFp4MseCalibrator::candidate(std::size_t i) const {
  const Tensor each = mul(global_amax_, Tensor::scalar(static_cast<double>(multipliers_[i])));
  return each.expand(initial_amax_.sizes()).contiguous();
}

void NvFp4MseCalibrator::check_more() const {
  QUANTA_CHECK(!has_losses(),
               "NvFp4MseCalibrator: x: expected one tensor between resets, got another");
}

void NvFp4MseCalibrator::save_state(StateDict& state, const std::string& prefix) const {
  MseCalibrator::save_state(state, prefix);
  const std::lock_guard lock(mutex_);
  state.set(prefix + "global_amax", global_amax_);
}

void NvFp4MseCalibrator::load_state(const StateDict& state, const std::string& prefix) {
  const float global = quanta::detail::scalar_state(state, prefix + "global_amax");
  MseCalibrator::load_state(state, prefix);
  const std::lock_guard lock(mutex_);
  global_amax_ = Tensor::scalar(static_cast<double>(global));
}

// Bias -------------------------------------------------------------------------------------------

BiasCalibrator::Method BiasCalibrator::method_from_name(std::string_view name) {
  if (name == "mean") return Method::Mean;
  QUANTA_CHECK(name == "max_min", "BiasCalibrator: method: expected mean or max_min, got {}", name);
  return Method::MaxMin;
}

Settings BiasCalibrator::settings() const { return settings_of(BiasOptions{method_, axis_}); }

// Called with the lock.
void BiasCalibrator::add(const Seen& batch, std::string_view what) {
  if (seen_.batches == 0) {
    seen_ = batch;
    return;
  }
  QUANTA_CHECK(batch.shape == seen_.shape,
               "BiasCalibrator: {}: expected the bias to keep the shape {}, got {}", what,
               seen_.shape, batch.shape);
  const auto before = static_cast<float>(seen_.batches);
  const auto more = static_cast<float>(batch.batches);
  for (std::size_t i = 0; i < seen_.mean.size(); ++i) {
    seen_.mean[i] = (seen_.mean[i] * before + batch.mean[i] * more) / (before + more);
  }
  seen_.range.widen(batch.range);
  seen_.batches += batch.batches;
}

Digest BiasCalibrator::digest(const Tensor& x) const {
  require_floating(x, Devices::All);
  if (x.numel() == 0) return {};
  const Tensor values = x.detach().to(DType::Float32);
  const Dims axes = wrap_axes(axis_, x.dim(), name(), "axis");
  Digest batch;
  if (axes.empty()) {
    batch.values = quanta::mean(values).to_float_vector();
    batch.range = quanta::detail::tensor_range(quanta::detail::dense_floats(values));
  } else {
    batch.shape = x.sizes();
    for (const std::int64_t axis : axes) batch.shape[static_cast<std::size_t>(axis)] = 1;
    batch.values = quanta::mean(values, axes, {true}).to_float_vector();
    batch.range = quanta::detail::EntryElements(name(), values, batch.shape).range();
  }
  quanta::detail::require_finite(name(), batch.range);
  return batch;
}

bool BiasCalibrator::absorb(const Digest& digest) {
  const Seen batch{
      .batches = 1, .shape = digest.shape, .mean = digest.values, .range = digest.range};
  const std::lock_guard lock(mutex_);
  add(batch, "x");
  return true;
}

bool BiasCalibrator::has_data() const {
  const std::lock_guard lock(mutex_);
  return seen_.batches > 0;
}

void BiasCalibrator::reset() {
  const std::lock_guard lock(mutex_);
  seen_ = {};
}

void BiasCalibrator::merge(const Collector& other) {
  require_same_kind(other);
  const auto& source = static_cast<const BiasCalibrator&>(other);
  Seen theirs;
  {
    const std::lock_guard lock(source.mutex_);
    theirs = source.seen_;
  }
  if (theirs.batches == 0) return;
  const std::lock_guard lock(mutex_);
  add(theirs, "merge");
}

Tensor BiasCalibrator::compute_bias() const {
  const std::lock_guard lock(mutex_);
  if (seen_.batches == 0) return {};
  if (method_ == Method::Mean) return Tensor::from_values(seen_.mean, seen_.shape);
  std::vector<float> middle(seen_.range.min.size());
  for (std::size_t i = 0; i < middle.size(); ++i) {
    middle[i] = (seen_.range.min[i] + seen_.range.max[i]) * 0.5F;
  }
  return Tensor::from_values(middle, seen_.shape);
}

void BiasCalibrator::save_state(StateDict& state, const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  if (seen_.batches == 0) return;
  state.set(prefix + "batches", Tensor::from_int64(std::array{seen_.batches}));
  state.set(prefix + "mean", Tensor::from_values(seen_.mean, seen_.shape));
  quanta::detail::save_range(state, prefix, seen_.range, seen_.shape);
}

void BiasCalibrator::load_state(const StateDict& state, const std::string& prefix) {
  Seen loaded;
  if (state.contains(prefix + "batches")) {
    loaded.batches = quanta::detail::count_state(state, prefix + "batches");
    const Tensor mean = quanta::detail::tensor_state(state, prefix + "mean");
    loaded.shape = mean.sizes();
    loaded.mean = mean.to_float_vector();
    loaded.range = quanta::detail::load_range(state, prefix, loaded.mean.size());
  }
  const std::lock_guard lock(mutex_);
  seen_ = std::move(loaded);
}

}  // namespace quanta::modelopt

namespace quanta::detail {
namespace {

using modelopt::BiasCalibrator;
using modelopt::MaxCalibrator;

std::shared_ptr<Collector> make_max(const Settings& given) {
  const auto options = options_from<modelopt::MaxOptions>("MaxCalibrator", given);
  return std::make_shared<MaxCalibrator>(options.axis, options.track_amax
                                                           ? MaxCalibrator::Track::EveryAmax
                                                           : MaxCalibrator::Track::Nothing);
}

std::shared_ptr<Collector> make_bias(const Settings& given) {
  const auto options = options_from<modelopt::BiasOptions>("BiasCalibrator", given);
  return std::make_shared<BiasCalibrator>(options.method, options.axis);
}

// The amaxs come with the state, and nothing more can be taken in without a quantization function.
std::shared_ptr<Collector> make_mse(const Settings& given) {
  return std::make_shared<modelopt::MseCalibrator>(
      Tensor::ones({}), options_from<modelopt::MseCalibrator::Options>("MseCalibrator", given));
}

std::shared_ptr<Collector> make_nvfp4_mse(const Settings& given) {
  return std::make_shared<modelopt::NvFp4MseCalibrator>(
      Tensor::ones({}), Tensor::ones({}),
      options_from<modelopt::MseCalibrator::Options>("NvFp4MseCalibrator", given));
}

}  // namespace

std::vector<CollectorKind> kinds_of_calibrator() {
  using MseOptions = modelopt::MseCalibrator::Options;
  return {collector_kind<modelopt::MaxOptions>("MaxCalibrator", &make_max),
          collector_kind<modelopt::BiasOptions>("BiasCalibrator", &make_bias),
          collector_kind<MseOptions>("MseCalibrator", &make_mse),
          collector_kind<MseOptions>("NvFp4MseCalibrator", &make_nvfp4_mse)};
}

}  // namespace quanta::detail
