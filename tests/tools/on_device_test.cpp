#include "../../tools/cli/on_device.h"

#include <doctest/doctest.h>

#include "quanta/nn/linear.h"
#include "quanta/nn/module.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cli {
namespace {

struct OnlyOnCpu final : Op<OnlyOnCpu> {
  static constexpr std::string_view kName = "only_on_cpu";
  static constexpr ArgumentCount kArguments{1};
  void infer(const Arguments& in, Results& out) const override {
    out.add(in[0].sizes(), in[0].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    out[0].copy_(in[0]);
    return "copy";
  }
};

struct Head : nn::Module {
  nn::Child<nn::Linear> fc;
  Head() { register_module("fc", fc, {.in_features = 3, .out_features = 3}); }
  Tensor forward(const Tensor& x) const override {
    return run(OnlyOnCpu{}, run(OnlyOnCpu{}, fc(x)));
  }
};
struct Network : nn::Module {
  nn::Child<Head> head;
  Network() { register_module("head", head); }
  Tensor forward(const Tensor& x) const override { return head(x); }
};

}  // namespace

TEST_CASE("on_device: operations without a kernel are listed once, with their module") {
  Network network;
  network.eval();
  const Tensor x = Tensor::ones({3, 3});
  const Device device = Device::cuda_emulated();
  CHECK(missing_kernels(network, x, Device::cpu()).empty());
  CHECK(missing_kernels(network, x, device) == "only_on_cpu (Float32) in 'head'");
  CHECK_THROWS_WITH_AS(move_to_device("bench", network, x, device),
                       doctest::Contains("have none: only_on_cpu (Float32) in 'head'"),
                       UnsupportedError);
  for (const auto& [path, parameter] : network.named_parameters()) {
    CHECK(parameter.device().is_cpu());
  }
  nn::Linear fc({.in_features = 3, .out_features = 3});
  fc.eval();
  CHECK(missing_kernels(fc, x, device).empty());
  move_to_device("bench", fc, x, device);
  CHECK(fc.weight.device() == device);
}

TEST_CASE("on_device: a device that is not there is told at once") {
  CHECK(device_option("").is_cpu());
  CHECK(device_option("cuda:emulated") == Device::cuda_emulated());
  CHECK_THROWS_AS(device_option("gpu"), ArgumentError);
  CHECK_THROWS_AS(device_option("cuda:100"), BackendError);
}

}  // namespace quanta::cli
