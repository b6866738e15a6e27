#include "quanta/fusion/distributed/training.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "distributed/run_ranks.h"
#include "distributed/training_nets.h"
#include "quanta/fusion/distributed/sync_batch_norm.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/optim/training.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/safetensors.h"
#include "support/tensors.h"

using namespace quanta;
using distributed::Communicator;
using distributed::DataParallel;
using distributed::TrainingLoop;
using distributed::ZeroRedundancyOptimizer;
using test::Batch;
using test::largest_difference;
using test::NormNet;
using test::part_of;
using test::run_ranks;
using test::whole_batch;

namespace {

std::filesystem::path file_of(const std::string& name) {
  return std::filesystem::temp_directory_path() /
         fmt::format("quanta_distributed_{}_{}.safetensors", name, test::processes());
}

enum class Sharded : bool { No, Yes };

// A rank's training: all that it needs, in one place.
struct Training {
  NormNet net{1};
  Generator generator{5};
  std::unique_ptr<DataParallel> parallel;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::LRScheduler> scheduler;
  std::unique_ptr<ZeroRedundancyOptimizer> zero;
  std::unique_ptr<TrainingLoop> loop;

  Training(const Communicator& comm, Sharded sharded, const TrainingLoop::Options& options) {
    net.train();
    fuse_modules_qat(net, {{"conv1", "bn1", "relu1"}, {"conv2", "bn2"}});
    prepare_qat_(net, get_default_qat_qconfig());
    net.requires_grad_();
    distributed::convert_sync_batch_norm(net, comm);
    parallel = std::make_unique<DataParallel>(net, comm);
    optimizer = std::make_unique<optim::AdamW>(net.parameters(), optim::AdamOptions{.lr = 0.01});
    scheduler = std::make_unique<optim::StepLR>(*optimizer, 2, 0.5);
    if (sharded == Sharded::Yes) {
      zero = std::make_unique<ZeroRedundancyOptimizer>(*optimizer, comm);
    }
    loop = std::make_unique<TrainingLoop>(distributed::TrainingParts{.model = *parallel,
                                                                     .optimizer = *optimizer,
                                                                     .scheduler = scheduler.get(),
                                                                     .zero = zero.get(),
                                                                     .generator = generator},
                                          options);
  }

  double step(std::int64_t number) {
    const Communicator& comm = parallel->communicator();
    const Batch mine =
        part_of(whole_batch(9, static_cast<std::uint64_t>(number)), comm.rank(), comm.size());
    return loop
        ->step(mine.target.size(0), [&] { return cross_entropy(net(mine.input), mine.target); })
        .value();
  }
};

bool same_state(const StateDict& a, const StateDict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    if (!b.contains(name) || !b.at(name).equal(tensor)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("distributed::TrainingLoop: a training that stops goes on to the last bit") {
  for (const Sharded sharded : {Sharded::No, Sharded::Yes}) {
    const auto path = file_of("resume");
    std::vector<double> losses(6);
    StateDict last;  // of rank 0, where it is in this process
    std::vector<std::byte> bytes;
    run_ranks(test::even_ranks(), [&](const Communicator& comm) {
      if (comm.is_first()) std::filesystem::remove(path);
      comm.barrier("removed");
      Training training(comm, sharded, {.checkpoint = path, .max_grad_norm = 1.0});
      CHECK_FALSE(training.loop->resume().has_value());
      for (std::int64_t i = 0; i < 6; ++i) {
        const double loss = training.step(i);
        if (comm.rank() == 0) losses[static_cast<std::size_t>(i)] = loss;
        if (i == 2) {
          // Random numbers that ranks have used up in different ways.
          for (int k = 0; k <= comm.rank(); ++k) training.generator.next();
          training.loop->save({{"epoch", 1}, {"loader.batch position", 3}});
        }
      }
      if (comm.is_first()) bytes = distributed::to_bytes(training.net.state_dict());
    });
    // The same number of ranks, and another one: the file does not know.
    for (const int ranks : {test::even_ranks(), test::uneven_ranks()}) {
      run_ranks(ranks, [&](const Communicator& comm) {
        Training training(comm, sharded, {.checkpoint = path, .max_grad_norm = 1.0});
        training.step(11);  // something else, which is forgotten
        const auto counters = training.loop->resume();
        REQUIRE(counters.has_value());
        CHECK(counters->size() == 2);
        CHECK(counters->at("epoch") == 1);
        CHECK(counters->at("loader.batch position") == 3);
        CHECK(training.optimizer->steps() == 3);
        CHECK(training.scheduler->last_step() == 3);
        Generator expected(5);
        expected.next();
        CHECK(training.generator.state() == expected.state());
        for (std::int64_t i = 3; i < 6; ++i) {
          const double loss = training.step(i);
          if (!comm.is_first()) continue;
          const double before = losses[static_cast<std::size_t>(i)];
          if (ranks == test::even_ranks()) {
            CHECK(loss == before);
          } else {
            CHECK(loss == doctest::Approx(before).epsilon(0.05));
          }
        }
        if (comm.is_first() && ranks == test::even_ranks()) {
          CHECK(same_state(training.net.state_dict(), distributed::from_bytes(bytes)));
        }
      });
    }
    std::filesystem::remove(path);
  }
}

TEST_CASE("distributed::save_checkpoint: the file is that of a training on one rank") {
  const auto path = file_of("plain");
  run_ranks(test::even_ranks(), [&](const Communicator& comm) {
    Training training(comm, Sharded::Yes, {.checkpoint = path});
    training.step(0);
    training.loop->save({{"epoch", 4}});
    comm.barrier("saved");
    // optim::load_checkpoint reads it, into a model with plain batch norms.
    NormNet net(3);
    fuse_modules_qat(net, {{"conv1", "bn1", "relu1"}, {"conv2", "bn2"}});
    prepare_qat_(net, get_default_qat_qconfig());
    net.requires_grad_();
    optim::AdamW optimizer(net.parameters());
    optim::StepLR scheduler(optimizer, 2, 0.5);
    Generator generator;
    const optim::Counters counters = optim::load_checkpoint(
        path,
        {.model = net, .optimizer = optimizer, .scheduler = &scheduler, .generator = generator});
    CHECK(counters.at("epoch") == 4);
    CHECK(same_state(net.state_dict(), training.net.state_dict()));
    CHECK(optimizer.state_dict().contains("0.exp_avg"));
    CHECK(optimizer.state_dict().size() > training.optimizer->state_dict().size() - 1);
    comm.barrier("read");
  });
  std::filesystem::remove(path);
}

TEST_CASE("distributed::TrainingLoop: a failed write and a damaged file are errors on all ranks") {
  const auto path = file_of("no_such_folder") / "a" / "checkpoint.safetensors";
  const auto damaged = file_of("damaged");
  run_ranks(test::uneven_ranks(), [&](const Communicator& comm) {
    Training training(comm, Sharded::Yes, {.checkpoint = path});
    training.step(0);
    CHECK_THROWS_AS(training.loop->save(), FileError);
    CHECK_FALSE(training.loop->resume().has_value());
    if (comm.is_first()) std::ofstream(damaged) << "no checkpoint";
    comm.barrier("written");
    const StateDict before = training.net.state_dict();
    CHECK_THROWS_WITH_AS(
        distributed::load_checkpoint(damaged, {.model = *training.parallel,
                                               .optimizer = *training.optimizer,
                                               .scheduler = training.scheduler.get(),
                                               .zero = training.zero.get(),
                                               .generator = training.generator}),
        doctest::Contains("damaged"), FileError);
    CHECK(same_state(before, training.net.state_dict()));
    CHECK(std::isfinite(training.step(1)));
    if (comm.is_first()) std::filesystem::remove(damaged);
  });
}

TEST_CASE("distributed::TrainingLoop: a checkpoint without a counter is an error on all ranks") {
  const auto path = file_of("counters");
  run_ranks(test::uneven_ranks(), [&](const Communicator& comm) {
    Training training(comm, Sharded::Yes, {.checkpoint = path});
    training.step(0);
    training.loop->save({{"epoch", 1}});
    training.step(1);
    const StateDict before = training.net.state_dict();
    CHECK_THROWS_WITH_AS(
        training.loop->resume({"epoch", "step"}),
        (fmt::format("load_checkpoint: {}: counter.step: expected a whole number, got nothing: the "
                     "checkpoint of another kind of training",
                     path.string())
             .c_str()),
        FileError);
    CHECK(same_state(before, training.net.state_dict()));
    CHECK(training.optimizer->steps() == 2);
    CHECK(training.loop->resume({"epoch"}).value().at("epoch") == 1);
    CHECK(training.optimizer->steps() == 1);
    comm.barrier("read");
  });
  std::filesystem::remove(path);
}

TEST_CASE("distributed::TrainingLoop: broken numbers name the last good checkpoint on all ranks") {
  const auto path = file_of("broken");
  run_ranks(test::uneven_ranks(), [&](const Communicator& comm) {
    Training training(comm, Sharded::No, {.checkpoint = path});
    training.step(0);
    training.loop->save();
    const Batch mine = part_of(whole_batch(8), comm.rank(), comm.size());
    const double factor = comm.is_first() ? std::numeric_limits<double>::infinity() : 1.0;
    CHECK_THROWS_WITH_AS(
        training.loop->step(mine.target.size(0),
                            [&] {
                              return mul_scalar(
                                  cross_entropy(training.net(mine.input), mine.target), factor);
                            }),
        doctest::Contains("on rank 0 at step 2; the last good checkpoint, of step 1, is "),
        NumericError);
    CHECK(training.optimizer->steps() == 1);
    training.net.fc->bias.detach().fill_(std::numeric_limits<double>::quiet_NaN());
    CHECK_THROWS_WITH_AS(training.loop->save(), doctest::Contains("fc.bias: expected finite"),
                         NumericError);
    CHECK(training.loop->resume().has_value());
    CHECK(std::isfinite(training.step(1)));
  });
  std::filesystem::remove(path);
}

TEST_CASE("distributed::TrainingLoop: accumulated losses make one step") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    Training training(comm, Sharded::No, {.accumulate = 2});
    const Batch batch = whole_batch(8);
    const Batch mine = part_of(batch, comm.rank(), comm.size());
    const auto loss = [&] { return cross_entropy(training.net(mine.input), mine.target); };
    CHECK_FALSE(training.loop->step(mine.target.size(0), loss).has_value());
    CHECK(training.optimizer->steps() == 0);
    CHECK(training.loop->step(mine.target.size(0), loss).has_value());
    CHECK(training.optimizer->steps() == 1);
    CHECK(training.parallel->steps() == 1);
    for (const TrainingLoop::Options& wrong :
         {TrainingLoop::Options{.max_grad_norm = -1.0}, TrainingLoop::Options{.accumulate = 0}}) {
      CHECK_THROWS_AS(
          TrainingLoop({.model = *training.parallel, .optimizer = *training.optimizer}, wrong),
          ArgumentError);
    }
  });
}
