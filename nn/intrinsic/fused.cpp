#include "quanta/nn/intrinsic/fused.h"

#include <typeinfo>

#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/detail/class_name.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::intrinsic {
FusedModule::FusedModule(std::initializer_list<std::shared_ptr<Module>> parts,
                         std::initializer_list<std::type_index> types) {
  const std::type_index* wanted = types.begin();
  bool training = true;
  for (const std::shared_ptr<Module>& part : parts) {
    const std::string name = detail::class_name(*wanted);
    QUANTA_CHECK(part != nullptr, "FusedModule: parts: expected {} as part {}, got null", name,
                 size());
    const Module& module = *part;
    QUANTA_CHECK(std::type_index(typeid(module)) == *wanted,
                 "FusedModule: parts: expected {} as part {}, got {}", name, size(),
                 detail::class_name(typeid(module)));
    training = training && module.is_training();
    push_back(part);
    ++wanted;
  }
  train(training);
}

template <int N>
ConvReLU<N>::ConvReLU(std::shared_ptr<Module> conv, std::shared_ptr<Module> relu)
    : ConvReLUNd({std::move(conv), std::move(relu)}, {typeid(Conv<N>), typeid(ReLU)}) {}

template class ConvReLU<1>;
template class ConvReLU<2>;
template class ConvReLU<3>;

Tensor FusedModule::forward(const Tensor& x) const {
  return observed_inside(Sequential::forward(x));
}

Tensor FusedModule::observed_inside(const Tensor& y) const {
  const std::shared_ptr<Observer>& observer = activation_post_process();
  if (observer == nullptr) return y;
  // What other observers know is the same after a second time.
  const Settings settings = observer->settings();
  const bool counts_twice = dynamic_cast<const FakeQuantizeBase*>(observer.get()) != nullptr ||
                            settings.find("averaging_constant") != nullptr;
  return counts_twice ? observer->forward(y) : y;
}

Tensor ConvReLUNd::forward(const Tensor& x) const {
  const auto* conv = mergeable_part<ConvNd>(0);
  if (conv != nullptr && mergeable_part<ReLU>(1) != nullptr) {
    return observed_inside(conv->forward(x, Fusion::ReLU));
  }
  return FusedModule::forward(x);
}

LinearReLU::LinearReLU(std::shared_ptr<Module> linear, std::shared_ptr<Module> relu)
    : FusedModule({std::move(linear), std::move(relu)}, {typeid(Linear), typeid(ReLU)}) {}

Tensor LinearReLU::forward(const Tensor& x) const {
  const auto* linear = mergeable_part<Linear>(0);
  if (linear != nullptr && mergeable_part<ReLU>(1) != nullptr) {
    return observed_inside(linear->forward(x, Fusion::ReLU));
  }
  return FusedModule::forward(x);
}

LinearLeakyReLU::LinearLeakyReLU(std::shared_ptr<Module> linear, std::shared_ptr<Module> leaky_relu)
    : FusedModule({std::move(linear), std::move(leaky_relu)}, {typeid(Linear), typeid(LeakyReLU)}) {
}
LinearTanh::LinearTanh(std::shared_ptr<Module> linear, std::shared_ptr<Module> tanh)
    : FusedModule({std::move(linear), std::move(tanh)}, {typeid(Linear), typeid(Tanh)}) {}

template <int N>
BNReLU<N>::BNReLU(std::shared_ptr<Module> batch_norm, std::shared_ptr<Module> relu)
    : FusedModule({std::move(batch_norm), std::move(relu)}, {typeid(BatchNorm<N>), typeid(ReLU)}) {}

template class BNReLU<2>;
template class BNReLU<3>;

ConvAdd2d::ConvAdd2d(std::shared_ptr<Module> conv)
    : FusedModule({std::move(conv)}, {typeid(Conv2d)}) {}

Tensor ConvAdd2d::forward(const Tensor& x, const Tensor& accum) const {
  const detail::PathScope scope(this);
  Tensor y = run(x, accum);
  const std::shared_ptr<Observer>& observer = activation_post_process();
  return observer != nullptr ? observer->forward(y) : y;
}

Tensor ConvAdd2d::forward(const Tensor&) const {
  throw UnsupportedError(with_module_path(
      fmt::format("{}: forward: expected two tensors, forward(x, accum), got one", type_name())));
}

Tensor ConvAdd2d::run(const Tensor& x, const Tensor& accum) const {
  return add((*child_at(0))(x), accum);
}

ConvAddReLU2d::ConvAddReLU2d(std::shared_ptr<Module> conv, std::shared_ptr<Module> relu)
    : ConvAdd2d({std::move(conv), std::move(relu)}, {typeid(Conv2d), typeid(ReLU)}) {}

Tensor ConvAddReLU2d::run(const Tensor& x, const Tensor& accum) const {
  return (*child_at(1))(ConvAdd2d::run(x, accum));
}

template <int N>
ConvBn<N>::ConvBn(std::shared_ptr<Module> conv, std::shared_ptr<Module> batch_norm)
    : FusedModule({std::move(conv), std::move(batch_norm)},
                  {typeid(Conv<N>), typeid(BatchNorm<N>)}) {}

template class ConvBn<1>;
template class ConvBn<2>;
template class ConvBn<3>;

template <int N>
ConvBnReLU<N>::ConvBnReLU(std::shared_ptr<Module> conv, std::shared_ptr<Module> batch_norm,
                          std::shared_ptr<Module> relu)
    : FusedModule({std::move(conv), std::move(batch_norm), std::move(relu)},
                  {typeid(Conv<N>), typeid(BatchNorm<N>), typeid(ReLU)}) {}

template class ConvBnReLU<1>;
template class ConvBnReLU<2>;
template class ConvBnReLU<3>;

LinearBn1d::LinearBn1d(std::shared_ptr<Module> linear, std::shared_ptr<Module> batch_norm)
    : FusedModule({std::move(linear), std::move(batch_norm)},
                  {typeid(Linear), typeid(BatchNorm1d)}) {}

}  // namespace quanta::nn::intrinsic
