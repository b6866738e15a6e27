#include "quanta/fusion/distributed/calibrate.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/run_ranks.h"
#include "fusion/small_network.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/fusion/quantsim.h"
#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/container.h"
#include "quanta/nn/data/data_loader.h"
#include "quanta/nn/misc.h"
#include "quanta/observers/aimet/analyzer.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/format_qconfig.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/modelopt/histogram_calibrator.h"
#include "quanta/observers/modelopt/tensor_quantizer.h"
#include "quanta/observers/other_observers.h"
#include "quanta/observers/range_search_observer.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/parallel.h"
#include "support/tensors.h"

using namespace quanta;
using distributed::calibrate;
using distributed::Communicator;
using test::run_ranks;
using test::SmallNetwork;

namespace {

constexpr std::int64_t kBatch = 3;

// Later pictures have wider ranges now and then, so that histograms grow on every rank.
std::shared_ptr<const data::Dataset> pictures(std::int64_t count) {
  const Tensor inputs = test::random_tensor({count, 3, 9, 9}, 4);
  auto* values = inputs.mutable_data<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    const float spread = 0.3F + 0.1F * static_cast<float>(i) * static_cast<float>(i % 4);
    for (std::int64_t k = 0; k < 243; ++k) values[i * 243 + k] *= spread;
  }
  return std::make_shared<data::TensorDataset>(inputs);
}

SmallNetwork network() {
  default_generator().manual_seed(11);
  return test::fused_network();
}

std::vector<std::byte> bits_of(const nn::Module& model) {
  return distributed::to_bytes(model.state_dict());
}

std::vector<std::byte> bits_of(const Statistics& collectors) {
  StateDict state;
  for (const auto& [name, collector] : collectors) collector->save_gathered(state, name + ".");
  return distributed::to_bytes(state);
}

// One rank, by hand.
void run_all(const nn::Module& prepared, const std::shared_ptr<const data::Dataset>& dataset) {
  set_num_threads(1);
  const autograd::NoGradGuard no_grad;
  if (dataset->size() == 0) return;
  data::DataLoader loader(dataset, {.batch_size = kBatch, .seed = 0});
  for (const data::Batch& batch : loader) static_cast<void>(prepared(batch.input));
}

// `prepared` is what a rank begins with, as many times as there are ranks.
template <typename T>
void check_on_all_ranks(const T& prepared) {
  const std::vector<std::byte> before = bits_of(prepared);
  for (const std::int64_t count : {1, 17, 40}) {
    const auto dataset = pictures(count);
    const T expected = nn::deep_copy(prepared);
    run_all(expected, dataset);
    CHECK(bits_of(expected) != before);
    for (const int ranks : {test::processes(), test::uneven_ranks(), test::even_ranks()}) {
      for (const std::int64_t every : {0, 1, 2, 100}) {
        CAPTURE(count);
        CAPTURE(ranks);
        CAPTURE(every);
        run_ranks(ranks, [&](const Communicator& comm) {
          const T mine = nn::deep_copy(prepared);
          calibrate(mine, dataset, comm, {.batch_size = kBatch, .combine_every = every});
          CHECK(bits_of(mine) == bits_of(expected));
        });
      }
    }
  }
}

QConfig qconfig_of(const ObserverFactory& activation) {
  QConfig qconfig = get_default_qconfig();
  qconfig.activation = activation;
  return qconfig;
}

}  // namespace

TEST_CASE("calibrate: histogram observers hold the bits of one rank on any number of ranks") {
  check_on_all_ranks(prepare(network(), get_default_qconfig()));
  check_on_all_ranks(prepare(network(), qconfig_with_range_search("percentile")));
}

TEST_CASE("calibrate: ranges and moving averages too") {
  check_on_all_ranks(prepare(network(), qconfig_of(MinMaxObserver::with_args())));
  check_on_all_ranks(prepare(network(), qconfig_of(MovingAverageMinMaxObserver::with_args())));
}

TEST_CASE("calibrate: fake quantizers that observe and ModelOpt's quantizers too") {
  SmallNetwork qat = network();
  qat.train();
  qat = prepare_qat(qat, get_default_qat_qconfig());
  qat.eval();
  disable_fake_quant(qat);
  check_on_all_ranks(qat);

  SmallNetwork fp8 = network();
  fp8.train();
  fp8 = prepare_qat(fp8, qconfig_for_format("fp8"));
  fp8.eval();
  disable_fake_quant(fp8);
  check_on_all_ranks(fp8);
}

TEST_CASE("calibrate: quantizers with a histogram convert to the same network on every rank") {
  modelopt::QuantizerConfig config;
  config.calibrator = "histogram";
  config.is_unsigned = true;
  SmallNetwork prepared = prepare(
      network(), QConfig{modelopt::TensorQuantizer::with_args(config), default_weight_observer()});
  disable_fake_quant(prepared);
  const auto dataset = pictures(30);
  const SmallNetwork alone = nn::deep_copy(prepared);
  run_all(alone, dataset);
  const std::vector<std::byte> expected = bits_of(convert(alone));
  run_ranks(test::even_ranks(), [&](const Communicator& comm) {
    const SmallNetwork mine = nn::deep_copy(prepared);
    calibrate(mine, dataset, comm, {.batch_size = kBatch});
    CHECK(bits_of(convert(mine)) == expected);
  });
}

TEST_CASE("calibrate: a recording holds all tensors in order") {
  const SmallNetwork prepared = prepare(network(), qconfig_of(RecordingObserver::with_args()));
  const auto dataset = pictures(14);
  const auto recorded = [](const SmallNetwork& model) {
    return std::dynamic_pointer_cast<RecordingObserver>(
               model.get_submodule("conv1")->activation_post_process())
        ->get_tensor_value();
  };
  const SmallNetwork alone = nn::deep_copy(prepared);
  run_all(alone, dataset);
  const std::vector<Tensor> expected = recorded(alone);
  REQUIRE(expected.size() == 5);
  run_ranks(test::uneven_ranks(), [&](const Communicator& comm) {
    const SmallNetwork mine = nn::deep_copy(prepared);
    calibrate(mine, dataset, comm, {.batch_size = kBatch});
    const std::vector<Tensor> got = recorded(mine);
    CHECK(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size() && i < expected.size(); ++i) {
      CHECK(got[i].equal(expected[i]));
    }
  });
}

TEST_CASE("calibrate: a graph from an ONNX file") {
  const graph::Model model = graph::from_onnx(
      graph::to_onnx(network(), test::small_input(1, 1), {.trace = {.dynamic_batch = true}}));
  check_on_all_ranks(graph::prepare_jit(model, get_default_qconfig()));
}

TEST_CASE("calibrate: AIMET's simulation has the encodings of one rank") {
  const auto dataset = pictures(20);
  const SmallNetwork net = network();
  for (const aimet::QuantScheme scheme :
       {aimet::QuantScheme::MinMax, aimet::QuantScheme::TfEnhanced,
        aimet::QuantScheme::Percentile}) {
    const aimet::QuantSimConfig config{.scheme = scheme};
    aimet::QuantizationSimModel<SmallNetwork> alone(net, config);
    alone.compute_encodings([&](const nn::Module& model) { run_all(model, dataset); });
    const std::string expected = to_json(alone.encodings());
    // With fewer batches than ranks some have none.
    for (const std::int64_t every : {0, 3}) {
      run_ranks(test::even_ranks(), [&](const Communicator& comm) {
        aimet::QuantizationSimModel<SmallNetwork> mine(net, config);
        mine.compute_encodings([&](const nn::Module& model) {
          calibrate(model, dataset, comm, {.batch_size = kBatch, .combine_every = every});
        });
        const bool is_same = to_json(mine.encodings()) == expected;
        CHECK(is_same);
      });
    }
  }
}

TEST_CASE("calibrate: AIMET's quantizers that gather in a network") {
  const auto make = [] {
    const aimet::AffineQuantizerOptions options{
        .bitwidth = 8,
        .symmetric = false,
        .analyzer = std::make_shared<aimet::PercentileAnalyzer>()};
    return nn::Sequential(nn::Identity(), aimet::QuantizeDequantize(options));
  };
  const auto dataset = pictures(16);
  nn::Sequential alone = make();
  alone.eval();
  aimet::compute_encodings(alone, [&] { run_all(alone, dataset); });
  run_ranks(test::uneven_ranks(), [&](const Communicator& comm) {
    nn::Sequential mine = make();
    mine.eval();
    aimet::compute_encodings(mine, [&] { calibrate(mine, dataset, comm, {.batch_size = kBatch}); });
    CHECK(bits_of(mine) == bits_of(alone));
  });
}

namespace {

Statistics loose_collectors() {
  const modelopt::MseCalibrator::Options search{.quant_func = [](const Tensor& x, const Tensor& a) {
    return fake_tensor_quant(x, a, {{4, false, false}});
  }};
  return {
      {"max", std::make_shared<modelopt::MaxCalibrator>(Dims{0},
                                                        modelopt::MaxCalibrator::Track::EveryAmax)},
      {"mse", std::make_shared<modelopt::MseCalibrator>(Tensor::scalar(3.0), search)},
      {"bias",
       std::make_shared<modelopt::BiasCalibrator>(modelopt::BiasCalibrator::Method::Mean, Dims{})},
      {"histogram",
       std::make_shared<modelopt::HistogramCalibrator>(modelopt::HistogramCalibrator::Options{})},
      {"sqnr", std::make_shared<aimet::SqnrAnalyzer>(aimet::SqnrAnalyzerOptions::tf_enhanced())},
      {"percentile", std::make_shared<aimet::PercentileAnalyzer>()},
      {"range", std::make_shared<aimet::MinMaxAnalyzer>(Dims{4, 1})},
      {"torch", std::make_shared<HistogramObserver>()},
  };
}

Tensor activations(std::int64_t batch) {
  const Tensor x = test::random_tensor({4, 50}, static_cast<std::uint64_t>(batch + 1));
  auto* values = x.mutable_data<float>();
  const float spread = 1.0F + static_cast<float>(batch * (batch % 5));
  for (std::int64_t i = 0; i < x.numel(); ++i) values[i] *= spread;
  return x;
}

void show(const Statistics& collectors, std::int64_t batch) {
  for (const auto& [name, collector] : collectors) collector->update(activations(batch));
}

}  // namespace

TEST_CASE("calibrate: collectors that stand alone") {
  set_num_threads(1);
  for (const std::int64_t batches : {0, 1, 23}) {
    const Statistics alone = loose_collectors();
    for (std::int64_t batch = 0; batch < batches; ++batch) show(alone, batch);
    for (const int ranks : {test::processes(), test::uneven_ranks(), test::even_ranks()}) {
      for (const std::int64_t every : {0, 2, 50}) {
        run_ranks(ranks, [&](const Communicator& comm) {
          const Statistics mine = loose_collectors();
          std::int64_t last = 0;
          calibrate(
              mine, batches, [&](std::int64_t batch) { show(mine, batch); }, comm,
              {.combine_every = every, .progress = [&](std::int64_t done, std::int64_t total) {
                 CHECK(comm.is_first());
                 CHECK(total == batches);
                 CHECK(done > last);
                 last = done;
               }});
          CHECK(bits_of(mine) == bits_of(alone));
          CHECK(last == (comm.is_first() ? batches : 0));
        });
      }
    }
  }
}

TEST_CASE("calibrate: goes on from what rank 0 has seen before") {
  const Statistics alone = loose_collectors();
  for (std::int64_t batch = 0; batch < 9; ++batch) show(alone, batch);
  run_ranks(test::even_ranks(), [&](const Communicator& comm) {
    const Statistics mine = loose_collectors();
    if (comm.is_first()) show(mine, 0);
    calibrate(
        mine, 8, [&](std::int64_t batch) { show(mine, batch + 1); }, comm);
    CHECK(bits_of(mine) == bits_of(alone));
  });
}

TEST_CASE("calibrate: batches run again where lower ranks widen a histogram and only there") {
  const auto times_run = [](std::int64_t widest, const Communicator& comm) {
    const Statistics mine{{"torch", std::make_shared<HistogramObserver>()}};
    std::vector<std::int64_t> calls(1);
    calibrate(
        mine, 400,
        [&](std::int64_t batch) {
          ++calls[0];
          const float end = batch == widest ? 2.0F : 1.0F;
          mine.at("torch")->update(Tensor::from_values({-1.0F, 0.25F, end}, {3}));
        },
        comm);
    comm.sum(std::span(calls), "calls");
    return calls[0];
  };
  run_ranks(test::even_ranks(), [&](const Communicator& comm) {
    const int others = comm.size() - 1;
    // The first round: one batch each.
    CHECK(times_run(0, comm) == 400 + others);
    CHECK(times_run(399, comm) == 400 + others);
    const std::int64_t runs = times_run(200, comm);
    CHECK(runs >= 400 + others);
    CHECK(runs <= 400 + others + others * 64);
  });
}

TEST_CASE("calibrate: NaN on one rank leaves the observers of all as they were") {
  if (test::processes() > 1) return;  // a rank that fails ends the other processes
  const Tensor inputs = test::random_tensor({24, 3, 9, 9}, 4);
  inputs.mutable_data<float>()[20 * 243] = std::numeric_limits<float>::quiet_NaN();
  const auto dataset = std::make_shared<data::TensorDataset>(inputs);
  const SmallNetwork prepared = prepare(network(), get_default_qconfig());
  const std::vector<std::byte> before = bits_of(prepared);
  for (const int ranks : {1, 2, 4}) {
    std::atomic<int> failed = 0;
    CHECK_THROWS_WITH_AS(run_ranks(ranks,
                                   [&](const Communicator& comm) {
                                     const SmallNetwork mine = nn::deep_copy(prepared);
                                     try {
                                       calibrate(mine, dataset, comm, {.batch_size = kBatch});
                                     } catch (...) {
                                       ++failed;
                                       CHECK(bits_of(mine) == before);
                                       throw;
                                     }
                                   }),
                         doctest::Contains("expected numbers, got NaN"), ArgumentError);
    CHECK(failed == ranks);
  }
}

namespace {

class PlainObserver final : public MinMaxObserver {
 public:
  std::string name() const override { return "PlainObserver"; }
  DigestKind digests() const override { return DigestKind::None; }
  void update(const Tensor& /*x*/) override {}
};

template <typename Error, typename Model>
void check_refused(const Model& model, const char* text,
                   const distributed::CalibrateOptions& options = {}) {
  run_ranks(test::processes(), [&](const Communicator& comm) {
    CHECK_THROWS_WITH_AS(calibrate(model, pictures(2), comm, options), doctest::Contains(text),
                         Error);
  });
}

}  // namespace

TEST_CASE("calibrate: what cannot be shared is refused by path before anything runs") {
  const SmallNetwork plain =
      prepare(network(), qconfig_of({"plain", [] { return std::make_shared<PlainObserver>(); }}));
  check_refused<UnsupportedError>(plain, "conv1.activation_post_process (PlainObserver)");

  SmallNetwork qat = network();
  qat.train();
  qat = prepare_qat(qat, get_default_qat_qconfig());
  check_refused<ArgumentError>(qat, "prepared: expected a model in eval mode");
  qat.eval();
  check_refused<UnsupportedError>(qat, "conv1.weight_fake_quant");
  check_refused<ArgumentError>(network(), "prepared: expected a model with observers");

  const SmallNetwork prepared = prepare(network(), get_default_qconfig());
  check_refused<ArgumentError>(prepared, "batch_size: expected at least 1", {.batch_size = 0});
  check_refused<ArgumentError>(prepared, "combine_every: expected at least 0",
                               {.combine_every = -1});
  run_ranks(test::processes(), [&](const Communicator& comm) {
    CHECK_THROWS_AS(calibrate(prepared, nullptr, comm), ArgumentError);
    CHECK_THROWS_AS(calibrate(
                        Statistics{}, -1, [](std::int64_t) {}, comm),
                    ArgumentError);
    CHECK_THROWS_AS(calibrate(Statistics{}, 1, nullptr, comm), ArgumentError);
    CHECK_THROWS_AS(calibrate(
                        Statistics{{"none", nullptr}}, 1, [](std::int64_t) {}, comm),
                    ArgumentError);
  });
}

TEST_CASE("calibrate: ranks with other observers are told what rank 0 has") {
  const int ranks = test::uneven_ranks();
  run_ranks(ranks, [&](const Communicator& comm) {
    const auto bins = [](int count) {
      return std::make_shared<HistogramObserver>(HistogramObserver::Options{.bins = count});
    };
    const bool is_last = comm.rank() == ranks - 1;
    Statistics mine{{"fc", bins(is_last ? 32 : 64)}};
    const std::string rank = fmt::format(" on rank {}", ranks - 1);
    const auto check_refused = [&](std::int64_t batches, const std::string& text) {
      CHECK_THROWS_WITH_AS(calibrate(
                               mine, batches, [](std::int64_t) {}, comm),
                           doctest::Contains(text.c_str()), ArgumentError);
    };
    check_refused(4, "distributed: calibrate: collectors: expected 'fc: HistogramObserver(bins=64");
    check_refused(4, rank);
    mine = {{"fc", bins(64)}};
    if (is_last) mine.emplace("more", bins(64));
    check_refused(4, "expected nothing more as on rank 0, got 'more: HistogramObserver(bins=64");
    mine = {{"fc", bins(64)}};
    check_refused(is_last ? 5 : 4, rank);
    CHECK_NOTHROW(calibrate(
        mine, 4, [](std::int64_t) {}, comm));
  });
}
