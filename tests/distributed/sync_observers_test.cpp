#include "quanta/fusion/distributed/sync_observers.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "distributed/run_ranks.h"
#include "distributed/training_nets.h"
#include "quanta/fusion/distributed/calibrate.h"
#include "quanta/fusion/distributed/data_parallel.h"
#include "quanta/fusion/distributed/evaluate.h"
#include "quanta/fusion/distributed/metric.h"
#include "quanta/fusion/distributed/sync_batch_norm.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/container.h"
#include "quanta/nn/data/dataset.h"
#include "quanta/nn/misc.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/fused_fake_quantize.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/observers/lsq_qconfig.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/loss.h"
#include "support/capture_binding.h"
#include "support/tensors.h"

using namespace quanta;
using distributed::Communicator;
using distributed::sync_observers;
using test::Batch;
using test::largest_difference;
using test::NormNet;
using test::part_of;
using test::run_ranks;
using test::whole_batch;

namespace {

NormNet prepared(const QConfig& qconfig) {
  NormNet net(1);
  net.train();
  fuse_modules_qat(net, {{"conv1", "bn1", "relu1"}, {"conv2", "bn2"}});
  return prepare_qat(net, qconfig);
}

StateDict observers_of(const nn::Module& net) {
  StateDict result;
  for (const auto& [name, tensor] : net.state_dict()) {
    if (name.find("activation_post_process") != std::string::npos) result.set(name, tensor);
  }
  return result;
}

// The observer alone, on parts of batches and on whole ones.
void check_observer(const ObserverFactory& factory) {
  run_ranks(test::uneven_ranks(), [&](const Communicator& comm) {
    nn::Sequential net{nn::Identity()};
    net.named_children()[0].module->set_activation_post_process(factory());
    nn::Sequential whole{nn::Identity()};
    whole.named_children()[0].module->set_activation_post_process(factory());
    sync_observers(net, comm);
    for (const std::int64_t examples : {8, 1, 3}) {  // with empty parts
      const Tensor x = test::random_tensor({examples, 3, 4}, static_cast<std::uint64_t>(examples));
      const std::int64_t begin = examples * comm.rank() / comm.size();
      const std::int64_t length = examples * (comm.rank() + 1) / comm.size() - begin;
      const Tensor y = whole(x);
      CHECK(net(x.narrow(0, begin, length)).equal(y.narrow(0, begin, length)));
    }
    const StateDict expected = whole.state_dict();
    REQUIRE(expected.size() == net.state_dict().size());
    for (const auto& [name, tensor] : net.state_dict()) {
      CAPTURE_BINDING(name);
      CHECK(tensor.equal(expected.at(name)));
    }
    // Nothing anywhere.
    CHECK_NOTHROW(net(Tensor::empty({0, 3, 4})));
    // On its own again, as copies are.
    const nn::Sequential copy = nn::deep_copy(net);
    const Tensor large = Tensor::full({1, 3, 4}, 100.0 * (comm.rank() + 1));
    static_cast<void>(copy(large));
    distributed::unsync_observers(net);
    static_cast<void>(net(large));
    CHECK(copy.state_dict()
              .at("0.activation_post_process" +
                  std::string(expected.contains("0.activation_post_process.scale")
                                  ? ".activation_post_process.max_val"
                                  : ".max_val"))
              .equal(net.state_dict().at(
                  "0.activation_post_process" +
                  std::string(expected.contains("0.activation_post_process.scale")
                                  ? ".activation_post_process.max_val"
                                  : ".max_val"))));
  });
}

}  // namespace

TEST_CASE("sync_observers: ranges and moving averages are those of whole batches") {
  const auto symmetric = QScheme::PerChannelSymmetric;
  check_observer(MinMaxObserver::with_args());
  check_observer(MovingAverageMinMaxObserver::with_args({.averaging_constant = 0.25}));
  check_observer(PerChannelMinMaxObserver::with_args(
      {.ch_axis = 1, .dtype = DType::QInt8, .qscheme = symmetric}));
  check_observer(MovingAveragePerChannelMinMaxObserver::with_args(
      {.ch_axis = 1, .dtype = DType::QInt8, .qscheme = symmetric}));
  check_observer(FakeQuantize::with_args(MovingAverageMinMaxObserver::with_args()));
  check_observer(
      FusedMovingAvgObsFakeQuantize::with_args(MovingAverageMinMaxObserver::with_args()));
  check_observer(LearnableFakeQuantize::with_args());
}

TEST_CASE("sync_observers: fake quantizers of a training are the same on all ranks") {
  for (const QConfig& qconfig : {get_default_qat_qconfig(), lsq_qconfig()}) {
    run_ranks(test::even_ranks(), [&](const Communicator& comm) {
      NormNet net = prepared(qconfig);
      net.requires_grad_();
      distributed::convert_sync_batch_norm(net, comm);
      const bool is_lsq = !net.conv2->named_observers().empty() &&
                          dynamic_cast<LearnableFakeQuantize*>(
                              net.quant->activation_post_process().get()) != nullptr;
      if (is_lsq) {
        static_cast<void>(net(whole_batch(8).input));
        enable_param_learning(net);
      }
      distributed::DataParallel parallel(net, comm);
      NormNet whole = nn::deep_copy(net);
      distributed::revert_sync_batch_norm(whole);
      for (std::uint64_t step = 0; step < 3; ++step) {
        const Batch batch = whole_batch(6, step);
        const Batch mine = part_of(batch, comm.rank(), comm.size());
        static_cast<void>(whole(batch.input));
        static_cast<void>(
            parallel.backward(cross_entropy(net(mine.input), mine.target), mine.target.size(0)));
      }
      for (const auto& [name, tensor] : observers_of(net)) {
        CAPTURE_BINDING(name);
        Tensor first = tensor.contiguous().clone();
        comm.broadcast(first, 0, "first");
        CHECK(first.equal(tensor));
        CHECK(largest_difference(tensor.to(DType::Float32),
                                 observers_of(whole).at(name).to(DType::Float32)) < 1e-4);
      }
      if (is_lsq) {
        CHECK(net.state_dict().contains("quant.activation_post_process.scale"));
        bool any = false;
        for (const auto& [path, parameter] : net.named_parameters()) {
          any = any || path.find("activation_post_process.scale") != std::string::npos;
        }
        CHECK(any);
      }
    });
  }
}

TEST_CASE("sync_observers: what would go different ways is refused by its place") {
  run_ranks(test::even_ranks(), [](const Communicator& comm) {
    const QConfig histograms{FakeQuantize::with_args(HistogramObserver::with_args()),
                             get_default_qat_qconfig().weight};
    NormNet net = prepared(histograms);
    net.requires_grad_();
    CHECK_THROWS_WITH_AS(
        sync_observers(net, comm),
        doctest::Contains("distributed: sync_observers: quant.activation_post_process: expected an "
                          "observer of the range"),
        UnsupportedError);
    CHECK_THROWS_WITH_AS(distributed::DataParallel(net, comm),
                         doctest::Contains("got HistogramObserver"), UnsupportedError);
    CHECK_NOTHROW(distributed::DataParallel(net, comm, {.sync_observers = false}));
    disable_observer(net);
    CHECK_NOTHROW(sync_observers(net, comm));
    // Begins with the mean of what a rank sees.
    nn::Sequential scaled{nn::Identity()};
    scaled.named_children()[0].module->set_activation_post_process(LearnableFakeQuantize::with_args(
        {.observer = MinMaxObserver::with_args(
             {.dtype = DType::QInt8, .qscheme = QScheme::PerTensorSymmetric}),
         .mean_magnitude_start = true})());
    CHECK_THROWS_WITH_AS(sync_observers(scaled, comm),
                         doctest::Contains("0.activation_post_process: expected an observer"),
                         UnsupportedError);
    static_cast<void>(scaled(Tensor::ones({2, 2})));
    enable_param_learning(scaled);
    CHECK_NOTHROW(sync_observers(scaled, comm));
  });
}

TEST_CASE(
    "sync_observers: a model whose observers wait for all ranks is neither evaluated nor "
    "calibrated") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    nn::Sequential net{nn::Identity()};
    net.named_children()[0].module->set_activation_post_process(
        FakeQuantize::with_args(MovingAverageMinMaxObserver::with_args())());
    net.eval();
    const auto images = std::make_shared<data::TensorDataset>(Tensor::ones({7, 4}),
                                                              Tensor::full({7}, 0, DType::Int64));
    const auto evaluate = [&] {
      return distributed::evaluate(net, images, distributed::accuracy(), comm, {.batch_size = 2});
    };
    const auto calibrate = [&] { distributed::calibrate(net, images, comm, {.batch_size = 2}); };
    const std::string path = "0.activation_post_process";
    CHECK(distributed::waiting_observers(net).empty());
    sync_observers(net, comm);
    CHECK(distributed::waiting_observers(net) == std::vector<std::string>{path});
    CHECK_THROWS_WITH_AS(evaluate(), doctest::Contains(path.c_str()), ArgumentError);
    disable_fake_quant(net);
    CHECK_THROWS_WITH_AS(calibrate(),
                         doctest::Contains((path + ": expected an observer on").c_str()),
                         ArgumentError);
    disable_observer(net);
    CHECK(distributed::waiting_observers(net).empty());
    CHECK(evaluate().examples() == 7);
    enable_observer(net);
    distributed::unsync_observers(net);
    CHECK(distributed::waiting_observers(net).empty());
    CHECK_NOTHROW(calibrate());
  });
}
