// Random networks, quantized in every way, written as ONNX and read again: the same bits.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/nn/dynamic/module.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/rnn.h"
#include "quanta/observers/defaults.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/random.h"

namespace quanta::graph {
namespace {

using Integers = std::vector<std::int64_t>;
using test::NetBuilder;

/// A value of a network and its sizes.
struct Part {
  std::string name;
  Integers sizes;
};

class RandomNet {
 public:
  explicit RandomNet(std::uint64_t seed) : random_(seed) { manual_seed(seed); }

  /// Convolutions, joins and pools of images, then linear layers.
  OnnxModel image_net() {
    parts_ = {{net_.input("x"), image_sizes}};
    conv(parts_[0]);
    const int layers = 4 + below(4);
    for (int i = 0; i < layers; ++i) image_layer();
    Part last = pooled(parts_.back());
    last = {net_.node("Flatten", {last.name}), {2, last.sizes[1] * last.sizes[2] * last.sizes[3]}};
    last = linear(last, 32);
    last.name = net_.node("Relu", {last.name});
    return net_.finish({linear(last, 5).name});
  }

  /// Recurrent layers and linear ones.
  OnnxModel sequence_net() {
    Part last{net_.input("x"), sequence_sizes};
    last = recurrent(last);
    if (below(2) == 0) last = recurrent(last);
    last = linear(last, 32);
    if (below(2) == 0) last.name = net_.node("Relu", {last.name});
    return net_.finish({linear(last, 5).name});
  }

  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }

  static inline const Integers image_sizes{2, 3, 8, 8};
  static inline const Integers sequence_sizes{4, 2, 32};  ///< steps, batch, features

 private:
  static Tensor weights(const Integers& sizes, double scale) {
    return mul_by(randn(Dims(sizes)), scale);
  }
  static Tensor mul_by(const Tensor& x, double factor) {
    std::vector<float> values = x.to_float_vector();
    for (float& value : values) value *= static_cast<float>(factor);
    return Tensor::from_values(values, x.sizes());
  }
  const Part& any() {
    return parts_[static_cast<std::size_t>(below(static_cast<int>(parts_.size())))];
  }

  void add(const std::string& name, const Integers& sizes) { parts_.push_back({name, sizes}); }

  void conv(const Part& x) {
    const std::int64_t channels = x.sizes[1];
    const bool depthwise = below(3) == 0;
    const std::int64_t kernel = below(2) == 0 ? 1 : 3;
    const std::int64_t made = depthwise ? channels : 3 + below(5);
    std::vector<std::string> inputs{
        x.name, net_.constant(weights({made, depthwise ? 1 : channels, kernel, kernel}, 0.4))};
    if (below(2) == 0) inputs.push_back(net_.constant(weights({made}, 0.5)));
    std::string y = net_.node(
        "Conv", inputs,
        {{"group", depthwise ? channels : std::int64_t{1}}, {"pads", Integers(4, kernel / 2)}});
    if (below(3) == 0) {
      const auto row = [&] { return net_.constant(weights({made}, 0.3)); };
      y = net_.node("BatchNormalization",
                    {y, row(), row(), row(), net_.constant(rand(Dims{made}))});
    }
    if (below(2) == 0) y = net_.node("Relu", {y});
    add(y, {2, made, x.sizes[2], x.sizes[3]});
  }

  /// Two parts of the same sizes; the second may be the first.
  std::pair<Part, Part> twins() {
    const Part first = any();
    for (const Part& part : parts_) {
      if (part.sizes == first.sizes && part.name != first.name && part.name != "x") {
        return {first, part};
      }
    }
    return {first, first};
  }

  Part pooled(const Part& x) {
    static constexpr std::array kKinds{"MaxPool", "AveragePool", "GlobalAveragePool"};
    const std::string kind = kKinds[static_cast<std::size_t>(below(3))];
    if (kind == "GlobalAveragePool") {
      return {net_.node(kind, {x.name}), {2, x.sizes[1], 1, 1}};
    }
    return {
        net_.node(kind, {x.name}, {{"kernel_shape", Integers{2, 2}}, {"strides", Integers{2, 2}}}),
        {2, x.sizes[1], x.sizes[2] / 2, x.sizes[3] / 2}};
  }

  void image_layer() {
    const Part x = any();
    const auto [first, second] = twins();
    switch (below(9)) {
      case 0:
        return add(net_.node("Sigmoid", {x.name}), x.sizes);
      case 1:
        return add(net_.node("LeakyRelu", {x.name}, {{"alpha", 0.125F}}), x.sizes);
      case 2:
        return add(net_.node("Mul", {first.name, second.name}), first.sizes);
      case 3:
        return add(net_.node("Add", {first.name, second.name}), first.sizes);
      case 4:
        return add(net_.node("Relu", {net_.node("Add", {first.name, second.name})}), first.sizes);
      case 5:
        return add(net_.node("Concat", {first.name, second.name}, {{"axis", std::int64_t{1}}}),
                   {2, first.sizes[1] + second.sizes[1], first.sizes[2], first.sizes[3]});
      case 6:
        if (x.sizes[2] >= 4) {
          const Part small = pooled(x);
          if (small.sizes[2] > 1) return add(small.name, small.sizes);
        }
        [[fallthrough]];
      default:
        return conv(x);
    }
  }

  Part linear(const Part& x, std::int64_t features) {
    const std::int64_t inputs = x.sizes.back();
    Integers sizes = x.sizes;
    sizes.back() = features;
    const Tensor weight = weights({inputs, features}, 0.3);
    const std::string bias = net_.constant(weights({features}, 0.5));
    if (x.sizes.size() == 2 && below(2) == 0) {
      if (below(2) == 0) return {net_.node("Gemm", {x.name, net_.constant(weight)}), sizes};
      return {net_.node("Gemm", {x.name, net_.constant(weight), bias}), sizes};
    }
    const std::string y = net_.node("MatMul", {x.name, net_.constant(weight)});
    return {below(2) == 0 ? net_.node("Add", {y, bias}) : y, sizes};
  }

  Part recurrent(const Part& x) {
    const bool lstm = below(2) == 0;
    const std::int64_t directions = 1 + below(2);
    const std::int64_t hidden = 32;
    const std::int64_t rows = (lstm ? 4 : 3) * hidden;
    std::vector<std::string> inputs{x.name,
                                    net_.constant(weights({directions, rows, x.sizes[2]}, 0.2)),
                                    net_.constant(weights({directions, rows, hidden}, 0.2))};
    if (below(3) != 0) inputs.push_back(net_.constant(weights({directions, 2 * rows}, 0.2)));
    OnnxAttributes attributes{{"hidden_size", hidden}};
    if (directions == 2) attributes["direction"] = std::string("bidirectional");
    if (!lstm) attributes["linear_before_reset"] = std::int64_t{1};
    std::string y = net_.node(lstm ? "LSTM" : "GRU", inputs, attributes);
    y = net_.node("Transpose", {y}, {{"perm", Integers{0, 2, 1, 3}}});
    y = net_.node("Reshape", {y, net_.constant(Tensor::from_int64(Integers{0, 0, -1}))});
    return {y, {x.sizes[0], x.sizes[1], directions * hidden}};
  }

  NetBuilder net_;
  std::mt19937_64 random_;
  std::vector<Part> parts_;
};

Tensor input_of(const Integers& sizes, std::uint64_t seed) {
  manual_seed(1000 + seed);
  return randn(Dims(sizes));
}

/// The same bits, also from a second time.
void check_same(const Model& net, const Tensor& x, const ExportOptions& options) {
  const OnnxModel file = to_onnx(net, options);
  const Model back = from_onnx(file);
  const Tensor expected = net(x);
  CHECK(back(x).equal(expected));
  CHECK(from_onnx(to_onnx(back, options))(x).equal(expected));
}

void check_targets(const Model& net, const Tensor& x) {
  check_same(net, x, {});
  check_same(net, x, {.target = OnnxTarget::OnnxRuntime});
}

constexpr std::uint64_t kNets = 25;

}  // namespace

TEST_CASE("float networks come back with the same bits") {
  for (std::uint64_t seed = 0; seed < kNets; ++seed) {
    CAPTURE(seed);
    check_same(from_onnx(RandomNet(seed).image_net()), input_of(RandomNet::image_sizes, seed), {});
    check_same(from_onnx(RandomNet(seed).sequence_net()), input_of(RandomNet::sequence_sizes, seed),
               {});
  }
}

TEST_CASE("static int8 networks come back with the same bits in every form") {
  for (std::uint64_t seed = 0; seed < kNets; ++seed) {
    CAPTURE(seed);
    RandomNet random(seed);
    const Model net = from_onnx(random.image_net());
    QConfig qconfig = get_default_qconfig();
    if (seed % 3 == 1) qconfig.weight = default_weight_observer();
    const Tensor x = input_of(RandomNet::image_sizes, seed);
    const Model int8 = quantize_jit(net, qconfig, [&](const Model& m) { static_cast<void>(m(x)); },
                                    {.prepare = {.fuse_add_relu = seed % 2 == 0}});
    const Tensor other = input_of(RandomNet::image_sizes, seed + kNets);
    check_same(int8, other, {});
    check_same(int8, other, {.bias = OnnxBias::Int32});
    check_same(int8, other, {.format = OnnxFormat::QOperator});
  }
}

TEST_CASE("dynamic networks come back with the same bits") {
  using quantized::ReduceRange;
  for (std::uint64_t seed = 0; seed < kNets; ++seed) {
    CAPTURE(seed);
    const bool image = seed % 2 == 0;
    const Model net =
        from_onnx(image ? RandomNet(seed).image_net() : RandomNet(seed).sequence_net());
    const Tensor x = input_of(image ? RandomNet::image_sizes : RandomNet::sequence_sizes, seed);
    DynamicSpec channels;
    channels.add_type<nn::Linear>(per_channel_dynamic_qconfig());
    channels.add_type<nn::LSTM>(per_channel_dynamic_qconfig());
    channels.add_type<nn::GRU>(per_channel_dynamic_qconfig());
    Model int8 = quantize_dynamic_jit(net, seed % 4 < 2 ? channels : DynamicSpec());
    check_targets(int8, x);
    nn::quantized::dynamic::set_reduce_range(int8, ReduceRange::No);
    check_targets(int8, x);
    check_targets(quantize_dynamic_jit(net, {}, DType::Float16), x);
  }
}

TEST_CASE("weight-only networks come back with the same bits") {
  for (std::uint64_t seed = 0; seed < kNets; ++seed) {
    CAPTURE(seed);
    const Model net = from_onnx(RandomNet(seed).sequence_net());
    const Tensor x = input_of(RandomNet::sequence_sizes, seed);
    for (const int bits : {8, 4}) {
      for (const std::int64_t group : {0, 16, 32}) {
        CAPTURE(bits);
        CAPTURE(group);
        check_targets(quantize_weight_only_jit(
                          net, {.bits = bits, .group_size = group, .symmetric = seed % 2 == 0}),
                      x);
      }
    }
  }
}

}  // namespace quanta::graph
