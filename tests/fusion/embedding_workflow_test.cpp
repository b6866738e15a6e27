#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/mapping.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/quantized/embedding.h"
#include "quanta/nn/reference.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/safetensors.h"
#include "support/compare.h"
#include "support/files.h"

// Tables of 8 and 4 bits in networks: by type in the static workflow, by quantize_dynamic, and as
// reference modules.

namespace quanta {
namespace {

using test::largest_difference;

Tensor indices(const std::vector<std::int64_t>& values, const Dims& sizes) {
  return Tensor::from_int64(values).view(sizes);
}

// Words in order go through an LSTM, all of them once more as a bag.
struct Words : nn::Module {
  nn::Child<nn::Embedding> table;
  nn::Child<nn::EmbeddingBag> bag;
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::LSTM> lstm;
  nn::Child<nn::Linear> fc;
  nn::Child<nn::DeQuantStub> dequant;

  Words() {
    register_module("table", table, nn::EmbeddingOptions{.num_embeddings = 30, .embedding_dim = 8});
    register_module(
        "bag", bag,
        nn::EmbeddingBagOptions{
            .num_embeddings = 30, .embedding_dim = 8, .mode = nn::EmbeddingBagMode::Sum});
    register_module("quant", quant);
    register_module("lstm", lstm,
                    nn::RecurrentOptions{.input_size = 8, .hidden_size = 8, .batch_first = true});
    register_module("fc", fc, nn::LinearOptions{.in_features = 8, .out_features = 3});
    register_module("dequant", dequant);
    eval();
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor rows = lstm(quant(table(x)));
    last_bag = bag(x);
    return dequant(fc(rows));
  }
  mutable Tensor last_bag;
};

Tensor sentences() {
  std::vector<std::int64_t> words;
  for (std::int64_t i = 0; i < 20; ++i) words.push_back(i * 7 % 30);
  return indices(words, {4, 5});
}

std::string types_of(const Words& net) {
  return net.get_submodule("table")->type_name() + " " + net.get_submodule("bag")->type_name() +
         " " + net.get_submodule("lstm")->type_name() + " " + net.get_submodule("fc")->type_name();
}

TEST_CASE("quantize: embeddings get their QConfig by type beside an int8 LSTM") {
  manual_seed(41);
  const Words net;
  const Tensor x = sentences();
  const Tensor want = net(x);
  const Tensor want_bag = net.last_bag;
  struct Form {
    QConfig embedding, bag;
    double bag_error;
  };
  const QConfig bytes = float_qparams_weight_only_qconfig();
  const QConfig nibbles = float_qparams_weight_only_qconfig_4bit();
  for (const Form& form : {Form{bytes, bytes, 0.1}, Form{nibbles, nibbles, 1.5}}) {
    QConfigMapping qconfigs(get_default_qconfig());
    qconfigs.set_object_type<nn::Embedding>(form.embedding)
        .set_object_type<nn::EmbeddingBag>(form.bag);
    const Words prepared = prepare(net, qconfigs);
    prepared(x);
    const Words int8 = convert(prepared);
    CHECK(types_of(int8) ==
          "QuantizedEmbedding QuantizedEmbeddingBag QuantizedLSTM QuantizedLinear");
    CHECK(largest_difference(int8(x), want) < 0.15);
    CHECK(largest_difference(int8.last_bag, want_bag) < form.bag_error);

    const test::TemporaryFile file;
    save_model(int8, file.path);
    Words loaded;
    load_model(loaded, file.path);
    CHECK(loaded(x).equal(int8(x)));
    CHECK(loaded.last_bag.equal(int8.last_bag));
  }
}

TEST_CASE("quantize_dynamic: the dtype of the tables decides which embeddings are taken") {
  manual_seed(42);
  const Words net;
  const Tensor x = sentences();
  const Tensor want = net(x);
  const Tensor want_bag = net.last_bag;
  const Words bytes = quantize_dynamic(net, {}, DType::QUInt8);
  CHECK(types_of(bytes) == "QuantizedEmbedding QuantizedEmbeddingBag LSTM Linear");
  CHECK(largest_difference(bytes(x), want) < 0.02);
  CHECK(largest_difference(bytes.last_bag, want_bag) < 0.1);
  // As in torch, only bags have 4 bits when nothing else is said.
  const Words nibbles = quantize_dynamic(net, {}, DType::QUInt4x2);
  CHECK(types_of(nibbles) == "Embedding QuantizedEmbeddingBag LSTM Linear");
  CHECK(nibbles(x).equal(want));
  CHECK(largest_difference(nibbles.last_bag, want_bag) < 1.5);
  const Words all =
      quantize_dynamic(net, DynamicSpec()
                                .add_type<nn::Embedding>(float_qparams_weight_only_qconfig_4bit())
                                .add_name("bag", float_qparams_weight_only_qconfig()));
  CHECK(types_of(all) == "QuantizedEmbedding QuantizedEmbeddingBag LSTM Linear");
  CHECK(all.get_submodule("table")->state_dict().begin()->second.dtype() == DType::QUInt4x2);
  CHECK(all.get_submodule("bag")->state_dict().begin()->second.dtype() == DType::QUInt8);
  CHECK(largest_difference(all(x), want) < 0.3);
}

// Weighted layers without stubs, which reference modules do not need.
struct Plain : nn::Module {
  nn::Child<nn::Embedding> table;
  nn::Child<nn::Linear> fc;
  Plain() {
    register_module("table", table, nn::EmbeddingOptions{.num_embeddings = 9, .embedding_dim = 6});
    register_module("fc", fc, nn::LinearOptions{.in_features = 6, .out_features = 4});
    eval();
  }
  Tensor forward(const Tensor& x) const override { return fc(table(x)); }
};

TEST_CASE("convert: the reference mapping leaves float modules with quantized weights") {
  manual_seed(43);
  const Plain net;
  const Tensor x = indices({8, 0, 3, 3}, {2, 2});
  QConfigMapping qconfigs(default_per_channel_qconfig());
  qconfigs.set_object_type<nn::Embedding>(float_qparams_weight_only_qconfig());
  const Plain prepared = prepare(net, qconfigs);
  prepared(x);
  ConvertOptions options;
  options.mapping = default_static_quant_reference_module_mappings();
  const Plain reference = convert(prepared, options);
  const auto& table =
      dynamic_cast<const nn::reference::Embedding&>(*reference.get_submodule("table"));
  const auto& fc = dynamic_cast<const nn::reference::Linear&>(*reference.get_submodule("fc"));
  CHECK(table.weight_qparams().dtype == DType::QUInt8);
  CHECK(is_per_channel(fc.weight_qparams().qscheme));
  CHECK(fc.type_name() == "QuantizedLinear(Reference)");
  CHECK(largest_difference(reference(x), net(x)) < 0.05);
  // Weights round as those of the int8 network do.
  const Plain int8 = convert(prepared);
  CHECK(int8.get_submodule("fc")
            ->state_dict()
            .at("_packed_params._packed_params/0")
            .equal(fc.get_quantized_weight()));
}

TEST_CASE("load_model: weights of reference modules are looked at as the file has them") {
  manual_seed(45);
  const Tensor x = indices({8, 0, 3, 3}, {2, 2});
  QConfigMapping qconfigs(default_per_channel_qconfig());
  qconfigs.set_object_type<nn::Embedding>(float_qparams_weight_only_qconfig());
  const Plain prepared = prepare(Plain(), qconfigs);
  prepared(x);
  ConvertOptions options;
  options.mapping = default_static_quant_reference_module_mappings();
  const Plain saved = convert(prepared, options);
  const test::TemporaryFolder folder;
  save_model(saved, folder / "good.safetensors");
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  // What the network had before does not matter: skip_init leaves anything.
  Plain loaded;
  for (const auto& [name, parameter] : loaded.named_parameters()) parameter.fill_(kNaN);
  load_model(loaded, folder / "good.safetensors");
  CHECK(loaded(x).equal(saved(x)));
  for (const char* name : {"fc.weight", "table.weight"}) {
    CAPTURE(name);
    SafetensorsFile file = load_safetensors(folder / "good.safetensors");
    const Tensor odd = file.tensors.at(name).clone();
    odd.mutable_data<float>()[3] = kNaN;
    file.tensors.set(name, odd);
    write_safetensors(file.tensors, folder / "odd.safetensors", file.metadata);
    Plain refused;
    const std::string text =
        std::string(name) + ": load_state_dict: weight: expected finite numbers";
    CHECK_THROWS_WITH_AS(load_model(refused, folder / "odd.safetensors"),
                         doctest::Contains(text.c_str()), Error);
    CHECK(refused.get_submodule("fc")->type_name() == "Linear");
  }
}

TEST_CASE("reference embeddings: compute with the rows as quantizing leaves them") {
  manual_seed(44);
  for (const ObserverFactory& factory :
       {default_float_qparams_observer(), default_float_qparams_observer_4bit()}) {
    const nn::EmbeddingBag source(
        {.num_embeddings = 7, .embedding_dim = 6, .mode = nn::EmbeddingBagMode::Sum});
    const nn::Embedding plain({.num_embeddings = 7, .embedding_dim = 6});
    plain.weight.copy_(source.weight);
    const std::shared_ptr<Observer> observer = factory();
    observer->forward(source.weight);
    const auto qparams = nn::reference::WeightQParams::from_observer(*observer);
    const auto bag = nn::reference::EmbeddingBag::from_float(source, qparams);
    const auto table = nn::reference::Embedding::from_float(plain, qparams);
    CHECK(table->get_weight().equal(dequantize(quantize_with(source.weight, *observer))));
    const Tensor x = indices({6, 1, 1, 0, 5, 2}, {2, 3});
    const Tensor rows = table->get_weight();
    CHECK((*table)(x).select(0, 0).select(0, 1).equal(rows.select(0, 1)));
    CHECK(largest_difference((*bag)(x), (*nn::quantized::EmbeddingBag::from_reference(*bag))(x)) <
          0.02);
    CHECK(largest_difference((*table)(x), (*nn::quantized::Embedding::from_reference(*table))(x)) <
          0.01);
    CHECK(to_string(*table) == "QuantizedEmbedding(Reference)(7, 6)");

    // A state brings weight and parameters; a bad one is refused whole.
    StateDict state = table->state_dict();
    const nn::Embedding other({.num_embeddings = 7, .embedding_dim = 6});
    const auto loaded = nn::reference::Embedding::from_float(other, qparams);
    loaded->load_state_dict(state);
    CHECK((*loaded)(x).equal((*table)(x)));
    state.set("weight_scale", Tensor::ones({3}));
    CHECK_THROWS_WITH_AS(loaded->load_state_dict(state), doctest::Contains("weight_scale"),
                         ArgumentError);
    CHECK((*loaded)(x).equal((*table)(x)));
  }
}

}  // namespace
}  // namespace quanta
