#include "quanta/nn/forward_calls.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/quantized_state.h"
#include "quanta/nn/module.h"
#include "quanta/ops/catalogue.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/module_path.h"
#include "quanta/runtime/warning.h"

namespace quanta::nn {
namespace {

constexpr std::string_view kQuantized = "quantized::";

bool is_value(const Tensor& x) {
  return x.defined() && (x.dtype() == DType::Float32 || x.is_quantized());
}

template <typename Tensors>
bool has_codes(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const Tensor& x) { return x.defined() && x.is_quantized(); });
}

std::vector<Tensor> to_vector(const Arguments& in) {
  std::vector<Tensor> result;
  for (const Tensor* x : in) result.push_back(*x);
  return result;
}

std::vector<Tensor> dequantized(std::span<const Tensor> tensors) {
  std::vector<Tensor> result(tensors.begin(), tensors.end());
  for (Tensor& x : result) {
    if (x.defined() && x.is_quantized()) x = dequantize(x);
  }
  return result;
}

// Copies keep the quantization of what they take: flatten and contiguous make one of a tensor whose
// channels lie last. The catalogue does not have them.
bool is_copy(const Operation& operation) {
  return operation.name() == "clone" || operation.name() == "to_device";
}

// NaN is the least and the greatest of what it is among.
bool is_finite(const Tensor& x) {
  const Tensor values = x.detach();
  return std::isfinite(min(values).item()) && std::isfinite(max(values).item());
}

// "quantized::softmax" for "softmax": the form of the call on codes, with the scale and zero point of
// its result. Null where there is none.
std::shared_ptr<const Operation> make_form(const ForwardCalls::Call& call) {
  if (call.is_module || call.results.size() != 1 || call.results[0].scale <= 0.0) return nullptr;
  const ForwardCalls::Result& result = call.results[0];
  const OperationEntry* entry = operations().find(std::string(kQuantized) + call.name);
  if (entry == nullptr || !entry->takes(result.dtype)) return nullptr;
  std::shared_ptr<Operation> form = entry->make();
  try {
    set_attribute(*form, "scale", result.scale);
    set_attribute(*form, "zero_point", result.zero_point);
  } catch (const ArgumentError&) {
    return nullptr;
  }
  return form;
}

// With the settings of this call; null where the form on codes does not have one of them.
std::shared_ptr<const Operation> with_settings(const Operation& form, const Operation& operation) {
  std::shared_ptr<Operation> made = form.clone();
  try {
    for (const AttributeInfo& info : operation.attributes()) {
      if (info.name == "scale" || info.name == "zero_point") continue;
      set_attribute(*made, info.name, info.get(operation));
    }
  } catch (const ArgumentError&) {
    return nullptr;
  }
  return made;
}

bool is_int8_call(std::span<const Tensor> in, DType dtype) {
  return std::all_of(in.begin(), in.end(), [dtype](const Tensor& x) {
    return x.defined() && x.dtype() == dtype && !is_per_channel(x.impl()->quantizer.scheme);
  });
}

ForwardCalls::Result to_numbers(const ForwardCalls::Result& observed, const std::string& name) {
  const std::shared_ptr<Observer>& observer = observed.observer;
  if (observer == nullptr || !observer->has_data()) return {};
  const detail::OutputParams params = detail::output_params("convert: " + name, *observer);
  return {.observer = nullptr,
          .scale = params.scale,
          .zero_point = params.zero_point,
          .dtype = params.dtype};
}

// Floats become codes where the call has scales for them.
void quantize_results(const ForwardCalls::Call& call, std::span<Tensor> results) {
  for (std::size_t i = 0; i < std::min(results.size(), call.results.size()); ++i) {
    const ForwardCalls::Result& result = call.results[i];
    Tensor& x = results[i];
    if (result.scale <= 0.0 || !x.defined() || x.dtype() != DType::Float32) continue;
    x = quantize_per_tensor(x, result.scale, result.zero_point, result.dtype);
  }
}

}  // namespace

ForwardCalls::ForwardCalls(ObserverFactory activation) : activation_(std::move(activation)) {
  QUANTA_CHECK(activation_, "ForwardCalls: activation: expected an observer's factory, got none");
}

ForwardCalls::ForwardCalls(ObserverFactory activation, std::vector<Call> calls, NewCalls new_calls)
    : ForwardCalls(std::move(activation)) {
  calls_ = std::move(calls);
  is_complete_ = new_calls == NewCalls::Ignore;
}

ForwardCalls::ForwardCalls(std::vector<Call> calls)
    : is_complete_(true),
      calls_(std::move(calls)),
      ran_(std::make_unique<std::atomic<Ran>[]>(calls_.size())) {
  make_forms();
}

void ForwardCalls::make_forms() {
  forms_.clear();
  for (const Call& call : calls_) forms_.push_back(make_form(call));
}

ForwardCalls::ForwardCalls(ObserverFactory activation, const ForwardCalls& converted)
    : ForwardCalls(std::move(activation)) {
  is_complete_ = true;
  calls_ = converted.calls_;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const bool is_wanted = converted.how_it_ran(i) != Ran::AsItIs;
    for (Result& result : calls_[i].results) {
      result = {.observer = is_wanted && result.scale > 0.0 ? activation_() : nullptr};
    }
  }
}

ForwardCalls::ForwardCalls(const ForwardCalls& other)
    : activation_(other.activation_), is_complete_(other.is_complete_) {
  const std::lock_guard lock(other.mutex_);
  calls_ = other.calls_;
  for (Call& call : calls_) {
    for (Result& result : call.results) {
      if (result.observer != nullptr) result.observer = result.observer->clone();
    }
  }
  if (is_observing()) return;
  ran_ = std::make_unique<std::atomic<Ran>[]>(calls_.size());
  forms_ = other.forms_;
}

ForwardCalls::Ran ForwardCalls::how_it_ran(std::size_t place) const {
  return ran_ == nullptr || place >= calls_.size() ? Ran::AsItIs : ran_[place].load();
}

std::shared_ptr<ForwardCalls> ForwardCalls::converted() const {
  std::vector<Call> calls;
  for (const Call& call : calls_) {
    Call& made = calls.emplace_back(Call{.name = call.name, .is_module = call.is_module});
    made.saw_infinite = call.saw_infinite;
    for (const Result& result : call.results) {
      made.results.push_back(call.saw_infinite ? Result{} : to_numbers(result, call.name));
    }
  }
  auto result = std::make_shared<ForwardCalls>(std::move(calls));
  // What an example has shown was told then; what is found when the model runs is told there.
  result->is_complete_ = is_complete_;
  return result;
}

std::string ForwardCalls::name_of(std::size_t place, std::size_t result, std::size_t count) {
  return count == 1 ? fmt::format("call_{}", place) : fmt::format("call_{}_{}", place, result);
}

namespace {

// each(name, result) for all results of all calls.
template <typename Calls, typename Each>
void for_results(Calls& calls, Each&& each) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    auto& results = calls[i].results;
    for (std::size_t j = 0; j < results.size(); ++j) {
      each(ForwardCalls::name_of(i, j, results.size()), calls[i], results[j]);
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::shared_ptr<Observer>>> ForwardCalls::observers() const {
  std::vector<std::pair<std::string, std::shared_ptr<Observer>>> result;
  for_results(calls_, [&](std::string name, const Call&, const Result& part) {
    if (part.observer != nullptr) result.emplace_back(std::move(name), part.observer);
  });
  return result;
}

std::vector<std::string> ForwardCalls::to_strings() const {
  std::vector<std::string> lines;
  for_results(calls_, [&](const std::string& name, const Call& call, const Result& part) {
    if (part.observer != nullptr) {
      lines.push_back(fmt::format("({}): {}, {}()", name, call.name, part.observer->name()));
    } else if (part.scale > 0.0) {
      lines.push_back(fmt::format("({}): {}(scale={}, zero_point={})", name, call.name,
                                  detail::python_float(part.scale), part.zero_point));
    }
  });
  return lines;
}

void ForwardCalls::save_state(StateDict& state, const std::string& prefix) const {
  for_results(calls_, [&](const std::string& name, const Call&, const Result& part) {
    if (part.scale <= 0.0) return;
    detail::save_qparams(state, prefix + name + ".", part.scale, part.zero_point);
  });
}

void ForwardCalls::load_state(StateReader& reader) {
  for_results(calls_, [&](const std::string& name, const Call&, Result& part) {
    // Files of PyTorch have none.
    if (part.scale <= 0.0 || reader.find(name + ".scale") == nullptr) return;
    detail::load_qparams(reader, part.scale, part.zero_point, quant_range(part.dtype), name + ".");
  });
  if (!is_observing()) reader.on_commit([this] { make_forms(); });
}

// Whether the call counts: it works on floats, and codes would not do instead.
bool ForwardCalls::watches(const Operation& operation, const Arguments& in) const {
  if (operation.name().ends_with('_')) return false;  // in place: there is no result to quantize
  if (is_copy(operation)) return false;
  std::size_t first = 0;
  while (first < in.size() && !is_value(in[first])) ++first;
  if (first == in.size()) return false;
  if (first > 0) return true;
  const OperationEntry* entry = operations().find(operation.name());
  return entry == nullptr || !entry->takes(DType::QUInt8);
}

const ForwardCalls::Call* ForwardCalls::find(std::size_t place, std::string_view name) const {
  if (place >= calls_.size()) return nullptr;
  QUANTA_CHECK(calls_[place].name == name,
               "forward: expected the same calls in every run (call {} was {}), got {}{}", place,
               calls_[place].name, name,
               current_module_path().empty() ? "" : " in " + current_module_path());
  return &calls_[place];
}

void ForwardCalls::observe(std::size_t place, std::string_view name, bool is_module,
                           std::span<Tensor> results) {
  const auto is_float = [](const Tensor& x) {
    return x.defined() && x.dtype() == DType::Float32 && x.numel() > 0;
  };
  std::vector<std::shared_ptr<Observer>> observers;
  {
    const std::lock_guard lock(mutex_);
    if (find(place, name) == nullptr) {
      if (is_complete_) return;
      QUANTA_CHECK(place == calls_.size(),
                   "forward: expected the same calls in every run, got {} as call {} of {}", name,
                   place, calls_.size());
      Call call{.name = std::string(name), .is_module = is_module};
      for (const Tensor& x : results) {
        call.results.push_back({.observer = is_float(x) ? activation_() : nullptr});
      }
      calls_.push_back(std::move(call));
    }
    Call& call = calls_[place];
    for (const Tensor& x : results) {
      if (is_float(x) && !call.saw_infinite && !is_finite(x)) call.saw_infinite = true;
    }
    if (call.saw_infinite) return;
    for (const Result& result : call.results) observers.push_back(result.observer);
  }
  const std::size_t count = std::min(observers.size(), results.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (observers[i] != nullptr && is_float(results[i])) {
      results[i] = observers[i]->forward(results[i]);
    }
  }
}

bool ForwardCalls::run(std::size_t& next, const Operation& operation, const Arguments& in,
                       Results& out) {
  // Functions that take both (cat) run another operation on codes.
  std::string_view name = operation.name();
  const bool is_form = !is_observing() && name.starts_with(kQuantized);
  if (is_form) name.remove_prefix(kQuantized.size());
  const bool is_expected = is_form && next < calls_.size() && calls_[next].name == name;
  if (is_form ? !is_expected : !watches(operation, in)) return false;
  // A call that throws is none: forward may catch that and make another one in its place.
  const std::size_t place = next;
  const Call* call = is_observing() ? nullptr : find(place, name);
  const std::vector<Tensor> given = call == nullptr ? std::vector<Tensor>() : to_vector(in);
  std::shared_ptr<const Operation> form;
  if (call != nullptr && forms_[place] != nullptr && has_codes(given) &&
      is_int8_call(given, call->results[0].dtype)) {
    form = with_settings(*forms_[place], operation);
  }
  if (form != nullptr) {
    ran_[place].store(Ran::OnCodes, std::memory_order_relaxed);
    quanta::detail::run(*form, in, out);
  } else if (has_codes(given) && !is_form) {
    if (ran_[place].exchange(Ran::BetweenFloats) == Ran::AsItIs && !is_complete_) {
      warn(
          fmt::format("{} in the forward of '{}' runs in float, between dequantize and quantize "
                      "(float_islands lists such places)",
                      name, current_module_path()));
    }
    out = run_all(operation, dequantized(given));
    quantize_results(*call, {out.begin(), out.size()});
  } else {
    quanta::detail::run(operation, in, out);  // in float, or by the operation's own rule for codes
  }
  if (is_observing()) observe(place, name, false, {out.begin(), out.size()});
  ++next;
  return true;
}

std::vector<Tensor> ForwardCalls::run_module(std::size_t& next, const std::string& name,
                                             std::span<const Tensor> inputs,
                                             const Forward& forward) {
  const std::size_t place = next;
  const Call* call = is_observing() ? nullptr : find(place, name);
  std::vector<Tensor> results;
  if (call != nullptr && has_codes(inputs)) {
    if (ran_[place].exchange(Ran::BetweenFloats) == Ran::AsItIs && !is_complete_) {
      warn(fmt::format("'{}' runs in float, between dequantize and quantize", name));
    }
    results = forward(dequantized(inputs));
    quantize_results(*call, results);
  } else {
    results = forward(inputs);
  }
  if (is_observing()) observe(place, name, true, results);
  ++next;
  return results;
}

}  // namespace quanta::nn
