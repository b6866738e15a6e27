#include "quanta/fusion/graph/trace.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "quanta/fusion/graph/detail/tracer.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/ops/cat.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

/// Fake quantizers that observe do not while this lives.
class ObserversOff {
 public:
  explicit ObserversOff(const nn::Module& model) {
    for (const nn::Module::NamedModule& entry : model.named_modules()) {
      for (const nn::Module::NamedObserver& own : entry.module->named_observers()) {
        auto fake = std::dynamic_pointer_cast<FakeQuantizeBase>(own.observer);
        if (fake == nullptr || !fake->is_observer_enabled()) continue;
        fake->disable_observer();
        paused_.push_back(std::move(fake));
      }
    }
  }
  ~ObserversOff() {
    for (const auto& fake : paused_) fake->enable_observer();
  }
  ObserversOff(const ObserversOff&) = delete;
  ObserversOff& operator=(const ObserversOff&) = delete;

 private:
  std::vector<std::shared_ptr<FakeQuantizeBase>> paused_;
};

std::int64_t common_batch(std::span<const Tensor> example) {
  for (const Tensor& x : example) {
    QUANTA_CHECK(x.dim() >= 1 && x.size(0) >= 1 && x.size(0) == example[0].size(0),
                 "trace: example: expected a common dimension 0 of at least 1 for dynamic_batch, "
                 "got {} and {}",
                 example[0].sizes(), x.sizes());
  }
  return example[0].size(0);
}

detail::Parts trace_once(const nn::Module& model, std::span<const Tensor> example,
                         const TraceOptions& options, std::size_t times) {
  std::vector<Tensor> own;
  for (const Tensor& x : example) {
    const std::vector<Tensor> copies(times, x.detach());
    own.push_back(times == 1 ? x.detach().clone(x.suggested_format()) : cat(copies, 0));
  }
  detail::Tracer tracer(model, options);
  tracer.run(own);
  return tracer.take();
}

void check(const nn::Module& model, std::span<const Tensor> example, const TraceOptions& options) {
  QUANTA_CHECK(!model.is_training(), "trace: model: expected {} in eval mode, got train mode",
               model.type_name());
  QUANTA_CHECK(!example.empty(), "trace: example: expected at least one tensor, got none");
  for (std::size_t i = 0; i < example.size(); ++i) {
    QUANTA_CHECK(example[i].defined(),
                 "trace: example: expected a tensor for input {}, got an undefined one", i);
    QUANTA_CHECK(!example[i].is_quantized() && example[i].device().is_cpu(),
                 "trace: example: expected plain tensors on the CPU, got {} on {} for input {}",
                 example[i].dtype(), to_string(example[i].device()), i);
  }
  QUANTA_CHECK(options.input_names.empty() || options.input_names.size() == example.size(),
               "trace: input_names: expected {}, got {}", example.size(),
               options.input_names.size());
}

}  // namespace

Model trace(const nn::Module& model, std::span<const Tensor> example, const TraceOptions& options) {
  check(model, example, options);
  const autograd::NoGradGuard no_grad;
  const ObserversOff observers_off(model);
  if (!options.dynamic_batch) {
    return detail::put_together(trace_once(model, example, options, 1));
  }
  const std::int64_t batch = common_batch(example);
  detail::Parts parts = trace_once(model, example, options, 2);
  detail::follow_batch(parts.graph, trace_once(model, example, options, 3).graph, batch);
  return detail::put_together(std::move(parts));
}

}  // namespace quanta::graph
