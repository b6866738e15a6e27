#include <memory>
#include <string>
#include <vector>

#include "collector_settings.h"
#include "network.h"
#include "quanta/observers/histogram_observer.h"
#include "registry.h"

namespace quanta::conform {
namespace {

std::shared_ptr<Observer> make_observer(const Case& test) {
  const std::string name = test.text("class");
  Settings settings;
  take_settings(test, name, settings);
  return std::dynamic_pointer_cast<Observer>(make_collector(name, settings));
}

/// One tensor of the observer's state_dict; undefined when its class has none of that name.
Tensor state_of(const Observer& observer, std::string_view name) {
  StateDict state;
  observer.save_state(state, "");
  const Tensor* tensor = state.find(name);
  return tensor == nullptr ? Tensor() : tensor->clone();
}

/// Tensors of one shape, one after the other along a new first axis.
Tensor stack(const std::vector<Tensor>& parts) {
  Dims sizes = parts.front().sizes();
  sizes.insert(0, static_cast<std::int64_t>(parts.size()));
  const Tensor result = Tensor::empty(sizes, parts.front().dtype());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    result.select(0, static_cast<std::int64_t>(i)).copy_(parts[i]);
  }
  return result;
}

void set_search_range(Outputs& outputs, const Observer& observer) {
  const auto* histogram = dynamic_cast<const HistogramObserver*>(&observer);
  if (histogram == nullptr || !histogram->has_data()) return;
  const HistogramObserver::Range range = histogram->search_range();
  outputs.set("search_min", Tensor::scalar(static_cast<double>(range.min)));
  outputs.set("search_max", Tensor::scalar(static_cast<double>(range.max)));
}

Outputs run_observer(const Case& test) {
  const std::shared_ptr<Observer> observer = make_observer(test);
  std::vector<Tensor> min_after_batch;
  std::vector<Tensor> max_after_batch;
  for (const Tensor& batch : test.tensors("batches")) {
    observer->forward(batch);
    const Tensor min_val = state_of(*observer, "min_val");
    if (!min_val.defined()) continue;
    min_after_batch.push_back(min_val);
    max_after_batch.push_back(state_of(*observer, "max_val"));
  }

  Outputs outputs;
  const ObservedQParams qparams = observer->calculate_qparams();
  outputs.set("scale", qparams.scale);
  outputs.set("zero_point", qparams.zero_point);
  outputs.set("quant_min", observer->quant_min());
  outputs.set("quant_max", observer->quant_max());
  for (const char* name : {"min_val", "max_val", "histogram"}) {
    const Tensor tensor = state_of(*observer, name);
    if (tensor.defined()) outputs.set(name, tensor);
  }
  if (!min_after_batch.empty()) {
    outputs.set("min_after_batch", stack(min_after_batch));
    outputs.set("max_after_batch", stack(max_after_batch));
  }
  set_search_range(outputs, *observer);
  return outputs;
}

/// What follows from a state that PyTorch had.
Outputs run_observer_state(const Case& test) {
  const std::shared_ptr<Observer> observer = make_observer(test);
  observer->load_state(state_dict_from(test.object("state_dict")), "");
  Outputs outputs;
  const ObservedQParams qparams = observer->calculate_qparams();
  outputs.set("scale", qparams.scale);
  outputs.set("zero_point", qparams.zero_point);
  set_search_range(outputs, *observer);
  return outputs;
}

const Registration kOps{{"observer", run_observer}, {"observer_state", run_observer_state}};

}  // namespace
}  // namespace quanta::conform
