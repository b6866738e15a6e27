#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/observers/observer.h"
#include "quanta/observers/qparams.h"

namespace quanta {

/// A mutex of its own for every copy of the object that holds it.
class ObserverMutex : public std::mutex {
 public:
  ObserverMutex() = default;
  ObserverMutex(const ObserverMutex&) : std::mutex() {}
  ObserverMutex& operator=(const ObserverMutex&) = delete;
};

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
  /// The rule as it is now (eps is part of the state_dict).
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
  /// Throws ArgumentError unless `other` is of the same class and has the same rule.
  void require_same_kind(const Observer& other) const;
  /// Throws ArgumentError unless `x` is a floating tensor.
  void require_floating(const Tensor& x) const;

  mutable ObserverMutex mutex_;
  QParamsRule rule_;  // eps is guarded by mutex_, the rest never changes
};

namespace detail {

/// Smallest and largest values: one of each, or one for each channel. Empty, or +inf and -inf,
/// before any data.
struct ValueRange {
  std::vector<float> min;
  std::vector<float> max;
};

/// The tensor called prefix + name as plain float32 values. Throws ArgumentError
/// `load_state_dict: <name>: ...` when it is missing or not a floating tensor.
const Tensor& require_state(const StateDict& state, const std::string& name);
std::vector<float> float_state(const Tensor& tensor, const std::string& name);
/// One value: a 0-d or one-element tensor.
float scalar_state(const StateDict& state, const std::string& name);

}  // namespace detail
}  // namespace quanta
