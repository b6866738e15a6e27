// A training of 100 steps, whose losses rank 0 prints with all their bits, for loss_curve_test.py.
//
//   quanta_distributed_loss_curve RANKS qat|float

#define DOCTEST_CONFIG_IMPLEMENT  // what the networks are made with refers to it
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "distributed/training_nets.h"
#include "quanta/fusion/distributed/communicator.h"
#include "quanta/fusion/distributed/data_parallel.h"
#include "quanta/fusion/distributed/sync_batch_norm.h"
#include "quanta/fusion/distributed/training.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/loss.h"

namespace {

using namespace quanta;

constexpr std::int64_t kSteps = 100;
constexpr std::int64_t kExamples = 11;  // of all ranks together, whose parts differ in size

void train(const distributed::Communicator& comm, bool in_float) {
  test::NormNet net(1);
  net.train();
  if (!in_float) {
    fuse_modules_qat(net, {{"conv1", "bn1", "relu1"}, {"conv2", "bn2"}});
    prepare_qat_(net, get_default_qat_qconfig());
  }
  net.requires_grad_();
  distributed::convert_sync_batch_norm(net, comm);
  distributed::DataParallel parallel(net, comm);
  optim::SGD optimizer(net.parameters(), {.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4});
  optim::OneCycleLR schedule(optimizer, {.max_lr = 0.01, .total_steps = kSteps});
  distributed::TrainingLoop loop(
      {.model = parallel, .optimizer = optimizer, .scheduler = &schedule}, {.max_grad_norm = 2.0});
  for (std::int64_t step = 0; step < kSteps; ++step) {
    // Ten batches, ten times.
    const test::Batch mine =
        test::part_of(test::whole_batch(kExamples, static_cast<std::uint64_t>(step % 10)),
                      comm.rank(), comm.size());
    const auto loss =
        loop.step(mine.target.size(0), [&] { return cross_entropy(net(mine.input), mine.target); });
    if (comm.is_first()) fmt::print("{:a}\n", loss.value());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc == 3 ? argv[2] : "";
  if (way != "qat" && way != "float") {
    std::fputs("usage: quanta_distributed_loss_curve RANKS qat|float\n", stderr);
    return 2;
  }
  return distributed::run(
      [&](const distributed::Communicator& comm) {
        train(comm, way == "float");
        return 0;
      },
      {.ranks = std::atoi(argv[1]), .threads = 1});
}
