// QConfigs by type: torch's default mapping, and what one QConfig for all becomes.

#include "quanta/fusion/qconfig_mapping.h"

#include <doctest/doctest.h>

#include <string>
#include <typeinfo>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/quantized/activation.h"
#include "quanta/nn/quantized/module.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/activation.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/modules.h"

namespace quanta {
namespace {

using test::is;
using test::sqnr_db;

// A network with every layer that one QConfig for all did not fit.
struct Mixed : nn::Module {
  nn::Child<nn::Embedding> table;
  nn::Child<nn::EmbeddingBag> bag, means;
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::ConvTranspose1d> up;
  nn::Child<nn::PReLU> prelu;
  nn::Child<nn::LayerNorm> norm;
  nn::Child<nn::Linear> fc;
  nn::Child<nn::Sigmoid> sigmoid;
  nn::Child<nn::Softmax> softmax;
  nn::Child<nn::DeQuantStub> dequant;

  Mixed() {
    using nn::EmbeddingBagMode;
    register_module("table", table, nn::EmbeddingOptions{.num_embeddings = 20, .embedding_dim = 8});
    register_module("bag", bag,
                    nn::EmbeddingBagOptions{
                        .num_embeddings = 20, .embedding_dim = 8, .mode = EmbeddingBagMode::Sum});
    register_module("means", means,
                    nn::EmbeddingBagOptions{
                        .num_embeddings = 20, .embedding_dim = 8, .mode = EmbeddingBagMode::Mean});
    register_module("quant", quant);
    register_module(
        "up", up,
        nn::ConvTranspose1dOptions{.in_channels = 5, .out_channels = 4, .kernel_size = {1}});
    register_module("prelu", prelu);
    register_module("norm", norm, nn::LayerNormOptions{.normalized_shape = {8}});
    register_module("fc", fc, nn::LinearOptions{.in_features = 8, .out_features = 8});
    register_module("sigmoid", sigmoid);
    register_module("softmax", softmax, std::int64_t{-1});
    register_module("dequant", dequant);
    eval();
  }
  Tensor forward(const Tensor& words) const override {
    const Tensor x = table(words);
    last_bags = bag(words);
    last_means = means(words);
    return dequant(softmax(sigmoid(fc(norm(prelu(up(quant(x))))))));
  }
  mutable Tensor last_bags, last_means;
};

Tensor words() { return randint(0, 20, {3, 5}, DType::Int64); }

std::string type_at(const nn::Module& net, const char* path) {
  return net.get_submodule(path)->type_name();
}

TEST_CASE("get_default_qconfig: alone it serves what the default mapping serves") {
  manual_seed(1);
  const Mixed net;
  const Tensor x = words();
  const Tensor want = net(x);
  for (const char* backend : {"x86", "fbgemm", "qnnpack", "onednn"}) {
    CAPTURE(backend);
    const Mixed prepared = prepare(net, get_default_qconfig(backend));
    for (int i = 0; i < 4; ++i) prepared(words());
    prepared(x);
    const Mixed int8 = convert(prepared);
    const Tensor got = int8(x);
    CHECK(sqnr_db(want, got) > 25.0);
    CHECK(type_at(int8, "table") == "QuantizedEmbedding");
    CHECK(type_at(int8, "bag") == "QuantizedEmbeddingBag");
    CHECK(type_at(int8, "means") == "EmbeddingBag");
    CHECK(type_at(int8, "up") == "QuantizedConvTranspose1d");
    CHECK(type_at(int8, "prelu") == "QuantizedPReLU");
    CHECK(type_at(int8, "softmax") == "QuantizedSoftmax");
    CHECK(sqnr_db(net.last_bags, int8.last_bags) > 35.0);
    CHECK(net.last_means.equal(int8.last_means));
  }
}

TEST_CASE("get_default_qconfig: PReLU keeps positive values") {
  nn::Sequential net(nn::QuantStub(), nn::PReLU(1, 0.25), nn::DeQuantStub());
  net.eval();
  const nn::Sequential prepared = prepare(net, get_default_qconfig());
  const Tensor x = Tensor::from_values({-2.0F, -1.0F, 0.0F, 1.0F, 2.0F});
  prepared(x);
  CHECK(test::largest_difference(convert(prepared)(x), net(x)) < 0.05);
}

TEST_CASE("prepare: a QConfig that was set for the module itself is not changed") {
  nn::Sequential net(nn::QuantStub(), nn::PReLU(1), nn::DeQuantStub());
  net.eval();
  net.ptr(1)->set_qconfig(get_default_qconfig());
  const nn::Sequential prepared = prepare(net, get_default_qconfig());
  prepared(randn({4}));
  CHECK_THROWS_WITH_AS(convert(prepared), doctest::Contains("default_quint8_weight_qconfig"),
                       ArgumentError);
  nn::Sequential table(nn::Embedding({.num_embeddings = 4, .embedding_dim = 4}));
  table.eval();
  const nn::Sequential typed =
      prepare(table, QConfigMapping().set_object_type<nn::Embedding>(get_default_qconfig()));
  CHECK_THROWS_WITH_AS(convert(typed), doctest::Contains("float_qparams_weight_only_qconfig"),
                       ArgumentError);
}

const QConfig& qconfig_of(const QConfigMapping& mapping, const nn::Module& module) {
  static QConfig found;
  found = **mapping.find(module, "layer");
  return found;
}

TEST_CASE("get_default_qconfig_mapping: torch's entries for each backend") {
  const nn::ConvTranspose2d up({.in_channels = 2, .out_channels = 2, .kernel_size = {2}});
  for (const char* backend : {"x86", "fbgemm", "qnnpack", "onednn"}) {
    CAPTURE(backend);
    const QConfigMapping mapping = get_default_qconfig_mapping(backend);
    const QConfig global = get_default_qconfig(backend);
    CHECK(*mapping.global() == global);
    CHECK(qconfig_of(mapping, up) == QConfig{global.activation, default_weight_observer()});
    CHECK(qconfig_of(mapping, nn::PReLU()) == default_quint8_weight_qconfig());
    CHECK(qconfig_of(mapping, nn::LayerNorm({.normalized_shape = {2}})) ==
          QConfig{global.activation, default_placeholder_observer()});
    const QConfig share{default_fixed_qparams_range_0to1_observer(), default_weight_observer()};
    CHECK(qconfig_of(mapping, nn::Sigmoid()) == share);
    CHECK(qconfig_of(mapping, nn::Hardsigmoid()) == share);
    CHECK(qconfig_of(mapping, nn::Softmax(1)) == share);
    CHECK(qconfig_of(mapping, nn::Tanh()) ==
          QConfig{default_fixed_qparams_range_neg1to1_observer(), default_weight_observer()});
    CHECK(qconfig_of(mapping, nn::Embedding({.num_embeddings = 2, .embedding_dim = 2})) ==
          float_qparams_weight_only_qconfig());
    CHECK_FALSE(mapping.find(nn::Linear({.in_features = 2, .out_features = 2}), "fc").has_value());

    const QConfigMapping training = get_default_qat_qconfig_mapping(backend);
    CHECK(*training.global() == get_default_qat_qconfig(backend));
    CHECK(qconfig_of(training, up) ==
          QConfig{get_default_qat_qconfig(backend).activation, default_weight_fake_quant()});
    CHECK(qconfig_of(training, nn::Tanh()).activation.name ==
          default_fixed_qparams_range_neg1to1_fake_quant().name);
    CHECK(*get_default_qat_qconfig_mapping(backend, 0).global() ==
          get_default_qat_qconfig(backend, 0));
  }
  CHECK_THROWS_WITH_AS(get_default_qconfig_mapping("tpu"), doctest::Contains("qnnpack"),
                       ArgumentError);
  CHECK_THROWS_AS(get_default_qconfig_mapping("x86", 1), ArgumentError);
  CHECK_THROWS_AS(get_default_qat_qconfig_mapping("x86", 2), ArgumentError);
}

TEST_CASE("get_default_qconfig_mapping: a network comes out with fixed shares") {
  manual_seed(2);
  Mixed net;
  net.prelu->weight.fill_(1.0);
  const Tensor x = words();
  const Tensor want = net(x);
  const QConfigMapping mapping =
      get_default_qconfig_mapping().set_object_type<nn::EmbeddingBag>(std::nullopt);
  const Mixed prepared = prepare(net, mapping);
  prepared(x);
  const Mixed int8 = convert(prepared);
  const auto& softmax = dynamic_cast<const nn::quantized::Softmax&>(*int8.get_submodule("softmax"));
  CHECK(softmax.scale == 1.0 / 256);
  CHECK(softmax.zero_point == 0);
  CHECK(sqnr_db(want, int8(x)) > 20.0);
}

TEST_CASE("get_default_qat_qconfig: alone it serves what the mapping serves") {
  manual_seed(3);
  for (const bool by_mapping : {false, true}) {
    CAPTURE(by_mapping);
    Mixed net;
    if (by_mapping) {
      net.prelu->weight.fill_(1.0);
      net.means->set_qconfig(std::nullopt);
    }
    const Tensor x = words();
    const Tensor want = net(x);
    net.train();
    const Mixed trained = by_mapping ? prepare_qat(net, get_default_qat_qconfig_mapping())
                                     : prepare_qat(net, get_default_qat_qconfig());
    for (int i = 0; i < 3; ++i) trained(x);
    Mixed frozen = nn::deep_copy(trained);
    frozen.eval();
    const Mixed int8 = convert(frozen);
    CHECK(type_at(int8, "table") == "QuantizedEmbedding");
    CHECK(type_at(int8, "up") == "QuantizedConvTranspose1d");
    CHECK(sqnr_db(want, int8(x)) > 20.0);
  }
}

}  // namespace
}  // namespace quanta
