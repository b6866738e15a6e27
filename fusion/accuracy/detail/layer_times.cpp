#include "quanta/fusion/accuracy/detail/layer_times.h"

#include <algorithm>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/profiler.h"

namespace quanta::accuracy {
namespace {

constexpr double kMicrosecondsPerMillisecond = 1000.0;

}  // namespace

LayerTimes::LayerTimes(const nn::Module& model, std::span<const Tensor> example, int runs) {
  QUANTA_CHECK(!example.empty(),
               "data.example: expected what one call of the model takes, got none");
  const autograd::NoGradGuard no_grad;
  static_cast<void>(model(example));  // packs what is packed at the first call
  for (int i = 0; i < runs; ++i) {
    Profiler profiler;
    static_cast<void>(model(example));
    for (const ModuleProfile& module : profiler.modules()) {
      const double milliseconds = module.op_us / kMicrosecondsPerMillisecond;
      const auto [known, is_new] = milliseconds_.emplace(module.path, milliseconds);
      if (!is_new) known->second = std::min(known->second, milliseconds);
    }
  }
}

double LayerTimes::of(const std::string& path) const {
  double sum = 0.0;
  for (const auto& [each, milliseconds] : milliseconds_) {
    if (each == path || each.starts_with(path + ".")) sum += milliseconds;
  }
  return sum;
}

}  // namespace quanta::accuracy
