#include "dynamic_pipeline.h"

#include <fmt/core.h>

#include <utility>

#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/nn/dynamic/rnn_cell.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/quantized/embedding.h"

namespace quanta::conform {
namespace {

namespace qd = nn::quantized::dynamic;

/// Of what a recurrent module gives, batch first: the last step.
class LastStep : public nn::Module {
 public:
  Tensor forward(const Tensor& x) const override { return x.select(1, x.sizes()[1] - 1); }
};

const ModuleRegistration kTypes{
    {"LastStep", [](const Arguments&) { return nn::make_module<LastStep>(); }},
};

void add_parts(Object& parts, const nn::RecurrentWeights& weights, RnnPart part,
               const std::string& suffix) {
  const auto add = [&](const char* name, const Tensor& tensor) {
    if (tensor.defined()) parts.set(name + suffix, tensor);
  };
  if (part == RnnPart::Weights) {
    add("weight_ih", weights.weight_ih);
    add("weight_hh", weights.weight_hh);
  } else {
    add("bias_ih", weights.bias_ih);
    add("bias_hh", weights.bias_hh);
  }
}

template <typename Cell>
bool add_cell(Object& parts, const nn::Module& module, RnnPart part) {
  const auto* cell = dynamic_cast<const Cell*>(&module);
  if (cell == nullptr) return false;
  if (cell->weight_dtype() == DType::QInt8) add_parts(parts, cell->weights(), part, "");
  return true;
}

bool is_dynamic_layer(const nn::Module& module) {
  return dynamic_cast<const qd::LSTM*>(&module) != nullptr ||
         dynamic_cast<const qd::GRU*>(&module) != nullptr;
}

Object entry_of(const char* type, const Tensor& weight, const Tensor& bias) {
  Object entry;
  entry.set("type", type);
  entry.set("weight", weight);
  if (bias.defined()) entry.set("bias", bias);
  return entry;
}

Object layer_entry(const nn::Module& module) {
  Object entry;
  Object weights = recurrent_parts(module, RnnPart::Weights);
  if (weights.items.empty()) return entry;
  entry.set("type", dynamic_cast<const nn::LSTM*>(&module) != nullptr ? "LSTM" : "GRU");
  entry.set("weights", std::move(weights));
  entry.set("biases", recurrent_parts(module, RnnPart::Biases));
  return entry;
}

/// Empty for a module without integer weights.
Object module_entry(const nn::Module& module) {
  if (is_dynamic_layer(module)) return layer_entry(module);
  if (const auto* linear = dynamic_cast<const qd::Linear*>(&module)) {
    if (!linear->weight().is_quantized()) return {};
    return entry_of("Linear", linear->weight(), linear->bias());
  }
  if (const auto* bag = dynamic_cast<const nn::quantized::EmbeddingBag*>(&module)) {
    return entry_of("EmbeddingBag", bag->quantized_weight(), {});
  }
  return {};
}

}  // namespace

DynamicSpec dynamic_spec_of(const Case& test) {
  DynamicSpec spec;
  for (const auto& [key, value] : test.attr("qconfig_spec").items()) {
    const QConfig qconfig = qconfig_from_name(value.get<std::string>());
    if (key == "Linear") {
      spec.add_type<nn::Linear>(qconfig);
    } else if (key == "LSTM") {
      spec.add_type<nn::LSTM>(qconfig);
    } else if (key == "GRU") {
      spec.add_type<nn::GRU>(qconfig);
    } else if (key == "EmbeddingBag") {
      spec.add_type<nn::EmbeddingBag>(qconfig);
    } else {
      spec.add_name(key, qconfig);
    }
  }
  return spec;
}

Object recurrent_parts(const nn::Module& module, RnnPart part) {
  Object parts;
  if (add_cell<qd::LSTMCell>(parts, module, part) || add_cell<qd::GRUCell>(parts, module, part) ||
      add_cell<qd::RNNCell>(parts, module, part) || !is_dynamic_layer(module)) {
    return parts;
  }
  const auto& layer = dynamic_cast<const nn::RecurrentLayer&>(module);
  for (std::int64_t number = 0; number < layer.options().num_layers; ++number) {
    for (std::int64_t direction = 0; direction < layer.num_directions(); ++direction) {
      const nn::RecurrentWeights weights = layer.weights(number, direction);
      if (!weights.weight_ih.is_quantized()) return parts;
      add_parts(parts, weights, part,
                fmt::format("_l{}{}", number, direction == 0 ? "" : "_reverse"));
    }
  }
  return parts;
}

Object dynamic_modules_of(const Network& net) {
  Object result;
  for (const auto& [path, module] : net.named_modules()) {
    Object entry = module_entry(*module);
    if (!entry.items.empty()) result.set(path, std::move(entry));
  }
  return result;
}

}  // namespace quanta::conform
