#include "quanta/observers/given_qparams_observer.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "quanta/observers/detail/state.h"
#include "quanta/observers/qparams.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

constexpr const char* kOp = "GivenQParamsObserver";

void check_scales(std::string_view op, const ObservedQParams& qparams, IntRange range) {
  for (const float scale : qparams.scale.to_float_vector()) {
    QUANTA_CHECK(std::isfinite(scale) && scale > 0.0F,
                 "{}: scale: expected finite numbers > 0, got {}", op, scale);
  }
  for (const std::int64_t zero_point : qparams.zero_point.to_int64_vector()) {
    QUANTA_CHECK(zero_point >= range.min && zero_point <= range.max,
                 "{}: zero_point: expected {}..{}, got {}", op, range.min, range.max, zero_point);
  }
}

// The numbers themselves would fill pages; factories of other numbers must not look alike (FNV-1a).
std::string fingerprint(const ObservedQParams& qparams) {
  std::uint64_t hash = 14695981039346656037ULL;
  const auto mix = [&hash](std::string_view bytes) {
    for (const char byte : bytes)
      hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
  };
  for (const float scale : qparams.scale.to_float_vector()) mix(fmt::format("{:a},", scale));
  for (const std::int64_t zero : qparams.zero_point.to_int64_vector())
    mix(fmt::format("{},", zero));
  return fmt::format("{} scales {:016x}", qparams.scale.numel(), hash);
}

}  // namespace

GivenQParamsObserver::GivenQParamsObserver(const Options& options) : options_(options) {
  const Tensor& scale = options.qparams.scale;
  const Tensor& zero_point = options.qparams.zero_point;
  QUANTA_SUPPORTED(options.qscheme != QScheme::PerChannelAffineFloatQParams,
                   "{}: qscheme: expected integer zero points, got {}", kOp, options.qscheme);
  QUANTA_CHECK(scale.defined() && scale.dtype() == DType::Float32 && scale.dim() == 1 &&
                   scale.numel() > 0 && (is_per_channel(options.qscheme) || scale.numel() == 1),
               "{}: scale: expected Float32 [{}], got {}", kOp,
               is_per_channel(options.qscheme) ? "C" : "1",
               scale.defined() ? fmt::format("{} {}", scale.dtype(), scale.sizes()) : "undefined");
  QUANTA_CHECK(zero_point.defined() && zero_point.dtype() == DType::Int64 &&
                   zero_point.sizes() == scale.sizes(),
               "{}: zero_point: expected Int64 {}, got {}", kOp, scale.sizes(),
               zero_point.defined() ? fmt::format("{} {}", zero_point.dtype(), zero_point.sizes())
                                    : "undefined");
  dtype_ = options.dtype;
  qscheme_ = options.qscheme;
  range_ = observer_range(kOp, options.dtype, false, options.quant_min, options.quant_max);
  options_.qparams = {scale.detach().cpu().clone(), zero_point.cpu().clone()};
  check_scales(kOp, options_.qparams, range_);
}

ObserverFactory GivenQParamsObserver::with_args(const Options& options) {
  const GivenQParamsObserver checked(options);
  return {call_text(checked.name(), checked.settings()),
          [owned = checked.options_] { return std::make_shared<GivenQParamsObserver>(owned); }};
}

Settings GivenQParamsObserver::settings() const {
  const std::lock_guard lock(mutex_);
  return {{"qparams", fingerprint(options_.qparams)},
          {"dtype", options_.dtype},
          {"qscheme", options_.qscheme},
          {"ch_axis", options_.ch_axis},
          {"quant_min", options_.quant_min},
          {"quant_max", options_.quant_max}};
}

ObservedQParams GivenQParamsObserver::calculate_qparams() const {
  const std::lock_guard lock(mutex_);
  return {options_.qparams.scale.clone(), options_.qparams.zero_point.clone()};
}

void GivenQParamsObserver::merge(const Collector& other) { require_same_kind(other); }

void GivenQParamsObserver::save_state(StateDict& state, const std::string& prefix) const {
  const ObservedQParams now = calculate_qparams();
  state.set(prefix + "scale", now.scale);
  state.set(prefix + "zero_point", now.zero_point);
}

void GivenQParamsObserver::load_state(const StateDict& state, const std::string& prefix) {
  const ObservedQParams loaded{detail::vector_state(state, prefix + "scale", DType::Float32),
                               detail::vector_state(state, prefix + "zero_point", DType::Int64)};
  const std::int64_t count = calculate_qparams().scale.numel();
  QUANTA_CHECK(loaded.scale.numel() == count && loaded.zero_point.numel() == count,
               "load_state_dict: {}scale: expected {} scales and zero points, got {} and {}",
               prefix, count, loaded.scale.numel(), loaded.zero_point.numel());
  check_scales("load_state_dict: " + prefix, loaded, range_);
  const std::lock_guard lock(mutex_);
  options_.qparams = {loaded.scale.reshape({count}), loaded.zero_point.reshape({count})};
}

ObserverFactory given_qparams_of(const Observer& observer) {
  return GivenQParamsObserver::with_args({.qparams = observer.calculate_qparams(),
                                          .dtype = observer.dtype(),
                                          .qscheme = observer.qscheme(),
                                          .ch_axis = observer.ch_axis(),
                                          .quant_min = observer.quant_min(),
                                          .quant_max = observer.quant_max()});
}

}  // namespace quanta
