#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <memory>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/rnn_dynamic.h"
#include "quanta/runtime/error.h"
#include "support/threads.h"

namespace quanta {
namespace {

using test::with_threads;

using quantized::LinearPackedParams;
using quantized::ReduceRange;
using test::for_each_target;

// The product alone: recurrent_steps then goes step by step.
class OnlyProduct final : public HiddenProduct {
 public:
  explicit OnlyProduct(const HiddenProduct& product) : product_(product) {}
  std::int64_t in_features() const noexcept override { return product_.in_features(); }
  std::int64_t out_features() const noexcept override { return product_.out_features(); }
  void operator()(const float* h, std::int64_t rows, float* out) const override {
    product_(h, rows, out);
  }

 private:
  const HiddenProduct& product_;
};

struct Layer {
  RecurrentKind kind = RecurrentKind::Lstm;
  std::int64_t hidden = 1;
  StepOrder order = StepOrder::Forward;
  std::vector<std::int64_t> batch_sizes{};
  std::shared_ptr<const HiddenProduct> product{};
  Tensor gates{}, h{}, c{};

  RecurrentResult run(const HiddenProduct& hidden_product) const {
    return recurrent_steps({kind, hidden, batch_sizes, order, &hidden_product, nullptr}, gates, h,
                           c);
  }
  RecurrentResult at_once() const { return run(*product); }
  RecurrentResult step_by_step() const { return run(OnlyProduct(*product)); }
};

// Weights per tensor, or per channel with zero points, which linear_dynamic takes too.
QTensor random_weight(const Dims& sizes, Generator& generator) {
  const Tensor weight = randn(sizes, generator);
  if (generator.integer(0, 1) == 0) return quantize_per_tensor(weight, 0.02, 0, DType::QInt8);
  Tensor scales = Tensor::empty({sizes[0]}, DType::Float64);
  Tensor zero_points = Tensor::empty({sizes[0]}, DType::Int64);
  for (std::int64_t n = 0; n < sizes[0]; ++n) {
    scales.mutable_data<double>()[n] = 0.01 + 0.0001 * static_cast<double>(n % 50);
    zero_points.mutable_data<std::int64_t>()[n] = generator.integer(-5, 5);
  }
  return quantize_per_channel(weight, scales, zero_points, 0, DType::QInt8);
}

Layer random_layer(std::int64_t hidden, std::int64_t sequences, Generator& generator) {
  Layer layer;
  layer.kind = generator.integer(0, 1) == 0 ? RecurrentKind::Lstm : RecurrentKind::Gru;
  layer.hidden = hidden;
  layer.order = generator.integer(0, 1) == 0 ? StepOrder::Forward : StepOrder::Reverse;
  std::int64_t rows = 0;
  for (std::int64_t step = generator.integer(1, 5); step > 0; --step) {
    layer.batch_sizes.push_back(sequences);
    rows += sequences;
    sequences = generator.integer(1, sequences);
  }
  const std::int64_t gates = gate_count(layer.kind) * hidden;
  const Tensor bias = generator.integer(0, 2) == 0 ? Tensor() : randn({gates}, generator);
  const auto range = generator.integer(0, 1) == 0 ? ReduceRange::Yes : ReduceRange::No;
  layer.product = quantized::dynamic_hidden_product(
      LinearPackedParams(random_weight({gates, hidden}, generator), bias), range);
  layer.gates = randn({rows, gates}, generator);
  layer.h = randn({layer.batch_sizes[0], hidden}, generator);
  if (layer.kind == RecurrentKind::Lstm) layer.c = randn({layer.batch_sizes[0], hidden}, generator);
  return layer;
}

void check_same(const RecurrentResult& got, const RecurrentResult& want) {
  CHECK(got.output.equal(want.output));
  CHECK(got.h_n.equal(want.h_n));
  if (want.c_n.defined()) CHECK(got.c_n.equal(want.c_n));
}

TEST_CASE("recurrent_steps: int8 steps at once are the steps one by one on every instruction set") {
  Generator generator(21);
  for (int round = 0; round < 40; ++round) {
    const Layer layer = random_layer(generator.integer(1, 70), generator.integer(1, 19), generator);
    CAPTURE(round);
    CAPTURE(layer.hidden);
    const RecurrentResult want = layer.step_by_step();
    for_each_target([&] { check_same(layer.at_once(), want); });
  }
}

TEST_CASE("recurrent_steps: int8 steps are the same with any number of threads") {
  Generator generator(22);
  for (const std::int64_t sequences : {1, 2, 5, 8, 13, 16}) {
    const Layer layer = random_layer(300 + sequences, sequences, generator);
    CAPTURE(sequences);
    const RecurrentResult want = layer.step_by_step();
    for_each_target([&] {
      with_threads({1, 2, 3, 4}, [&] { check_same(layer.at_once(), want); });
    });
  }
}

TEST_CASE("recurrent_steps: int8 steps refuse hidden states that are not finite") {
  Generator generator(23);
  Layer layer = random_layer(300, 3, generator);
  layer.batch_sizes = {3, 2};
  layer.gates = randn({5, gate_count(layer.kind) * 300}, generator);
  const auto refused = [&] {
    with_threads({1, 3}, [&] {
      CHECK_THROWS_WITH_AS(layer.at_once(), doctest::Contains("expected finite values"),
                           ArgumentError);
    });
  };
  layer.h.mutable_data<float>()[17] = std::numeric_limits<float>::infinity();
  refused();
  layer.h.mutable_data<float>()[17] = 0.0F;
  // Seen by the second step.
  layer.order = StepOrder::Forward;
  layer.gates.mutable_data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  refused();
  layer.gates.mutable_data<float>()[5] = 0.0F;
  check_same(layer.at_once(), layer.step_by_step());
}

TEST_CASE("recurrent_steps: one int8 weight serves layers of different gates") {
  Generator generator(24);
  const QTensor weight = quantize_per_tensor(randn({36, 9}, generator), 0.02, 0, DType::QInt8);
  const LinearPackedParams packed(weight, {});
  Layer lstm{.kind = RecurrentKind::Lstm,
             .hidden = 9,
             .batch_sizes = {2, 2},
             .product = quantized::dynamic_hidden_product(packed),
             .gates = randn({4, 36}, generator),
             .h = randn({2, 9}, generator),
             .c = randn({2, 9}, generator)};
  check_same(lstm.at_once(), lstm.step_by_step());
  check_same(lstm.at_once(), lstm.step_by_step());
}

}  // namespace
}  // namespace quanta
