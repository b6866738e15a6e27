#include "quanta/nn/quantized/embedding.h"

#include <utility>
#include <vector>

#include "quanta/nn/detail/from_float.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/require_tensor.h"

namespace quanta::nn::quantized {
namespace {

namespace ops = quanta::quantized;
using ops::EmbeddingPackedParams;

constexpr const char* kWeightName = "_packed_params._packed_weight";

EmbeddingPackedParams repacked(const EmbeddingPackedParams& packed, const QTensor& weight) {
  const Dims sizes{packed.num_embeddings(), packed.embedding_dim()};
  quanta::detail::require_tensor("set_weight", weight, "weight");
  QUANTA_CHECK(weight.sizes() == sizes, "set_weight: weight: expected sizes {}, got {}", sizes,
               weight.sizes());
  return ops::embedding_bag_prepack(weight);
}

void save_table(StateDict& state, const std::string& prefix, const EmbeddingPackedParams& packed) {
  state.set(prefix + kWeightName, packed.unpack());
}

void load_table(StateReader& reader, EmbeddingPackedParams& packed) {
  const Tensor* weight = reader.require(kWeightName);
  if (weight == nullptr) return;
  try {
    EmbeddingPackedParams loaded =
        repacked(packed, weight->as_quantized("load_state_dict", "weight"));
    reader.on_commit([&packed, loaded = std::move(loaded)] { packed = loaded; });
  } catch (const Error& error) {
    reader.problem(fmt::format("{}: {}", reader.full_name(kWeightName), error.what()));
  }
}

std::string repr(const EmbeddingPackedParams& packed) {
  return fmt::format(
      "num_embeddings={}, embedding_dim={}, dtype=torch.{}, "
      "qscheme=torch.per_channel_affine_float_qparams",
      packed.num_embeddings(), packed.embedding_dim(), torch_name(packed.dtype()));
}

// The table as the qconfig's weight observer quantizes it. What an embedding gives out stays
// float, so there is no activation observer to ask.
QTensor quantize_table(std::string_view op, const Module& module, const Tensor& weight) {
  const QConfig* qconfig = module.qconfig();
  QUANTA_CHECK(qconfig != nullptr && qconfig->weight,
               "{}: module: expected a {} with a qconfig for weights "
               "(float_qparams_weight_only_qconfig), got none",
               op, module.type_name());
  const std::shared_ptr<Observer> observer = qconfig->weight();
  QUANTA_CHECK(observer->qscheme() == QScheme::PerChannelAffineFloatQParams &&
                   observer->ch_axis() == 0 &&
                   (observer->dtype() == DType::QUInt8 || observer->dtype() == DType::QUInt4x2),
               "{}: qconfig.weight: expected an observer for QUInt8 or QUInt4x2 with float zero "
               "points along axis 0 (set float_qparams_weight_only_qconfig or its 4-bit form for "
               "embeddings, or a null QConfig to leave them in float), got a {} for {} {}",
               op, observer->name(), observer->dtype(), observer->qscheme());
  return detail::quantize_with_observer(op, *observer, weight);
}

EmbeddingBagOptions sum_only(std::string_view op, EmbeddingBagOptions options) {
  QUANTA_SUPPORTED(options.mode == EmbeddingBagMode::Sum,
                   "{}: mode: expected Sum (quantized tables have no other; a null QConfig leaves "
                   "the module in float), got {}",
                   op, options.mode == EmbeddingBagMode::Mean ? "Mean" : "Max");
  return options;
}

EmbeddingBagOptions sized(EmbeddingBagOptions options, const EmbeddingPackedParams& packed) {
  options.num_embeddings = packed.num_embeddings();
  options.embedding_dim = packed.embedding_dim();
  return options;
}

}  // namespace

Embedding::Embedding(const QTensor& weight) : packed_(ops::embedding_bag_prepack(weight)) {}

std::shared_ptr<Module> Embedding::from_float(const Module& module) {
  constexpr std::string_view kOp = "Embedding.from_float";
  const auto& source = detail::expect_module<nn::Embedding>(kOp, module, "Embedding");
  return make_module<Embedding>(quantize_table(kOp, module, source.weight));
}

std::shared_ptr<Module> Embedding::from_reference(const reference::Embedding& module) {
  return make_module<Embedding>(module.get_quantized_weight());
}

void Embedding::set_weight(const QTensor& weight) { packed_ = repacked(packed_, weight); }

Tensor Embedding::forward(const Tensor& indices) const {
  return packed_.dtype() == DType::QUInt4x2 ? ops::embedding_4bit(packed_, indices)
                                            : ops::embedding_byte(packed_, indices);
}

std::string Embedding::extra_repr() const { return repr(packed_); }

void Embedding::save_state(StateDict& state, const std::string& prefix) const {
  save_table(state, prefix, packed_);
}

void Embedding::load_state(StateReader& reader) { load_table(reader, packed_); }

EmbeddingBag::EmbeddingBag(const QTensor& weight, const EmbeddingBagOptions& options)
    : EmbeddingBag(ops::embedding_bag_prepack(weight), options) {}

EmbeddingBag::EmbeddingBag(EmbeddingPackedParams packed, const EmbeddingBagOptions& options)
    : nn::EmbeddingBag(sized(sum_only("EmbeddingBag", options), packed), NoTable{}),
      packed_(std::move(packed)) {}

std::shared_ptr<Module> EmbeddingBag::from_float(const Module& module) {
  constexpr std::string_view kOp = "EmbeddingBag.from_float";
  const auto& source = detail::expect_module<nn::EmbeddingBag>(kOp, module, "EmbeddingBag");
  QUANTA_CHECK(source.weight.defined(), "{}: module: expected a float EmbeddingBag, got {}", kOp,
               module.type_name());
  const EmbeddingBagOptions options = sum_only(kOp, source.options());
  return make_module<EmbeddingBag>(quantize_table(kOp, module, source.weight), options);
}

std::shared_ptr<Module> EmbeddingBag::from_reference(const reference::EmbeddingBag& module) {
  return make_module<EmbeddingBag>(module.get_quantized_weight(), module.options());
}

void EmbeddingBag::set_weight(const QTensor& weight) { packed_ = repacked(packed_, weight); }

Tensor EmbeddingBag::run(const Tensor& indices, const Tensor& offsets,
                         const Tensor& per_sample_weights) const {
  const ops::EmbeddingBagOptions call{.offsets = offsets,
                                      .mode = EmbeddingBagMode::Sum,
                                      .per_sample_weights = per_sample_weights,
                                      .include_last_offset = options().include_last_offset,
                                      .padding_idx = options().padding_idx};
  return packed_.dtype() == DType::QUInt4x2 ? ops::embedding_bag_4bit(packed_, indices, call)
                                            : ops::embedding_bag_byte(packed_, indices, call);
}

std::string EmbeddingBag::extra_repr() const { return repr(packed_); }

void EmbeddingBag::save_state(StateDict& state, const std::string& prefix) const {
  save_table(state, prefix, packed_);
}

void EmbeddingBag::load_state(StateReader& reader) { load_table(reader, packed_); }

}  // namespace quanta::nn::quantized
