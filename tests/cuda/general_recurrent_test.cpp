// General recurrent layers on a CUDA device. Sums are the library's: where the weight is 0 and the
// bias alone remains, everything behind the sums is the CPU's to the last bit.

#include <doctest/doctest.h>

#include <array>
#include <span>
#include <vector>

#include "devices_support.h"
#include "quanta/ops/attention.h"
#include "quanta/ops/rnn_general.h"
#include "quanta/ops/support.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

const Device kDevice = test::test_device();

// Sums of at most 24 products of numbers around 1, and what a few steps make of their last bits.
constexpr double kSumBound = 1e-4;

constexpr std::array kFunctions{
    GateFunction::Sigmoid,    GateFunction::Tanh,        GateFunction::Relu,
    GateFunction::Affine,     GateFunction::LeakyRelu,   GateFunction::ThresholdedRelu,
    GateFunction::ScaledTanh, GateFunction::HardSigmoid, GateFunction::Elu,
    GateFunction::Softsign,   GateFunction::Softplus};

std::int64_t gates_of(GeneralCell cell) {
  return cell == GeneralCell::Rnn ? 1 : cell == GeneralCell::Gru ? 3 : 4;
}

struct Layer {
  GeneralRecurrentOptions options;
  GeneralRecurrentInputs inputs;
};

// Those whose results are bounded, so that steps do not make differences of sums larger.
constexpr std::array kBounded{GateFunction::Sigmoid, GateFunction::Tanh, GateFunction::ScaledTanh,
                              GateFunction::HardSigmoid, GateFunction::Softsign};

Layer random_layer(GeneralCell cell, bool has_weight, Generator& generator) {
  const std::int64_t steps = generator.integer(1, 5);
  const std::int64_t batch = generator.integer(1, 4);
  const std::int64_t hidden = generator.integer(1, 24);
  const std::int64_t gates = gates_of(cell) * hidden;
  const auto chance = [&] { return generator.integer(0, 1) == 1; };
  Layer layer;
  GeneralRecurrentOptions& options = layer.options;
  options.cell = cell;
  options.order = chance() ? StepOrder::Forward : StepOrder::Reverse;
  options.functions.clear();
  options.alpha.clear();
  options.beta.clear();
  for (std::int64_t i = 0; i < (cell == GeneralCell::Rnn ? 1 : gates_of(cell) - 1); ++i) {
    const std::span<const GateFunction> functions =
        has_weight ? std::span<const GateFunction>(kBounded) : kFunctions;
    options.functions.push_back(functions[static_cast<std::size_t>(
        generator.integer(0, static_cast<std::int64_t>(functions.size()) - 1))]);
    options.alpha.push_back(0.1 + 0.4 * generator.uniform());
    options.beta.push_back(0.1 + 0.4 * generator.uniform());
  }
  if (chance()) options.clip = 0.5 + generator.uniform();
  options.linear_before_reset = cell == GeneralCell::Gru && chance();
  options.input_forget = cell == GeneralCell::Lstm && chance();

  GeneralRecurrentInputs& in = layer.inputs;
  in.gates = randn({steps, batch, gates}, generator);
  in.weight = has_weight ? randn({gates, hidden}, generator) : Tensor::zeros({gates, hidden});
  if (has_weight) {
    for (std::int64_t i = 0; i < in.weight.numel(); ++i) {
      in.weight.mutable_data<float>()[i] *= 0.2F;
    }
  }
  if (chance() || !has_weight) in.bias = randn({gates}, generator);
  in.h_0 = randn({batch, hidden}, generator);
  if (cell == GeneralCell::Lstm) {
    in.c_0 = randn({batch, hidden}, generator);
    if (chance()) in.peephole = randn({3 * hidden}, generator);
  }
  if (chance()) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = 0; i < batch; ++i) lengths.push_back(generator.integer(0, steps));
    in.lengths = Tensor::from_int64(lengths).to(chance() ? DType::Int64 : DType::Int32);
  }
  return layer;
}

GeneralRecurrentInputs on_device(const GeneralRecurrentInputs& in) {
  const auto there = [](const Tensor& x) { return x.defined() ? x.to(kDevice) : x; };
  return {there(in.gates), there(in.weight),   there(in.bias),   there(in.h_0),
          there(in.c_0),   there(in.peephole), there(in.lengths)};
}

void check_layer(const Layer& layer, double bound) {
  const RecurrentResult expected = general_recurrent(layer.options, layer.inputs);
  const RecurrentResult got = general_recurrent(layer.options, on_device(layer.inputs));
  REQUIRE(got.output.device() == kDevice);
  CHECK(test::same_numbers(got.output, expected.output, bound));
  CHECK(test::same_numbers(got.h_n, expected.h_n, bound));
  REQUIRE(got.c_n.defined() == expected.c_n.defined());
  if (expected.c_n.defined()) CHECK(test::same_numbers(got.c_n, expected.c_n, bound));
}

}  // namespace

TEST_CASE("cuda general recurrent: all functions and settings on given sums") {
  Generator generator(121);
  for (int round = 0; round < 90; ++round) {
    CAPTURE(round);
    for (const GeneralCell cell : {GeneralCell::Rnn, GeneralCell::Gru, GeneralCell::Lstm}) {
      check_layer(random_layer(cell, false, generator), test::library_bound());
    }
  }
}

TEST_CASE("cuda general recurrent: products with the states of the step before") {
  Generator generator(122);
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    for (const GeneralCell cell : {GeneralCell::Rnn, GeneralCell::Gru, GeneralCell::Lstm}) {
      check_layer(random_layer(cell, true, generator), kSumBound);
    }
  }
}

TEST_CASE("cuda general recurrent: what does not fit is refused") {
  Generator generator(123);
  Layer layer = random_layer(GeneralCell::Rnn, true, generator);
  const std::int64_t batch = layer.inputs.gates.size(1);
  layer.inputs.lengths = Tensor::full({batch}, 9.0, DType::Int64);
  CHECK_THROWS_WITH_AS(general_recurrent(layer.options, on_device(layer.inputs)),
                       doctest::Contains("general_recurrent: lengths: expected 0.."),
                       ArgumentError);
  layer = random_layer(GeneralCell::Gru, true, generator);
  layer.inputs.lengths = {};
  for (Tensor* x :
       {&layer.inputs.gates, &layer.inputs.weight, &layer.inputs.h_0, &layer.inputs.bias}) {
    if (x->defined()) *x = x->to(DType::Float64);
  }
  CHECK_THROWS_WITH_AS(general_recurrent(layer.options, on_device(layer.inputs)),
                       doctest::Contains("general_recurrent: x: expected Float32 on"),
                       UnsupportedError);
}

TEST_CASE("cuda general recurrent: weights of attention are made of what runs there") {
  Generator generator(124);
  for (const bool has_mask : {false, true}) {
    std::vector<Tensor> inputs{randn({2, 5, 4}, generator), randn({2, 3, 4}, generator)};
    if (has_mask) inputs.push_back(randn({5, 3}, generator));
    test::check_devices(
        inputs, has_mask ? 0b111U : 0b11U,
        [&](const std::vector<Tensor>& in) {
          return attention_weights(in[0], in[1], has_mask ? in[2] : Tensor(), 0.5);
        },
        1e-5);
  }
  CHECK(supports("attention_weights", Device::cuda(), DType::Float32));
  CHECK_FALSE(supports("attention_weights", Device::cuda(), DType::Float64));
}

}  // namespace quanta
