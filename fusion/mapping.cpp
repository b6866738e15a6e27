#include "quanta/fusion/mapping.h"

#include <regex>
#include <typeinfo>

#include "quanta/nn/activation.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/qat/batch_norm.h"
#include "quanta/nn/qat/conv.h"
#include "quanta/nn/qat/embedding.h"
#include "quanta/nn/qat/linear.h"
#include "quanta/nn/quantizable/attention.h"
#include "quanta/nn/quantizable/lstm.h"
#include "quanta/nn/quantized/activation.h"
#include "quanta/nn/quantized/attention.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/embedding.h"
#include "quanta/nn/quantized/functional.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/quantized/lstm.h"
#include "quanta/nn/quantized/norm.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

// What the float form of a qat module becomes, its weight quantized by the fake quantizer that was
// trained with it.
template <typename... Types>
void add_qat(ModuleMapping& mapping) {
  const auto convert = [float_forms = mapping](const nn::Module& module) {
    const auto& qat = dynamic_cast<const nn::qat::QatModule&>(module);
    const std::shared_ptr<nn::Module> source = qat.to_float();
    QUANTA_CHECK(module.qconfig() != nullptr,
                 "convert: module: expected a {} with a QConfig, got one without",
                 module.type_name());
    QConfig qconfig = *module.qconfig();
    qconfig.weight.make = [fake = qat.weight_fake_quant()] { return fake->clone(); };
    source->set_qconfig(qconfig);
    source->set_activation_post_process(module.activation_post_process(),
                                        nn::Module::Observation::Explicit);
    return (*float_forms.find(*source))(*source);
  };
  (mapping.add<Types>(convert), ...);
}

void add_qat_modules(ModuleMapping& mapping) {
  namespace nq = nn::qat;
  namespace niq = nn::intrinsic::qat;
  add_qat<nq::Linear, nq::Conv1d, nq::Conv2d, nq::Conv3d, nq::Embedding, nq::EmbeddingBag,
          niq::LinearReLU, niq::ConvReLU1d, niq::ConvReLU2d, niq::ConvReLU3d, niq::LinearBn1d,
          niq::ConvBn1d, niq::ConvBn2d, niq::ConvBn3d, niq::ConvBnReLU1d, niq::ConvBnReLU2d,
          niq::ConvBnReLU3d>(mapping);
}

ModuleMapping make_default_mapping() {
  namespace q = nn::quantized;
  namespace ni = nn::intrinsic;
  namespace niq = nn::intrinsic::quantized;
  ModuleMapping mapping;
  mapping.add<nn::QuantStub>(&q::Quantize::from_float)
      .add<nn::DeQuantStub>(&q::DeQuantize::from_float)
      .add<nn::BatchNorm2d>(&q::BatchNorm2d::from_float)
      .add<nn::BatchNorm3d>(&q::BatchNorm3d::from_float)
      .add<nn::Dropout>(&q::Dropout::from_float)
      .add<nn::Conv1d>(&q::Conv1d::from_float)
      .add<nn::Conv2d>(&q::Conv2d::from_float)
      .add<nn::Conv3d>(&q::Conv3d::from_float)
      .add<nn::ConvTranspose1d>(&q::ConvTranspose1d::from_float)
      .add<nn::ConvTranspose2d>(&q::ConvTranspose2d::from_float)
      .add<nn::ConvTranspose3d>(&q::ConvTranspose3d::from_float)
      .add<nn::ELU>(&q::ELU::from_float)
      .add<nn::Hardswish>(&q::Hardswish::from_float)
      .add<nn::LeakyReLU>(&q::LeakyReLU::from_float)
      .add<nn::PReLU>(&q::PReLU::from_float)
      .add<nn::ReLU6>(&q::ReLU6::from_float)
      .add<nn::Embedding>(&q::Embedding::from_float)
      .add<nn::EmbeddingBag>(&q::EmbeddingBag::from_float)
      .add<nn::GroupNorm>(&q::GroupNorm::from_float)
      .add<nn::LayerNorm>(&q::LayerNorm::from_float)
      .add<nn::InstanceNorm1d>(&q::InstanceNorm1d::from_float)
      .add<nn::InstanceNorm2d>(&q::InstanceNorm2d::from_float)
      .add<nn::InstanceNorm3d>(&q::InstanceNorm3d::from_float)
      .add<nn::Linear>(&q::Linear::from_float)
      .add<nn::NonDynamicallyQuantizableLinear>(&q::Linear::from_float)
      .add<nn::FloatFunctional>(&q::QFunctional::from_float)
      .add<ni::BNReLU2d>(&niq::BNReLU2d::from_float)
      .add<ni::BNReLU3d>(&niq::BNReLU3d::from_float)
      .add<ni::ConvReLU1d>(&niq::ConvReLU1d::from_float)
      .add<ni::ConvReLU2d>(&niq::ConvReLU2d::from_float)
      .add<ni::ConvReLU3d>(&niq::ConvReLU3d::from_float)
      .add<ni::ConvAdd2d>(&niq::ConvAdd2d::from_float)
      .add<ni::ConvAddReLU2d>(&niq::ConvAddReLU2d::from_float)
      .add<ni::LinearReLU>(&niq::LinearReLU::from_float)
      .add<ni::LinearLeakyReLU>(&niq::LinearLeakyReLU::from_float)
      .add<ni::LinearTanh>(&niq::LinearTanh::from_float);
  add_qat_modules(mapping);
  return mapping;
}

ModuleMapping make_qat_mapping() {
  namespace ni = nn::intrinsic;
  namespace nq = nn::qat;
  namespace niq = nn::intrinsic::qat;
  ModuleMapping mapping;
  mapping.add<nn::Linear>(&nq::Linear::from_float)
      .add<nn::NonDynamicallyQuantizableLinear>(&nq::Linear::from_float)
      .add<nn::Conv1d>(&nq::Conv1d::from_float)
      .add<nn::Conv2d>(&nq::Conv2d::from_float)
      .add<nn::Conv3d>(&nq::Conv3d::from_float)
      .add<nn::Embedding>(&nq::Embedding::from_float)
      .add<nn::EmbeddingBag>(&nq::EmbeddingBag::from_float)
      .add<ni::ConvReLU1d>(&niq::ConvReLU1d::from_float)
      .add<ni::ConvReLU2d>(&niq::ConvReLU2d::from_float)
      .add<ni::ConvReLU3d>(&niq::ConvReLU3d::from_float)
      .add<ni::LinearReLU>(&niq::LinearReLU::from_float)
      .add<ni::ConvBn1d>(&niq::ConvBn1d::from_float)
      .add<ni::ConvBn2d>(&niq::ConvBn2d::from_float)
      .add<ni::ConvBn3d>(&niq::ConvBn3d::from_float)
      .add<ni::ConvBnReLU1d>(&niq::ConvBnReLU1d::from_float)
      .add<ni::ConvBnReLU2d>(&niq::ConvBnReLU2d::from_float)
      .add<ni::ConvBnReLU3d>(&niq::ConvBnReLU3d::from_float)
      .add<ni::LinearBn1d>(&niq::LinearBn1d::from_float);
  return mapping;
}

}  // namespace

const FromFloat* ModuleMapping::find(const nn::Module& module) const {
  const auto found = table_.find(typeid(module));
  return found == table_.end() ? nullptr : &found->second;
}

const CustomModuleMapping::Observed* CustomModuleMapping::find_observed(
    const nn::Module& float_module) const {
  const auto found = observed_.find(typeid(float_module));
  return found == observed_.end() ? nullptr : &found->second;
}

const CustomModuleMapping::Quantized* CustomModuleMapping::find_quantized(
    const nn::Module& observed) const {
  const auto found = quantized_.find(typeid(observed));
  return found == quantized_.end() ? nullptr : &found->second;
}

const CustomModuleMapping& default_custom_module_mapping() {
  static const CustomModuleMapping mapping =
      CustomModuleMapping()
          .add_observed<nn::LSTM>(
              [](const nn::Module& module) { return nn::quantizable::LSTM::from_float(module); },
              OutputObserver::None)
          .add_observed<nn::MultiheadAttention>(
              [](const nn::Module& module) {
                return nn::quantizable::MultiheadAttention::from_float(module);
              },
              OutputObserver::None)
          .add_quantized<nn::quantizable::LSTM>(&nn::quantized::LSTM::from_observed,
                                                CustomParts::Convert)
          .add_quantized<nn::quantizable::MultiheadAttention>(
              &nn::quantized::MultiheadAttention::from_observed, CustomParts::Convert);
  return mapping;
}

const ModuleMapping& default_static_quant_module_mappings() {
  static const ModuleMapping mapping = make_default_mapping();
  return mapping;
}

const ModuleMapping& default_qat_module_mappings() {
  static const ModuleMapping mapping = make_qat_mapping();
  return mapping;
}

QConfigMapping& QConfigMapping::set_global(std::optional<QConfig> qconfig) {
  global_ = std::move(qconfig);
  return *this;
}

QConfigMapping& QConfigMapping::set_object_type(std::type_index type,
                                                std::optional<QConfig> qconfig) {
  by_type_[type] = std::move(qconfig);
  return *this;
}

QConfigMapping& QConfigMapping::set_module_name(std::string path, std::optional<QConfig> qconfig) {
  by_name_[std::move(path)] = std::move(qconfig);
  return *this;
}

QConfigMapping& QConfigMapping::set_module_name_regex(std::string pattern,
                                                      std::optional<QConfig> qconfig) {
  try {
    const std::regex compiled(pattern);
  } catch (const std::regex_error& error) {
    throw ArgumentError(
        fmt::format("set_module_name_regex: pattern: expected a regular expression, got '{}' ({})",
                    pattern, error.what()));
  }
  by_regex_.emplace_back(std::move(pattern), std::move(qconfig));
  return *this;
}

std::optional<std::optional<QConfig>> QConfigMapping::find(const nn::Module& module,
                                                           const std::string& path) const {
  if (const auto found = by_name_.find(path); found != by_name_.end()) return found->second;
  for (const auto& [pattern, qconfig] : by_regex_) {
    if (std::regex_match(path, std::regex(pattern))) return qconfig;
  }
  if (const auto found = by_type_.find(typeid(module)); found != by_type_.end()) {
    return found->second;
  }
  return std::nullopt;
}

}  // namespace quanta
