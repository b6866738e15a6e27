#include "quanta/fusion/distributed/evaluate.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/run_ranks.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/stubs.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"

using namespace quanta;
using distributed::accuracy;
using distributed::Communicator;
using distributed::evaluate;
using distributed::Evaluation;
using distributed::Metric;
using test::run_ranks;

namespace {

constexpr std::int64_t kClasses = 5;

std::shared_ptr<const data::Dataset> pictures(std::int64_t count) {
  Generator generator(3);
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(generator.integer(0, kClasses - 1));
  const Tensor targets = Tensor::empty({count}, DType::Int64);
  std::copy(labels.begin(), labels.end(), targets.mutable_data<std::int64_t>());
  return std::make_shared<data::TensorDataset>(test::random_tensor({count, 1, 6, 6}, 4), targets);
}

nn::Sequential network() {
  default_generator().manual_seed(11);
  nn::Sequential net(
      nn::QuantStub(), nn::Conv2d({.in_channels = 1, .out_channels = 8, .kernel_size = 3}),
      nn::Flatten(), nn::Linear({.in_features = 128, .out_features = kClasses}), nn::DeQuantStub());
  net.eval();
  return net;
}

const Metric& both() {
  static const Metric metric =
      distributed::combine({accuracy(), distributed::cross_entropy_loss(), distributed::top_k(2)});
  return metric;
}

using Model = std::function<Tensor(const Tensor&)>;

// The sums of top-1, loss and top-2, batch for batch by hand.
struct Expected {
  double right = 0.0;
  double loss = 0.0;
  double second = 0.0;

  Expected(const Model& model, const data::Dataset& dataset, std::int64_t batch_size) {
    distributed::ExactSum losses;
    for (std::int64_t begin = 0; begin < dataset.size(); begin += batch_size) {
      std::vector<Tensor> inputs;
      std::vector<Tensor> targets;
      for (std::int64_t i = begin; i < std::min(dataset.size(), begin + batch_size); ++i) {
        inputs.push_back(dataset.item(i).input.unsqueeze(0));
        targets.push_back(dataset.item(i).target.unsqueeze(0));
      }
      const Tensor output = model(cat(inputs));
      const Tensor target = cat(targets);
      for (const float each :
           cross_entropy(output, target, {.reduction = Reduction::None}).to_float_vector()) {
        losses.add(static_cast<double>(each));
      }
      for (std::int64_t i = 0; i < output.size(0); ++i) {
        const std::vector<float> scores = output.select(0, i).to_float_vector();
        const auto label = static_cast<std::size_t>(target.select(0, i).item());
        const auto above = std::count_if(scores.begin(), scores.end(),
                                         [&](float each) { return each > scores[label]; });
        const auto first = std::max_element(scores.begin(), scores.end()) - scores.begin();
        right += static_cast<std::size_t>(first) == label ? 1.0 : 0.0;
        second += above < 2 ? 1.0 : 0.0;
      }
    }
    loss = losses.value();
  }
};

void check_on_all_ranks(const Model& model) {
  for (const std::int64_t count : {1, 7, 64, 100}) {
    const auto dataset = pictures(count);
    set_num_threads(1);
    const Expected expected(model, *dataset, 8);
    for (const int ranks : {test::processes(), test::uneven_ranks(), test::even_ranks()}) {
      run_ranks(ranks, [&](const Communicator& comm) {
        std::int64_t seen = 0;
        const Evaluation result =
            evaluate(model, dataset, both(), comm,
                     {.batch_size = 8, .progress = [&](std::int64_t done, std::int64_t total) {
                        CHECK(total == count);
                        CHECK(done >= seen);
                        seen = done;
                      }});
        CHECK(result.examples() == count);
        CHECK(result.sum("top-1") == expected.right);
        CHECK(result.sum("top-2") == expected.second);
        CHECK(std::bit_cast<std::uint64_t>(result.sum("loss")) ==
              std::bit_cast<std::uint64_t>(expected.loss));
        CHECK(result.value() == expected.right / static_cast<double>(count));
        CHECK(result.mean("loss") == expected.loss / static_cast<double>(count));
      });
    }
  }
}

}  // namespace

TEST_CASE("evaluate: a float network gives the same on any number of ranks, to the last bit") {
  const nn::Sequential net = network();
  check_on_all_ranks([&](const Tensor& x) { return net(x); });
}

TEST_CASE("evaluate: an int8 network and its plan too") {
  const nn::Sequential prepared = prepare(network(), get_default_qconfig());
  prepared(test::random_tensor({32, 1, 6, 6}, 9));
  const nn::Sequential int8 = convert(prepared);
  check_on_all_ranks([&](const Tensor& x) { return int8(x); });
  const FrozenModel plan =
      freeze(int8, test::random_tensor({8, 1, 6, 6}, 9), {.batch_sizes = {1, 4, 8}});
  check_on_all_ranks([&](const Tensor& x) { return plan(x); });
}

TEST_CASE("evaluate: a confusion matrix adds up to the examples") {
  const nn::Sequential net = network();
  run_ranks(test::uneven_ranks(), [&](const Communicator& comm) {
    const auto dataset = pictures(50);
    const Metric metric =
        distributed::combine({distributed::confusion_matrix(kClasses), accuracy()});
    const Evaluation result = evaluate(net, dataset, metric, comm, {.batch_size = 16});
    double all = 0.0;
    double right = 0.0;
    for (std::int64_t row = 0; row < kClasses; ++row) {
      double examples = 0.0;
      for (std::int64_t column = 0; column < kClasses; ++column) {
        const double count = result.sum(fmt::format("{}:{}", row, column));
        examples += count;
        if (row == column) right += count;
      }
      double expected = 0.0;
      for (std::int64_t i = 0; i < 50; ++i)
        expected += dataset->item(i).target.to_int64_vector().front() == row ? 1.0 : 0.0;
      CHECK(examples == expected);
      all += examples;
    }
    CHECK(all == 50.0);
    CHECK(right == result.sum("top-1"));
  });
}

TEST_CASE("combine: scores are copied once for all metrics") {
  if (test::process() != 0) return;  // no rank has to do with it
  // Not dense: the classes lie behind each other.
  const Tensor scores =
      test::random_tensor({4, kClasses, 3, 5}, 3).contiguous(MemoryFormat::ChannelsLast);
  const Tensor target = Tensor::empty({4, 3, 5}, DType::Int64);
  for (std::int64_t i = 0; i < target.numel(); ++i) {
    target.mutable_data<std::int64_t>()[i] = (7 * i + i / 5) % kClasses;
  }
  std::vector<const void*> seen;
  const Metric place{{"zero"}, [&](const Tensor& output, const Tensor& classes) {
                       CHECK(output.is_contiguous());
                       CHECK(output.equal(scores));
                       CHECK(classes.data_ptr() == target.data_ptr());
                       seen.push_back(output.data_ptr());
                       return Tensor::zeros({output.size(0)});
                     }};
  const Tensor values = distributed::combine({place, accuracy(), place}).values(scores, target);
  REQUIRE(seen.size() == 2);
  CHECK(seen.front() == seen.back());
  CHECK(seen.front() != scores.data_ptr());
  const Tensor dense = scores.contiguous();
  for (std::int64_t i = 0; i < 4; ++i) {
    std::int64_t right = 0;
    for (std::int64_t p = 0; p < 15; ++p) {
      std::int64_t best = 0;
      for (std::int64_t c = 1; c < kClasses; ++c) {
        const auto* at = dense.data<float>() + i * kClasses * 15 + p;
        if (at[c * 15] > at[best * 15]) best = c;
      }
      right += best == target.data<std::int64_t>()[i * 15 + p] ? 1 : 0;
    }
    CHECK(values.data<double>()[3 * i + 1] == static_cast<double>(right) / 15.0);
  }
  // Of scores that are dense already nothing is copied.
  seen.clear();
  static_cast<void>(distributed::combine({place, accuracy()}).values(dense, target));
  CHECK(seen.front() == dense.data_ptr());
  // Doubles are looked at as floats.
  CHECK(
      accuracy().values(scores.to(DType::Float64), target).equal(accuracy().values(dense, target)));
}

TEST_CASE("evaluate: squared errors in double") {
  run_ranks(test::uneven_ranks(), [&](const Communicator& comm) {
    const auto dataset = std::make_shared<data::TensorDataset>(
        Tensor::from_values({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2}),
        Tensor::from_values({1.5F, 2.0F, 0.0F, 0.0F}, {2, 2}));
    const Evaluation result = evaluate([](const Tensor& x) { return x; }, dataset,
                                       distributed::mean_squared_error(), comm, {.batch_size = 1});
    CHECK(result.value() == ((0.25 + 0.0) / 2 + (9.0 + 16.0) / 2) / 2);
  });
}

TEST_CASE("evaluate: what cannot be evaluated is refused") {
  nn::Sequential net = network();
  run_ranks(test::processes(), [&](const Communicator& comm) {
    const Model same = [](const Tensor& x) { return x; };
    const auto dataset = pictures(3);
    CHECK_THROWS_AS(evaluate(same, nullptr, accuracy(), comm), ArgumentError);
    CHECK_THROWS_AS(evaluate(same, dataset, accuracy(), comm, {.batch_size = 0}), ArgumentError);
    CHECK_THROWS_AS(evaluate(Model(), dataset, accuracy(), comm), ArgumentError);
    CHECK_THROWS_AS(evaluate(same, dataset, Metric{}, comm), ArgumentError);
    CHECK_THROWS_AS(distributed::top_k(0), ArgumentError);
    CHECK_THROWS_AS(distributed::confusion_matrix(0), ArgumentError);
    CHECK_THROWS_AS(distributed::combine({Metric{}}), ArgumentError);
    net.train();
    CHECK_THROWS_WITH_AS(evaluate(net, dataset, accuracy(), comm), doctest::Contains("eval mode"),
                         ArgumentError);
    // The first rank always has a batch.
    if (!comm.is_first()) return;
    CHECK_THROWS_AS(accuracy().values(Tensor::zeros({2, 3}), Tensor::zeros({2})), ArgumentError);
    CHECK_THROWS_AS(accuracy().values(Tensor::zeros({1, 3}), Tensor::full({1}, 3, DType::Int64)),
                    ArgumentError);
    CHECK_THROWS_AS(accuracy().values(Tensor(), Tensor()), ArgumentError);
  });
}
