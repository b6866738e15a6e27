#include <doctest/doctest.h>

#include <limits>
#include <thread>

#include "quanta/fusion/quantize.h"
#include "quanta/nn/container.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/quantized/qfunctional.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "small_network.h"
#include "support/modules.h"
#include "support/tensors.h"

namespace quanta::test {
namespace {}  // namespace

TEST_CASE("fuse_modules: the fused network computes what the parts did") {
  SmallNetwork net;
  const Tensor x = small_input(1);
  const Tensor before = net(x);
  fuse_modules(net, small_network_groups());
  CHECK(is<nn::intrinsic::ConvReLU2d>(net, "conv1"));
  CHECK(is<nn::Identity>(net, "bn1"));
  CHECK(is<nn::Identity>(net, "relu1"));
  CHECK(is<nn::Conv2d>(net, "conv2"));
  CHECK(largest_difference(net(x), before) < 1e-4F);
}

TEST_CASE("fuse_modules: an unknown path or sequence changes nothing") {
  SmallNetwork net;
  CHECK_THROWS_WITH_AS(fuse_modules(net, {{"conv1", "bn1", "relu1"}, {"relu2", "conv2"}}),
                       doctest::Contains("(ReLU, Conv2d)"), ArgumentError);
  CHECK_THROWS_WITH_AS(fuse_modules(net, {{"conv1", "bn1", "relu1"}, {"conv2", "bn9"}}),
                       doctest::Contains("'bn9'"), ArgumentError);
  CHECK_THROWS_AS(fuse_modules(net, {{"conv1", "bn1"}, {"conv1", "bn1"}}), ArgumentError);
  CHECK(is<nn::Conv2d>(net, "conv1"));
  net.train();
  CHECK_THROWS_WITH_AS(fuse_modules(net, small_network_groups()), doctest::Contains("eval"),
                       ArgumentError);
  CHECK(is<nn::Conv2d>(net, "conv1"));
}

TEST_CASE("fuse_modules: hooks of the first and last module move to the fused one") {
  SmallNetwork net;
  int pre = 0;
  int post = 0;
  net.get_submodule("conv1")->register_forward_pre_hook([&](const nn::Module&, const Tensor& x) {
    ++pre;
    return x;
  });
  net.get_submodule("relu1")->register_forward_hook(
      [&](const nn::Module&, const Tensor&, const Tensor& y) {
        ++post;
        return y;
      });
  fuse_modules(net, small_network_groups());
  net(small_input(1));
  CHECK(pre == 1);
  CHECK(post == 1);
  const SmallNetwork prepared = prepare(net, get_default_qconfig());
  prepared(small_input(1));
  const SmallNetwork int8 = convert(prepared);
  pre = post = 0;
  int8(small_input(1));
  CHECK(pre == 1);
  CHECK(post == 1);
}

TEST_CASE("prepare: observers stand where torch puts them and the original is untouched") {
  SmallNetwork net;
  fuse_modules(net, small_network_groups());
  const SmallNetwork prepared = prepare(net, get_default_qconfig());
  std::vector<std::string> keys;
  for (const auto& [key, observer] : get_observer_dict(prepared)) keys.push_back(key);
  CHECK(keys ==
        std::vector<std::string>{"conv1.activation_post_process", "conv2.activation_post_process",
                                 "fc.activation_post_process", "quant.activation_post_process",
                                 "skip.activation_post_process"});
  CHECK(get_observer_dict(net).empty());
  CHECK(net.get_submodule("conv1")->qconfig() == nullptr);
  CHECK(prepared(small_input(2)).equal(net(small_input(2))));
}

TEST_CASE("convert: the int8 network is close to the float one and of the same type") {
  const SmallNetwork prepared = calibrated_network();
  const SmallNetwork int8 = convert(prepared);
  CHECK(is<nn::intrinsic::quantized::ConvReLU2d>(int8, "conv1"));
  CHECK(is<nn::quantized::Conv2d>(int8, "conv2"));
  CHECK(is<nn::quantized::QFunctional>(int8, "skip"));
  CHECK(is<nn::quantized::Linear>(int8, "fc"));
  CHECK(is<nn::quantized::Quantize>(int8, "quant"));
  const Tensor x = small_input(3);
  const Tensor want = prepared(x);
  float largest = 0.0F;
  for (const float value : want.to_float_vector()) largest = std::max(largest, std::abs(value));
  CHECK(largest_difference(int8(x), want) < 0.1F * largest);
  CHECK(is<nn::intrinsic::ConvReLU2d>(prepared, "conv1"));
}

TEST_CASE("convert: many threads run one converted model and get the same integers") {
  const SmallNetwork int8 = convert(calibrated_network());
  const Tensor x = small_input(3);
  const Tensor want = int8(x);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) wrong[t] += int8(x).equal(want) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("convert: modules whose observer saw no data are listed and nothing changes") {
  SmallNetwork net;
  fuse_modules(net, small_network_groups());
  SmallNetwork prepared = prepare(net, get_default_qconfig());
  CHECK_THROWS_WITH_AS(convert_(prepared), doctest::Contains("'conv2': its observer saw no data"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(convert_(prepared), doctest::Contains("FloatFunctional 'skip'"),
                       ArgumentError);
  CHECK(get_observer_dict(prepared).size() == 5);
  const SmallNetwork empty = convert(prepared, {.uncalibrated = Uncalibrated::Allow});
  CHECK(is<nn::quantized::Linear>(empty, "fc"));
}

TEST_CASE("convert: a weight with NaN or infinity is named and nothing changes") {
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    CAPTURE(odd);
    QConfig qconfig = get_default_qconfig();
    for (const bool skips_infinity : {false, true}) {
      CAPTURE(skips_infinity);
      if (skips_infinity) {
        qconfig.weight = HistogramObserver::with_args(
            {.dtype = DType::QInt8, .qscheme = QScheme::PerTensorSymmetric});
      }
      SmallNetwork net;
      fuse_modules(net, small_network_groups());
      SmallNetwork prepared = prepare(net, qconfig);
      prepared(small_input(1));
      for (const auto& [name, parameter] : prepared.named_parameters()) {
        if (name == "fc.weight") parameter.mutable_data<float>()[2] = odd;
      }
      CHECK_THROWS_WITH_AS(convert_(prepared), doctest::Contains("weight: expected finite numbers"),
                           ArgumentError);
      CHECK_THROWS_WITH_AS(convert_(prepared), doctest::Contains("fc"), ArgumentError);
      CHECK(is<nn::Linear>(prepared, "fc"));
    }
  }
}

TEST_CASE("convert: a model that was not prepared is refused") {
  const SmallNetwork net;
  CHECK_THROWS_WITH_AS(convert(net), doctest::Contains("prepare first"), ArgumentError);
  SmallNetwork propagated;
  propagate_qconfig_(propagated, get_default_qconfig());
  CHECK_THROWS_WITH_AS(convert(propagated), doctest::Contains("has no observer"), ArgumentError);
}

TEST_CASE("prepare: a model without any QConfig is refused") {
  const SmallNetwork net;
  CHECK_THROWS_WITH_AS(prepare(net), doctest::Contains("get_default_qconfig"), ArgumentError);
}

TEST_CASE("prepare: a null QConfig leaves a module and what is below it in float") {
  SmallNetwork net;
  net.get_submodule("fc")->set_qconfig(std::nullopt);
  const SmallNetwork prepared = prepare(net, get_default_qconfig());
  CHECK(prepared.get_submodule("fc")->activation_post_process() == nullptr);
  CHECK(prepared.get_submodule("conv1")->activation_post_process() != nullptr);

  QConfigMapping mapping(get_default_qconfig());
  mapping.set_object_type<nn::Linear>(std::nullopt)
      .set_module_name_regex("conv.*", std::nullopt)
      .set_module_name("conv2", default_qconfig());
  const SmallNetwork mapped = prepare(SmallNetwork(), mapping);
  CHECK(mapped.get_submodule("fc")->activation_post_process() == nullptr);
  CHECK(mapped.get_submodule("conv1")->activation_post_process() == nullptr);
  CHECK(mapped.get_submodule("conv2")->activation_post_process()->name() == "MinMaxObserver");
  CHECK(mapped.get_submodule("bn2")->activation_post_process()->name() == "HistogramObserver");
}

TEST_CASE("prepare: a transposed convolution's own per-channel weights are refused by path") {
  struct Upscale : nn::Module {
    nn::Child<nn::ConvTranspose2d> up;
    Upscale() {
      register_module(
          "up", up,
          nn::ConvTranspose2dOptions{.in_channels = 2, .out_channels = 2, .kernel_size = {2}});
    }
    Tensor forward(const Tensor& x) const override { return up(x); }
  };
  Upscale own;
  own.up->set_qconfig(get_default_qconfig());
  CHECK_THROWS_WITH_AS(prepare(own), doctest::Contains("per-tensor weight observer for "),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(prepare(Upscale(), QConfigMapping().set_object_type<nn::ConvTranspose2d>(
                                              get_default_qconfig())),
                       doctest::Contains("'up'"), ArgumentError);
  // One that it inherits is fitted to it.
  CHECK(prepare(Upscale(), get_default_qconfig()).up->qconfig()->weight.name ==
        default_weight_observer().name);
}

TEST_CASE("a plain + in forward has the codes of a FloatFunctional") {
  struct Adds : nn::Module {
    nn::Child<nn::Conv2d> conv;
    nn::Child<nn::FloatFunctional> sum;
    explicit Adds(bool by_hand) : by_hand_(by_hand) {
      register_module("conv", conv,
                      nn::Conv2dOptions{.in_channels = 3, .out_channels = 3, .kernel_size = {1}});
      if (by_hand) register_module("sum", sum);
    }
    Tensor forward(const Tensor& x) const override {
      return by_hand_ ? sum->add(conv(x), x) : conv(x) + x;
    }

   private:
    bool by_hand_;
  };
  const auto codes = [](bool by_hand) {
    manual_seed(11);
    nn::Sequential net{nn::QuantStub(), Adds(by_hand)};
    net.eval();
    const nn::Sequential prepared = prepare(net, get_default_qconfig());
    prepared(small_input(1));
    return convert(prepared)(small_input(2));
  };
  CHECK(codes(false).is_quantized());
  CHECK(codes(false).equal(codes(true)));
}

TEST_CASE("a missing QuantStub is reported by module path") {
  struct NoStub : nn::Module {
    nn::Child<nn::Conv2d> conv;
    NoStub() {
      register_module("conv", conv,
                      nn::Conv2dOptions{.in_channels = 3, .out_channels = 3, .kernel_size = {1}});
      eval();
    }
    Tensor forward(const Tensor& x) const override { return conv(x); }
  };
  const NoStub prepared = prepare(NoStub(), get_default_qconfig());
  prepared(small_input(1));
  const NoStub int8 = convert(prepared);
  CHECK_THROWS_WITH_AS(int8(small_input(1)), doctest::Contains("QuantStub"), ArgumentError);
  CHECK_THROWS_WITH_AS(int8(small_input(1)), doctest::Contains("'conv'"), ArgumentError);
  const std::vector<Problem> problems = check(NoStub());
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].text.find("QuantStub") != std::string::npos);
}

TEST_CASE("check: every problem is listed at once") {
  struct Bad : nn::Module {
    nn::Child<nn::Linear> fc;
    nn::Child<nn::BatchNorm1d> bn;
    Bad() {
      register_module("fc", fc, nn::LinearOptions{.in_features = 3, .out_features = 3});
      register_module("bn", bn, nn::BatchNorm1dOptions{.num_features = 3});
    }
    Tensor forward(const Tensor& x) const override { return bn(fc(x)); }
  };
  const std::vector<Problem> problems = check(Bad());
  CHECK(problems.size() == 4);  // no QuantStub, no DeQuantStub, train mode, BatchNorm1d
  CHECK(check(SmallNetwork()).empty());
  CHECK(check(SmallNetwork(), Device::cuda()).size() == 1);
  CHECK(check(convert(calibrated_network())).empty());
}

TEST_CASE("quantize: prepares, runs and converts in one call") {
  const SmallNetwork int8 =
      quantize<SmallNetwork>(SmallNetwork(), get_default_qconfig(), [](const SmallNetwork& model) {
        const std::vector<Tensor> batches{small_input(1), small_input(2)};
        default_eval_fn(model, batches);
      });
  CHECK(is<nn::quantized::Linear>(int8, "fc"));
}

TEST_CASE("add_quant_dequant: wrapped leaves take and give float tensors") {
  auto linear = nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 4, .out_features = 4});
  auto relu = nn::make_module<nn::ReLU>();
  nn::Sequential net(linear, relu);
  net.eval();
  linear->set_qconfig(default_qconfig());
  add_quant_dequant(net);
  CHECK(net[0].type_name() == "QuantWrapper");
  CHECK(net[1].type_name() == "ReLU");
  prepare_(net);
  const Tensor x = random_tensor({8, 4}, 1);
  const Tensor want = net(x);
  convert_(net);
  CHECK(net(x).dtype() == DType::Float32);
  CHECK(largest_difference(net(x), want) < 0.1F);
}

TEST_CASE("shared children are converted once and stay shared") {
  auto conv = nn::make_module<nn::Conv2d>(
      nn::Conv2dOptions{.in_channels = 3, .out_channels = 3, .kernel_size = {1}});
  nn::Sequential net{nn::QuantStub(), conv, conv, nn::DeQuantStub()};
  net.eval();
  nn::Sequential prepared = prepare(net, get_default_qconfig());
  CHECK(prepared.ptr(1) == prepared.ptr(2));
  CHECK(prepared.ptr(1) != net.ptr(1));
  prepared(small_input(1));
  const nn::Sequential int8 = convert(prepared);
  CHECK(int8.ptr(1) == int8.ptr(2));
  CHECK(int8(small_input(1)).sizes() == Dims{4, 3, 9, 9});
}

TEST_CASE("a user's own mapping swaps a user's own module") {
  struct Twice : nn::Module {
    Tensor forward(const Tensor& x) const override { return mul_scalar(x, 2.0); }
  };
  struct QuantizedTwice : nn::Module {
    Tensor forward(const Tensor& x) const override {
      return quantized::mul_scalar(x.as_quantized(), 2.0);
    }
  };
  nn::Sequential net{nn::QuantStub(), Twice(), nn::DeQuantStub()};
  net.eval();
  ModuleMapping mapping = default_static_quant_module_mappings();
  mapping.add<Twice>([](const nn::Module&) { return nn::make_module<QuantizedTwice>(); });
  const nn::Sequential prepared = prepare(net, get_default_qconfig(), mapping);
  prepared(small_input(1));
  const nn::Sequential int8 = convert(prepared, {.mapping = mapping});
  CHECK(int8[1].type_name() == "QuantizedTwice");
  CHECK(largest_difference(int8(small_input(1)), prepared(small_input(1))) < 0.2F);
}

}  // namespace quanta::test
