#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/quantizable/lstm.h"
#include "quanta/nn/quantized/lstm.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/tensors.h"

// LSTM and MultiheadAttention from float to int8 by way of their observable forms, and custom
// modules of users.

namespace quanta {
namespace {

using test::sqnr_db;

using nn::quantizable::GateForm;

// A sequence classifier: the last step's output, also with the state carried over a cut.
struct Recurrent : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::LSTM> lstm;
  nn::Child<nn::Linear> fc;
  nn::Child<nn::DeQuantStub> dequant;

  explicit Recurrent(std::int64_t layers = 2, bool bidirectional = false) {
    const nn::RecurrentOptions options{.input_size = 8,
                                       .hidden_size = 16,
                                       .num_layers = layers,
                                       .batch_first = true,
                                       .bidirectional = bidirectional};
    register_module("quant", quant);
    register_module("lstm", lstm, options);
    // Weights of a new layer hardly open or close a gate; trained ones do.
    for (const Tensor& weight : lstm->parameters()) weight.copy_(mul_scalar(weight, 3.0));
    register_module("fc", fc,
                    nn::LinearOptions{.in_features = bidirectional ? 32 : 16, .out_features = 5});
    register_module("dequant", dequant);
    eval();
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor q = quant(x);
    const std::int64_t half = q.size(1) / 2;
    const auto [first, state] = lstm->forward(q.narrow(1, 0, half), nn::LstmState{});
    const auto [rest, last] = lstm->forward(q.narrow(1, half, q.size(1) - half), state);
    return dequant(fc(rest.select(1, rest.size(1) - 1)));
  }
};

QConfig eight_bits() { return {MinMaxObserver::with_args({}), default_weight_observer()}; }

template <typename Net>
Net int8_of(const Net& net, const Tensor& x, const QConfig& qconfig = get_default_qconfig()) {
  return quantize<Net>(net, qconfig, [&](const Net& prepared) { prepared(x); });
}

// Several threads through one network.
void check_threads(const nn::Module& net, const Tensor& x) {
  const Tensor want = net(x);
  std::atomic<int> different{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        if (!net(x).equal(want)) ++different;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(different == 0);
}

TEST_CASE("quantize: an LSTM of a network becomes int8 and the same forward runs") {
  manual_seed(21);
  Generator generator(21);
  for (const bool bidirectional : {false, true}) {
    const Recurrent net(2, bidirectional);
    const Tensor x = randn({32, 10, 8}, generator);
    const Recurrent prepared = prepare(net, get_default_qconfig());
    CHECK(prepared.get_submodule("lstm")->type_name() == "QuantizableLSTM");
    CHECK(prepared.get_submodule("lstm")->activation_post_process() == nullptr);
    CHECK(prepared.get_submodule("lstm.layers.1.layer_fw.cell.gates")->activation_post_process() !=
          nullptr);
    CHECK(sqnr_db(net(x), prepared(x)) > 90.0);
    const Recurrent int8 = convert(prepared);
    CHECK(int8.get_submodule("lstm")->type_name() == "QuantizedLSTM");
    CHECK(int8.get_submodule("lstm")->qconfig() == nullptr);
    CHECK(sqnr_db(net(x), int8(x)) > 24.0);
    const Recurrent finer = int8_of(net, x, eight_bits());
    CHECK(sqnr_db(net(x), finer(x)) > 29.0);
    // The float network stays as it was.
    CHECK(net.get_submodule("lstm")->type_name() == "LSTM");
  }
}

TEST_CASE("convert: parts of an LSTM that saw no data are listed by path and nothing changes") {
  const Recurrent net;
  Recurrent prepared = prepare(net, get_default_qconfig());
  CHECK_THROWS_WITH_AS(
      convert_(prepared),
      doctest::Contains("Linear 'lstm.layers.1.layer_fw.cell.hgates': its observer saw no data"),
      ArgumentError);
  CHECK(prepared.get_submodule("lstm")->type_name() == "QuantizableLSTM");
  CHECK(prepared.get_submodule("lstm.layers.0.layer_fw.cell.igates")->type_name() == "Linear");
  ConvertOptions options;
  options.uncalibrated = Uncalibrated::Allow;
  convert_(prepared, options);
  CHECK(prepared.get_submodule("lstm")->type_name() == "QuantizedLSTM");
}

TEST_CASE("prepare: an LSTM with a null QConfig stays what it is") {
  const Recurrent net;
  QConfigMapping qconfigs(get_default_qconfig());
  qconfigs.set_object_type<nn::LSTM>(std::nullopt);
  const Recurrent prepared = prepare(net, qconfigs);
  CHECK(prepared.get_submodule("lstm")->type_name() == "LSTM");
}

TEST_CASE("prepare: an LSTM without an observable form is named and nothing changes") {
  struct Projected : nn::Module {
    nn::Child<nn::QuantStub> quant;
    nn::Child<nn::LSTM> lstm;
    Projected() {
      register_module("quant", quant);
      register_module("lstm", lstm,
                      nn::RecurrentOptions{.input_size = 4, .hidden_size = 4, .proj_size = 2});
      eval();
    }
    Tensor forward(const Tensor& x) const override { return lstm(quant(x)); }
  };
  Projected net;
  CHECK_THROWS_WITH_AS(prepare_(net, get_default_qconfig()),
                       doctest::Contains("prepare: model: 'lstm': quantizable::LSTM: proj_size"),
                       UnsupportedError);
  CHECK(net.quant->activation_post_process() == nullptr);
  CHECK(net.quant->qconfig() == nullptr);
}

TEST_CASE("save_model: an int8 LSTM comes back bit for bit") {
  manual_seed(22);
  const test::TemporaryFile file;
  const Tensor x = test::random_tensor({4, 6, 8}, 22);
  const Recurrent net(2, true);
  SUBCASE("with joined gates") {
    const Recurrent int8 = int8_of(net, x);
    save_model(int8, file.path);
    Recurrent loaded(2, true);
    load_model(loaded, file.path);
    CHECK(loaded(x).equal(int8(x)));
    CHECK(to_string(loaded) == to_string(int8));
  }
  SUBCASE("with split gates") {
    CustomModuleMapping custom = default_custom_module_mapping();
    custom.add_observed<nn::LSTM>(
        [](const nn::Module& module) {
          return nn::quantizable::LSTM::from_float(module, GateForm::Split);
        },
        OutputObserver::None);
    Recurrent int8 =
        prepare(net, get_default_qconfig(), default_static_quant_module_mappings(), custom);
    int8(x);
    convert_(int8);
    CHECK(int8.has_child("lstm"));
    CHECK(int8.get_submodule("lstm.layers.0.layer_fw.cell.igates.forget")->type_name() ==
          "QuantizedLinear");
    CHECK(sqnr_db(net(x), int8(x)) > 24.0);
    save_model(int8, file.path);
    Recurrent loaded(2, true);
    load_model(loaded, file.path);
    CHECK(loaded(x).equal(int8(x)));
    // Another architecture is refused and stays.
    Recurrent other(1, true);
    CHECK_THROWS_AS(load_model(other, file.path), ArgumentError);
    CHECK(other.get_submodule("lstm")->type_name() == "LSTM");
  }
}

TEST_CASE("quantized LSTM: many threads at once get one thread's integers") {
  manual_seed(23);
  const Recurrent net(2, true);
  const Tensor x = test::random_tensor({8, 7, 8}, 23);
  check_threads(int8_of(net, x), x);
}

// Self-attention with a residual sum, as in a transformer's layer.
struct Attending : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::MultiheadAttention> attention;
  nn::Child<nn::FloatFunctional> skip;
  nn::Child<nn::Linear> fc;
  nn::Child<nn::DeQuantStub> dequant;

  explicit Attending(bool extended = false) {
    register_module("quant", quant);
    register_module("attention", attention,
                    nn::MultiheadAttentionOptions{.embed_dim = 16,
                                                  .num_heads = 4,
                                                  .add_bias_kv = extended,
                                                  .add_zero_attn = extended,
                                                  .batch_first = true});
    register_module("skip", skip);
    register_module("fc", fc, nn::LinearOptions{.in_features = 16, .out_features = 6});
    register_module("dequant", dequant);
    eval();
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor q = quant(x);
    const auto [y, weights] = attention->forward(q, q, q, {.need_weights = false});
    return dequant(fc(skip->add(y, q)));
  }
};

TEST_CASE("quantize: an attention of a network becomes int8 and the same forward runs") {
  manual_seed(25);
  Generator generator(25);
  for (const bool extended : {false, true}) {
    const Attending net(extended);
    const Tensor x = randn({16, 7, 16}, generator);
    const Attending prepared = prepare(net, get_default_qconfig());
    CHECK(prepared.get_submodule("attention")->type_name() == "QuantizableMultiheadAttention");
    CHECK(prepared.get_submodule("attention")->activation_post_process() == nullptr);
    CHECK(sqnr_db(net(x), prepared(x)) > 90.0);
    const Attending int8 = convert(prepared);
    CHECK(int8.get_submodule("attention")->type_name() == "QuantizedMultiheadAttention");
    CHECK(int8.get_submodule("attention.out_proj")->type_name() == "QuantizedLinear");
    CHECK(sqnr_db(net(x), int8(x)) > 28.0);
    CHECK(sqnr_db(net(x), int8_of(net, x, eight_bits())(x)) > 32.0);

    const test::TemporaryFile file;
    save_model(int8, file.path);
    Attending loaded(extended);
    load_model(loaded, file.path);
    CHECK(loaded(x).equal(int8(x)));
  }
}

TEST_CASE("convert: an attention whose parts saw no data is listed by path") {
  const Attending prepared = prepare(Attending(), get_default_qconfig());
  CHECK_THROWS_WITH_AS(convert(prepared),
                       doctest::Contains("QuantStub 'attention.quant_attn_output_weights': its "
                                         "observer saw no data"),
                       ArgumentError);
}

TEST_CASE("quantized MultiheadAttention: many threads at once get one thread's integers") {
  manual_seed(26);
  const Tensor x = test::random_tensor({8, 7, 16}, 26);
  const Attending int8 = int8_of(Attending(true), x);
  check_threads(int8, x);
}

TEST_CASE("check: an LSTM and an attention count as quantizable") {
  for (const Problem& problem : check(Recurrent()))
    FAIL_CHECK(problem.path << ": " << problem.text);
  for (const Problem& problem : check(Attending()))
    FAIL_CHECK(problem.path << ": " << problem.text);
}

// A custom module of a user's own: doubles its input. Observed, it keeps what is needed.
struct Twice : nn::Module {
  Tensor forward(const Tensor& x) const override { return x + x; }
};
struct ObservedTwice : nn::Module {
  nn::Child<nn::FloatFunctional> sum;
  ObservedTwice() { register_module("sum", sum); }
  Tensor forward(const Tensor& x) const override { return sum->add(x, x); }
};
struct QuantizedTwice : nn::Module {
  nn::Child<nn::FloatFunctional> sum;
  QuantizedTwice() { register_module("sum", sum); }
  Tensor forward(const Tensor& x) const override { return sum->add(x, x); }
};
struct Doubling : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<Twice> twice;
  nn::Child<nn::DeQuantStub> dequant;
  Doubling() {
    register_module("quant", quant);
    register_module("twice", twice);
    register_module("dequant", dequant);
    eval();
  }
  Tensor forward(const Tensor& x) const override { return dequant(twice(quant(x))); }
};

std::shared_ptr<nn::Module> observed_twice(const nn::Module& module) {
  CHECK(module.qconfig() != nullptr);
  return nn::make_module<ObservedTwice>();
}

TEST_CASE("prepare and convert: custom modules of users take both steps") {
  manual_seed(24);
  const Tensor x = test::random_tensor({4, 6}, 24);
  Doubling net;
  int calls = 0;
  net.twice->register_forward_hook([&](const nn::Module&, const Tensor&, const Tensor& y) {
    ++calls;
    return y;
  });
  for (const OutputObserver output : {OutputObserver::Attach, OutputObserver::None}) {
    for (const CustomParts parts : {CustomParts::Convert, CustomParts::Keep}) {
      CustomModuleMapping custom;
      custom.add_observed<Twice>(&observed_twice, output);
      custom.add_quantized<ObservedTwice>(
          [&](const nn::Module& module) {
            const std::string type = module.get_submodule("sum")->type_name();
            CHECK(type == (parts == CustomParts::Convert ? "QFunctional" : "FloatFunctional"));
            auto result = nn::make_module<QuantizedTwice>();
            std::shared_ptr<nn::Module> sum = module.get_submodule("sum");
            if (parts == CustomParts::Keep) {
              sum = swap_module(sum, default_static_quant_module_mappings());
            }
            result->replace_child("sum", sum);
            return result;
          },
          parts);
      const Doubling prepared =
          prepare(net, get_default_qconfig(), default_static_quant_module_mappings(), custom);
      const auto observed = prepared.get_submodule("twice");
      CHECK(observed->type_name() == "ObservedTwice");
      CHECK((observed->activation_post_process() != nullptr) == (output == OutputObserver::Attach));
      calls = 0;
      prepared(x);
      CHECK(calls == 1);
      ConvertOptions options;
      options.custom = custom;
      const Doubling int8 = convert(prepared, options);
      CHECK(int8.get_submodule("twice")->type_name() == "QuantizedTwice");
      CHECK(int8.get_submodule("twice")->activation_post_process() == nullptr);
      CHECK(sqnr_db(net(x), int8(x)) > 30.0);
      CHECK(calls == 3);
    }
  }
  CustomModuleMapping broken;
  broken.add_observed<Twice>([](const nn::Module&) { return nullptr; });
  CHECK_THROWS_WITH_AS(
      prepare(net, get_default_qconfig(), default_static_quant_module_mappings(), broken),
      doctest::Contains("expected a from_float that returns a new module for Twice 'twice'"),
      ArgumentError);
}

}  // namespace
}  // namespace quanta
