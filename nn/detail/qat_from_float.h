#pragma once

// Private: how qat modules are made of float ones and give them back.

#include <memory>
#include <string_view>

#include "quanta/nn/activation.h"
#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/intrinsic/fused.h"

namespace quanta::nn::detail {

/// The module's QConfig. Throws ArgumentError without one.
inline const QConfig& expect_qconfig(std::string_view op, const Module& module) {
  QUANTA_CHECK(module.qconfig() != nullptr,
               "{}: module: expected one with a QConfig (prepare_qat gives each module one), got "
               "none",
               op);
  return *module.qconfig();
}

/// The layer of a fused module that is not quantized yet.
inline const Module& first_part(std::string_view op, const intrinsic::FusedModule& fused) {
  QUANTA_CHECK(!fused.empty(), "{}: module: expected a float one with parts, got an empty one", op);
  return fused[0];
}

/// A Qat with the parameters of `layer`, a Float; both then train the same tensors. The QConfig is
/// `module`'s (the fused module around the layer, or the layer).
template <typename Qat, typename Float>
std::shared_ptr<Qat> share_layer(std::string_view op, const Module& module, const Module& layer) {
  const auto& source = expect_module<Float>(op, layer, "a float layer");
  const QConfig& qconfig = expect_qconfig(op, module);
  auto result = make_module<Qat>(source.options(), qconfig);
  result->weight = source.weight;
  if constexpr (requires { result->bias; }) result->bias = source.bias;
  result->set_qconfig(qconfig);
  result->train(module.is_training());
  return result;
}

/// A Float with copies of the layer's parameters, in eval mode.
template <typename Float>
std::shared_ptr<Float> float_copy(const Float& layer) {
  auto result = make_module<Float>(layer.options());
  result->weight = layer.weight.detach().clone();
  if constexpr (requires { result->bias; }) {
    result->bias = layer.bias.defined() ? layer.bias.detach().clone() : Tensor();
  }
  result->eval();
  return result;
}

template <typename Fused>
std::shared_ptr<Module> with_relu(std::shared_ptr<Module> layer) {
  auto result = make_module<Fused>(std::move(layer), make_module<nn::ReLU>());
  result->eval();
  return result;
}

}  // namespace quanta::nn::detail
