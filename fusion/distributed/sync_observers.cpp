#include "quanta/fusion/distributed/sync_observers.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "quanta/nn/detail/child_path.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/given_qparams_observer.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/mse_observer.h"
#include "quanta/observers/other_observers.h"
#include "quanta/runtime/check.h"

namespace quanta::distributed {
namespace {

constexpr const char* kWeight = "weight_fake_quant";

struct Watched {
  std::string path;
  std::shared_ptr<Observer> outer;  // the module's own
};

// Those of activations.
std::vector<Watched> watched(const nn::Module& model) {
  std::vector<Watched> result;
  for (const auto& [path, module] : model.named_modules()) {
    for (const auto& [name, observer] : module->named_observers()) {
      if (name == kWeight) continue;
      result.push_back({nn::detail::child_path(path, name), observer});
    }
  }
  return result;
}

std::shared_ptr<Observer> inner(const std::shared_ptr<Observer>& observer) {
  const auto* fake = dynamic_cast<const FakeQuantizeBase*>(observer.get());
  if (fake == nullptr) return observer;
  std::shared_ptr<Observer> inside = fake->observer();
  return inside == nullptr ? observer : inside;
}

std::shared_ptr<RangeObserver> range_observer(const std::shared_ptr<Observer>& observer) {
  if (dynamic_cast<const AffineQuantizedMSEObserver*>(observer.get()) != nullptr) return nullptr;
  return std::dynamic_pointer_cast<RangeObserver>(observer);
}

// Whether it gathers nothing from what passes.
bool is_blind(const Observer& observer) {
  return dynamic_cast<const FixedQParamsObserver*>(&observer) != nullptr ||
         dynamic_cast<const GivenQParamsObserver*>(&observer) != nullptr ||
         dynamic_cast<const PlaceholderObserver*>(&observer) != nullptr ||
         dynamic_cast<const NoopObserver*>(&observer) != nullptr ||
         dynamic_cast<const ReuseInputObserver*>(&observer) != nullptr;
}

bool is_off(const Observer& observer) {
  const auto* fake = dynamic_cast<const FakeQuantizeBase*>(&observer);
  return fake != nullptr && !fake->is_observer_enabled();
}

// Begins with the mean size of a rank's own values.
bool starts_with_mean(const Observer& observer) {
  if (dynamic_cast<const LearnableFakeQuantize*>(&observer) == nullptr) return false;
  const Settings settings = observer.settings();
  const Setting* start = settings.find("mean_magnitude_start");
  return start != nullptr && std::holds_alternative<bool>(*start) && std::get<bool>(*start);
}

// Minimum and maximum in one message.
void reduce(const Communicator& comm, const std::string& place, ValueRange& batch) {
  const std::size_t count = batch.min.size();
  std::vector<float> both = batch.min;
  for (const float largest : batch.max) both.push_back(-largest);
  comm.min(std::span(both), place);
  for (std::size_t i = 0; i < count; ++i) {
    batch.min[i] = both[i];
    batch.max[i] = -both[count + i];
  }
}

}  // namespace

void sync_observers(nn::Module& model, const Communicator& comm) {
  const std::vector<Watched> observers = watched(model);
  for (const auto& [path, outer] : observers) {
    if (is_off(*outer) || is_blind(*inner(outer))) continue;
    if (range_observer(inner(outer)) != nullptr && !starts_with_mean(*outer)) continue;
    throw UnsupportedError(fmt::format(
        "distributed: sync_observers: {}: expected an observer of the range of the values "
        "(MinMaxObserver and its relatives), one that is given its scale, or one that is switched "
        "off, got {}, whose statistics would differ from rank to rank",
        path, inner(outer)->name()));
  }
  for (const auto& [path, outer] : observers) {
    const std::shared_ptr<RangeObserver> range = range_observer(inner(outer));
    if (range == nullptr) continue;
    range->set_batch_reduction(
        [comm, place = "observer " + path](ValueRange& batch) { reduce(comm, place, batch); });
  }
}

bool waits_for_all_ranks(const Collector& collector) {
  const auto* range = dynamic_cast<const RangeObserver*>(&collector);
  if (const auto* fake = dynamic_cast<const FakeQuantizeBase*>(&collector)) {
    if (!fake->is_observer_enabled()) return false;
    range = dynamic_cast<const RangeObserver*>(fake->observer().get());
  }
  return range != nullptr && range->has_batch_reduction();
}

std::vector<std::string> waiting_observers(const nn::Module& model) {
  std::vector<std::string> paths;
  for (const auto& [path, outer] : watched(model)) {
    if (waits_for_all_ranks(*outer)) paths.push_back(path);
  }
  return paths;
}

void unsync_observers(nn::Module& model) {
  for (const auto& [path, outer] : watched(model)) {
    const std::shared_ptr<RangeObserver> range = range_observer(inner(outer));
    if (range != nullptr) range->set_batch_reduction({});
  }
}

}  // namespace quanta::distributed
