// Modules that train with fake quantization: what they compute, and what trains in them.

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/qat/batch_norm.h"
#include "quanta/nn/qat/conv.h"
#include "quanta/nn/qat/embedding.h"
#include "quanta/nn/qat/linear.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/qconfig.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta {
namespace {

namespace ni = nn::intrinsic;
namespace niq = nn::intrinsic::qat;
using ModulePtr = std::shared_ptr<nn::Module>;

Tensor leaf(const Dims& sizes, std::uint64_t seed) {
  Tensor x = test::random_tensor(sizes, seed);
  x.set_requires_grad();
  return x;
}

void randomize(const Tensor& tensor, std::uint64_t seed, double offset = 0.0) {
  const std::vector<float> values = test::random_tensor(tensor.sizes(), seed).to_float_vector();
  std::vector<float> moved;
  for (const float value : values) moved.push_back(value + static_cast<float>(offset));
  tensor.copy_(Tensor::from_values(moved, tensor.sizes()));
}

FakeQuantizeBase& fake_quant(const nn::Module& module) {
  const auto& qat = dynamic_cast<const nn::qat::QatModule&>(module);
  return dynamic_cast<FakeQuantizeBase&>(*qat.weight_fake_quant());
}

template <typename Float>
ModulePtr with_qconfig(Float module, const QConfig& qconfig = get_default_qat_qconfig()) {
  auto result = nn::make_module<Float>(std::move(module));
  result->set_qconfig(qconfig);
  return result;
}

nn::ConvNdOptions conv_options(std::int64_t rank) {
  return {.in_channels = 4,
          .out_channels = 6,
          .kernel_size = Dims::filled(static_cast<std::size_t>(rank), 3),
          .padding = Dims::filled(static_cast<std::size_t>(rank), 1),
          .groups = 2};
}

nn::Conv2d conv2d_layer() {
  nn::Conv2d conv(conv_options(2));
  randomize(conv.weight, 1);
  randomize(conv.bias, 2);
  return conv;
}

// A qat layer with batch norm whose numbers are random: gammas of both signs, variances > 0.
template <typename Qat, typename Options>
std::shared_ptr<Qat> layer_bn(const Options& options, nn::BatchNormOptions bn_options = {}) {
  auto module = nn::make_module<Qat>(options, bn_options, get_default_qat_qconfig());
  randomize(module->weight, 1);
  if (module->bias.defined()) randomize(module->bias, 2);
  randomize(module->bn->weight, 3);
  randomize(module->bn->bias, 4);
  randomize(module->bn->running_mean, 5);
  Generator generator(6);
  module->bn->running_var.copy_(rand(module->bn->running_var.sizes(), generator));
  module->requires_grad_();
  return module;
}

// With and without ReLU, against the float module after to_float with the weight put in.
template <typename Conv, typename ConvReLU>
void check_convolution(const Dims& sizes) {
  const Tensor x = test::random_tensor(sizes, 9);
  Conv conv(conv_options(x.dim() - 2), get_default_qat_qconfig());
  randomize(conv.weight, 1);
  const Tensor weight = fake_quant(conv).forward(conv.weight).clone();
  const Tensor y = conv(x);
  const ModulePtr plain = conv.to_float();
  plain->named_parameters()[0].tensor.copy_(weight);
  CHECK(test::largest_difference(y, (*plain)(x)) == 0.0);

  ConvReLU with_relu(conv_options(x.dim() - 2), get_default_qat_qconfig());
  with_relu.load_state_dict(conv.state_dict());
  CHECK(test::largest_difference(with_relu(x), nn::ReLU()(y)) == 0.0);
  CHECK((*with_relu.to_float())(x).sizes() == y.sizes());
}

struct Run {
  Tensor y;
  Tensor grad_x;
  std::vector<nn::Module::NamedTensor> gradients;
  StateDict state;
};

Run run(nn::Module& module, const Dims& sizes) {
  Run result;
  const Tensor x = leaf(sizes, 11);
  const Tensor y = module(x);
  y.backward(leaf(y.sizes(), 12).detach());
  result.y = y.detach();
  result.grad_x = x.grad();
  for (const auto& [path, parameter] : module.named_parameters()) {
    result.gradients.push_back({path, parameter.grad()});
  }
  result.state = module.state_dict();
  return result;
}

void check_same(const Run& got, const Run& want, double tolerance) {
  CHECK(test::largest_difference(got.y, want.y) < tolerance);
  CHECK(test::largest_difference(got.grad_x, want.grad_x) < tolerance);
  REQUIRE(got.gradients.size() == want.gradients.size());
  for (std::size_t i = 0; i < got.gradients.size(); ++i) {
    CAPTURE(got.gradients[i].path);
    CHECK(test::largest_difference(got.gradients[i].tensor, want.gradients[i].tensor) < tolerance);
  }
  for (const char* name : {"bn.running_mean", "bn.running_var", "weight_fake_quant.scale"}) {
    CAPTURE(name);
    CHECK(test::largest_difference(*got.state.find(name), *want.state.find(name)) < tolerance);
  }
}

// The formula as torch writes it down, taken step by step because somebody watches the batch norm.
template <typename Qat>
void watch_batch_norm(Qat& module) {
  module.bn->register_forward_hook(
      [](const nn::Module&, const Tensor&, const Tensor& y) { return y; });
}

template <typename Qat, typename Options>
void check_fused_equals_steps(const Options& options, const Dims& sizes) {
  for (const bool training : {true, false}) {
    CAPTURE(training);
    auto fused = layer_bn<Qat>(options);
    auto steps = layer_bn<Qat>(options);
    fused->train(training);
    steps->train(training);
    watch_batch_norm(*steps);
    const Run got = run(*fused, sizes);
    check_same(got, run(*steps, sizes), 3e-3);
    for (const auto& [path, gradient] : got.gradients) {
      CAPTURE_BINDING(path);
      // In train mode the mean takes the layer's bias out again.
      const bool cancels = training && path == "bias";
      CHECK((test::largest_difference(gradient, Tensor::zeros(gradient.sizes())) > 0.0) ==
            !cancels);
    }
  }
}

}  // namespace

TEST_CASE("qat layers: the weight is fake-quantized and everything gets a gradient") {
  const ModulePtr source = with_qconfig(conv2d_layer());
  const ModulePtr module = nn::qat::Conv2d::from_float(*source);
  module->requires_grad_();
  const Run got = run(*module, {2, 4, 5, 7});
  const auto& conv = dynamic_cast<const nn::Conv2d&>(*module);
  const Tensor weight = fake_quant(*module).forward(conv.weight.detach());
  const Tensor x = leaf({2, 4, 5, 7}, 11).detach();
  const ConvOptions options{.padding = {1}, .groups = 2};
  CHECK(test::largest_difference(got.y, conv2d(x, weight, conv.bias.detach(), options)) == 0.0);
  CHECK(test::largest_difference(weight, conv.weight.detach()) > 0.0);
  REQUIRE(got.gradients.size() == 2);
  for (const auto& [path, gradient] : got.gradients) {
    CAPTURE_BINDING(path);
    CHECK(test::largest_difference(gradient, Tensor::zeros(gradient.sizes())) > 0.0);
  }
}

TEST_CASE("qat layers: with fake quantization switched off they are the float layers") {
  Generator generator(3);
  const Tensor x = randn({3, 4, 5, 5}, generator);
  const ModulePtr source = with_qconfig(conv2d_layer());
  const ModulePtr module = nn::qat::Conv2d::from_float(*source);
  fake_quant(*module).disable_fake_quant();
  CHECK(test::largest_difference((*module)(x), (*source)(x)) == 0.0);

  nn::Linear linear({.in_features = 5, .out_features = 3});
  const ModulePtr fused = with_qconfig(
      ni::LinearReLU(nn::make_module<nn::Linear>(linear), nn::make_module<nn::ReLU>()));
  const ModulePtr with_relu = niq::LinearReLU::from_float(*fused);
  fake_quant(*with_relu).disable_fake_quant();
  const Tensor rows = randn({6, 5}, generator);
  CHECK(test::largest_difference((*with_relu)(rows), (*fused)(rows)) == 0.0);
}

TEST_CASE("qat convolutions of every rank are the float ones with a fake-quantized weight") {
  check_convolution<nn::qat::Conv1d, niq::ConvReLU1d>({2, 4, 9});
  check_convolution<nn::qat::Conv2d, niq::ConvReLU2d>({2, 4, 5, 6});
  check_convolution<nn::qat::Conv3d, niq::ConvReLU3d>({2, 4, 5, 3, 4});
}

TEST_CASE("qat from_float: parameters are shared and copies have their own fake quantizer") {
  const ModulePtr source = with_qconfig(conv2d_layer());
  const ModulePtr module = nn::qat::Conv2d::from_float(*source);
  auto& conv = dynamic_cast<nn::Conv2d&>(*module);
  CHECK(conv.weight.is_same(dynamic_cast<nn::Conv2d&>(*source).weight));
  CHECK(conv.bias.is_same(dynamic_cast<nn::Conv2d&>(*source).bias));

  const ModulePtr copy = module->clone();
  CHECK_FALSE(dynamic_cast<nn::Conv2d&>(*copy).weight.is_same(conv.weight));
  CHECK(&fake_quant(*copy) != &fake_quant(*module));
  fake_quant(*copy).disable_fake_quant();
  CHECK(fake_quant(*module).is_fake_quant_enabled());
}

TEST_CASE("qat batch norm layers: fused arithmetic equals torch's formula step by step") {
  check_fused_equals_steps<niq::ConvBn1d>(conv_options(1), {3, 4, 9});
  check_fused_equals_steps<niq::ConvBn2d>(conv_options(2), {2, 4, 5, 6});
  check_fused_equals_steps<niq::ConvBn3d>(conv_options(3), {2, 4, 4, 3, 5});
  check_fused_equals_steps<niq::ConvBnReLU1d>(conv_options(1), {4, 4, 7});
  check_fused_equals_steps<niq::ConvBnReLU2d>(conv_options(2), {3, 4, 6, 5});
  check_fused_equals_steps<niq::ConvBnReLU3d>(conv_options(3), {2, 4, 3, 4, 5});
  check_fused_equals_steps<niq::LinearBn1d>(nn::LinearOptions{.in_features = 7, .out_features = 5},
                                            {9, 7});
  nn::ConvNdOptions without_bias = conv_options(2);
  without_bias.bias = false;
  check_fused_equals_steps<niq::ConvBn2d>(without_bias, {2, 4, 5, 6});
}

TEST_CASE("qat batch norm layers: a weight of zero in the batch norm leaves finite numbers") {
  for (const bool training : {true, false}) {
    auto module = layer_bn<niq::ConvBn2d>(conv_options(2));
    module->train(training);
    module->bn->weight.detach().select(0, 2).fill_(0.0);
    const Tensor before = module->bn->running_mean.clone();
    const Run got = run(*module, {2, 4, 5, 5});
    for (const float value : got.y.to_float_vector()) CHECK(std::isfinite(value));
    for (const auto& [path, gradient] : got.gradients) {
      CAPTURE_BINDING(path);
      for (const float value : gradient.to_float_vector()) CHECK(std::isfinite(value));
    }
    const Tensor channel = got.y.select(1, 2);
    CHECK(test::largest_difference(
              channel,
              Tensor::full(channel.sizes(), module->bn->bias.detach().select(0, 2).item())) < 1e-6);
    CHECK(module->bn->running_mean.select(0, 2).item() == before.select(0, 2).item());
  }
}

TEST_CASE("qat batch norm layers: frozen statistics are used and stay through train and eval") {
  auto module = layer_bn<niq::ConvBn2d>(conv_options(2));
  const Tensor mean = module->bn->running_mean.clone();
  niq::freeze_bn_stats(*module);
  CHECK(module->is_bn_frozen());
  module->eval();
  module->train();
  CHECK(module->is_training());
  CHECK_FALSE(module->bn->is_training());
  const Run frozen = run(*module, {2, 4, 5, 5});
  CHECK(test::largest_difference(module->bn->running_mean, mean) == 0.0);
  CHECK(module->bn->num_batches_tracked.item() == 0.0);

  niq::update_bn_stats(*module);
  CHECK(module->bn->is_training());
  const Run moving = run(*module, {2, 4, 5, 5});
  CHECK(test::largest_difference(module->bn->running_mean, mean) > 0.0);
  CHECK(module->bn->num_batches_tracked.item() == 1.0);
  CHECK(test::largest_difference(moving.y, frozen.y) > 0.0);
  module->eval();
  CHECK_FALSE(module->bn->is_training());
}

TEST_CASE("qat batch norm layers: without a momentum the statistics are those of all batches") {
  auto module = layer_bn<niq::LinearBn1d>(nn::LinearOptions{.in_features = 3, .out_features = 2},
                                          {.momentum = std::nullopt});
  fake_quant(*module).disable_fake_quant();
  Generator generator(8);
  std::vector<double> sum(2, 0.0);
  for (int batch = 0; batch < 3; ++batch) {
    const Tensor x = randn({16, 3}, generator);
    (*module)(x);
    const std::vector<float> y =
        linear(x, module->weight.detach(), module->bias.detach()).to_float_vector();
    for (std::size_t i = 0; i < y.size(); ++i) sum[i % 2] += static_cast<double>(y[i]);
  }
  for (std::int64_t c = 0; c < 2; ++c) {
    CHECK(module->bn->running_mean.select(0, c).item() ==
          doctest::Approx(sum[static_cast<std::size_t>(c)] / 48.0).epsilon(1e-4));
  }
}

TEST_CASE("qat batch norm layers: to_float folds what eval mode computes") {
  auto module = layer_bn<niq::ConvBnReLU2d>(conv_options(2));
  module->eval();
  fake_quant(*module).disable_fake_quant();
  const ModulePtr folded = module->to_float();
  CHECK(dynamic_cast<ni::ConvReLU2d*>(folded.get()) != nullptr);
  const Tensor x = leaf({2, 4, 5, 5}, 3).detach();
  CHECK(test::largest_difference((*folded)(x), (*module)(x).detach()) < 1e-4);
}

TEST_CASE("qat modules: a state that was saved gives the same results") {
  auto module = layer_bn<niq::ConvBnReLU2d>(conv_options(2));
  run(*module, {2, 4, 5, 5});
  const StateDict state = module->state_dict();
  for (const char* name :
       {"weight", "bias", "bn.weight", "bn.running_var", "bn.num_batches_tracked",
        "weight_fake_quant.scale", "weight_fake_quant.activation_post_process.min_val"}) {
    CAPTURE(name);
    CHECK(state.find(name) != nullptr);
  }
  auto other = nn::make_module<niq::ConvBnReLU2d>(conv_options(2), nn::BatchNormOptions{},
                                                  get_default_qat_qconfig());
  other->load_state_dict(state);
  module->eval();
  other->eval();
  const Tensor x = leaf({2, 4, 5, 5}, 3).detach();
  CHECK(test::largest_difference((*other)(x), (*module)(x).detach()) == 0.0);
}

TEST_CASE("qat embeddings: rows come from the fake-quantized table and train it") {
  nn::Embedding table({.num_embeddings = 12, .embedding_dim = 5, .padding_idx = 2});
  const ModulePtr source = with_qconfig(table, default_embedding_qat_qconfig_4bit());
  const ModulePtr module = nn::qat::Embedding::from_float(*source);
  module->requires_grad_();
  const Tensor indices = Tensor::from_int64(std::vector<std::int64_t>{0, 2, 2, 7, 0, 11});
  const Tensor y = (*module)(indices);
  const auto& qat = dynamic_cast<const nn::Embedding&>(*module);
  const Tensor rows = fake_quant(*module).forward(qat.weight.detach());
  CHECK(test::largest_difference(y.detach().select(0, 3), rows.select(0, 7)) == 0.0);
  CHECK(test::largest_difference(rows, qat.weight.detach()) > 0.0);
  y.backward(Tensor::ones(y.sizes()));
  const Tensor gradient = qat.weight.grad();
  CHECK(gradient.select(0, 2).to_float_vector() == std::vector<float>(5, 0.0F));
  CHECK(gradient.select(0, 0).to_float_vector() == std::vector<float>(5, 2.0F));
  CHECK(gradient.select(0, 1).to_float_vector() == std::vector<float>(5, 0.0F));

  nn::EmbeddingBag bag(
      {.num_embeddings = 9, .embedding_dim = 4, .mode = nn::EmbeddingBagMode::Mean});
  const ModulePtr qat_bag =
      nn::qat::EmbeddingBag::from_float(*with_qconfig(bag, default_embedding_qat_qconfig()));
  qat_bag->requires_grad_();
  const auto& called = dynamic_cast<const nn::EmbeddingBag&>(*qat_bag);
  const Tensor means = called.forward(Tensor::from_int64(std::vector<std::int64_t>{1, 3, 3}),
                                      Tensor::from_int64(std::vector<std::int64_t>{0, 1}));
  means.backward(Tensor::ones(means.sizes()));
  CHECK(called.weight.grad().select(0, 3).to_float_vector() == std::vector<float>(4, 1.0F));
}

TEST_CASE("qat modules: what they cannot take is refused by name") {
  CHECK_THROWS_WITH_AS(
      nn::qat::Conv2d::from_float(conv2d_layer()),
      doctest::Contains("qat.Conv2d.from_float: module: expected one with a QConfig"),
      ArgumentError);
  const ModulePtr conv = with_qconfig(conv2d_layer());
  CHECK_THROWS_WITH_AS(nn::qat::Linear::from_float(*conv),
                       doctest::Contains("qat.Linear.from_float: module: expected"), ArgumentError);
  CHECK_THROWS_WITH_AS(niq::ConvBn2d::from_float(*conv),
                       doctest::Contains("qat.ConvBn2d.from_float: module: expected"),
                       ArgumentError);
  const nn::LinearOptions options{.in_features = 2, .out_features = 2};
  CHECK_THROWS_WITH_AS(nn::qat::Linear(options, QConfig{}),
                       doctest::Contains("qat.Linear: qconfig: expected one with a fake quantizer"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(nn::qat::dynamic::Linear(options, get_default_qat_qconfig()),
                       doctest::Contains("expected a memoryless one"), ArgumentError);
  CHECK_THROWS_WITH_AS(
      niq::ConvBn2d(conv_options(2), {.affine = false}, get_default_qat_qconfig()),
      doctest::Contains("expected affine parameters and running statistics, got affine=false"),
      ArgumentError);
  const nn::EmbeddingOptions table{.num_embeddings = 3, .embedding_dim = 2};
  CHECK_THROWS_WITH_AS(
      nn::qat::Embedding(table, get_default_qat_qconfig()),
      doctest::Contains("qat.Embedding: qconfig.weight: expected float zero points along axis 0"),
      ArgumentError);
  QConfig observed = default_embedding_qat_qconfig();
  observed.activation = get_default_qat_qconfig().activation;
  CHECK_THROWS_WITH_AS(nn::qat::Embedding(table, observed),
                       doctest::Contains("expected one that leaves results in Float32"),
                       ArgumentError);
}

}  // namespace quanta
