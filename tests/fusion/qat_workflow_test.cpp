// Training with quantization in the loop: fuse_modules_qat, prepare_qat, training, convert.

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/quantize.h"
#include "quanta/nn/container.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/nn/qat/batch_norm.h"
#include "quanta/nn/qat/conv.h"
#include "quanta/nn/qat/embedding.h"
#include "quanta/nn/qat/linear.h"
#include "quanta/nn/quantizable/lstm.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/embedding.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/rnn.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/observers/lsq_qconfig.h"
#include "quanta/observers/qconfig.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/loss.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "small_network.h"
#include "support/capture_binding.h"
#include "support/tensors.h"

namespace quanta::test {
namespace {

namespace ni = nn::intrinsic;
namespace niq = nn::intrinsic::qat;

// Random numbers everywhere, fused, in train mode.
SmallNetwork network_to_train() {
  SmallNetwork net;
  Generator generator(21);
  for (const auto& [path, parameter] : net.named_parameters()) {
    parameter.copy_(mul_scalar(randn(parameter.sizes(), generator), 0.2));
  }
  for (nn::BatchNorm2d* norm : {net.bn1.operator->(), net.bn2.operator->()}) {
    norm->weight.fill_(1.0);
    norm->running_mean.fill_(0.0);
    norm->running_var.fill_(1.0);
  }
  net.train();
  fuse_modules_qat(net, small_network_groups());
  return net;
}

Tensor targets(std::int64_t count) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(i % 5);
  return Tensor::from_int64(values);
}

std::vector<double> train(nn::Module& net, int steps) {
  net.requires_grad_();
  optim::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(net(small_input(3, 10)), targets(10));
    losses.push_back(loss.item());
    loss.backward();
    optimizer.step();
  }
  return losses;
}

SmallNetwork trained_network() {
  SmallNetwork prepared = prepare_qat(network_to_train(), get_default_qat_qconfig());
  train(prepared, 3);
  return prepared;
}

std::vector<FakeQuantizeBase*> fake_quantizers(const nn::Module& model) {
  std::vector<FakeQuantizeBase*> result;
  for (const auto& [path, module] : model.named_modules()) {
    for (const auto& [name, observer] : module->named_observers()) {
      if (auto* fake = dynamic_cast<FakeQuantizeBase*>(observer.get())) result.push_back(fake);
    }
  }
  return result;
}

std::string tree(const nn::Module& model) { return nn::to_string(model); }

}  // namespace

TEST_CASE("fuse_modules_qat: batch norms stay with their layer and are not folded") {
  const SmallNetwork net = network_to_train();
  CHECK(dynamic_cast<ni::ConvBnReLU2d*>(net.conv1.module().get()) != nullptr);
  CHECK(dynamic_cast<ni::ConvBn2d*>(net.conv2.module().get()) != nullptr);
  CHECK(net.conv1.module()->is_training());
  SmallNetwork plain;
  const Tensor want = plain(small_input(1));
  fuse_modules_qat(plain, small_network_groups());
  CHECK(largest_difference(plain(small_input(1)), want) == 0.0F);
}

TEST_CASE("fuse_modules_qat: what cannot be trained as one is refused and nothing changes") {
  nn::Sequential net(nn::ConvTranspose2d({.in_channels = 2, .out_channels = 3, .kernel_size = {3}}),
                     nn::BatchNorm2d({.num_features = 3}),
                     nn::Conv2d({.in_channels = 3, .out_channels = 4, .kernel_size = {1}}),
                     nn::BatchNorm2d({.num_features = 3}),
                     nn::Linear({.in_features = 3, .out_features = 4}),
                     nn::BatchNorm1d({.num_features = 4, .affine = false}), nn::ReLU());
  const std::string before = tree(net);
  CHECK_THROWS_WITH_AS(fuse_modules_qat(net, {{"0", "1"}}),
                       doctest::Contains("expected a known sequence"), ArgumentError);
  CHECK_THROWS_WITH_AS(fuse_modules_qat(net, {{"2", "3"}}),
                       doctest::Contains("expected a batch norm of the layer's 4 channels, got 3"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(fuse_modules_qat(net, {{"4", "5"}}), doctest::Contains("got affine=false"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(fuse_modules_qat(net, {{"4", "5", "6"}}),
                       doctest::Contains("expected a known sequence"), ArgumentError);
  net.ptr(3)->eval();
  CHECK_THROWS_WITH_AS(fuse_modules_qat(net, {{"2", "3"}}),
                       doctest::Contains("all of [2, 3] in train or all in eval mode"),
                       ArgumentError);
  CHECK(tree(net) == before);
}

TEST_CASE("prepare_qat_: layers are replaced in place and go on with the same parameters") {
  SmallNetwork net = network_to_train();
  const auto parameters = net.named_parameters();
  prepare_qat_(net, get_default_qat_qconfig());
  CHECK(dynamic_cast<niq::ConvBnReLU2d*>(net.conv1.module().get()) != nullptr);
  CHECK(dynamic_cast<niq::ConvBn2d*>(net.conv2.module().get()) != nullptr);
  CHECK(dynamic_cast<nn::qat::Linear*>(net.fc.module().get()) != nullptr);
  const auto after = net.named_parameters();
  REQUIRE(after.size() == parameters.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    CHECK(after[i].tensor.is_same(parameters[i].tensor));
  }
  // In a copy they are not.
  const SmallNetwork copy = prepare_qat(network_to_train(), get_default_qat_qconfig());
  CHECK_FALSE(copy.named_parameters()[0].tensor.is_same(parameters[0].tensor));
}

TEST_CASE("prepare_qat: activations are fake-quantized where convert will quantize them") {
  const SmallNetwork prepared = prepare_qat(network_to_train(), get_default_qat_qconfig());
  const auto observers = get_observer_dict(prepared);
  for (const std::string path : {"quant", "conv1", "conv2", "skip", "fc"}) {
    CAPTURE(path);
    const std::string key = path + ".activation_post_process";
    REQUIRE(observers.contains(key));
    const auto* fake = dynamic_cast<FakeQuantizeBase*>(observers.at(key).get());
    REQUIRE(fake != nullptr);
    CHECK(observers.at(key + ".activation_post_process") == fake->observer());
  }
  CHECK(observers.contains("fc.weight_fake_quant.activation_post_process"));
  CHECK_FALSE(observers.contains("fc.weight_fake_quant"));
  CHECK(observers.size() == 13);                 // two for each output, one for each weight
  CHECK(fake_quantizers(prepared).size() == 8);  // three of weights
}

TEST_CASE("prepare_qat: what is refused leaves the model as it was") {
  SmallNetwork net = network_to_train();
  const std::string before = tree(net);
  const auto unchanged = [&] {
    CHECK(tree(net) == before);
    for (const auto& [path, module] : net.named_modules()) {
      CHECK_FALSE(module->has_qconfig_attribute());
      CHECK(module->activation_post_process() == nullptr);
    }
  };
  CHECK_THROWS_WITH_AS(prepare_qat_(net), doctest::Contains("expected a QConfig for some module"),
                       ArgumentError);
  unchanged();
  QConfig without_weight = get_default_qat_qconfig();
  without_weight.weight = {};
  CHECK_THROWS_WITH_AS(
      prepare_qat_(net,
                   QConfigMapping(get_default_qat_qconfig()).set_module_name("fc", without_weight)),
      doctest::Contains("prepare_qat: model: 'fc': qat.Linear: qconfig: expected one with"),
      ArgumentError);
  unchanged();
  QConfig broken = get_default_qat_qconfig();
  broken.activation.make = []() -> std::shared_ptr<Observer> {
    throw ArgumentError("no such observer");
  };
  CHECK_THROWS_WITH_AS(prepare_qat_(net, QConfigMapping(broken)),
                       doctest::Contains("no such observer"), ArgumentError);
  unchanged();
  net.eval();
  CHECK_THROWS_WITH_AS(prepare_qat_(net, get_default_qat_qconfig()),
                       doctest::Contains("expected train mode (call train()), got eval mode"),
                       ArgumentError);
  net.train();
  unchanged();
}

TEST_CASE("prepare_qat: gradients reach every parameter only once they are asked for") {
  SmallNetwork prepared = prepare_qat(network_to_train(), get_default_qat_qconfig());
  CHECK_FALSE(prepared(small_input(1)).requires_grad());
  prepared.requires_grad_();
  cross_entropy(prepared(small_input(1, 5)), targets(5)).backward();
  for (const auto& [path, parameter] : prepared.named_parameters()) {
    CAPTURE_BINDING(path);
    REQUIRE(parameter.grad().defined());
    // The mean of the batch takes the bias of the layer before it out again.
    const bool cancels = path == "conv2.bias";
    CHECK((largest_difference(parameter.grad(), Tensor::zeros(parameter.sizes())) > 0.0F) !=
          cancels);
  }
}

TEST_CASE("a QConfig of nullopt leaves layers in float in prepare_qat") {
  SmallNetwork prepared =
      prepare_qat(network_to_train(),
                  QConfigMapping(get_default_qat_qconfig()).set_module_name("fc", std::nullopt));
  CHECK(dynamic_cast<nn::qat::Linear*>(prepared.fc.module().get()) == nullptr);
  CHECK(prepared.fc->activation_post_process() == nullptr);
}

TEST_CASE("switches of fake quantizers reach all below a model and those of weights as well") {
  SmallNetwork prepared = prepare_qat(network_to_train(), get_default_qat_qconfig());
  SmallNetwork plain = network_to_train();
  disable_fake_quant(prepared);
  prepared.eval();
  plain.eval();
  CHECK(largest_difference(prepared(small_input(1)), plain(small_input(1))) < 1e-4F);
  for (const FakeQuantizeBase* fake : fake_quantizers(prepared)) {
    CHECK_FALSE(fake->is_fake_quant_enabled());
    CHECK(fake->is_observer_enabled());
  }
  enable_fake_quant(prepared);
  CHECK(largest_difference(prepared(small_input(1)), plain(small_input(1))) > 1e-4F);

  disable_observer(prepared);
  const auto scale_of = [&] {
    return prepared.state_dict().find("fc.activation_post_process.scale")->item();
  };
  const double scale = scale_of();
  prepared(mul_scalar(small_input(2), 10.0));
  CHECK(scale_of() == scale);
  enable_observer(prepared);
  prepared(mul_scalar(small_input(2), 10.0));
  CHECK(scale_of() != scale);
}

TEST_CASE("freeze_bn_stats and update_bn_stats reach every batch norm below a model") {
  SmallNetwork prepared = prepare_qat(network_to_train(), get_default_qat_qconfig());
  const auto statistics = [&] {
    return prepared.state_dict().find("conv2.bn.running_mean")->to_float_vector();
  };
  const std::vector<float> before = statistics();
  freeze_bn_stats(prepared);
  prepared(small_input(1));
  CHECK(statistics() == before);
  update_bn_stats(prepared);
  prepared(small_input(1));
  CHECK(statistics() != before);
}

TEST_CASE("a copy of a prepared model observes for itself") {
  SmallNetwork prepared = prepare_qat(network_to_train(), get_default_qat_qconfig());
  prepared(small_input(1));
  SmallNetwork copy = nn::deep_copy(prepared);
  const auto theirs = fake_quantizers(prepared);
  const auto ours = fake_quantizers(copy);
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) CHECK(ours[i] != theirs[i]);
  const StateDict before = prepared.state_dict();
  disable_fake_quant(copy);
  copy(mul_scalar(small_input(2), 5.0));
  for (const FakeQuantizeBase* fake : theirs) CHECK(fake->is_fake_quant_enabled());
  for (const auto& [name, tensor] : prepared.state_dict()) {
    CAPTURE_BINDING(name);
    CHECK(tensor.to(DType::Float32).to_float_vector() ==
          before.find(name)->to(DType::Float32).to_float_vector());
  }
}

TEST_CASE("a prepared model comes back from its state") {
  SmallNetwork prepared = trained_network();
  const StateDict state = prepared.state_dict();
  SmallNetwork other = prepare_qat(network_to_train(), get_default_qat_qconfig());
  other.load_state_dict(state);
  prepared.eval();
  other.eval();
  disable_observer(prepared);
  disable_observer(other);
  CHECK(largest_difference(other(small_input(7)), prepared(small_input(7))) == 0.0F);
  CHECK(convert(other)(small_input(7)).to_float_vector() ==
        convert(prepared)(small_input(7)).to_float_vector());
}

TEST_CASE("convert: codes of weights are those of the folded weight and its fake quantizer") {
  SmallNetwork prepared = trained_network();
  prepared.eval();
  const auto& qat = dynamic_cast<const niq::ConvBnReLU2d&>(*prepared.conv1.module());
  const SmallNetwork converted = convert(prepared);
  const auto* conv = dynamic_cast<const ni::quantized::ConvReLU2d*>(converted.conv1.module().get());
  REQUIRE(conv != nullptr);
  const FoldedWeights folded =
      fold_batch_norm(qat.weight.detach(), {}, qat.bn->running_mean, qat.bn->running_var,
                      qat.bn->options().eps, qat.bn->weight.detach(), qat.bn->bias.detach());
  // convert observes the folded weight once more, as torch does.
  const std::shared_ptr<Observer> observer = qat.weight_fake_quant()->clone();
  observer->forward(folded.weight);
  const QTensor want = quantize_with(folded.weight, *observer);
  CHECK(int_repr(conv->weight()).to_int64_vector() == int_repr(want).to_int64_vector());
  CHECK(conv->scale ==
        prepared.conv1.module()->activation_post_process()->calculate_qparams().scale.item());
}

TEST_CASE("convert: the quantized network gives the codes of the fake-quantized one") {
  // Where the two do the same arithmetic: no pooling, which rounds to codes only once it is
  // quantized; version 0, whose fake quantizers use the observers' parameters as convert does (the
  // fused ones have wider steps for symmetric weights); and all 256 codes, because quantized layers
  // do not stop at the 127 of the reduced range.
  nn::Sequential net(
      nn::QuantStub(), nn::Conv2d({.in_channels = 3, .out_channels = 6, .kernel_size = {3}}),
      nn::BatchNorm2d({.num_features = 6}), nn::ReLU(),
      nn::Conv2d({.in_channels = 6, .out_channels = 4, .kernel_size = {3}, .stride = {2}}),
      nn::BatchNorm2d({.num_features = 4}), nn::Flatten(),
      nn::Linear({.in_features = 36, .out_features = 5}), nn::DeQuantStub());
  net.train();
  fuse_modules_qat(net, {{"1", "2", "3"}, {"4", "5"}});
  nn::Sequential prepared = prepare_qat(net, get_default_qat_qconfig("onednn", 0));
  train(prepared, 30);
  prepared.eval();
  disable_observer(prepared);
  const nn::Sequential converted = convert(prepared);
  const auto* fc = dynamic_cast<const nn::quantized::Linear*>(converted.ptr(7).get());
  REQUIRE(fc != nullptr);
  const Tensor x = small_input(9, 40);
  const std::vector<float> want = prepared(x).detach().to_float_vector();
  const std::vector<float> got = converted(x).to_float_vector();
  // A sum that lies at a tie falls to the other side now and then and moves what follows by one.
  constexpr double kLargest = 1.0;
  constexpr double kSame = 0.95;
  double same = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double steps = std::round(static_cast<double>(got[i] - want[i]) / fc->scale);
    CHECK(std::abs(steps) <= kLargest);
    same += steps == 0.0 ? 1.0 : 0.0;
  }
  CAPTURE(same);
  CHECK(same / static_cast<double>(got.size()) >= kSame);
}

TEST_CASE("convert: a qat model that saw no data is refused by path") {
  const SmallNetwork prepared = prepare_qat(network_to_train(), get_default_qat_qconfig());
  CHECK_THROWS_WITH_AS(convert(prepared), doctest::Contains("'conv1': its observer saw no data"),
                       ArgumentError);
}

TEST_CASE("quantize_qat: a small network learns and comes out quantized") {
  std::vector<double> losses;
  const SmallNetwork int8 =
      quantize_qat<SmallNetwork>(network_to_train(), get_default_qat_qconfig(),
                                 [&](SmallNetwork& net) { losses = train(net, 60); });
  CHECK(losses.back() < 0.7 * losses.front());
  CHECK(dynamic_cast<nn::quantized::Conv2d*>(int8.conv2.module().get()) != nullptr);
  CHECK_FALSE(int8.is_training());
  const double loss = cross_entropy(int8(small_input(3, 10)), targets(10)).item();
  CHECK(std::isfinite(loss));
  CHECK(loss < losses.front());
}

TEST_CASE(
    "lsq_qconfig: training changes scales and makes the loss smaller, and convert keeps them") {
  for (const bool per_channel : {false, true}) {
    CAPTURE(per_channel);
    SmallNetwork prepared = prepare_qat(
        network_to_train(), lsq_qconfig({.weight_bits = 4, .per_channel = per_channel}));
    prepared(small_input(3, 10));
    enable_param_learning(prepared);
    std::vector<std::pair<LearnableFakeQuantize*, Tensor>> before;
    for (FakeQuantizeBase* fake : fake_quantizers(prepared)) {
      auto* learnable = dynamic_cast<LearnableFakeQuantize*>(fake);
      REQUIRE(learnable != nullptr);
      CHECK(learnable->is_learning_enabled());
      before.emplace_back(learnable, learnable->scale().detach().clone());
    }
    REQUIRE(before.size() >= 7);  // three weights, their results, the input and the sum
    const std::vector<double> losses = train(prepared, 60);
    CHECK(losses.back() < 0.8 * losses.front());
    std::size_t changed = 0;
    for (const auto& [fake, scale] : before) changed += fake->scale().equal(scale) ? 0U : 1U;
    CHECK(changed == before.size());

    prepared.requires_grad_(false);
    prepared.eval();
    const auto* fc = dynamic_cast<const nn::qat::Linear*>(prepared.fc.module().get());
    REQUIRE(fc != nullptr);
    const ObservedQParams learned = fc->weight_fake_quant()->calculate_qparams();
    const Tensor fake = prepared(small_input(3, 10));
    const SmallNetwork int8 = convert(prepared);
    const auto& linear = dynamic_cast<const nn::quantized::Linear&>(*int8.fc.module());
    CHECK(dequantize(linear.weight()).abs().max().item() <=
          8.0 * learned.scale.max().item() + 1e-6);
    const Tensor error = int8(small_input(3, 10)) - fake;
    CHECK(mean(error * error).item() < 0.05 * mean(fake * fake).item());
  }
}

TEST_CASE("enable_param_learning: networks without learnable fake quantizers or data are refused") {
  SmallNetwork usual = prepare_qat(network_to_train(), get_default_qat_qconfig());
  usual(small_input(3, 10));
  CHECK_THROWS_WITH_AS(enable_param_learning(usual),
                       doctest::Contains("expected LearnableFakeQuantize below"), ArgumentError);
  SmallNetwork fresh = prepare_qat(network_to_train(), lsq_qconfig());
  CHECK_THROWS_WITH_AS(enable_param_learning(fresh), doctest::Contains("got no data at"),
                       ArgumentError);
  for (FakeQuantizeBase* fake : fake_quantizers(fresh)) {
    CHECK_FALSE(dynamic_cast<LearnableFakeQuantize&>(*fake).is_learning_enabled());
  }
}

TEST_CASE("check knows models that are made for training with quantization in the loop") {
  SmallNetwork net = network_to_train();
  CHECK(check(net).empty());
  prepare_qat_(net, get_default_qat_qconfig());
  CHECK(check(net).size() == 5);  // observers without data
  net(small_input(1));
  CHECK(check(net).empty());

  SmallNetwork forgotten = network_to_train();
  forgotten.eval();
  const std::vector<Problem> problems = check(forgotten);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].path == "conv1");
  CHECK(problems[0].text.find("is to be trained") != std::string::npos);
}

TEST_CASE("dynamic qat: the input is fake-quantized and convert makes dynamic layers") {
  const auto mapping = ModuleMapping().add<nn::Linear>(&nn::qat::dynamic::Linear::from_float);
  nn::Sequential net(nn::Linear({.in_features = 6, .out_features = 8}), nn::ReLU(),
                     nn::Linear({.in_features = 8, .out_features = 3}));
  net.train();
  nn::Sequential prepared = prepare_qat(net, default_dynamic_qat_qconfig(), mapping);
  CHECK(dynamic_cast<nn::qat::dynamic::Linear*>(prepared.ptr(0).get()) != nullptr);
  prepared.requires_grad_();
  const Tensor x = random_tensor({7, 6}, 4);
  const Tensor y = prepared(x);
  y.backward(Tensor::ones(y.sizes()));
  CHECK(prepared.ptr(0)->parameters()[0].grad().defined());
  // The range of a memoryless observer is that of the last input.
  const auto observer = prepared.ptr(0)->activation_post_process();
  REQUIRE(observer != nullptr);
  prepared.eval();
  const nn::Sequential dynamic =
      convert(prepared, {.mapping = default_dynamic_quant_module_mappings()});
  CHECK(dynamic_cast<nn::quantized::dynamic::Linear*>(dynamic.ptr(0).get()) != nullptr);
  CHECK(largest_difference(dynamic(x), prepared(x).detach()) < 0.05F);
}

TEST_CASE("prepare_qat: fused modules without a qat form stay whole") {
  const auto mapping = ModuleMapping().add<nn::Linear>(&nn::qat::dynamic::Linear::from_float);
  nn::Sequential net(nn::Linear({.in_features = 6, .out_features = 8}), nn::ReLU());
  net.train();
  fuse_modules_qat(net, {{"0", "1"}});
  const nn::Sequential prepared = prepare_qat(net, default_dynamic_qat_qconfig(), mapping);
  const auto whole = prepared.ptr(0);
  const nn::Module& first = *whole->named_children()[0].module;
  CHECK(typeid(first) == typeid(nn::Linear));
}

TEST_CASE("embeddings train with 8 and 4 bits and come out as quantized tables") {
  for (const bool four_bits : {false, true}) {
    CAPTURE(four_bits);
    nn::Sequential net(nn::Embedding({.num_embeddings = 20, .embedding_dim = 6}));
    net.train();
    const QConfig qconfig =
        four_bits ? default_embedding_qat_qconfig_4bit() : default_embedding_qat_qconfig();
    nn::Sequential prepared = prepare_qat(net, qconfig);
    CHECK(dynamic_cast<nn::qat::Embedding*>(prepared.ptr(0).get()) != nullptr);
    prepared.requires_grad_();
    const Tensor rows = Tensor::from_int64(std::vector<std::int64_t>{3, 19, 0});
    const Tensor y = prepared(rows);
    y.backward(Tensor::ones(y.sizes()));
    CHECK(check(prepared).empty());
    prepared.eval();
    const nn::Sequential converted = convert(prepared);
    const auto* table = dynamic_cast<const nn::quantized::Embedding*>(converted.ptr(0).get());
    REQUIRE(table != nullptr);
    CHECK(table->weight().dtype() == (four_bits ? DType::QUInt4x2 : DType::QUInt8));
    // Tables of 4 bits keep their scales and zero points in Float16.
    CHECK(largest_difference(converted(rows), y.detach()) < (four_bits ? 4e-3F : 1e-5F));
  }
  nn::Sequential means(nn::EmbeddingBag(
      {.num_embeddings = 5, .embedding_dim = 4, .mode = nn::EmbeddingBagMode::Mean}));
  means.train();
  nn::Sequential prepared = prepare_qat(means, default_embedding_qat_qconfig());
  prepared(Tensor::from_int64(std::vector<std::int64_t>{0, 1}).view({1, 2}));
  CHECK_THROWS_WITH_AS(convert(prepared), doctest::Contains("mode: expected Sum"), ArgumentError);
}

TEST_CASE("prepare_qat: activations of a known range get the fake quantizer of that range") {
  nn::Sequential net(nn::QuantStub(), nn::Linear({.in_features = 6, .out_features = 8}), nn::Tanh(),
                     nn::Linear({.in_features = 8, .out_features = 3}), nn::Sigmoid(),
                     nn::DeQuantStub());
  net.train();
  nn::Sequential prepared = prepare_qat(net, get_default_qat_qconfig());
  const auto observers = get_observer_dict(prepared);
  CHECK(observers.at("2.activation_post_process")->name() == "FixedQParamsFakeQuantize");
  CHECK(observers.at("2.activation_post_process.activation_post_process")->name() ==
        "FixedQParamsObserver");
  CHECK(observers.at("2.activation_post_process")->calculate_qparams().scale.item() == 1.0 / 128.0);
  CHECK(observers.at("4.activation_post_process")->calculate_qparams().scale.item() == 1.0 / 256.0);
  net.eval();
  const auto of_prepared = get_observer_dict(prepare(net, get_default_qconfig()), "net");
  CHECK(of_prepared.contains("net.1.activation_post_process"));
  CHECK_FALSE(of_prepared.contains("net.2.activation_post_process"));
  const Tensor x = random_tensor({7, 6}, 4);
  prepared.requires_grad_();
  const Tensor y = prepared(x);
  y.backward(Tensor::ones(y.sizes()));
  CHECK(prepared.ptr(1)->parameters()[0].grad().defined());
  prepared.eval();
  CHECK(largest_difference(convert(prepared)(x), prepared(x).detach()) < 0.05F);
}

TEST_CASE("prepare_qat: an LSTM trains in its observed form with fake-quantized weights") {
  struct Words : nn::Module {
    nn::Child<nn::QuantStub> quant;
    nn::Child<nn::LSTM> lstm;
    nn::Child<nn::DeQuantStub> dequant;
    Words() {
      register_module("quant", quant);
      register_module("lstm", lstm,
                      nn::RecurrentOptions{.input_size = 4, .hidden_size = 5, .batch_first = true});
      register_module("dequant", dequant);
    }
    Tensor forward(const Tensor& x) const override { return dequant(lstm(quant(x))); }
  };
  Words net;
  net.train();
  Words prepared = prepare_qat(net, get_default_qat_qconfig("onednn"));
  CHECK(dynamic_cast<nn::quantizable::LSTM*>(prepared.lstm.module().get()) != nullptr);
  int layers = 0;
  for (const auto& [path, module] : prepared.named_modules()) {
    layers += dynamic_cast<nn::qat::Linear*>(module) != nullptr ? 1 : 0;
  }
  CHECK(layers == 2);
  prepared.requires_grad_();
  const Tensor x = random_tensor({3, 6, 4}, 4);
  const Tensor y = prepared(x);
  y.backward(Tensor::ones(y.sizes()));
  for (const auto& [path, parameter] : prepared.named_parameters()) {
    CAPTURE_BINDING(path);
    CHECK(parameter.grad().defined());
  }
  prepared.eval();
  // The cell starts from zeros, so that the moving ranges of its state need time.
  for (int batch = 0; batch < 100; ++batch) prepared(x);
  disable_observer(prepared);
  CHECK(largest_difference(convert(prepared)(x), prepared(x).detach()) < 0.05F);
}

}  // namespace quanta::test
