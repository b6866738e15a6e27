#include "quanta/nn/qat/linear.h"

#include "quanta/nn/activation.h"
#include "quanta/nn/detail/qat_from_float.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/linear.h"

namespace quanta::nn::qat {

Linear::Linear(const LinearOptions& options, const QConfig& qconfig)
    : nn::Linear(options), QatModule("qat.Linear", qconfig) {}

std::shared_ptr<Module> Linear::from_float(const Module& module) {
  return detail::share_layer<Linear, nn::Linear>("qat.Linear.from_float", module, module);
}

Tensor Linear::forward(const Tensor& x) const { return linear(x, fake_quantized(weight), bias); }

std::shared_ptr<Module> Linear::to_float() const { return detail::float_copy<nn::Linear>(*this); }

namespace dynamic {

Linear::Linear(const LinearOptions& options, const QConfig& qconfig)
    : qat::Linear(options, qconfig) {
  QUANTA_CHECK(activation_is_memoryless(qconfig),
               "qat.dynamic.Linear: qconfig.activation: expected a memoryless one "
               "(default_dynamic_qat_qconfig), got {}",
               qconfig.activation.name);
}

std::shared_ptr<Module> Linear::from_float(const Module& module) {
  return detail::share_layer<Linear, nn::Linear>("qat.dynamic.Linear.from_float", module, module);
}

}  // namespace dynamic
}  // namespace quanta::nn::qat

namespace quanta::nn::intrinsic::qat {

std::shared_ptr<Module> LinearReLU::from_float(const Module& module) {
  constexpr std::string_view kOp = "qat.LinearReLU.from_float";
  const auto& fused = detail::expect_module<intrinsic::LinearReLU>(kOp, module, "LinearReLU");
  return detail::share_layer<LinearReLU, nn::Linear>(kOp, module, detail::first_part(kOp, fused));
}

Tensor LinearReLU::forward(const Tensor& x) const { return relu(nn::qat::Linear::forward(x)); }

std::shared_ptr<Module> LinearReLU::to_float() const {
  return detail::with_relu<intrinsic::LinearReLU>(nn::qat::Linear::to_float());
}

}  // namespace quanta::nn::intrinsic::qat
