// Optimizers and the clipping of gradients with parameters on a CUDA device.

#include "quanta/nn/optim/optimizer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "cuda/devices_support.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/optim/training.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/files.h"

namespace quanta {
namespace {

using optim::Adam;
using optim::AdamW;
using optim::Optimizer;
using optim::SGD;
using test::same_numbers;

const Device kDevice = test::test_device();

std::vector<Tensor> leaves(const std::vector<Tensor>& values, Device device) {
  std::vector<Tensor> result;
  for (const Tensor& value : values) {
    Tensor leaf = value.clone(MemoryFormat::Preserve).to(device);
    leaf.set_requires_grad();
    result.push_back(leaf);
  }
  return result;
}

// Sizes of one element, of several blocks, of none, and one in another order of memory.
std::vector<Tensor> odd_values(Generator& generator) {
  return {randn({1}, generator), randn({3, 5, 7}, generator), randn({40001}, generator),
          randn({0, 3}, generator),
          randn({2, 3, 4, 5}, generator).contiguous(MemoryFormat::ChannelsLast)};
}

// Steps with make(parameters) on both devices leave the same parameters and the same state.
template <typename Make>
void check_steps(const Make& make) {
  Generator generator(1);
  const std::vector<Tensor> values = odd_values(generator);
  std::vector<std::vector<Tensor>> gradients;
  for (int step = 0; step < 4; ++step) {
    gradients.emplace_back();
    for (const Tensor& value : values) gradients.back().push_back(randn(value.sizes(), generator));
  }
  const auto stepped = [&](Device device) {
    std::vector<Tensor> parameters = leaves(values, device);
    std::unique_ptr<Optimizer> optimizer = make(parameters);
    for (std::size_t step = 0; step < gradients.size(); ++step) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        // One without a gradient, once.
        if (step == 2 && i == 1) {
          parameters[i].clear_grad();
          continue;
        }
        parameters[i].set_grad(gradients[step][i].to(device));
      }
      optimizer->step();
      // What was saved goes on as it did.
      if (step == 1) {
        std::unique_ptr<Optimizer> other = make(parameters);
        other->load_state_dict(optimizer->state_dict());
        optimizer = std::move(other);
      }
    }
    return parameters;
  };
  const std::vector<Tensor> expected = stepped(Device::cpu());
  const std::vector<Tensor> got = stepped(kDevice);
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].device() == kDevice);
    CHECK(same_numbers(got[i].detach(), expected[i].detach()));
    CHECK(got[i].strides() == values[i].strides());
  }
}

}  // namespace

TEST_CASE("cuda optimizers: SGD takes the CPU's steps") {
  for (const optim::SGDOptions& options :
       {optim::SGDOptions{.lr = 0.1}, optim::SGDOptions{.lr = 0.1, .weight_decay = 0.02},
        optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
        optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true}}) {
    check_steps([&](const std::vector<Tensor>& parameters) {
      return std::make_unique<SGD>(parameters, options);
    });
  }
}

TEST_CASE("cuda optimizers: Adam and AdamW take the CPU's steps") {
  for (const bool amsgrad : {false, true}) {
    const optim::AdamOptions options{.lr = 0.05, .weight_decay = 0.03, .amsgrad = amsgrad};
    check_steps([&](const std::vector<Tensor>& parameters) {
      return std::make_unique<Adam>(parameters, options);
    });
    check_steps([&](const std::vector<Tensor>& parameters) {
      return std::make_unique<AdamW>(parameters, options);
    });
  }
}

TEST_CASE("cuda optimizers: a state saved on the CPU goes on on the device") {
  Generator generator(2);
  const std::vector<Tensor> values{randn({33}, generator)};
  const Tensor gradient = randn({33}, generator);
  std::vector<Tensor> here = leaves(values, Device::cpu());
  Adam first(here);
  here[0].set_grad(gradient);
  first.step();
  std::vector<Tensor> there = leaves({here[0].detach()}, kDevice);
  Adam second(there);
  second.load_state_dict(first.state_dict());
  there[0].set_grad(gradient.to(kDevice));
  first.step();
  second.step();
  CHECK(same_numbers(there[0].detach(), here[0].detach()));
}

TEST_CASE("cuda optimizers: the norm of gradients and what is clipped to it") {
  Generator generator(3);
  const std::vector<Tensor> values = odd_values(generator);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double norm_type : {2.0, 1.0, 3.0, infinity}) {
    for (const double max_norm : {0.5, 1e9}) {
      CAPTURE(norm_type);
      CAPTURE(max_norm);
      std::vector<Tensor> here = leaves(values, Device::cpu());
      std::vector<Tensor> there = leaves(values, kDevice);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Tensor gradient = randn(values[i].sizes(), generator);
        here[i].set_grad(gradient);
        there[i].set_grad(gradient.to(kDevice));
      }
      const double norm = optim::clip_grad_norm_(here, max_norm, norm_type);
      CHECK(optim::clip_grad_norm_(there, max_norm, norm_type) == norm);
      for (std::size_t i = 0; i < values.size(); ++i) {
        CHECK(there[i].grad().device() == kDevice);
        CHECK(same_numbers(there[i].grad(), here[i].grad()));
      }
    }
  }
}

TEST_CASE("cuda optimizers: gradients of NaN have no norm and clamp to themselves") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor gradient = Tensor::from_values({1.0F, nan, -3.0F, 0.25F});
  for (const double norm_type : {2.0, std::numeric_limits<double>::infinity()}) {
    std::vector<Tensor> there = leaves({gradient}, kDevice);
    there[0].set_grad(gradient.to(kDevice));
    CHECK(std::isnan(optim::clip_grad_norm_(there, 1.0, norm_type)));
    CHECK_THROWS_AS(optim::clip_grad_norm_(there, 1.0, norm_type, true), ArgumentError);
  }
  std::vector<Tensor> there = leaves({gradient}, kDevice);
  there[0].set_grad(gradient.to(kDevice));
  optim::clip_grad_value_(there, 0.5);
  CHECK(same_numbers(there[0].grad(), Tensor::from_values({0.5F, nan, -0.5F, 0.25F})));
}

TEST_CASE("cuda optimizers: a training loop on the device saves and resumes and refuses NaN") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "run.safetensors";
  Generator generator(5);
  const Tensor x = randn({6, 4}, generator);
  const Tensor target = Tensor::from_int64(std::vector<std::int64_t>{0, 2, 1, 1, 0, 2});
  const auto trained = [&](Device device, int steps) {
    nn::Linear net(4, 3);
    net.to(device);
    net.requires_grad_();
    Adam optimizer(net.parameters(), {.lr = 0.1});
    optim::TrainingLoop loop({net, optimizer}, {.checkpoint = path, .max_grad_norm = 0.5});
    loop.resume();
    for (int i = 0; i < steps; ++i) {
      loop.step([&] { return cross_entropy(net(x.to(device)), target.to(device)); });
    }
    loop.save();
    return net.weight.detach().clone();
  };
  trained(kDevice, 3);
  const Tensor more = trained(kDevice, 2);
  // The same file, read on the CPU.
  CHECK(more.device() == kDevice);
  CHECK(same_numbers(trained(Device::cpu(), 0), more));
  nn::Linear net(4, 3);
  net.to(kDevice);
  net.requires_grad_();
  SGD optimizer(net.parameters());
  optim::TrainingLoop loop({net, optimizer}, {.checkpoint = path});
  net.weight.detach().fill_(std::numeric_limits<double>::quiet_NaN());
  CHECK_THROWS_WITH_AS(loop.save(), doctest::Contains("weight: expected finite parameters"),
                       NumericError);
}

TEST_CASE("cuda optimizers: Float64 on a device is refused") {
  Tensor parameter = Tensor::zeros({2}, DType::Float64).to(kDevice);
  parameter.set_requires_grad();
  CHECK_THROWS_WITH_AS(SGD({parameter}), doctest::Contains("expected Float32 on"),
                       UnsupportedError);
}

}  // namespace quanta
