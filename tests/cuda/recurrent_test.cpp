#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/nn/dynamic/rnn_cell.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/rnn_dynamic.h"
#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/test_device.h"

// Recurrent layers: on the device as on the CPU, to the last bit where weights are of int8 or Float16.

namespace quanta {
namespace {

using quantized::LinearPackedParams;
using quantized::ReduceRange;

const Device kDevice = test::test_device();

constexpr RecurrentKind kKinds[] = {RecurrentKind::RnnTanh, RecurrentKind::RnnRelu,
                                    RecurrentKind::Lstm, RecurrentKind::Gru};

enum class ZeroPoints : std::uint8_t { None, Small, Any };

QTensor random_weight(std::int64_t rows, std::int64_t columns, ZeroPoints kind,
                      Generator& generator) {
  const Tensor values = randn({rows, columns}, generator);
  if (kind == ZeroPoints::None) return quantize_per_tensor(values, 0.02, 0, DType::QInt8);
  const std::int64_t most = kind == ZeroPoints::Small ? 5 : 128;
  Tensor scales = Tensor::empty({rows}, DType::Float64);
  Tensor zero_points = Tensor::empty({rows}, DType::Int64);
  for (std::int64_t n = 0; n < rows; ++n) {
    scales.mutable_data<double>()[n] = 0.01 + 0.0001 * static_cast<double>(n % 50);
    zero_points.mutable_data<std::int64_t>()[n] =
        n == 0 ? -most : generator.integer(-most, most - 1);
  }
  return quantize_per_channel(values, scales, zero_points, 0, DType::QInt8);
}

struct Layer {
  RecurrentKind kind = RecurrentKind::Lstm;
  std::int64_t hidden = 1;
  StepOrder order = StepOrder::Forward;
  std::vector<std::int64_t> batch_sizes{};
  std::shared_ptr<const HiddenProduct> product{};
  std::shared_ptr<const HiddenProduct> projection{};
  Tensor gates{}, h{}, c{};

  RecurrentResult on(Device device) const {
    const RecurrentSteps steps{kind, hidden, batch_sizes, order, product.get(), projection.get()};
    return recurrent_steps(steps, gates.to(device), h.to(device),
                           c.defined() ? c.to(device) : Tensor());
  }
};

enum class Weights : std::uint8_t { Int8, Float16, Float32 };

struct LayerSizes {
  RecurrentKind kind = RecurrentKind::Lstm;
  std::int64_t hidden = 1;
  std::int64_t sequences = 1;
  std::int64_t steps = 1;
  std::int64_t projected = 0;
  ZeroPoints zero_points = ZeroPoints::None;
  Weights weights = Weights::Int8;
};

Layer random_layer(const LayerSizes& sizes, Generator& generator) {
  Layer layer;
  layer.kind = sizes.kind;
  layer.hidden = sizes.hidden;
  layer.order = generator.integer(0, 1) == 0 ? StepOrder::Forward : StepOrder::Reverse;
  std::int64_t rows = 0;
  std::int64_t sequences = sizes.sequences;
  for (std::int64_t step = 0; step < sizes.steps; ++step) {
    layer.batch_sizes.push_back(sequences);
    rows += sequences;
    if (generator.integer(0, 1) == 0) sequences = generator.integer(sequences / 2, sequences);
  }
  const std::int64_t gates = gate_count(layer.kind) * sizes.hidden;
  const std::int64_t width = sizes.projected > 0 ? sizes.projected : sizes.hidden;
  const auto product = [&](std::int64_t n, std::int64_t k) {
    const Tensor bias = generator.integer(0, 2) == 0 ? Tensor() : randn({n}, generator);
    if (sizes.weights == Weights::Float32) {
      return float_hidden_product(randn({n, k}, generator), bias);
    }
    if (sizes.weights == Weights::Float16) {
      return quantized::dynamic_hidden_product(
          quantized::LinearPackedParamsFp16(randn({n, k}, generator), bias));
    }
    const auto range = generator.integer(0, 1) == 0 ? ReduceRange::Yes : ReduceRange::No;
    return quantized::dynamic_hidden_product(
        LinearPackedParams(random_weight(n, k, sizes.zero_points, generator), bias), range);
  };
  layer.product = product(gates, width);
  if (sizes.projected > 0) layer.projection = product(width, sizes.hidden);
  layer.gates = randn({rows, gates}, generator);
  layer.h = randn({sizes.sequences, width}, generator);
  if (layer.kind == RecurrentKind::Lstm) {
    layer.c = randn({sizes.sequences, sizes.hidden}, generator);
  }
  return layer;
}

void check_same(const RecurrentResult& got, const RecurrentResult& want) {
  CHECK(got.output.device() == kDevice);
  CHECK(got.output.cpu().equal(want.output));
  CHECK(got.h_n.cpu().equal(want.h_n));
  CHECK(got.c_n.defined() == want.c_n.defined());
  if (want.c_n.defined()) CHECK(got.c_n.cpu().equal(want.c_n));
}

void check_layer(const Layer& layer) { check_same(layer.on(kDevice), layer.on(Device::cpu())); }

}  // namespace

TEST_CASE("recurrent steps on a device: the CPU's floats for every kind of layer") {
  Generator generator(31);
  for (int round = 0; round < 80; ++round) {
    LayerSizes sizes{.kind = kKinds[round % 4]};
    sizes.hidden = generator.integer(1, 40);
    sizes.sequences = generator.integer(1, round % 3 == 0 ? 70 : 19);
    sizes.steps = generator.integer(1, 5);
    sizes.zero_points = static_cast<ZeroPoints>(generator.integer(0, 2));
    if (sizes.kind == RecurrentKind::Lstm && sizes.hidden > 2 && round % 8 < 4) {
      sizes.projected = generator.integer(1, sizes.hidden - 1);
    }
    CAPTURE(round);
    CAPTURE(sizes.hidden);
    CAPTURE(sizes.sequences);
    CAPTURE(sizes.projected);
    check_layer(random_layer(sizes, generator));
  }
}

TEST_CASE("recurrent steps on a device: depths of one chunk and one more and of a turn of warps") {
  Generator generator(32);
  for (const std::int64_t hidden : {64, 65, 127, 513, 1025}) {
    for (const std::int64_t sequences : {1, 17}) {
      CAPTURE(hidden);
      CAPTURE(sequences);
      // A projection makes the weight small: the depth is what counts.
      Layer layer = random_layer(
          {.hidden = hidden, .sequences = sequences, .steps = 2, .projected = 1}, generator);
      layer.order = StepOrder::Reverse;
      check_layer(layer);
    }
  }
}

TEST_CASE("recurrent steps on a device: a joining sequence has a part in the range") {
  Generator generator(33);
  Layer layer = random_layer({.kind = RecurrentKind::Gru, .hidden = 9, .sequences = 3}, generator);
  layer.batch_sizes = {3, 2, 1};
  layer.gates = randn({6, 27}, generator);
  layer.h.mutable_data<float>()[2 * 9 + 4] = -37.0F;
  layer.h.mutable_data<float>()[9] = 21.0F;
  for (const StepOrder order : {StepOrder::Forward, StepOrder::Reverse}) {
    layer.order = order;
    check_layer(layer);
  }
}

TEST_CASE("recurrent steps on a device: states that are all zero or tiny have the CPU's scale") {
  Generator generator(34);
  for (const float value : {0.0F, -0.0F, 1e-6F, -1e-6F, 1e-42F}) {
    for (const RecurrentKind kind : {RecurrentKind::Gru, RecurrentKind::Lstm}) {
      Layer layer =
          random_layer({.kind = kind, .hidden = 5, .sequences = 2, .steps = 2}, generator);
      layer.h = Tensor::full({2, 5}, static_cast<double>(value));
      check_layer(layer);
    }
  }
}

TEST_CASE("recurrent steps on a device: gates of all sizes and infinities") {
  Generator generator(35);
  Layer layer = random_layer({.hidden = 33, .sequences = 4, .steps = 1}, generator);
  float* gates = layer.gates.mutable_data<float>();
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < layer.gates.numel(); ++i) {
    gates[i] *= std::ldexp(1.0F, static_cast<int>(generator.integer(-150, 100)));
    if (i % 41 == 0) gates[i] = i % 2 == 0 ? infinity : -infinity;
  }
  check_layer(layer);
  for (const RecurrentKind kind : {RecurrentKind::Gru, RecurrentKind::RnnTanh}) {
    Layer other = random_layer({.kind = kind, .hidden = 33, .sequences = 4, .steps = 1}, generator);
    for (std::int64_t i = 0; i < other.gates.numel(); ++i) {
      other.gates.mutable_data<float>()[i] *=
          std::ldexp(1.0F, static_cast<int>(generator.integer(-150, 100)));
    }
    check_layer(other);
  }
}

// The CPU refuses it by name; a device does not wait to look.
TEST_CASE("recurrent steps on a device: a state that is not finite makes what follows NaN") {
  Generator generator(36);
  const auto is_nan = [](float v) { return std::isnan(v); };
  for (const RecurrentKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    const std::int64_t gates = gate_count(kind) * 20;
    Layer layer = random_layer({.kind = kind, .hidden = 20, .sequences = 3}, generator);
    layer.order = StepOrder::Forward;
    layer.batch_sizes = {3, 3, 2};
    layer.gates = randn({8, gates}, generator);
    const auto refused_or_nan = [&](std::int64_t finite, std::int64_t nan) {
      CHECK_THROWS_AS(layer.on(Device::cpu()), ArgumentError);
      const Tensor output = layer.on(kDevice).output.cpu();
      const float* values = output.data<float>();
      CHECK(std::none_of(values, values + finite, is_nan));
      CHECK(std::all_of(values + nan, values + output.numel(), is_nan));
    };
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const float bad : {nan, -nan, std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      layer.h.mutable_data<float>()[59] = bad;
      refused_or_nan(0, 0);
      layer.h.mutable_data<float>()[59] = 0.0F;
    }
    // Made by the first step for its third sequence, seen by the second step.
    layer.gates.mutable_data<float>()[2 * gates + 5] = nan;
    refused_or_nan(40, 60);
  }
}

TEST_CASE("recurrent steps on a device: nobody looks at the states of sequences that have ended") {
  Generator generator(37);
  Layer layer = random_layer({.hidden = 20, .sequences = 3}, generator);
  layer.order = StepOrder::Forward;
  layer.batch_sizes = {3, 3, 2};
  layer.gates = randn({8, 80}, generator);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // Nor at those behind the last step.
  layer.gates.mutable_data<float>()[7 * 80 + 5] = nan;
  layer.gates.mutable_data<float>()[5 * 80 + 5] = nan;
  const RecurrentResult got = layer.on(kDevice);
  const RecurrentResult want = layer.on(Device::cpu());
  const Tensor there = got.output.cpu();
  for (std::int64_t i = 0; i < there.numel(); ++i) {
    const float a = there.data<float>()[i];
    const float b = want.output.data<float>()[i];
    CHECK((a == b || (std::isnan(a) && std::isnan(b))));
  }
}

TEST_CASE("recurrent steps on a device: one weight serves layers of different gates") {
  Generator generator(37);
  const LinearPackedParams packed(
      quantize_per_tensor(randn({36, 9}, generator), 0.02, 0, DType::QInt8), {});
  for (const RecurrentKind kind : {RecurrentKind::Lstm, RecurrentKind::Gru, RecurrentKind::Lstm}) {
    Layer layer =
        random_layer({.kind = kind, .hidden = 36 / gate_count(kind), .sequences = 2}, generator);
    layer.product = quantized::dynamic_hidden_product(packed);
    if (kind == RecurrentKind::Gru) {
      // A weight [36, 9] is none of 12 units that read 12.
      CHECK_THROWS_WITH_AS(
          layer.on(kDevice),
          doctest::Contains("expected a product from 12 to 36 features, got one from 9 to 36"),
          ArgumentError);
    } else {
      check_layer(layer);
    }
  }
}

TEST_CASE("recurrent steps on a device: a whole sequence, and nobody waits") {
  Generator generator(38);
  Layer layer = random_layer({.hidden = 8, .sequences = 2}, generator);
  layer.batch_sizes.assign(40, 2);
  layer.gates = randn({80, 32}, generator);
  layer.on(kDevice);
  const RecurrentSteps steps{layer.kind,  layer.hidden,        layer.batch_sizes,
                             layer.order, layer.product.get(), nullptr};
  const Tensor gates = layer.gates.to(kDevice);
  const Tensor h = layer.h.to(kDevice);
  const Tensor c = layer.c.to(kDevice);
  cuda::emulation::reset_counters();
  recurrent_steps(steps, gates, h, c);
  if (!kDevice.is_emulated()) return;  // nobody counts there
  const cuda::emulation::Counters counters = cuda::emulation::counters();
  CHECK(counters.bytes_to_host == 0);
  CHECK(counters.bytes_to_device == 0);
  // One kernel a step: so few states are quantized where they are multiplied.
  CHECK(counters.launches <= 40 + 3);
}

namespace {

LayerSizes sizes_of_round(int round, Weights weights, Generator& generator) {
  LayerSizes sizes{.kind = kKinds[round % 4], .weights = weights};
  sizes.hidden = generator.integer(1, 40);
  sizes.sequences = generator.integer(1, 19);
  sizes.steps = generator.integer(1, 5);
  if (sizes.kind == RecurrentKind::Lstm && sizes.hidden > 2 && round % 8 < 4) {
    sizes.projected = generator.integer(1, sizes.hidden - 1);
  }
  return sizes;
}

// Sums of floats in another order: the difference is small beside the largest element.
void check_near(const Tensor& got, const Tensor& want) {
  REQUIRE(got.defined() == want.defined());
  if (!want.defined()) return;
  CHECK(got.device() == kDevice);
  const double largest = std::max(1.0, want.abs().max().item());
  CHECK((got.cpu() - want).abs().max().item() <= 2e-5 * largest);
}
void check_near(const RecurrentResult& got, const RecurrentResult& want) {
  check_near(got.output, want.output);
  check_near(got.h_n, want.h_n);
  check_near(got.c_n, want.c_n);
}

}  // namespace

TEST_CASE("recurrent steps on a device: Float16 weights give the CPU's floats") {
  Generator generator(39);
  for (int round = 0; round < 32; ++round) {
    CAPTURE(round);
    check_layer(random_layer(sizes_of_round(round, Weights::Float16, generator), generator));
  }
}

TEST_CASE("recurrent steps on a device: Float32 weights, packed and plain") {
  Generator generator(43);
  for (int round = 0; round < 32; ++round) {
    CAPTURE(round);
    const LayerSizes sizes = sizes_of_round(round, Weights::Float32, generator);
    const Layer layer = random_layer(sizes, generator);
    check_near(layer.on(kDevice), layer.on(Device::cpu()));

    const std::int64_t gates = gate_count(layer.kind) * layer.hidden;
    const std::int64_t width = layer.h.size(1);
    const StepWeights weights{
        .weight_hh = randn({gates, width}, generator),
        .bias_hh = round % 3 == 0 ? Tensor() : randn({gates}, generator),
        .weight_hr = sizes.projected > 0 ? randn({width, layer.hidden}, generator) : Tensor()};
    const auto plain = [&](Device device) {
      const auto there = [&](const Tensor& x) { return x.defined() ? x.to(device) : x; };
      const RecurrentSteps steps{layer.kind, layer.hidden, layer.batch_sizes, layer.order};
      return recurrent_steps(
          steps, {there(weights.weight_hh), there(weights.bias_hh), there(weights.weight_hr)},
          there(layer.gates), there(layer.h), there(layer.c));
    };
    check_near(plain(kDevice), plain(Device::cpu()));
  }
}

TEST_CASE("recurrent steps on a device: no sequences, and gradients that are refused by name") {
  Generator generator(44);
  const Tensor weight = randn({16, 4}, generator).to(kDevice);
  const std::vector<std::int64_t> none{0, 0};
  const RecurrentSteps empty{RecurrentKind::Lstm, 4, none};
  const auto zeros = [](const Dims& sizes) { return Tensor::zeros(sizes).to(kDevice); };
  const RecurrentResult nothing =
      recurrent_steps(empty, {weight}, zeros({0, 16}), zeros({0, 4}), zeros({0, 4}));
  CHECK(nothing.output.sizes() == Dims{0, 4});

  const std::vector<std::int64_t> two{2};
  const RecurrentSteps steps{RecurrentKind::Lstm, 4, two};
  CHECK_THROWS_WITH_AS(recurrent_steps(steps, {weight.detach().set_requires_grad()}, zeros({2, 16}),
                                       zeros({2, 4}), zeros({2, 4})),
                       doctest::Contains("recurrent_steps: x: expected a tensor"),
                       UnsupportedError);
}

namespace {

template <typename Module>
void check_module(const Module& module, const Tensor& x) {
  const auto want = module.forward(x, {});
  const auto got = module.forward(x.to(kDevice), {});
  CHECK(got.output.cpu().equal(want.output));
  if constexpr (requires { want.state; }) {
    CHECK(got.state.h.cpu().equal(want.state.h));
    CHECK(got.state.c.cpu().equal(want.state.c));
    const auto again = module.forward(x.to(kDevice), got.state);
    CHECK(again.output.cpu().equal(module.forward(x, want.state).output));
  } else {
    CHECK(got.h_n.cpu().equal(want.h_n));
    const auto again = module.forward(x.to(kDevice), got.h_n);
    CHECK(again.output.cpu().equal(module.forward(x, want.h_n).output));
  }
}

template <typename Dynamic, typename Float>
std::shared_ptr<Dynamic> dynamic(Float module) {
  module.eval();
  module.set_qconfig(default_dynamic_qconfig());
  return std::dynamic_pointer_cast<Dynamic>(Dynamic::from_float(module));
}

}  // namespace

TEST_CASE("dynamic LSTM and GRU on a device: layers and directions and batch first") {
  namespace qd = nn::quantized::dynamic;
  Generator generator(40);
  for (const bool batch_first : {false, true}) {
    for (const bool bidirectional : {false, true}) {
      const nn::RecurrentOptions options{.input_size = 7,
                                         .hidden_size = 11,
                                         .num_layers = 2,
                                         .bias = !bidirectional,
                                         .batch_first = batch_first,
                                         .bidirectional = bidirectional};
      const Tensor x = randn({3, 4, 7}, generator);
      check_module(*dynamic<qd::LSTM>(nn::LSTM(options)), x);
      check_module(*dynamic<qd::GRU>(nn::GRU(options)), x);
    }
  }
  // One sequence without a batch.
  check_module(*dynamic<qd::GRU>(nn::GRU({.input_size = 7, .hidden_size = 11})),
               randn({3, 7}, generator));
}

TEST_CASE("float LSTM, GRU and RNN on a device: modules run where their parameters are") {
  Generator generator(45);
  const Tensor x = randn({5, 3, 7}, generator);
  const auto check = [&](auto module) {
    module.eval();
    const Tensor want = module.forward(x, {}).output;
    module.to(kDevice);
    check_near(module.forward(x.to(kDevice), {}).output, want);
  };
  check(nn::LSTM({.input_size = 7, .hidden_size = 11, .num_layers = 2, .bidirectional = true}));
  check(nn::GRU({.input_size = 7, .hidden_size = 11}));
}

TEST_CASE("dynamic cells on a device: the CPU's floats") {
  namespace qd = nn::quantized::dynamic;
  Generator generator(41);
  const nn::CellOptions options{.input_size = 6, .hidden_size = 10};
  const Tensor x = randn({5, 6}, generator);
  const Tensor h = randn({5, 10}, generator);
  const Tensor c = randn({5, 10}, generator);
  const auto there = [](const Tensor& tensor) { return tensor.to(kDevice); };
  for (const nn::RnnNonlinearity kind : {nn::RnnNonlinearity::Tanh, nn::RnnNonlinearity::Relu}) {
    const auto rnn = dynamic<qd::RNNCell>(nn::RNNCell(options, kind));
    CHECK(rnn->forward(there(x), there(h)).cpu().equal(rnn->forward(x, h)));
    CHECK(rnn->forward(there(x), {}).cpu().equal(rnn->forward(x, {})));
  }
  const auto gru = dynamic<qd::GRUCell>(nn::GRUCell(options));
  CHECK(gru->forward(there(x), there(h)).cpu().equal(gru->forward(x, h)));
  const auto lstm = dynamic<qd::LSTMCell>(nn::LSTMCell(options));
  const nn::LstmState want = lstm->forward(x, {h, c});
  const nn::LstmState got = lstm->forward(there(x), {there(h), there(c)});
  CHECK(got.h.cpu().equal(want.h));
  CHECK(got.c.cpu().equal(want.c));
}

}  // namespace quanta
