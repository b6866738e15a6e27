#include "quanta/fusion/distributed/data_parallel.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "distributed/run_ranks.h"
#include "distributed/training_nets.h"
#include "quanta/fusion/distributed/sync_batch_norm.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/loss.h"
#include "quanta/ops/reduce.h"
#include "support/compare.h"
#include "support/tensors.h"

using namespace quanta;
using distributed::Communicator;
using distributed::DataParallel;
using test::Batch;
using test::largest_difference;
using test::NormNet;
using test::part_of;
using test::run_ranks;
using test::SmallNet;
using test::whole_batch;

namespace {

Tensor loss_of(const SmallNet& net, const Batch& batch) {
  return cross_entropy(net(batch.input), batch.target);
}

std::vector<Tensor> gradients(const nn::Module& net) {
  std::vector<Tensor> result;
  for (const Tensor& parameter : net.parameters()) {
    result.push_back(parameter.grad().defined() ? parameter.grad().clone() : Tensor());
  }
  return result;
}

bool all_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined() || (a[i].defined() && !a[i].equal(b[i]))) return false;
  }
  return a.size() == b.size();
}

// Those of the whole batch on one rank.
std::vector<Tensor> expected_gradients(const SmallNet& net, const Batch& batch) {
  SmallNet copy = nn::deep_copy(net);
  copy.requires_grad_();
  copy.zero_grad();
  loss_of(copy, batch).backward();
  return gradients(copy);
}

}  // namespace

TEST_CASE("DataParallel: gradients are those of the whole batch however it is divided") {
  for (const std::int64_t examples : {12, 7, 2}) {  // with as many, fewer and no examples a rank
    run_ranks(test::uneven_ranks(), [&](const Communicator& comm) {
      SmallNet net(static_cast<std::uint64_t>(comm.rank()));  // each rank with other weights
      net.requires_grad_();
      DataParallel parallel(net, comm);
      const Batch batch = whole_batch(examples);
      const Batch mine = part_of(batch, comm.rank(), comm.size());
      const double loss = parallel.backward(loss_of(net, mine), mine.target.size(0));
      const SmallNet first(0);
      CHECK(std::abs(loss - loss_of(first, batch).item()) < 1e-6);
      const std::vector<Tensor> expected = expected_gradients(first, batch);
      const std::vector<Tensor> given = gradients(net);
      REQUIRE(given.size() == expected.size());
      for (std::size_t i = 0; i < given.size(); ++i) {
        REQUIRE(given[i].defined());
        CHECK(largest_difference(given[i], expected[i]) < 1e-6);
      }
      CHECK(parallel.steps() == 1);
      CHECK(parallel.unused_parameters().empty());
    });
  }
}

TEST_CASE("DataParallel: one rank has the bits of a plain backward") {
  if (test::processes() != 1) return;
  run_ranks(1, [&](const Communicator& comm) {
    SmallNet net(0);
    net.requires_grad_();
    DataParallel parallel(net, comm);
    const Batch batch = whole_batch(7);
    static_cast<void>(parallel.backward(loss_of(net, batch), 7));
    CHECK(all_equal(gradients(net), expected_gradients(net, batch)));
  });
}

TEST_CASE("DataParallel: sums are those of the parts in the ranks' order to the last bit") {
  run_ranks(test::even_ranks(), [](const Communicator& comm) {
    const std::int64_t examples = 3 * comm.size();
    const Batch batch = whole_batch(examples);
    // What all ranks do, one after the other in one thread.
    std::vector<Tensor> expected;
    for (int rank = 0; rank < comm.size(); ++rank) {
      SmallNet net(0);
      net.requires_grad_();
      const float weight = static_cast<float>(3.0 / static_cast<double>(examples));
      loss_of(net, part_of(batch, rank, comm.size())).backward(Tensor::full({}, weight));
      const std::vector<Tensor> part = gradients(net);
      for (std::size_t i = 0; i < part.size(); ++i) {
        if (rank == 0) {
          expected.push_back(part[i]);
        } else {
          expected[i] = add(expected[i], part[i]);
        }
      }
    }
    for (const std::size_t bucket_bytes :
         {std::size_t{1}, std::size_t{600}, std::size_t{1} << 20}) {
      SmallNet net(0);
      net.requires_grad_();
      DataParallel parallel(net, comm, {.bucket_bytes = bucket_bytes});
      const Batch mine = part_of(batch, comm.rank(), comm.size());
      static_cast<void>(parallel.backward(loss_of(net, mine), 3));
      CHECK(all_equal(gradients(net), expected));
      // Buckets of the last layers go while the first ones are still being worked on.
      if (bucket_bytes == 1) {
        CHECK(parallel.buckets() == net.parameters().size());
        CHECK(parallel.overlapped_buckets() == parallel.buckets());
      }
    }
  });
}

TEST_CASE("DataParallel: gradients are added to those that are there") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    SmallNet net(0);
    net.requires_grad_();
    DataParallel parallel(net, comm);
    const Batch mine = part_of(whole_batch(9), comm.rank(), comm.size());
    static_cast<void>(parallel.backward(loss_of(net, mine), mine.target.size(0)));
    const std::vector<Tensor> once = gradients(net);
    static_cast<void>(parallel.backward(loss_of(net, mine), mine.target.size(0)));
    const std::vector<Tensor> twice = gradients(net);
    for (std::size_t i = 0; i < once.size(); ++i) {
      CHECK(twice[i].equal(add(once[i], once[i])));
    }
  });
}

TEST_CASE("DataParallel: batches under no_sync count as one large batch") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    SmallNet net(0);
    net.requires_grad_();
    DataParallel parallel(net, comm);
    const Batch batch = whole_batch(11);
    const Batch first = part_of({batch.input.narrow(0, 0, 8), batch.target.narrow(0, 0, 8)},
                                comm.rank(), comm.size());
    const Batch second = part_of({batch.input.narrow(0, 8, 3), batch.target.narrow(0, 8, 3)},
                                 comm.rank(), comm.size());
    const auto sent = [&] { return comm.traffic().messages_sent; };
    comm.barrier("before");
    {
      const auto before = sent();
      const DataParallel::NoSync guard = parallel.no_sync();
      static_cast<void>(parallel.backward(loss_of(net, first), first.target.size(0)));
      CHECK(sent() == before);
      CHECK_FALSE(net.parameters().front().grad().defined());
    }
    comm.barrier("after");
    const double loss = parallel.backward(loss_of(net, second), second.target.size(0));
    const std::vector<Tensor> expected = expected_gradients(net, batch);
    const std::vector<Tensor> given = gradients(net);
    for (std::size_t i = 0; i < given.size(); ++i) {
      CHECK(largest_difference(given[i], expected[i]) < 1e-6);
    }
    CHECK(std::abs(loss - loss_of(net, batch).item()) < 1e-6);
    // Nothing of it is left.
    net.zero_grad();
    const Batch mine = part_of(batch, comm.rank(), comm.size());
    static_cast<void>(parallel.backward(loss_of(net, mine), mine.target.size(0)));
    for (std::size_t i = 0; i < given.size(); ++i) {
      CHECK(largest_difference(gradients(net)[i], expected[i]) < 1e-6);
    }
  });
}

namespace {

// Calls what it is told to.
struct Branches : nn::Module {
  nn::Child<nn::Linear> a, b, c;
  Branches() {
    register_module("a", a, {.in_features = 3, .out_features = 1});
    register_module("b", b, {.in_features = 3, .out_features = 1});
    register_module("c", c, {.in_features = 3, .out_features = 1});
  }
  Tensor forward(const Tensor& x) const override { return a(x); }
};

}  // namespace

TEST_CASE("DataParallel: parameters that some ranks do not use count as zero there") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    Branches net;
    net.requires_grad_();
    DataParallel parallel(net, comm, {.bucket_bytes = 1});
    const Tensor x = Tensor::full({2, 3}, 1.0);
    // b on the last rank, c on none.
    const bool is_last = comm.rank() == comm.size() - 1;
    const Tensor y = is_last ? add(net.a(x), net.b(x)) : net.a(x);
    static_cast<void>(parallel.backward(mean(y), 2));
    CHECK(parallel.unused_parameters() == std::vector<std::string>{"c.weight", "c.bias"});
    CHECK_FALSE(net.c->weight.grad().defined());
    CHECK(largest_difference(net.a->weight.grad(), Tensor::ones({1, 3})) < 1e-6);
    CHECK(largest_difference(net.b->weight.grad(), Tensor::full({1, 3}, 1.0 / comm.size())) < 1e-6);
    CHECK(parallel.overlapped_buckets() == (comm.size() == 1 ? 4 : 0));
    // A rank without a batch of its own.
    net.zero_grad();
    const bool has_none = comm.rank() == 0;
    static_cast<void>(parallel.backward(has_none ? Tensor() : mean(net.a(x)), has_none ? 0 : 2));
    CHECK(largest_difference(net.a->weight.grad(), Tensor::ones({1, 3})) < 1e-6);
  });
}

TEST_CASE("DataParallel: numbers that are none are refused by name") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    SmallNet net(0);
    net.requires_grad_();
    DataParallel parallel(net, comm);
    const Batch mine = part_of(whole_batch(8), comm.rank(), comm.size());
    const std::int64_t examples = mine.target.size(0);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const bool is_last = comm.rank() == comm.size() - 1;
    // The loss of one rank: all of them hear of it.
    const Tensor broken = mul_scalar(loss_of(net, mine), is_last ? static_cast<double>(nan) : 1.0);
    CHECK_THROWS_WITH_AS(
        parallel.backward(broken, examples),
        fmt::format("DataParallel: loss: expected a finite number, got NaN or infinity on rank {} "
                    "at step 1",
                    comm.size() - 1)
            .c_str(),
        NumericError);
    CHECK_FALSE(net.fc->weight.grad().defined());
    // A gradient: on every rank here, so that none waits for another.
    const std::uint64_t hook = net.fc->bias.register_hook(
        [&](const Tensor& gradient) { return Tensor::full(gradient.sizes(), nan); });
    CHECK_THROWS_WITH_AS(
        parallel.backward(loss_of(net, mine), examples),
        fmt::format(
            "DataParallel: gradient of fc.bias: expected finite numbers, got NaN or infinity "
            "on rank {} at step 1",
            comm.rank())
            .c_str(),
        NumericError);
    net.fc->bias.remove_hook(hook);
    CHECK_FALSE(net.fc->weight.grad().defined());
    comm.barrier("go on");
    static_cast<void>(parallel.backward(loss_of(net, mine), examples));
    CHECK(net.fc->weight.grad().defined());
  });
}

TEST_CASE(
    "DataParallel: a loss under no_sync that is none is refused by all ranks when they send") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    SmallNet net(0);
    net.requires_grad_();
    DataParallel parallel(net, comm);
    const Batch mine = part_of(whole_batch(8), comm.rank(), comm.size());
    const std::int64_t examples = mine.target.size(0);
    const bool is_last = comm.rank() == comm.size() - 1;
    {
      const DataParallel::NoSync guard = parallel.no_sync();
      const double factor = is_last ? std::numeric_limits<double>::infinity() : 1.0;
      const double mean = parallel.backward(mul_scalar(loss_of(net, mine), factor), examples);
      CHECK(std::isfinite(mean) == !is_last);
    }
    CHECK_THROWS_WITH_AS(
        parallel.backward(loss_of(net, mine), examples),
        fmt::format("DataParallel: loss: expected a finite number, got NaN or infinity on rank {} "
                    "at step 1",
                    comm.size() - 1)
            .c_str(),
        NumericError);
    CHECK_FALSE(net.fc->weight.grad().defined());
    // A gradient.
    const std::uint64_t hook = net.fc->bias.register_hook([&](const Tensor& gradient) {
      return is_last ? Tensor::full(gradient.sizes(), std::numeric_limits<float>::quiet_NaN())
                     : gradient;
    });
    {
      const DataParallel::NoSync guard = parallel.no_sync();
      CHECK_NOTHROW(parallel.backward(loss_of(net, mine), examples));
    }
    net.fc->bias.remove_hook(hook);
    CHECK_THROWS_WITH_AS(
        parallel.backward(loss_of(net, mine), examples),
        fmt::format("DataParallel: gradient of {}: expected finite numbers, got NaN or infinity on "
                    "rank {} at step 1",
                    is_last ? "fc.bias" : "a parameter", comm.size() - 1)
            .c_str(),
        NumericError);
    // What was gathered is dropped.
    CHECK(std::isfinite(parallel.backward(loss_of(net, mine), examples)));
  });
}

TEST_CASE("DataParallel: models that differ are refused on all ranks") {
  run_ranks(test::even_ranks(), [](const Communicator& comm) {
    if (comm.size() == 1) return;
    const bool is_last = comm.rank() == comm.size() - 1;
    nn::Sequential net(
        nn::Linear(nn::LinearOptions{.in_features = 3, .out_features = is_last ? 5 : 4}));
    net.requires_grad_();
    CHECK_THROWS_WITH_AS(DataParallel(net, comm),
                         doctest::Contains("expected '0.weight Float32 [4, 3]"), ArgumentError);
    SmallNet same(0);
    same.requires_grad_();
    if (is_last) same.fc->bias.set_requires_grad(false);
    CHECK_THROWS_WITH_AS(
        DataParallel(same, comm),
        doctest::Contains(
            "parameters that require a gradient: expected 'fc.bias' as on rank 0, got "
            "nothing more on rank"),
        ArgumentError);
    SmallNet net2(0);
    net2.requires_grad_();
    CHECK_THROWS_AS(DataParallel(net2, comm, {.bucket_bytes = 0}), ArgumentError);
    DataParallel parallel(net2, comm);
    CHECK_THROWS_AS(parallel.backward(Tensor::ones({2}), 1), ArgumentError);
    CHECK_THROWS_AS(parallel.backward(Tensor(), 1), ArgumentError);
    CHECK_THROWS_AS(parallel.backward(mean(net2(whole_batch(1).input)), -1), ArgumentError);
    CHECK_THROWS_WITH_AS(parallel.backward(Tensor(), 0), doctest::Contains("got none on"),
                         ArgumentError);
  });
}

TEST_CASE("DataParallel: a model on a device trains through the host's memory") {
  run_ranks(test::even_ranks(), [](const Communicator& comm) {
    // Tensors there are of the emulated device, whose kernels run here.
    const Device device = Device::cuda_emulated();
    NormNet host(1);
    NormNet net(1);
    net.to(device);
    for (NormNet* each : {&host, &net}) {
      each->train();
      each->requires_grad_();
      distributed::convert_sync_batch_norm(*each, comm);
    }
    DataParallel host_parallel(host, comm);
    DataParallel parallel(net, comm);
    for (std::int64_t step = 0; step < 2; ++step) {
      const Batch mine = part_of(whole_batch(5), comm.rank(), comm.size());
      const double expected =
          host_parallel.backward(cross_entropy(host(mine.input), mine.target), mine.target.size(0));
      const double given = parallel.backward(
          cross_entropy(net(mine.input.to(device)), mine.target.to(device)), mine.target.size(0));
      CHECK(given == doctest::Approx(expected).epsilon(1e-6));
    }
    const auto expected = host.named_parameters();
    const auto given = net.named_parameters();
    for (std::size_t i = 0; i < given.size(); ++i) {
      CAPTURE(given[i].path);
      CHECK(given[i].tensor.grad().device() == device);
      CHECK(largest_difference(given[i].tensor.grad().cpu(), expected[i].tensor.grad()) < 1e-5);
    }
    CHECK(largest_difference(net.bn1->running_var.cpu(), host.bn1->running_var) < 1e-6);
  });
}
