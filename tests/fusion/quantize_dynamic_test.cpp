#include "quanta/fusion/quantize_dynamic.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/model_file.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/dynamic/conv.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/nn/dynamic/rnn_cell.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/quantized/embedding.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/pt_file.h"
#include "quanta/runtime/random.h"
#include "small_network.h"
#include "support/files.h"
#include "support/paths.h"
#include "support/tensors.h"

namespace quanta::test {
namespace {

namespace qd = nn::quantized::dynamic;

// An LSTM that is called with its state, two cells and two linear layers.
struct SmallRnn : nn::Module {
  nn::Child<nn::LSTM> lstm;
  nn::Child<nn::GRU> gru;
  nn::Child<nn::GRUCell> cell;
  nn::Child<nn::Sequential> head;

  SmallRnn() {
    register_module("lstm", lstm, options(6, 8));
    register_module("gru", gru, options(8, 5));
    register_module("cell", cell, nn::CellOptions{.input_size = 5, .hidden_size = 7});
    register_module("head", head,
                    nn::Linear(nn::LinearOptions{.in_features = 7, .out_features = 4}), nn::ReLU(),
                    nn::Linear(nn::LinearOptions{.in_features = 4, .out_features = 3}));
    eval();
  }
  static nn::RecurrentOptions options(std::int64_t inputs, std::int64_t hidden) {
    return {.input_size = inputs, .hidden_size = hidden, .batch_first = true};
  }
  Tensor forward(const Tensor& x) const override {
    const nn::LstmOutput y = lstm->forward(x, nn::LstmState{});
    const nn::RnnOutput z = gru->forward(y.output, Tensor());
    return head(cell->forward(z.h_n.squeeze(0), Tensor()));
  }
};

Tensor sequences(std::uint64_t seed = 2) { return random_tensor({3, 5, 6}, seed); }

// The modules whose type is a quantized one, by path.
std::set<std::string> swapped(const nn::Module& model) {
  std::set<std::string> paths;
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    if (entry.module->type_name().find("Quantized") != std::string::npos) paths.insert(entry.path);
  }
  return paths;
}

using Paths = std::set<std::string>;

}  // namespace

TEST_CASE("quantize_dynamic: a QConfigDynamic names the weight's observer alone") {
  const nn::Sequential net(nn::Linear({.in_features = 4, .out_features = 3}));
  const QConfigDynamic qconfig({}, default_weight_observer());
  CHECK(QConfigDynamic().weight.name.empty());
  const nn::Sequential dynamic = quantize_dynamic(net, DynamicSpec().add_name("0", qconfig));
  const Tensor x = random_tensor({5, 4}, 3);
  CHECK(dynamic(x).equal(quantize_dynamic(net)(x)));
}

TEST_CASE("quantize_dynamic: the default takes linear and recurrent layers and forward stays") {
  const SmallRnn net;
  const SmallRnn int8 = quantize_dynamic(net);
  CHECK(swapped(int8) == Paths{"lstm", "gru", "cell", "head.0", "head.2"});
  CHECK(swapped(net).empty());
  CHECK(largest_difference(int8(sequences()), net(sequences())) < 0.1F);

  const SmallRnn half = quantize_dynamic(net, {}, DType::Float16);
  CHECK(swapped(half).size() == 5);
  CHECK(largest_difference(half(sequences()), net(sequences())) < 0.01F);
}

TEST_CASE("quantize_dynamic: a spec takes types and paths and patterns") {
  const SmallRnn net;
  CHECK(swapped(quantize_dynamic(net, DynamicSpec().add_type<nn::Linear>())) ==
        Paths{"head.0", "head.2"});
  CHECK(swapped(quantize_dynamic(net, DynamicSpec().add_name("gru").add_name("head.2"))) ==
        Paths{"gru", "head.2"});
  CHECK(swapped(quantize_dynamic(net, DynamicSpec().add_name("head"))) ==
        Paths{"head.0", "head.2"});
  CHECK(swapped(quantize_dynamic(net, DynamicSpec().add_name(""))).size() == 5);
  CHECK(swapped(quantize_dynamic(net, DynamicSpec().add_regex("head\\..|lstm"))) ==
        Paths{"head.0", "head.2", "lstm"});
  CHECK(swapped(quantize_dynamic(net, DynamicSpec().add_type<nn::Linear>().add_name(
                                          "head.0", std::nullopt))) == Paths{"head.2"});
}

TEST_CASE("quantize_dynamic: each entry can have a QConfig of its own") {
  const SmallRnn net;
  const SmallRnn mixed =
      quantize_dynamic(net, DynamicSpec()
                                .add_type<nn::Linear>(float16_dynamic_qconfig())
                                .add_name("head.2", per_channel_dynamic_qconfig())
                                .add_name("lstm"));
  const auto weight = [&](const char* path) {
    return dynamic_cast<const qd::Linear&>(*mixed.get_submodule(path)).weight();
  };
  CHECK(weight("head.0").dtype() == DType::Float16);
  CHECK(weight("head.2").as_quantized().qscheme() == QScheme::PerChannelAffine);
  CHECK(mixed.lstm->weights(0).weight_hh.dtype() == DType::QInt8);
}

TEST_CASE("quantize_dynamic: a module's own QConfig comes first and stays") {
  SmallRnn net;
  net.gru->set_qconfig(std::nullopt);
  net.lstm->set_qconfig(float16_dynamic_qconfig());
  const SmallRnn int8 = quantize_dynamic(net);
  CHECK(swapped(int8) == Paths{"lstm", "cell", "head.0", "head.2"});
  CHECK(int8.lstm->weights(0).weight_hh.dtype() == DType::Float16);
  CHECK(int8.gru->has_qconfig_attribute());
  CHECK_FALSE(int8.head->has_qconfig_attribute());
  CHECK_FALSE(net.head->has_qconfig_attribute());
}

TEST_CASE("quantize_dynamic: embeddings get 8 or 4 bits by their dtypes") {
  nn::Sequential bag{
      nn::EmbeddingBag(
          {.num_embeddings = 20, .embedding_dim = 8, .mode = nn::EmbeddingBagMode::Sum}),
      nn::Linear({.in_features = 8, .out_features = 3})};
  for (const DType dtype : {DType::QUInt8, DType::QUInt4x2}) {
    const nn::Sequential small = quantize_dynamic(bag, {}, dtype);
    CHECK(swapped(small) == Paths{"0"});
    CHECK(dynamic_cast<const nn::quantized::EmbeddingBag&>(small[0]).packed().dtype() == dtype);
  }
  nn::Sequential table{nn::Embedding({.num_embeddings = 20, .embedding_dim = 8})};
  CHECK(swapped(quantize_dynamic(table, {}, DType::QUInt8)) == Paths{"0"});
}

TEST_CASE("quantize_dynamic: a fused linear layer is taken when the spec names its type") {
  nn::Sequential net{nn::Linear({.in_features = 6, .out_features = 5}), nn::ReLU(),
                     nn::Linear({.in_features = 5, .out_features = 2})};
  net.eval();
  fuse_modules(net, {{"0", "1"}});
  CHECK(swapped(quantize_dynamic(net)) == Paths{"2"});
  const nn::Sequential both = quantize_dynamic(
      net, DynamicSpec().add_type<nn::Linear>().add_type<nn::intrinsic::LinearReLU>());
  CHECK(swapped(both) == Paths{"0", "2"});
  const Tensor x = random_tensor({4, 6}, 3);
  CHECK(largest_difference(both(x), net(x)) < 0.1F);
}

TEST_CASE("quantize_dynamic: a module that stands in two places stays one") {
  const auto shared =
      nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 4, .out_features = 4});
  nn::Sequential net{std::shared_ptr<nn::Module>(shared), nn::ReLU(),
                     std::shared_ptr<nn::Module>(shared)};
  const nn::Sequential int8 = quantize_dynamic(net);
  CHECK(int8.ptr(0) == int8.ptr(2));
  CHECK(dynamic_cast<const qd::Linear*>(int8.ptr(0).get()) != nullptr);
}

TEST_CASE("quantize_dynamic: in place the model ends in eval mode and keeps its hooks") {
  SmallRnn net;
  net.train();
  int calls = 0;
  net.head->register_forward_hook([&](const nn::Module&, const Tensor&, const Tensor& y) {
    ++calls;
    return y;
  });
  net.head->get_submodule("0")->register_forward_pre_hook([&](const nn::Module&, const Tensor& x) {
    ++calls;
    return x;
  });
  quantize_dynamic_(net);
  CHECK_FALSE(net.is_training());
  CHECK_FALSE(net.lstm->is_training());
  net(sequences());
  CHECK(calls == 2);
}

TEST_CASE("quantize_dynamic: what cannot work is refused whole with every path") {
  SmallRnn net;
  CHECK_THROWS_WITH_AS(quantize_dynamic_(net, {}, DType::QInt32),
                       doctest::Contains("dtype: expected QInt8, Float16, QUInt8 or QUInt4x2"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(
      quantize_dynamic_(net, DynamicSpec().add_name("lstm").add_name("gnu").add_regex("x.*")),
      doctest::Contains("'gnu': SmallRnn has no module of that path\n  'x.*'"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_dynamic_(net, DynamicSpec().add_name("lstm").add_name("head.1")),
                       doctest::Contains("'head.1': ReLU has no dynamically quantized form"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_dynamic_(net, {}, DType::QUInt8),
                       doctest::Contains("none of the modules of SmallRnn is in the spec"),
                       ArgumentError);
  CHECK_THROWS_AS(quantize_dynamic_(net, DynamicSpec().add_regex("(")), ArgumentError);
  CHECK_THROWS_WITH_AS(
      quantize_dynamic_(net, DynamicSpec().add_name("", float_qparams_weight_only_qconfig())),
      doctest::Contains("'head.2': Linear: "), ArgumentError);
  CHECK(swapped(net).empty());
  CHECK_FALSE(net.head->has_qconfig_attribute());

  nn::Linear leaf({.in_features = 4, .out_features = 4});
  CHECK_THROWS_WITH_AS(quantize_dynamic_(leaf), doctest::Contains("wrap it in nn::Sequential"),
                       ArgumentError);
  nn::Sequential projected{nn::LSTM({.input_size = 6, .hidden_size = 5, .proj_size = 3}),
                           nn::EmbeddingBag({.num_embeddings = 20, .embedding_dim = 8})};
  CHECK_THROWS_WITH_AS(quantize_dynamic_(projected), doctest::Contains("proj_size: expected 0"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_dynamic_(projected, {}, DType::QUInt8),
                       doctest::Contains("mode: expected Sum"), ArgumentError);
}

TEST_CASE("check_dynamic: lists what quantize_dynamic would refuse and changes nothing") {
  SmallRnn net;
  CHECK(check_dynamic(net).empty());
  const std::vector<Problem> problems =
      check_dynamic(net, DynamicSpec().add_name("gnu").add_name("gru"));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].path == "gnu");
  CHECK(swapped(net).empty());
}

TEST_CASE("check: a dynamically quantized network needs no QuantStub") {
  nn::Sequential net{nn::LayerNorm({.normalized_shape = {4}}),
                     nn::Linear({.in_features = 4, .out_features = 4})};
  net.eval();
  CHECK_FALSE(check(net).empty());
  CHECK(check(quantize_dynamic(net)).empty());
}

TEST_CASE("save_model: dynamically quantized networks come back") {
  const TemporaryFile file;
  const SmallRnn net;
  DynamicSpec mixed;
  mixed.add_name("").add_name("lstm", float16_dynamic_qconfig()).add_name("cell", std::nullopt);
  for (const DynamicSpec& spec : {DynamicSpec(), mixed}) {
    for (const DType dtype : {DType::QInt8, DType::Float16}) {
      SmallRnn saved = quantize_dynamic(net, spec, dtype);
      auto& gru = dynamic_cast<qd::GRU&>(*saved.get_submodule("gru"));
      gru.set_reduce_range(qd::ReduceRange::No);
      save_model(saved, file.path);
      SmallRnn loaded;
      load_model(loaded, file.path);
      CHECK(to_string(loaded) == to_string(saved));
      CHECK(loaded(sequences()).equal(saved(sequences())));
      CHECK(loaded.lstm->weights(0).weight_hh.equal(saved.lstm->weights(0).weight_hh));
    }
  }
}

TEST_CASE("save_model: fused and embedded dynamic layers and cells come back") {
  const TemporaryFile file;
  const auto build = [] {
    nn::Sequential net{
        nn::EmbeddingBag(
            {.num_embeddings = 20, .embedding_dim = 6, .mode = nn::EmbeddingBagMode::Sum}),
        nn::LSTMCell({.input_size = 6, .hidden_size = 5}),
        nn::RNNCell({.input_size = 5, .hidden_size = 5}, nn::RnnNonlinearity::Relu),
        nn::Linear({.in_features = 5, .out_features = 5}), nn::ReLU()};
    net.eval();
    return net;
  };
  nn::Sequential net = build();
  fuse_modules(net, {{"3", "4"}});
  quantize_dynamic_(net, DynamicSpec()
                             .add_type<nn::EmbeddingBag>(float_qparams_weight_only_qconfig())
                             .add_type<nn::LSTMCell>()
                             .add_type<nn::RNNCell>()
                             .add_type<nn::intrinsic::LinearReLU>());
  CHECK(swapped(net) == Paths{"0", "1", "2", "3"});
  save_model(net, file.path);
  nn::Sequential loaded = build();
  load_model(loaded, file.path);
  CHECK(to_string(loaded) == to_string(net));
  Generator generator(5);
  const Tensor indices = randint(0, 20, {4, 3}, DType::Int64, generator);
  CHECK(loaded(indices).equal(net(indices)));

  nn::Sequential other{nn::EmbeddingBag({.num_embeddings = 20, .embedding_dim = 6}),
                       nn::GRUCell({.input_size = 6, .hidden_size = 5})};
  CHECK_THROWS_WITH_AS(
      load_model(other, file.path),
      doctest::Contains("module: expected LSTMCell in the float network, got GRUCell"),
      ArgumentError);
}

TEST_CASE("save_model: dynamic convolutions of a mapping of one's own come back") {
  const TemporaryFile file;
  const auto build = [] {
    nn::Sequential net{
        nn::Conv2d({.in_channels = 3, .out_channels = 4, .kernel_size = {3}}),
        nn::ConvTranspose2d({.in_channels = 4, .out_channels = 2, .kernel_size = {2}})};
    net.eval();
    return net;
  };
  const ModuleMapping mapping = ModuleMapping(default_dynamic_quant_module_mappings())
                                    .add<nn::Conv2d>(&qd::Conv2d::from_float)
                                    .add<nn::ConvTranspose2d>(&qd::ConvTranspose2d::from_float);
  const nn::Sequential net =
      quantize_dynamic(build(), DynamicSpec().add_name(""), DType::QInt8, mapping);
  save_model(net, file.path);
  nn::Sequential loaded = build();
  load_model(loaded, file.path);
  CHECK(to_string(loaded) == to_string(net));
  const Tensor x = random_tensor({2, 3, 6, 6}, 6);
  CHECK(loaded(x).equal(net(x)));
}

TEST_CASE("save_model: the projection of an attention comes back as a dynamic linear layer") {
  const TemporaryFile file;
  const auto build = [] {
    nn::Sequential net{nn::NonDynamicallyQuantizableLinear({.in_features = 6, .out_features = 4})};
    net.eval();
    return net;
  };
  const nn::Sequential net = quantize_dynamic(build(), DynamicSpec().add_name("0"));
  CHECK_THROWS_AS(quantize_dynamic(build()), ArgumentError);
  save_model(net, file.path);
  nn::Sequential loaded = build();
  load_model(loaded, file.path);
  const Tensor x = random_tensor({2, 6}, 7);
  CHECK(loaded(x).equal(net(x)));
}

TEST_CASE("read_pt: a dynamic LSTM of torch loads with its rounding of activations") {
  const StateDict state = read_pt_state_dict(golden_cases() / "torch" / "lstm_classifier.pt");
  REQUIRE(state.contains("rnn._all_weight_values.0.param/3/0"));
  nn::Sequential net;
  net.add_module("rnn", nn::make_module<nn::LSTM>(nn::RecurrentOptions{
                            .input_size = 5, .hidden_size = 6, .batch_first = true}));
  net.add_module(
      "fc", nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 6, .out_features = 3}));
  quantize_dynamic_(net);
  net.load_state_dict(state);
  const auto& lstm = dynamic_cast<const qd::LSTM&>(*net.get_submodule("rnn"));
  CHECK(lstm.reduce_range() == qd::ReduceRange::Yes);
  CHECK(lstm.weights(0).weight_ih.equal(state.at("rnn._all_weight_values.0.param/4/0/0")));
  CHECK(lstm.weights(0).bias_hh.equal(state.at("rnn._all_weight_values.0.param/1/1")));
}

}  // namespace quanta::test
