#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/observers/observer.h"
#include "quanta/observers/qparams.h"

namespace quanta {

/// Settings that the observers of value ranges share; each class has Options of its own with them.
struct UniformSettings {
  DType dtype = DType::QUInt8;
  QScheme qscheme = QScheme::PerTensorAffine;
  bool reduce_range = false;
  std::optional<std::int64_t> quant_min;
  std::optional<std::int64_t> quant_max;
  double eps = 1.1920928955078125e-07;
  bool is_dynamic = false;
};

/// Base of the observers that derive scale and zero point from a range of values. Holds the rule
/// for that and the lock that lets many threads observe at once.
class UniformObserver : public Observer {
 public:
  /// The rule in force (eps is part of the state_dict).
  QParamsRule rule() const;

 protected:
  /// Checks the settings: ArgumentError for a dtype or bounds that no observer takes,
  /// UnsupportedError for quint8 with a symmetric scheme and reduce_range, whose zero point of
  /// 128 would lie outside 0..127 (torch refuses that for min/max observers only).
  UniformObserver(std::string_view op, const UniformSettings& settings);

  /// Scale and zero point for each range; unobserved ones (no range, or +inf..-inf) give 1 and 0.
  /// Throws ArgumentError when a min is greater than its max.
  ObservedQParams qparams(std::span<const float> min, std::span<const float> max,
                          const QParamsRule& rule) const;
  /// What settings() returns: those that were given, but for an eps that load_state has brought.
  template <typename Options>
  Settings current_settings(Options options) const {
    const float eps = rule().eps;
    if (static_cast<float>(options.eps) != eps) options.eps = static_cast<double>(eps);
    return settings_of(options);
  }

  QParamsRule rule_;  // eps is guarded by mutex_, the rest never changes
};

/// The fields that the options of these observers share; see SettingFields.
template <typename Options>
void describe_uniform(Options& options, SettingFields& fields) {
  fields("dtype", options.dtype);
  fields("qscheme", options.qscheme);
  fields("reduce_range", options.reduce_range);
  fields("quant_min", options.quant_min);
  fields("quant_max", options.quant_max);
  fields("eps", options.eps);
  fields("is_dynamic", options.is_dynamic);
}

/// The same as plain settings.
template <typename Options>
UniformSettings uniform_settings(const Options& options) {
  return {options.dtype,     options.qscheme, options.reduce_range, options.quant_min,
          options.quant_max, options.eps,     options.is_dynamic};
}

}  // namespace quanta
