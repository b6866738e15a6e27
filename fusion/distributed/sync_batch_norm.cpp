#include "quanta/fusion/distributed/sync_batch_norm.h"

#include <memory>
#include <span>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "quanta/nn/detail/child_path.h"
#include "quanta/ops/norm.h"
#include "quanta/runtime/check.h"

namespace quanta::distributed {
namespace {

// What stands in for `from`, with its tensors.
template <typename Norm, typename... Args>
std::shared_ptr<nn::Module> replacement(nn::BatchNormNd& from, const Args&... args) {
  auto to = nn::make_module<Norm>(from.options(), args...);
  to->weight = from.weight;
  to->bias = from.bias;
  to->running_mean = from.running_mean;
  to->running_var = from.running_var;
  to->num_batches_tracked = from.num_batches_tracked;
  to->take_pre_hooks_from(from);
  to->take_forward_hooks_from(from);
  to->take_qconfig_from(from);
  to->set_activation_post_process(from.activation_post_process());
  to->train(from.is_training());
  return to;
}

// `make` gives what to put in a child's place, or null: it takes the child and its path.
template <typename Make>
std::int64_t replace(nn::Module& model, const char* op, const Make& make) {
  QUANTA_CHECK(make(model, "") == nullptr,
               "distributed: {}: model: expected a network with batch norms below it, got a {}", op,
               model.type_name());
  // The list names them without owning them, and comes to those that were replaced as well.
  std::vector<std::shared_ptr<nn::Module>> replaced;
  for (const auto& [path, module] : model.named_modules()) {
    for (const auto& [name, child] : module->named_children()) {
      if (child == nullptr) continue;
      std::shared_ptr<nn::Module> instead = make(*child, nn::detail::child_path(path, name));
      if (instead == nullptr) continue;
      replaced.push_back(child);
      module->replace_child(name, std::move(instead));
    }
  }
  return static_cast<std::int64_t>(replaced.size());
}

}  // namespace

template <int N>
Tensor SyncBatchNorm<N>::normalize_batch(const Tensor& x,
                                         const BatchNormTrainOptions& options) const {
  // Without running statistics it comes here in eval mode too, where ranks are on their own.
  if (!this->is_training()) return nn::BatchNorm<N>::normalize_batch(x, options);
  return batch_norm_train(
      x, this->running_mean, this->running_var, this->weight, this->bias, options,
      [comm = comm_, place = place_](std::span<double> numbers) { comm.sum(numbers, place); });
}

template class SyncBatchNorm<1>;
template class SyncBatchNorm<2>;
template class SyncBatchNorm<3>;

std::int64_t convert_sync_batch_norm(nn::Module& model, const Communicator& comm) {
  return replace(model, "convert_sync_batch_norm",
                 [&](nn::Module& module, const std::string& path) -> std::shared_ptr<nn::Module> {
                   const auto make = [&]<int N>() -> std::shared_ptr<nn::Module> {
                     if (typeid(module) != typeid(nn::BatchNorm<N>)) return nullptr;
                     return replacement<SyncBatchNorm<N>>(static_cast<nn::BatchNorm<N>&>(module),
                                                          comm, "SyncBatchNorm " + path);
                   };
                   if (auto one = make.template operator()<1>()) return one;
                   if (auto two = make.template operator()<2>()) return two;
                   return make.template operator()<3>();
                 });
}

std::int64_t revert_sync_batch_norm(nn::Module& model) {
  return replace(model, "revert_sync_batch_norm",
                 [](nn::Module& module, const std::string&) -> std::shared_ptr<nn::Module> {
                   const auto make = [&]<int N>() -> std::shared_ptr<nn::Module> {
                     auto* sync = dynamic_cast<SyncBatchNorm<N>*>(&module);
                     return sync == nullptr ? nullptr : replacement<nn::BatchNorm<N>>(*sync);
                   };
                   if (auto one = make.template operator()<1>()) return one;
                   if (auto two = make.template operator()<2>()) return two;
                   return make.template operator()<3>();
                 });
}

}  // namespace quanta::distributed
