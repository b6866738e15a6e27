#include "quanta/fusion/distributed/sync_batch_norm.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "distributed/run_ranks.h"
#include "distributed/training_nets.h"
#include "quanta/fusion/distributed/data_parallel.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/container.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/loss.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/reduce.h"
#include "support/tensors.h"

using namespace quanta;
using distributed::Communicator;
using distributed::convert_sync_batch_norm;
using test::Batch;
using test::largest_difference;
using test::NormNet;
using test::part_of;
using test::run_ranks;
using test::whole_batch;

namespace {

std::pair<std::int64_t, std::int64_t> range_of(std::int64_t count, const Communicator& comm) {
  const std::int64_t begin = count * comm.rank() / comm.size();
  return {begin, count * (comm.rank() + 1) / comm.size() - begin};
}

Tensor wide(const Tensor& x) { return x.to(DType::Float64); }

// Of a batch norm, all leaves.
struct Inputs {
  Tensor x;
  Tensor mean = wide(Tensor::zeros({3}));
  Tensor var = wide(Tensor::ones({3}));
  Tensor weight = wide(test::random_tensor({3}, 3));
  Tensor bias = wide(test::random_tensor({3}, 4));
  Tensor divisor = wide(Tensor::from_values({0.5F, 2.0F, -1.5F}, {3}));
  Tensor shift = wide(test::random_tensor({3}, 5));

  explicit Inputs(const Tensor& values) : x(values.clone(MemoryFormat::Preserve)) {
    for (const Tensor* leaf : {&x, &weight, &bias, &divisor, &shift}) leaf->set_requires_grad();
  }
  BatchNormTrainOptions options() const { return {.divisor = divisor, .shift = shift}; }
};

}  // namespace

TEST_CASE("batch_norm_train of parts: values and gradients are those of the whole batch") {
  // In double, so that nothing but the formula is compared.
  for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
    for (const std::int64_t batch : {9, 2}) {
      run_ranks(test::uneven_ranks(), [&](const Communicator& comm) {
        const Dims sizes{batch, 3, 4, 5};
        const Tensor values = wide(test::random_tensor(sizes, 1)).contiguous(format);
        const Tensor slope = wide(test::random_tensor(sizes, 2));
        const Inputs whole(values);
        const Tensor y = batch_norm_train(whole.x, whole.mean, whole.var, whole.weight, whole.bias,
                                          whole.options());
        sum(mul(y, slope)).backward();

        const auto [begin, length] = range_of(batch, comm);
        const Inputs part(values.narrow(0, begin, length));
        const Tensor mine =
            batch_norm_train(part.x, part.mean, part.var, part.weight, part.bias, part.options(),
                             [&](std::span<double> numbers) { comm.sum(numbers, "batch norm"); });
        sum(mul(mine, slope.narrow(0, begin, length))).backward();

        constexpr double kClose = 1e-6;  // as largest_difference rounds to float
        CHECK(largest_difference(mine, y.narrow(0, begin, length)) < kClose);
        CHECK(largest_difference(part.x.grad(), whole.x.grad().narrow(0, begin, length)) < kClose);
        CHECK(largest_difference(part.mean, whole.mean) < kClose);
        CHECK(largest_difference(part.var, whole.var) < kClose);
        for (const auto& [of_part, of_whole] :
             {std::pair(&part.weight, &whole.weight), std::pair(&part.bias, &whole.bias),
              std::pair(&part.divisor, &whole.divisor), std::pair(&part.shift, &whole.shift)}) {
          const Tensor total = of_part->grad().clone();
          comm.sum(total, "gradients");
          CHECK(largest_difference(total, of_whole->grad()) < 1e-5);
        }
      });
    }
  }
}

TEST_CASE("SyncBatchNorm: a network trains as on the whole batch") {
  run_ranks(test::uneven_ranks(), [](const Communicator& comm) {
    for (const bool quantized : {false, true}) {
      for (const std::int64_t examples : {9, 2}) {
        NormNet plain(1);
        plain.train();
        fuse_modules_qat(plain, {{"conv1", "bn1", "relu1"}, {"conv2", "bn2"}});
        if (quantized) {
          prepare_qat_(plain, get_default_qat_qconfig());
          // A network whose codes jump at the last bit cannot be compared.
          disable_fake_quant(plain);
        }
        plain.requires_grad_();
        NormNet net = nn::deep_copy(plain);
        net.requires_grad_();
        CHECK(convert_sync_batch_norm(net, comm) == 2);
        distributed::DataParallel parallel(net, comm);

        const Batch batch = whole_batch(examples);
        const Batch mine = part_of(batch, comm.rank(), comm.size());
        plain.zero_grad();
        const Tensor loss = cross_entropy(plain(batch.input), batch.target);
        loss.backward();
        const double mean =
            parallel.backward(cross_entropy(net(mine.input), mine.target), mine.target.size(0));
        CHECK(mean == doctest::Approx(loss.item()).epsilon(1e-6));
        const auto expected = plain.named_parameters();
        const auto given = net.named_parameters();
        REQUIRE(expected.size() == given.size());
        for (std::size_t i = 0; i < given.size(); ++i) {
          CAPTURE(given[i].path);
          REQUIRE(given[i].path == expected[i].path);
          CHECK(largest_difference(given[i].tensor.grad(), expected[i].tensor.grad()) < 2e-5);
        }
        for (std::size_t i = 0; i < net.named_buffers().size(); ++i) {
          CHECK(largest_difference(net.named_buffers()[i].tensor, plain.named_buffers()[i].tensor) <
                1e-6);
        }
        // Of the plain one in eval mode, and back again.
        net.eval();
        plain.eval();
        CHECK(largest_difference(net(batch.input), plain(batch.input)) < 1e-4);
        CHECK(distributed::revert_sync_batch_norm(net) == 2);
        CHECK(net.state_dict().size() == plain.state_dict().size());
      }
    }
  });
}

TEST_CASE("convert_sync_batch_norm: tensors, mode and hooks stay") {
  run_ranks(test::even_ranks(), [](const Communicator& comm) {
    nn::Sequential net(nn::BatchNorm1d(3), nn::BatchNorm2d(3), nn::BatchNorm3d(3));
    net.eval();
    const auto before = net.state_dict();
    const auto modules = net.named_children();
    int calls = 0;
    modules[1].module->register_forward_hook(
        [&](const nn::Module&, const Tensor&, const Tensor& y) {
          ++calls;
          return y;
        });
    CHECK(convert_sync_batch_norm(net, comm) == 3);
    CHECK(convert_sync_batch_norm(net, comm) == 0);
    const auto after = net.named_children();
    CHECK(after[0].module->type_name() == "SyncBatchNorm");
    CHECK_FALSE(after[2].module->is_training());
    static_cast<void>((*after[1].module)(test::random_tensor({2, 3, 2, 2}, 1)));
    CHECK(calls == 1);
    for (const auto& [name, tensor] : before) CHECK(net.state_dict().at(name).is_same(tensor));
    nn::BatchNorm2d alone(3);
    CHECK_THROWS_AS(convert_sync_batch_norm(alone, comm), ArgumentError);
    CHECK(distributed::revert_sync_batch_norm(net) == 3);
    CHECK(net.named_children()[2].module->type_name() == modules[2].module->type_name());
  });
}

TEST_CASE("SyncBatchNorm: without running statistics ranks are on their own in eval mode") {
  test::run_ranks(test::uneven_ranks(), [](const distributed::Communicator& comm) {
    nn::Sequential net(nn::BatchNorm2d({.num_features = 3, .track_running_stats = false}));
    net.eval();
    const Tensor x = test::random_tensor({4, 3, 5, 5}, static_cast<std::uint64_t>(comm.rank()) + 1);
    const Tensor expected = net(x);
    CHECK(distributed::convert_sync_batch_norm(net, comm) == 1);
    net.eval();
    // As many calls as the rank has batches: nothing is sent.
    for (int i = 0; i <= comm.rank(); ++i) CHECK(net(x).equal(expected));
    comm.barrier("end");
  });
}
