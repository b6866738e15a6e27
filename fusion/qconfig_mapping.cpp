#include "quanta/fusion/qconfig_mapping.h"

#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/norm.h"
#include "quanta/observers/defaults.h"

namespace quanta {
namespace {

// What differs between the two mappings.
struct Defaults {
  QConfig global;
  ObserverFactory per_tensor_weight;
  ObserverFactory range_0to1, range_neg1to1;
  QConfig embedding;
};

QConfigMapping make_mapping(const Defaults& defaults) {
  const QConfig per_tensor{defaults.global.activation, defaults.per_tensor_weight};
  const QConfig share{defaults.range_0to1, defaults.per_tensor_weight};
  QConfigMapping mapping(defaults.global);
  mapping.set_object_type<nn::ConvTranspose1d>(per_tensor)
      .set_object_type<nn::ConvTranspose2d>(per_tensor)
      .set_object_type<nn::ConvTranspose3d>(per_tensor)
      .set_object_type<nn::LayerNorm>(
          QConfig{defaults.global.activation, default_placeholder_observer()})
      .set_object_type<nn::PReLU>(default_quint8_weight_qconfig())
      .set_object_type<nn::Hardsigmoid>(share)
      .set_object_type<nn::Sigmoid>(share)
      .set_object_type<nn::Softmax>(share)
      .set_object_type<nn::Tanh>(QConfig{defaults.range_neg1to1, defaults.per_tensor_weight})
      .set_object_type<nn::Embedding>(defaults.embedding)
      .set_object_type<nn::EmbeddingBag>(defaults.embedding);
  return mapping;
}

}  // namespace

QConfigMapping get_default_qconfig_mapping(std::string_view backend, int version) {
  return make_mapping({.global = get_default_qconfig(backend, version),
                       .per_tensor_weight = default_weight_observer(),
                       .range_0to1 = default_fixed_qparams_range_0to1_observer(),
                       .range_neg1to1 = default_fixed_qparams_range_neg1to1_observer(),
                       .embedding = float_qparams_weight_only_qconfig()});
}

QConfigMapping get_default_qat_qconfig_mapping(std::string_view backend, int version) {
  return make_mapping({.global = get_default_qat_qconfig(backend, version),
                       .per_tensor_weight = default_weight_fake_quant(),
                       .range_0to1 = default_fixed_qparams_range_0to1_fake_quant(),
                       .range_neg1to1 = default_fixed_qparams_range_neg1to1_fake_quant(),
                       .embedding = default_embedding_qat_qconfig()});
}

}  // namespace quanta
