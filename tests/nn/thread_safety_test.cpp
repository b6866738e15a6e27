#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/nn/dynamic/rnn_cell.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/models/bert.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"
#include "quanta/nn/stubs.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/observers/defaults.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"

namespace quanta::test {
namespace {

/// Every kind of kernel: 3x3 with padding, depthwise, 1x1, strided, grouped, transposed, an
/// addition, both poolings and a linear layer. The output stays quantized.
struct Mixed : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Conv2d> stem, depthwise, pointwise, grouped;
  nn::Child<nn::ReLU> relu;
  nn::Child<nn::ConvTranspose2d> up;
  nn::Child<nn::FloatFunctional> skip, join;
  nn::Child<nn::MaxPool2d> max_pool;
  nn::Child<nn::AdaptiveAvgPool2d> pool;
  nn::Child<nn::Linear> fc;

  Mixed() {
    register_module("quant", quant);
    register_module("stem", stem,
                    nn::Conv2dOptions{
                        .in_channels = 3, .out_channels = 16, .kernel_size = {3}, .padding = {1}});
    register_module("relu", relu);
    register_module("depthwise", depthwise,
                    nn::Conv2dOptions{.in_channels = 16,
                                      .out_channels = 16,
                                      .kernel_size = {3},
                                      .padding = {1},
                                      .groups = 16});
    register_module("pointwise", pointwise,
                    nn::Conv2dOptions{.in_channels = 16, .out_channels = 16, .kernel_size = {1}});
    register_module("skip", skip);
    register_module("grouped", grouped,
                    nn::Conv2dOptions{.in_channels = 16,
                                      .out_channels = 20,
                                      .kernel_size = {3},
                                      .stride = {2},
                                      .padding = {1},
                                      .groups = 2});
    register_module("up", up,
                    nn::ConvTranspose2dOptions{
                        .in_channels = 20, .out_channels = 6, .kernel_size = {2}, .stride = {2}});
    register_module("join", join);
    register_module("max_pool", max_pool, nn::MaxPool2dOptions{.kernel_size = {2}});
    register_module("pool", pool, Dims{2});
    register_module("fc", fc, nn::LinearOptions{.in_features = 24, .out_features = 7});
    eval();
  }

  Tensor forward(const Tensor& x) const override {
    const Tensor a = relu(stem(quant(x)));
    const Tensor b = skip->add(pointwise(depthwise(a)), a);
    const Tensor c = up(grouped(b));
    return fc(pool(max_pool(join->mul(c, c))).flatten(1));
  }
};

/// Values of both signs, so that the zero point is not 0 and padding is not either.
Tensor mixed_input(std::int64_t batch, std::uint64_t seed) {
  return random_tensor({batch, 3, 12, 12}, seed);
}

Mixed calibrated_network() {
  Mixed net;
  QConfigMapping qconfigs(get_default_qconfig());
  qconfigs.set_object_type<nn::ConvTranspose2d>(default_qconfig());
  fuse_modules(net, {{"stem", "relu"}});
  Mixed prepared = prepare(net, qconfigs);
  for (std::uint64_t seed = 0; seed < 3; ++seed) prepared(mixed_input(8, seed));
  return prepared;
}

struct Case {
  Tensor input;
  std::vector<std::int64_t> want;
};

// Float and quantized modules without state of a call, and an input for each.
struct Shared {
  std::string name;
  std::shared_ptr<nn::Module> module;
  Tensor input;
};

template <typename Layer>
std::shared_ptr<nn::Module> float_form(const auto& options) {
  auto module = nn::make_module<Layer>(options);
  module->eval();
  return module;
}

template <typename Dynamic>
std::shared_ptr<nn::Module> dynamic_form(const std::shared_ptr<nn::Module>& source,
                                         const QConfig& qconfig) {
  source->set_qconfig(qconfig);
  return Dynamic::from_float(*source);
}

std::vector<Shared> shared_modules() {
  namespace qd = nn::quantized::dynamic;
  manual_seed(41);
  Generator generator(42);
  const nn::RecurrentOptions recurrent{
      .input_size = 12, .hidden_size = 40, .num_layers = 2, .bidirectional = true};
  const nn::CellOptions cell{.input_size = 12, .hidden_size = 40};
  const nn::LinearOptions linear{.in_features = 64, .out_features = 96};
  const Tensor steps = randn({7, 3, 12}, generator);
  const Tensor rows = randn({3, 12}, generator);
  const Tensor wide = randn({5, 64}, generator);
  std::vector<Shared> all{{"LSTM", float_form<nn::LSTM>(recurrent), steps},
                          {"GRU", float_form<nn::GRU>(recurrent), steps},
                          {"GRUCell", float_form<nn::GRUCell>(cell), rows}};
  for (const QConfig& qconfig : {default_dynamic_qconfig(), float16_dynamic_qconfig()}) {
    all.push_back(
        {"dynamic LSTM", dynamic_form<qd::LSTM>(float_form<nn::LSTM>(recurrent), qconfig), steps});
    all.push_back(
        {"dynamic GRU", dynamic_form<qd::GRU>(float_form<nn::GRU>(recurrent), qconfig), steps});
    all.push_back({"dynamic LSTMCell",
                   dynamic_form<qd::LSTMCell>(float_form<nn::LSTMCell>(cell), qconfig), rows});
    all.push_back({"dynamic Linear",
                   dynamic_form<qd::Linear>(float_form<nn::Linear>(linear), qconfig), wide});
  }
  for (const int bits : {8, 4}) {
    all.push_back({"weight-only Linear",
                   nn::weight_only::Linear::from_float(*float_form<nn::Linear>(linear),
                                                       {.bits = bits, .group_size = 32}),
                   wide});
  }
  all.push_back({"MultiheadAttention",
                 float_form<nn::MultiheadAttention>(
                     nn::MultiheadAttentionOptions{.embed_dim = 12, .num_heads = 3}),
                 steps});
  const nn::models::BertModel bert({.vocab_size = 30,
                                    .hidden_size = 32,
                                    .num_hidden_layers = 2,
                                    .num_attention_heads = 4,
                                    .intermediate_size = 64,
                                    .max_position_embeddings = 16});
  const Tensor tokens = randint(0, 30, {2, 11}, DType::Int64, generator);
  const auto add_bert = [&](const char* name, const nn::models::BertModel& model) {
    all.push_back({name, nn::make_module<nn::models::BertModel>(model), tokens});
    all.back().module->eval();
  };
  add_bert("BertModel", bert);
  add_bert("dynamic BertModel", quantize_dynamic(bert));
  add_bert("weight-only BertModel", quantize_weight_only(bert, {.bits = 4, .group_size = 32}));
  return all;
}

}  // namespace

TEST_CASE("a converted network gives the same integers from four threads as from one") {
  const Mixed prepared = calibrated_network();
  const Mixed net = convert(prepared);
  std::vector<Case> cases;
  for (const std::int64_t batch : {1, 2, 3, 5, 8, 17}) {
    const Tensor x = mixed_input(batch, static_cast<std::uint64_t>(batch) + 100);
    cases.push_back({x, net(x).to_int64_vector()});
  }
  CHECK(QTensor(net(cases[0].input)).q_zero_point() != 0);

  for (const int omp_threads : {1, 2}) {
    // Converted again: copies would share what is packed and cached.
    const Mixed fresh = convert(prepared);
    std::atomic<int> wrong{0};
    std::atomic<int> waiting{4};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        set_num_threads(omp_threads);
        // All begin at once: the first calls pack weights and make primitives.
        --waiting;
        while (waiting > 0) std::this_thread::yield();
        for (std::size_t i = 0; i < 4 * cases.size(); ++i) {
          const Case& item = cases[(i * (t + 1) + t) % cases.size()];
          if (fresh(item.input).to_int64_vector() != item.want) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CAPTURE(omp_threads);
    CHECK(wrong == 0);
  }
}

TEST_CASE("recurrent and dynamic and weight-only modules serve four threads at once") {
  for (const Shared& shared : shared_modules()) {
    CAPTURE(shared.name);
    // A copy packs for itself.
    const Tensor want = (*shared.module->clone())(shared.input);
    const Tensor other_input = shared.input.narrow(0, 0, 1);
    const Tensor other_want = (*shared.module->clone())(other_input);
    for (const int omp_threads : {1, 2}) {
      const std::shared_ptr<nn::Module> module = shared.module->clone();
      std::atomic<int> wrong{0};
      std::atomic<int> waiting{4};
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          set_num_threads(omp_threads);
          // All begin at once: the first calls pack weights and make primitives.
          --waiting;
          while (waiting > 0) std::this_thread::yield();
          for (int i = 0; i < 6; ++i) {
            const bool first = (i + t) % 2 == 0;
            const Tensor y = (*module)(first ? shared.input : other_input);
            if (!y.equal(first ? want : other_want)) ++wrong;
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      CAPTURE(omp_threads);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a float network that is not packed yet gives the same numbers from four threads") {
  const Mixed net;
  const Mixed same = nn::deep_copy(net);  // nothing is packed yet that the two could share
  const Tensor x = mixed_input(3, 7);
  const Tensor want = same(x);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) wrong += net(x).equal(want) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("layers that threads build at once get the weights of one sequence") {
  constexpr int kThreads = 4;
  constexpr int kLayers = 40;
  const std::string before = default_generator().state();
  const auto weights = [] {
    return nn::Linear({.in_features = 33, .out_features = 17, .bias = false})
        .weight.to_float_vector();
  };
  std::vector<std::vector<float>> want;
  for (int i = 0; i < kThreads * kLayers; ++i) want.push_back(weights());
  default_generator().set_state(before);
  std::vector<std::vector<std::vector<float>>> built(kThreads);
  {
    std::vector<std::thread> threads;
    for (auto& layers : built) {
      threads.emplace_back([&] {
        for (int i = 0; i < kLayers; ++i) layers.push_back(weights());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<std::vector<float>> got;
  for (const auto& layers : built) got.insert(got.end(), layers.begin(), layers.end());
  std::sort(got.begin(), got.end());
  std::sort(want.begin(), want.end());
  CHECK(got == want);
}

}  // namespace quanta::test
