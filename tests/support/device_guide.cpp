#include "support/device_guide.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "quanta/runtime/autograd.h"

namespace quanta::test {
namespace {

bool asks_for_gradients(const Arguments& in) {
  return autograd::is_grad_enabled() && std::any_of(in.begin(), in.end(), [](const Tensor* x) {
           return x->defined() && x->requires_grad();
         });
}

// Copies of the arguments would change instead.
bool changes_arguments(const Operation& operation) {
  return operation.name().ends_with('_') || operation.name() == "batch_norm_train";
}

bool is_on_cuda(const Arguments& in) {
  return std::any_of(in.begin(), in.end(),
                     [](const Tensor* x) { return x->defined() && x->device().is_cuda(); });
}

}  // namespace

bool DeviceGuide::runs_on_device(const Operation& operation, const Arguments& in) const {
  if (in.size() == 0 || !in[0].defined() || changes_arguments(operation)) return false;
  const auto dtypes = operation.cuda_dtypes();
  return std::ranges::find(dtypes, in[0].dtype()) != dtypes.end() &&
         (gradient_calls_ == GradientCalls::Guided || !asks_for_gradients(in));
}

bool DeviceGuide::guide(const Operation& operation, const Arguments& in, Results& out) {
  if (operation.is_composition()) {
    // What it calls is guided too.
    const GuideScope again(this);
    for (Tensor& x : static_cast<const Composition&>(operation).compose(in)) {
      out.add_view(std::move(x));
    }
    return true;
  }
  // On the way back: gradients that come from the device, and go there.
  if (operation.name() == "to_device") return false;
  if (is_on_cuda(in)) {
    ++on_device_[std::string(operation.name())];
    return false;
  }
  if (!runs_on_device(operation, in)) {
    ++left_[std::string(operation.name())];
    return false;
  }
  std::vector<Tensor> there;
  for (const Tensor* x : in) there.push_back(x->defined() ? x->to(device_) : *x);
  Results results = run_all(operation, there);
  for (const Tensor& x : results) out.add_view(x.cpu());
  ++on_device_[std::string(operation.name())];
  // Copies do not make a test of it.
  if (operation.name() != "clone" && operation.name() != "to") ++count_;
  return true;
}

std::int64_t DeviceGuide::take_count() noexcept { return std::exchange(count_, 0); }

}  // namespace quanta::test
