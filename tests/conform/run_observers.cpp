#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/other_observers.h"
#include "quanta/runtime/error.h"
#include "registry.h"

namespace quanta::conform {
namespace {

std::optional<std::int64_t> optional_integer(const Case& test, std::string_view name) {
  if (!test.has_attr(name)) return std::nullopt;
  return test.integer(name);
}

/// The settings that all classes with a range share.
template <typename Options>
Options common_options(const Case& test) {
  Options options;
  options.dtype = test.dtype();
  options.qscheme = qscheme_from_torch_name(test.text("qscheme"));
  options.reduce_range = test.flag("reduce_range", false);
  options.quant_min = optional_integer(test, "quant_min");
  options.quant_max = optional_integer(test, "quant_max");
  if (test.has_attr("eps")) options.eps = test.number("eps");
  if constexpr (requires { options.averaging_constant; }) {
    if (test.has_attr("averaging_constant")) {
      options.averaging_constant = test.number("averaging_constant");
    }
  }
  if constexpr (requires { options.ch_axis; }) {
    if (test.has_attr("ch_axis")) options.ch_axis = test.integer("ch_axis");
  }
  if constexpr (requires { options.bins; }) {
    if (test.has_attr("bins")) options.bins = test.integer("bins");
  }
  return options;
}

template <typename T>
std::shared_ptr<Observer> make_with_range(const Case& test) {
  return std::make_shared<T>(common_options<typename T::Options>(test));
}

std::shared_ptr<Observer> make_fixed(const Case& test) {
  FixedQParamsObserverOptions options;
  options.scale = test.number("scale");
  options.zero_point = test.integer("zero_point");
  options.dtype = test.dtype();
  options.qscheme = qscheme_from_torch_name(test.text("qscheme"));
  if (test.has_attr("quant_min")) options.quant_min = test.integer("quant_min");
  if (test.has_attr("quant_max")) options.quant_max = test.integer("quant_max");
  return std::make_shared<FixedQParamsObserver>(options);
}

std::shared_ptr<Observer> make_observer(const Case& test) {
  const std::string name = test.text("class");
  if (name == "MinMaxObserver") return make_with_range<MinMaxObserver>(test);
  if (name == "MovingAverageMinMaxObserver") {
    return make_with_range<MovingAverageMinMaxObserver>(test);
  }
  if (name == "PerChannelMinMaxObserver") return make_with_range<PerChannelMinMaxObserver>(test);
  if (name == "MovingAveragePerChannelMinMaxObserver") {
    return make_with_range<MovingAveragePerChannelMinMaxObserver>(test);
  }
  if (name == "HistogramObserver") return make_with_range<HistogramObserver>(test);
  if (name == "FixedQParamsObserver") return make_fixed(test);
  throw UnsupportedError("observer: class: no " + name + " here");
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
  const auto* histogram = dynamic_cast<const HistogramObserver*>(observer.get());
  if (histogram != nullptr && histogram->has_data()) {
    const HistogramObserver::Range range = histogram->search_range();
    outputs.set("search_min", Tensor::scalar(static_cast<double>(range.min)));
    outputs.set("search_max", Tensor::scalar(static_cast<double>(range.max)));
  }
  return outputs;
}

const Registration kOps{{"observer", run_observer}};

}  // namespace
}  // namespace quanta::conform
