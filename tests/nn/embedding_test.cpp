#include "quanta/nn/embedding.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "observed.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/quantized/embedding.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/tensors.h"

namespace quanta::nn {
namespace {

using test::indices;
using test::largest_difference;

using test::names;

constexpr const char* kWeightName = "_packed_params._packed_weight";

// Rows 0..count-1 with values row * 10 + column.
Tensor counting_table(std::int64_t rows, std::int64_t columns) {
  Tensor table = Tensor::empty({rows, columns});
  auto* values = table.mutable_data<float>();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      values[r * columns + c] = static_cast<float>(r * 10 + c);
    }
  }
  return table;
}

EmbeddingBag counting_bag(EmbeddingBagOptions options) {
  options.num_embeddings = 4;
  options.embedding_dim = 2;
  EmbeddingBag bag(options);
  bag.weight.copy_(counting_table(4, 2));
  return bag;
}

template <typename Quantized, typename Float>
std::shared_ptr<Module> quantized_form(Float& module, const QConfig& qconfig) {
  module.set_qconfig(qconfig);
  return Quantized::from_float(module);
}

// A text classifier: bag of words and of positions.
struct Words : Module {
  Child<EmbeddingBag> bag;
  Child<Embedding> table;
  Words() {
    register_module("bag", bag,
                    EmbeddingBagOptions{
                        .num_embeddings = 9, .embedding_dim = 6, .mode = EmbeddingBagMode::Sum});
    register_module("table", table, EmbeddingOptions{.num_embeddings = 5, .embedding_dim = 6});
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor offsets = Tensor::from_int64(std::vector<std::int64_t>{0, 2});
    static_cast<void>(table(x));
    return bag->forward(x, offsets);
  }
};

TEST_CASE("Embedding: rows of the table by index of any shape and integer type") {
  Embedding table({.num_embeddings = 4, .embedding_dim = 2});
  table.weight.copy_(counting_table(4, 2));
  const Tensor index = indices({3, 0, 1, 1}).reshape({2, 2});
  const Tensor y = table(index);
  CHECK(y.sizes() == Dims{2, 2, 2});
  CHECK(y.to_float_vector() == std::vector<float>{30, 31, 0, 1, 10, 11, 10, 11});
  CHECK(table(index.to(DType::Int32)).equal(y));
  CHECK(table(indices({})).sizes() == Dims{0, 2});
  CHECK(names(table.state_dict()) == std::vector<std::string>{"weight"});
  CHECK(to_string(table) == "Embedding(4, 2)");
}

TEST_CASE("Embedding: the padding row starts as zeros and may be counted from the end") {
  const Embedding table({.num_embeddings = 4, .embedding_dim = 3, .padding_idx = -1});
  CHECK(table.weight.select(0, 3).to_float_vector() == std::vector<float>(3, 0.0F));
  CHECK(table.weight.select(0, 2).to_float_vector() != std::vector<float>(3, 0.0F));
  CHECK(to_string(table) == "Embedding(4, 3, padding_idx=3)");
  CHECK_THROWS_WITH_AS(Embedding({.num_embeddings = 4, .embedding_dim = 3, .padding_idx = 4}),
                       doctest::Contains("padding_idx: expected -4..3, got 4"), ArgumentError);
  CHECK_THROWS_WITH_AS(Embedding({.num_embeddings = 0, .embedding_dim = 3}),
                       doctest::Contains("num_embeddings: expected at least 1"), ArgumentError);
}

TEST_CASE("Embedding: bad indices and tables are refused by name") {
  Embedding table({.num_embeddings = 4, .embedding_dim = 2});
  CHECK_THROWS_WITH_AS(table(indices({4})),
                       doctest::Contains("indices: expected rows in 0..3, got 4"), ArgumentError);
  CHECK_THROWS_AS(table(indices({-1})), ArgumentError);
  CHECK_THROWS_WITH_AS(table(Tensor::ones({2})), doctest::Contains("expected Int32 or Int64"),
                       ArgumentError);
  table.weight = Tensor::ones({2, 2});
  CHECK_THROWS_WITH_AS(table(indices({3})), doctest::Contains("weight: expected Float32 [4, 2]"),
                       ArgumentError);
}

TEST_CASE("EmbeddingBag: sum and mean and maximum of each bag") {
  const Tensor index = indices({0, 2, 1, 3, 3});
  const Tensor offsets = indices({0, 2, 2});
  const EmbeddingBag sum = counting_bag({.mode = EmbeddingBagMode::Sum});
  CHECK(sum.forward(index, offsets).to_float_vector() == std::vector<float>{20, 22, 0, 0, 70, 73});
  const EmbeddingBag mean = counting_bag({.mode = EmbeddingBagMode::Mean});
  CHECK(mean.forward(index, offsets).to_float_vector()[4] == doctest::Approx(70.0 / 3));
  const EmbeddingBag max = counting_bag({.mode = EmbeddingBagMode::Max});
  CHECK(max.forward(index, offsets).to_float_vector() == std::vector<float>{20, 21, 0, 0, 30, 31});
  CHECK(to_string(max) == "EmbeddingBag(4, 2, mode='max')");
}

TEST_CASE("EmbeddingBag: 2-d indices hold a bag in each row") {
  const EmbeddingBag sum = counting_bag({.mode = EmbeddingBagMode::Sum});
  const Tensor index = indices({0, 2, 1, 3}).reshape({2, 2});
  CHECK(sum(index).to_float_vector() == std::vector<float>{20, 22, 40, 42});
  CHECK(sum(index).equal(sum.forward(index.flatten(), indices({0, 2}))));
}

TEST_CASE("EmbeddingBag: weights and last offset and padding row") {
  const Tensor index = indices({0, 2, 1, 3});
  const EmbeddingBag sum = counting_bag({.mode = EmbeddingBagMode::Sum});
  const Tensor weights = Tensor::from_values({1.0F, 0.5F, 2.0F, -1.0F});
  CHECK(sum.forward(index, indices({0, 2}), weights).to_float_vector() ==
        std::vector<float>{10, 11.5F, -10, -9});
  const EmbeddingBag last =
      counting_bag({.mode = EmbeddingBagMode::Sum, .include_last_offset = true});
  CHECK(last.forward(index, indices({0, 2, 3})).to_float_vector() ==
        std::vector<float>{20, 22, 10, 11});
  const EmbeddingBag padded = counting_bag({.mode = EmbeddingBagMode::Mean, .padding_idx = 2});
  CHECK(padded.forward(index, indices({0, 2})).to_float_vector() ==
        std::vector<float>{0, 1, 20, 21});
}

TEST_CASE("EmbeddingBag: calls that do not fit are refused by name") {
  const EmbeddingBag mean = counting_bag({});
  const Tensor index = indices({0, 2, 1, 3});
  CHECK_THROWS_WITH_AS(mean(index), doctest::Contains("offsets: expected a tensor for 1-d indices"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(mean.forward(index.reshape({2, 2}), indices({0})),
                       doctest::Contains("offsets: expected none"), ArgumentError);
  CHECK_THROWS_WITH_AS(mean.forward(index, indices({0, 3, 2})), doctest::Contains("do not fall"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(mean.forward(index, indices({1, 2})), doctest::Contains("expected 0 first"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(mean.forward(index, indices({0}), Tensor::ones({4})),
                       doctest::Contains("per_sample_weights: expected none for mode 'mean'"),
                       ArgumentError);
  const EmbeddingBag sum = counting_bag({.mode = EmbeddingBagMode::Sum});
  CHECK_THROWS_WITH_AS(
      sum.forward(index, indices({0}), Tensor::ones({3})),
      doctest::Contains("per_sample_weights: expected Float32 [4], got Float32 [3]"),
      ArgumentError);
}

TEST_CASE("quantized Embedding: gives the rows as the observer quantizes them") {
  for (const QConfig& qconfig :
       {float_qparams_weight_only_qconfig(), float_qparams_weight_only_qconfig_4bit()}) {
    Embedding source({.num_embeddings = 7, .embedding_dim = 6});
    const auto module = quantized_form<quantized::Embedding>(source, qconfig);
    const auto& table = dynamic_cast<const quantized::Embedding&>(*module);
    const bool bytes = table.packed().dtype() == DType::QUInt8;
    CAPTURE(bytes);
    const Tensor index = indices({6, 0, 3, 3});
    const float step = bytes ? 0.02F : 0.3F;
    CHECK(largest_difference((*module)(index), source(index)) < step);
    CHECK(largest_difference((*module)(indices({0, 1, 2, 3, 4, 5, 6})),
                             dequantize(table.weight())) < (bytes ? 1e-5F : 5e-3F));
    CHECK(names(module->state_dict()) == std::vector<std::string>{kWeightName});
    CHECK(module->state_dict().at(kWeightName).dtype() ==
          (bytes ? DType::QUInt8 : DType::QUInt4x2));
  }
  Embedding source({.num_embeddings = 10, .embedding_dim = 12});
  CHECK(to_string(
            *quantized_form<quantized::Embedding>(source, float_qparams_weight_only_qconfig())) ==
        "QuantizedEmbedding(num_embeddings=10, embedding_dim=12, dtype=torch.quint8, "
        "qscheme=torch.per_channel_affine_float_qparams)");
}

TEST_CASE("quantized EmbeddingBag: sums the dequantized rows") {
  for (const QConfig& qconfig :
       {float_qparams_weight_only_qconfig(), float_qparams_weight_only_qconfig_4bit()}) {
    EmbeddingBag source({.num_embeddings = 9,
                         .embedding_dim = 4,
                         .mode = EmbeddingBagMode::Sum,
                         .include_last_offset = true,
                         .padding_idx = 2});
    source.weight.copy_(randn({9, 4}));  // a padding row that would be seen in a sum
    const auto module = quantized_form<quantized::EmbeddingBag>(source, qconfig);
    const auto& bag = dynamic_cast<const EmbeddingBag&>(*module);
    const Tensor index = indices({8, 2, 0, 3, 3});
    const Tensor offsets = indices({0, 2, 2, 5});
    const Tensor weights = randn({5});
    const bool bytes =
        dynamic_cast<const quantized::EmbeddingBag&>(*module).packed().dtype() == DType::QUInt8;
    const float step = bytes ? 0.06F : 1.0F;
    CHECK(largest_difference(bag.forward(index, offsets), source.forward(index, offsets)) < step);
    CHECK(largest_difference(bag.forward(index, offsets, weights),
                             source.forward(index, offsets, weights)) < step);
    CHECK_THROWS_WITH_AS(bag.forward(index, offsets, Tensor::ones({2})),
                         doctest::Contains("per_sample_weights: expected Float32 [5]"),
                         ArgumentError);
  }
}

TEST_CASE("quantized EmbeddingBag: means and maxima are refused") {
  for (const EmbeddingBagMode mode : {EmbeddingBagMode::Mean, EmbeddingBagMode::Max}) {
    EmbeddingBag source({.num_embeddings = 9, .embedding_dim = 4, .mode = mode});
    source.set_qconfig(float_qparams_weight_only_qconfig());
    CHECK_THROWS_WITH_AS(quantized::EmbeddingBag::from_float(source),
                         doctest::Contains("mode: expected Sum"), UnsupportedError);
  }
}

TEST_CASE("quantized Embedding: other weight observers are refused by name") {
  Embedding source({.num_embeddings = 9, .embedding_dim = 4});
  CHECK_THROWS_WITH_AS(quantized::Embedding::from_float(source),
                       doctest::Contains("float_qparams_weight_only_qconfig"), ArgumentError);
  source.set_qconfig(default_per_channel_qconfig());
  CHECK_THROWS_WITH_AS(
      quantized::Embedding::from_float(source),
      doctest::Contains("Embedding.from_float: qconfig.weight: expected an observer "
                        "for QUInt8 or QUInt4x2 with float zero points"),
      ArgumentError);
  const QTensor per_tensor = quantize_per_tensor(randn({4, 4}), 0.1, 3, DType::QUInt8);
  CHECK_THROWS_WITH_AS(quantized::Embedding{per_tensor}, doctest::Contains("float zero points"),
                       ArgumentError);
}

TEST_CASE("quantized Embedding: a state decides the width and bad ones are refused whole") {
  Embedding first({.num_embeddings = 5, .embedding_dim = 3});
  Embedding second({.num_embeddings = 5, .embedding_dim = 3});
  const auto bytes =
      quantized_form<quantized::Embedding>(first, float_qparams_weight_only_qconfig());
  const auto nibbles =
      quantized_form<quantized::Embedding>(second, float_qparams_weight_only_qconfig_4bit());
  const Tensor all = indices({0, 1, 2, 3, 4});
  const Tensor want = (*nibbles)(all);
  bytes->load_state_dict(nibbles->state_dict());
  CHECK((*bytes)(all).equal(want));

  StateDict state;
  state.set(kWeightName, second.weight);
  CHECK_THROWS_WITH_AS(bytes->load_state_dict(state), doctest::Contains(kWeightName),
                       ArgumentError);
  Embedding wide({.num_embeddings = 5, .embedding_dim = 4});
  state =
      quantized_form<quantized::Embedding>(wide, float_qparams_weight_only_qconfig())->state_dict();
  CHECK_THROWS_WITH_AS(bytes->load_state_dict(state),
                       doctest::Contains("expected sizes [5, 3], got [5, 4]"), ArgumentError);
  CHECK_THROWS_WITH_AS(bytes->load_state_dict(StateDict()), doctest::Contains(kWeightName),
                       ArgumentError);
  CHECK((*bytes)(all).equal(want));
}

TEST_CASE("convert: embeddings of a model become quantized without calibration") {
  Words net;
  const Tensor x = indices({4, 1, 0, 2, 2});
  const Tensor want = net(x);
  QConfigMapping qconfigs;
  qconfigs.set_object_type<Embedding>(float_qparams_weight_only_qconfig())
      .set_object_type<EmbeddingBag>(float_qparams_weight_only_qconfig_4bit());
  const Words prepared = prepare(net, qconfigs);
  REQUIRE(prepared.bag->activation_post_process() != nullptr);
  CHECK(prepared.bag->activation_post_process()->name() == "PlaceholderObserver");
  CHECK(prepared(x).equal(want));
  const Words int8 = convert(prepared);
  CHECK(int8.get_submodule("table")->type_name() == "QuantizedEmbedding");
  CHECK(int8.get_submodule("bag")->type_name() == "QuantizedEmbeddingBag");
  CHECK(largest_difference(int8(x), want) < 0.6F);

  const test::TemporaryFile file;
  save_model(int8, file.path);
  Words loaded;
  load_model(loaded, file.path);
  CHECK(loaded(x).equal(int8(x)));
  CHECK((*loaded.get_submodule("table"))(x).equal((*int8.get_submodule("table"))(x)));
}

TEST_CASE("convert: embeddings with a qconfig for activations are named with what they need") {
  Words net;
  const Words prepared =
      prepare(net, QConfigMapping().set_object_type<Embedding>(get_default_qconfig()));
  prepared(indices({4, 1, 0}));
  CHECK_THROWS_WITH_AS(convert(prepared),
                       doctest::Contains("Embedding 'table': Embedding.from_float: qconfig.weight"),
                       ArgumentError);
}

}  // namespace
}  // namespace quanta::nn
