#include "observer_option.h"

#include <fmt/format.h>

#include "quanta/observers/defaults.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/runtime/error.h"

namespace quanta::cli {

std::vector<std::string> observer_names() { return {"histogram", "minmax", "moving-average"}; }

QConfig qconfig_of_observer(const std::string& observer, bool per_tensor) {
  QConfig qconfig = get_default_qconfig("x86");
  if (observer == "minmax") {
    qconfig.activation = MinMaxObserver::with_args({.dtype = DType::QUInt8, .reduce_range = true});
  } else if (observer == "moving-average") {
    qconfig.activation =
        MovingAverageMinMaxObserver::with_args({.dtype = DType::QUInt8, .reduce_range = true});
  } else if (observer != "histogram") {
    throw ArgumentError(
        fmt::format("--observer: expected histogram, minmax or moving-average, got {}", observer));
  }
  if (per_tensor) qconfig.weight = default_weight_observer();
  return qconfig;
}

}  // namespace quanta::cli
