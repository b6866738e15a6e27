#include "quanta/fusion/distributed/zero_redundancy_optimizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "distributed/run_ranks.h"
#include "distributed/training_nets.h"
#include "quanta/fusion/distributed/data_parallel.h"
#include "quanta/ops/loss.h"
#include "support/tensors.h"

using namespace quanta;
using distributed::Communicator;
using distributed::DataParallel;
using distributed::ZeroRedundancyOptimizer;
using test::Batch;
using test::part_of;
using test::run_ranks;
using test::SmallNet;
using test::whole_batch;

namespace {

using Make = std::function<std::unique_ptr<optim::Optimizer>(const nn::Module&)>;

std::vector<Make> kinds() {
  return {
      [](const nn::Module& net) -> std::unique_ptr<optim::Optimizer> {
        return std::make_unique<optim::SGD>(
            net.parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3});
      },
      [](const nn::Module& net) -> std::unique_ptr<optim::Optimizer> {
        return std::make_unique<optim::AdamW>(net.parameters(), optim::AdamOptions{.lr = 0.01});
      },
  };
}

bool same_state(const StateDict& a, const StateDict& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const auto& entry) {
           return b.contains(entry.first) && b.at(entry.first).equal(entry.second);
         });
}

}  // namespace

TEST_CASE("ZeroRedundancyOptimizer: parameters and state are those of the plain optimizer") {
  for (const Make& make : kinds()) {
    run_ranks(test::uneven_ranks(), [&](const Communicator& comm) {
      SmallNet plain(0);
      SmallNet net(0);
      for (SmallNet* each : {&plain, &net}) {
        each->requires_grad_();
        each->conv->weight =
            test::leaf(each->conv->weight.detach().contiguous(MemoryFormat::ChannelsLast));
      }
      DataParallel plain_parallel(plain, comm);
      DataParallel parallel(net, comm);
      const auto plain_optimizer = make(plain);
      const auto inner = make(net);
      ZeroRedundancyOptimizer optimizer(*inner, comm);
      for (std::uint64_t step = 0; step < 4; ++step) {
        const Batch mine = part_of(whole_batch(9, step), comm.rank(), comm.size());
        const std::int64_t examples = mine.target.size(0);
        plain_optimizer->zero_grad();
        optimizer.zero_grad();
        plain_optimizer->set_lr(0, 0.1 / static_cast<double>(step + 1));
        inner->set_lr(0, 0.1 / static_cast<double>(step + 1));
        static_cast<void>(
            plain_parallel.backward(cross_entropy(plain(mine.input), mine.target), examples));
        static_cast<void>(parallel.backward(cross_entropy(net(mine.input), mine.target), examples));
        plain_optimizer->step();
        optimizer.step();
        // Gradients stay where they are.
        CHECK(net.fc->weight.grad().equal(plain.fc->weight.grad()));
      }
      const StateDict expected = plain.state_dict();
      for (const auto& [name, tensor] : net.state_dict()) CHECK(tensor.equal(expected.at(name)));
      CHECK(inner->steps() == 4);
      const StateDict state = optimizer.state_dict();
      if (comm.is_first()) {
        CHECK(same_state(state, plain_optimizer->state_dict()));
      } else {
        CHECK(state.size() == 0);
      }
      // A share of it each, and all of it together.
      std::vector<std::int64_t> bytes{static_cast<std::int64_t>(optimizer.state_bytes())};
      comm.sum(std::span(bytes), "bytes");
      std::size_t whole = 0;
      for (const auto& [name, tensor] : plain_optimizer->state_dict()) {
        if (name.find("buffer") != std::string::npos || name.find("exp") != std::string::npos ||
            name.ends_with(".step")) {
          whole += tensor.nbytes();
        }
      }
      CHECK(bytes[0] == static_cast<std::int64_t>(whole));
      if (comm.size() > 1) CHECK(optimizer.state_bytes() < whole);
    });
  }
}

TEST_CASE("ZeroRedundancyOptimizer: a whole state loads on any number of ranks") {
  const Make make = kinds()[1];
  for (const int ranks : {test::even_ranks(), test::uneven_ranks()}) {
    run_ranks(ranks, [&](const Communicator& comm) {
      // The plain optimizer, which every rank has to compare with.
      SmallNet plain(0);
      plain.requires_grad_();
      const auto plain_optimizer = make(plain);
      const auto train = [](SmallNet& net, optim::Optimizer& optimizer, const auto& step,
                            std::uint64_t seed) {
        const Batch batch = whole_batch(9, seed);
        optimizer.zero_grad();
        cross_entropy(net(batch.input), batch.target).backward();
        step();
      };
      for (std::uint64_t i = 0; i < 3; ++i) {
        train(
            plain, *plain_optimizer, [&] { plain_optimizer->step(); }, i);
      }
      SmallNet net(0);
      net.load_state_dict(plain.state_dict());
      net.requires_grad_();
      const auto inner = make(net);
      ZeroRedundancyOptimizer optimizer(*inner, comm);
      optimizer.load_state_dict(plain_optimizer->state_dict());
      for (std::uint64_t i = 3; i < 6; ++i) {
        train(
            plain, *plain_optimizer, [&] { plain_optimizer->step(); }, i);
        train(
            net, *inner, [&] { optimizer.step(); }, i);
      }
      const StateDict expected = plain.state_dict();
      for (const auto& [name, tensor] : net.state_dict()) CHECK(tensor.equal(expected.at(name)));
      // Each parameter has an owner, and each rank work if there is enough.
      for (const int owner : optimizer.owners()) CHECK((owner >= 0 && owner < comm.size()));
      const auto busy = static_cast<std::size_t>(comm.size());
      std::vector<int> owners = optimizer.owners();
      std::sort(owners.begin(), owners.end());
      owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
      CHECK(owners.size() == std::min(busy, net.parameters().size()));
      // What does not fit is refused on all ranks, and changes nothing.
      StateDict wrong = plain_optimizer->state_dict();
      wrong.set("0.exp_avg", Tensor::zeros({1}));
      CHECK_THROWS_AS(optimizer.load_state_dict(wrong), ArgumentError);
      CHECK(inner->steps() == 6);
    });
  }
}

TEST_CASE("ZeroRedundancyOptimizer: parameters that differ are refused") {
  run_ranks(test::even_ranks(), [](const Communicator& comm) {
    if (comm.size() == 1) return;
    const Tensor parameter = test::leaf(Tensor::ones({comm.rank() == 0 ? 2 : 3}));
    optim::SGD sgd({parameter});
    CHECK_THROWS_WITH_AS(ZeroRedundancyOptimizer(sgd, comm),
                         doctest::Contains("parameters: expected 'Float32 [2]"), ArgumentError);
  });
}
