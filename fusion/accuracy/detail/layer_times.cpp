#include "quanta/fusion/accuracy/detail/layer_times.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/profiler.h"

namespace quanta::accuracy {
namespace {

constexpr double kMicrosecondsPerMillisecond = 1000.0;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

LayerTimes::LayerTimes(const nn::Module& model, std::span<const Tensor> example, int runs) {
  QUANTA_CHECK(!example.empty(),
               "data.example: expected what one call of the model takes, got none");
  const autograd::NoGradGuard no_grad;
  static_cast<void>(model(example));  // packs what is packed at the first call
  std::map<std::string, std::vector<double>> times;
  for (int i = 0; i < runs; ++i) {
    Profiler profiler;
    static_cast<void>(model(example));
    for (const ModuleProfile& module : profiler.modules()) {
      times[module.path].push_back(module.op_us / kMicrosecondsPerMillisecond);
    }
  }
  for (auto& [path, values] : times) milliseconds_[path] = median(std::move(values));
}

double LayerTimes::of(const std::string& path) const {
  double sum = 0.0;
  for (const auto& [each, milliseconds] : milliseconds_) {
    if (each == path || each.starts_with(path + ".")) sum += milliseconds;
  }
  return sum;
}

}  // namespace quanta::accuracy
