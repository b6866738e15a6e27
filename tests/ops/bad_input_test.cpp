#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/pooling.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/tensor.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/tensors.h"

// For each family of ops: bad arguments give a quanta::Error whose text names the op, the argument,
// what was expected and what came.

namespace quanta::test {
namespace {

namespace q = quanta::quantized;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::array<double, 5> kBadScales{0.0, -0.1, kNan, kInf, 1e-60};

/// The parameters of an output: no op takes a bad one.
template <typename Op>
void refuses_bad_output_params(const std::string& op, const Op& run) {
  for (const double scale : kBadScales) {
    refuses({op, "scale", "> 0"}, [&] { return run(scale, 0); });
  }
  refuses({op, "zero_point", "0..255", "256"}, [&] { return run(0.1, 256); });
  refuses({op, "zero_point", "0..255", "-1"}, [&] { return run(0.1, -1); });
}

QTensor codes(const Dims& sizes, DType dtype = DType::QUInt8, double scale = 0.1) {
  const QTensor x = QTensor::empty(sizes, scale, 0, dtype);
  x.fill_(0.0);
  return x;
}

QTensor channel_codes(const Dims& sizes, std::int64_t axis, DType dtype) {
  const auto count = static_cast<std::size_t>(sizes[static_cast<std::size_t>(axis)]);
  const QTensor x =
      QTensor::empty(sizes, dtype,
                     Quantizer::per_channel(std::vector<double>(count, 0.1),
                                            std::vector<std::int64_t>(count, 0), axis));
  x.fill_(0.0);
  return x;
}

using FloatConv = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const ConvOptions&);
constexpr std::array<FloatConv, 3> kConvs{conv1d, conv2d, conv3d};
using FloatConvTranspose = Tensor (*)(const Tensor&, const Tensor&, const Tensor&,
                                      const ConvTransposeOptions&);
constexpr std::array<FloatConvTranspose, 3> kTransposed{conv_transpose1d, conv_transpose2d,
                                                        conv_transpose3d};

}  // namespace

TEST_CASE("bad input: quantize_per_tensor names the op and the argument") {
  const Tensor x = Tensor::zeros({4});
  refuses_bad_output_params("quantize_per_tensor", [&](double scale, std::int64_t zero_point) {
    return quantize_per_tensor(x, scale, zero_point, DType::QUInt8);
  });
  refuses({"quantize_per_tensor", "zero_point", "-128..127", "128"},
          [&] { return quantize_per_tensor(x, 0.1, 128, DType::QInt8); });
  refuses({"quantize_per_tensor", "x", "Float32", "Int64"}, [&] {
    return quantize_per_tensor(Tensor::zeros({4}, DType::Int64), 0.1, 0, DType::QUInt8);
  });
  refuses({"quantize_per_tensor", "dtype", "UInt8"},
          [&] { return quantize_per_tensor(x, 0.1, 0, DType::UInt8); });
  refuses({"quantize_per_tensor", "x"},
          [&] { return quantize_per_tensor(codes({4}), 0.1, 0, DType::QUInt8); });
  refuses({"quantize_per_tensor", "x"},
          [&] { return quantize_per_tensor(Tensor(), 0.1, 0, DType::QUInt8); });
}

TEST_CASE("bad input: quantize_per_channel checks axis, lengths and every parameter") {
  const Tensor x = Tensor::zeros({2, 3});
  const Tensor scales = Tensor::full({3}, 0.1);
  const Tensor zeros = Tensor::zeros({3}, DType::Int64);
  for (const std::int64_t axis : {2, -3}) {
    refuses({"quantize_per_channel", "axis", std::to_string(axis)},
            [&] { return quantize_per_channel(x, scales, zeros, axis, DType::QInt8); });
  }
  refuses({"quantize_per_channel", "scales", "2", "3"},
          [&] { return quantize_per_channel(x, scales, zeros, 0, DType::QInt8); });
  refuses({"quantize_per_channel", "zero_points", "3", "2"}, [&] {
    return quantize_per_channel(x, scales, Tensor::zeros({2}, DType::Int64), 1, DType::QInt8);
  });
  for (const double bad : kBadScales) {
    const Tensor wrong = Tensor::full({3}, 0.1, DType::Float64);
    wrong.select(0, 2).fill_(bad);
    refuses({"quantize_per_channel", "scale", "> 0"},
            [&] { return quantize_per_channel(x, wrong, zeros, 1, DType::QInt8); });
  }
  refuses({"quantize_per_channel", "zero_point", "-128..127", "200"}, [&] {
    return quantize_per_channel(x, scales, Tensor::full({3}, 200, DType::Int64), 1, DType::QInt8);
  });
  refuses({"quantize_per_channel", "x", "Float32"}, [&] {
    return quantize_per_channel(Tensor::zeros({2, 3}, DType::Int32), scales, zeros, 1,
                                DType::QInt8);
  });
}

TEST_CASE("bad input: float convolutions of 1 to 3 dimensions") {
  for (std::int64_t spatial = 1; spatial <= 3; ++spatial) {
    const FloatConv conv = kConvs[static_cast<std::size_t>(spatial - 1)];
    const std::string op = "conv" + std::to_string(spatial) + "d";
    CAPTURE(op);
    const Tensor x = Tensor::zeros(image_sizes(1, 4, spatial, 5));
    const Tensor weight = Tensor::zeros(image_sizes(6, 4, spatial, 3));
    refuses({op, "x", "Float32", "Int32"},
            [&] { return conv(x.to(DType::Int32), weight, {}, {}); });
    refuses({op, "x", "DeQuantStub"}, [&] { return conv(codes(x.sizes()), weight, {}, {}); });
    refuses({op, "x", "4 channels", "5"},
            [&] { return conv(Tensor::zeros(image_sizes(1, 5, spatial, 5)), weight, {}, {}); });
    refuses({op, "x", "dimensions"}, [&] { return conv(Tensor::zeros({4}), weight, {}, {}); });
    refuses({op, "x", "kernel"},
            [&] { return conv(Tensor::zeros(image_sizes(1, 4, spatial, 2)), weight, {}, {}); });
    refuses({op, "x", "undefined"}, [&] { return conv({}, weight, {}, {}); });
    refuses({op, "weight", "undefined"}, [&] { return conv(x, {}, {}, {}); });
    refuses({op, "weight", "dimensions"}, [&] { return conv(x, Tensor::zeros({6, 4}), {}, {}); });
    refuses({op, "bias", "6", "[5]"}, [&] { return conv(x, weight, Tensor::zeros({5}), {}); });
    refuses({op, "bias", "Float32", "Int64"},
            [&] { return conv(x, weight, Tensor::zeros({6}, DType::Int64), {}); });
    for (const std::int64_t groups : {0, -1, 4}) {
      refuses({op, "groups", "6", std::to_string(groups)},
              [&] { return conv(x, weight, {}, {.groups = groups}); });
    }
    refuses({op, "x", "8 channels"}, [&] { return conv(x, weight, {}, {.groups = 2}); });
    refuses({op, "stride", "0"}, [&] { return conv(x, weight, {}, {.stride = {0}}); });
    refuses({op, "padding", "-1"}, [&] { return conv(x, weight, {}, {.padding = {-1}}); });
    refuses({op, "dilation", "0"}, [&] { return conv(x, weight, {}, {.dilation = {0}}); });
    refuses({op, "stride"}, [&] { return conv(x, weight, {}, {.stride = {1, 1, 1, 1}}); });
  }
}

TEST_CASE("bad input: float transposed convolutions") {
  for (std::int64_t spatial = 1; spatial <= 3; ++spatial) {
    const FloatConvTranspose conv = kTransposed[static_cast<std::size_t>(spatial - 1)];
    const std::string op = "conv_transpose" + std::to_string(spatial) + "d";
    CAPTURE(op);
    const Tensor x = Tensor::zeros(image_sizes(1, 4, spatial, 5));
    const Tensor weight = Tensor::zeros(image_sizes(4, 6, spatial, 3));
    refuses({op, "x", "4 channels"},
            [&] { return conv(Tensor::zeros(image_sizes(1, 5, spatial, 5)), weight, {}, {}); });
    refuses({op, "x", "Float32"}, [&] { return conv(codes(x.sizes()), weight, {}, {}); });
    refuses({op, "groups", "4", "3"}, [&] { return conv(x, weight, {}, {.groups = 3}); });
    refuses({op, "output_padding", "2"},
            [&] { return conv(x, weight, {}, {.stride = {2}, .output_padding = {2}}); });
    refuses({op, "x", "output"}, [&] { return conv(x, weight, {}, {.padding = {9}}); });
  }
}

TEST_CASE("bad input: quantized convolutions check weight, input and output parameters") {
  for (std::int64_t spatial = 1; spatial <= 3; ++spatial) {
    const std::string op = "conv" + std::to_string(spatial) + "d";
    CAPTURE(op);
    const Dims weight_sizes = image_sizes(6, 4, spatial, 3);
    const auto pack = [&](const QTensor& weight, const Tensor& bias = {},
                          const ConvOptions& options = {}) {
      return q::ConvPackedParams(weight, bias, options, spatial);
    };
    refuses({op, "weight", "QInt8", "QUInt8"}, [&] { return pack(codes(weight_sizes)); });
    refuses({op, "weight", "axis 0", "axis 1"},
            [&] { return pack(channel_codes(weight_sizes, 1, DType::QInt8)); });
    refuses({op, "weight", "undefined"}, [&] { return pack(QTensor()); });
    const QTensor weight = codes(weight_sizes, DType::QInt8);
    refuses({op, "bias", "6", "[7]"}, [&] { return pack(weight, Tensor::zeros({7})); });
    refuses({op, "groups", "6", "4"}, [&] { return pack(weight, {}, {.groups = 4}); });
    refuses({op, "dilation", "0"}, [&] { return pack(weight, {}, {.dilation = {0}}); });

    const q::ConvPackedParams packed = pack(weight);
    const QTensor x = codes(image_sizes(1, 4, spatial, 5));
    refuses_bad_output_params(op, [&](double scale, std::int64_t zero_point) {
      return q::conv(x, packed, scale, zero_point);
    });
    refuses_bad_output_params(op, [&](double scale, std::int64_t zero_point) {
      return q::conv_relu(x, packed, scale, zero_point);
    });
    refuses({op, "x", "QUInt8", "QInt8"},
            [&] { return q::conv(codes(x.sizes(), DType::QInt8), packed, 0.1, 0); });
    refuses({op, "x", "per tensor", "PerChannelAffine"},
            [&] { return q::conv(channel_codes(x.sizes(), 1, DType::QUInt8), packed, 0.1, 0); });
    refuses({op, "x", "4 channels", "5"},
            [&] { return q::conv(codes(image_sizes(1, 5, spatial, 5)), packed, 0.1, 0); });
    refuses({op, "x", "kernel"},
            [&] { return q::conv(codes(image_sizes(1, 4, spatial, 2)), packed, 0.1, 0); });
    refuses({op, "x", "undefined"}, [&] { return q::conv(QTensor(), packed, 0.1, 0); });
    refuses({op, "accum", "sizes"}, [&] { return q::conv_add(x, x, packed, 0.1, 0); });
    refuses({"conv", "packed", "empty"}, [&] { return q::conv(x, q::ConvPackedParams(), 0.1, 0); });
  }
  refuses({"conv", "spatial", "4"}, [] {
    return q::ConvPackedParams(codes({2, 2, 1, 1}, DType::QInt8), {}, {}, 4);
  });
}

TEST_CASE("bad input: quantized transposed convolutions") {
  const Dims sizes{4, 6, 3, 3};
  const auto pack = [&](const QTensor& weight, const ConvTransposeOptions& options = {}) {
    return q::ConvPackedParams::transposed(weight, {}, options, 2);
  };
  refuses({"conv_transpose2d", "weight", "axis 1", "axis 0"},
          [&] { return pack(channel_codes(sizes, 0, DType::QInt8)); });
  refuses({"conv_transpose2d", "weight", "groups 2"},
          [&] { return pack(channel_codes(sizes, 1, DType::QInt8), {.groups = 2}); });
  refuses({"conv_transpose2d", "groups", "4", "3"},
          [&] { return pack(codes(sizes, DType::QInt8), {.groups = 3}); });
  refuses({"conv_transpose2d", "output_padding", "1"},
          [&] { return pack(codes(sizes, DType::QInt8), {.output_padding = {1}}); });
  const q::ConvPackedParams packed = pack(codes(sizes, DType::QInt8));
  refuses({"conv_transpose2d", "x", "4 channels", "6"}, [&] {
    return q::conv(codes({1, 6, 5, 5}), packed, 0.1, 0);
  });
  refuses_bad_output_params("conv_transpose2d", [&](double scale, std::int64_t zero_point) {
    return q::conv(codes({1, 4, 5, 5}), packed, scale, zero_point);
  });
}

TEST_CASE("bad input: linear in float and int8") {
  const Tensor weight = Tensor::zeros({3, 4});
  refuses({"linear", "x", "4 features", "[2, 5]"}, [&] {
    return linear(Tensor::zeros({2, 5}), weight);
  });
  refuses({"linear", "x", "4 features", "[]"}, [&] { return linear(Tensor::scalar(1.0), weight); });
  refuses({"linear", "x", "Float32", "DeQuantStub"}, [&] { return linear(codes({2, 4}), weight); });
  refuses({"linear", "weight", "[3]"}, [&] {
    return linear(Tensor::zeros({2, 4}), Tensor::zeros({3}));
  });
  refuses({"linear", "bias", "3", "[4]"}, [&] {
    return linear(Tensor::zeros({2, 4}), weight, Tensor::zeros({4}));
  });

  refuses({"linear", "weight", "QInt8", "QUInt8"}, [&] {
    return q::LinearPackedParams(codes({3, 4}), {});
  });
  refuses({"linear", "weight", "axis 0", "axis 1"}, [&] {
    return q::LinearPackedParams(channel_codes({3, 4}, 1, DType::QInt8), {});
  });
  const q::LinearPackedParams packed(codes({3, 4}, DType::QInt8), {});
  refuses({"linear", "x", "4 features"}, [&] { return q::linear(codes({2, 3}), packed, 0.1, 0); });
  refuses({"linear", "x", "QUInt8", "QInt32"}, [&] {
    return q::linear(codes({2, 4}, DType::QInt32), packed, 0.1, 0);
  });
  refuses({"linear", "packed", "empty"}, [&] {
    return q::linear(codes({2, 4}), q::LinearPackedParams(), 0.1, 0);
  });
  const QTensor x = codes({2, 4});
  refuses_bad_output_params("linear", [&](double scale, std::int64_t zero_point) {
    return q::linear(x, packed, scale, zero_point);
  });
  refuses_bad_output_params("linear", [&](double scale, std::int64_t zero_point) {
    return q::linear_relu(x, packed, scale, zero_point);
  });
  refuses_bad_output_params("linear", [&](double scale, std::int64_t zero_point) {
    return q::linear_tanh(x, packed, scale, zero_point);
  });
  refuses({"linear_leaky_relu", "negative_slope", "nan"},
          [&] { return q::linear_leaky_relu(x, packed, 0.1, 0, kNan); });
}

TEST_CASE("bad input: add, mul and cat") {
  refuses({"add", "[2]", "[3]"}, [] { return add(Tensor::zeros({2}), Tensor::zeros({3})); });
  refuses({"add", "FloatFunctional"}, [] { return add(codes({2}), codes({2})); });
  refuses({"mul", "FloatFunctional"}, [] { return mul(Tensor::zeros({2}), codes({2})); });
  refuses({"add"}, [] { return add(Tensor(), Tensor::zeros({3})); });

  const QTensor x = codes({2, 3});
  using Binary = QTensor (*)(const QTensor&, const QTensor&, double, std::int64_t);
  const std::array<std::pair<std::string, Binary>, 4> binaries{
      {{"add", q::add}, {"add_relu", q::add_relu}, {"mul", q::mul}, {"mul_relu", q::mul_relu}}};
  for (const auto& [op, run] : binaries) {
    CAPTURE_BINDING(op);
    refuses_bad_output_params(op, [&, run = run](double scale, std::int64_t zero_point) {
      return run(x, x, scale, zero_point);
    });
    refuses({op, "QUInt8", "QInt8"}, [&, run = run] {
      return run(x, codes({2, 3}, DType::QInt8), 0.1, 0);
    });
    refuses({op, "[2, 3]", "[4]"}, [&, run = run] { return run(x, codes({4}), 0.1, 0); });
    refuses({op, "PerChannelAffine"}, [&, run = run] {
      return run(x, channel_codes({2, 3}, 1, DType::QUInt8), 0.1, 0);
    });
    refuses({op}, [&, run = run] { return run(QTensor(), x, 0.1, 0); });
  }

  const std::vector<QTensor> unequal{x, codes({2, 4})};
  refuses({"cat", "[2, 4]"}, [&] { return q::cat(unequal, 0); });
  refuses({"cat", "dim", "5"}, [&] { return q::cat(std::vector<QTensor>{x, x}, 5); });
  refuses({"cat", "tensors"}, [] { return q::cat(std::vector<QTensor>{}, 0); });
  refuses({"cat", "QInt8"}, [&] {
    return q::cat(std::vector<QTensor>{x, codes({2, 3}, DType::QInt8)}, 0);
  });
  refuses_bad_output_params("cat", [&](double scale, std::int64_t zero_point) {
    return q::cat(std::vector<QTensor>{x, x}, 0, scale, zero_point);
  });
  refuses({"cat", "tensors"}, [] { return cat(std::vector<Tensor>{}, 0); });
  refuses({"cat"}, [] { return cat(std::vector<Tensor>{Tensor(), Tensor::zeros({2})}, 0); });
  refuses({"cat"}, [&] { return cat(std::vector<Tensor>{Tensor::zeros({2, 3}), x}, 0); });
}

TEST_CASE("bad input: activations") {
  const QTensor per_channel = channel_codes({2, 3}, 1, DType::QUInt8);
  using Unary = Tensor (*)(const Tensor&);
  const std::array<std::pair<std::string, Unary>, 5> unaries{{{"relu", relu},
                                                              {"relu6", relu6},
                                                              {"sigmoid", sigmoid},
                                                              {"hardsigmoid", hardsigmoid},
                                                              {"tanh", tanh}}};
  for (const auto& [op, run] : unaries) {
    CAPTURE_BINDING(op);
    refuses({op, "x", "PerChannelAffine"}, [&, run = run] { return run(per_channel); });
    refuses({op, "x", "Int64"}, [run = run] { return run(Tensor::zeros({2}, DType::Int64)); });
    refuses({op, "x"}, [run = run] { return run(Tensor()); });
  }
  refuses({"silu", "x"}, [] { return silu(codes({2})); });
  refuses({"clamp"}, [] { return clamp(Tensor::zeros({2}), {}, {}); });
  refuses({"softmax", "dim", "3"}, [] { return softmax(Tensor::zeros({2, 2}), 3); });

  const QTensor x = codes({2, 3});
  refuses_bad_output_params("hardswish", [&](double scale, std::int64_t zero_point) {
    return q::hardswish(x, scale, zero_point);
  });
  refuses_bad_output_params("sigmoid", [&](double scale, std::int64_t zero_point) {
    return q::sigmoid(x, scale, zero_point);
  });
  refuses_bad_output_params("leaky_relu", [&](double scale, std::int64_t zero_point) {
    return q::leaky_relu(x, 0.1, scale, zero_point);
  });
  refuses_bad_output_params(
      "elu", [&](double scale, std::int64_t zero_point) { return q::elu(x, scale, zero_point); });
  refuses({"prelu", "weight"}, [&] { return q::prelu(x, codes({2}), 0.1, 0); });
}

TEST_CASE("bad input: pooling") {
  const QTensor x = codes({1, 2, 6, 6});
  refuses({"max_pool2d", "kernel_size"}, [&] { return max_pool2d(x, {}); });
  refuses({"max_pool2d", "kernel_size", "0"}, [&] { return max_pool2d(x, {.kernel_size = {0}}); });
  refuses({"max_pool2d", "padding", "2"},
          [&] { return max_pool2d(x, {.kernel_size = {3}, .padding = {2}}); });
  refuses({"max_pool2d", "stride", "-1"},
          [&] { return max_pool2d(x, {.kernel_size = {3}, .stride = {-1}}); });
  refuses({"max_pool2d", "x", "[6]"}, [] { return max_pool2d(codes({6}), {.kernel_size = {2}}); });
  refuses({"max_pool2d"}, [&] { return max_pool2d(x, {.kernel_size = {9}}); });
  refuses({"max_pool2d", "PerChannelAffine"}, [] {
    return max_pool2d(channel_codes({1, 2, 6, 6}, 1, DType::QUInt8), {.kernel_size = {2}});
  });
  refuses({"avg_pool2d", "divisor_override", "0"},
          [&] { return avg_pool2d(x, {.kernel_size = {2}, .divisor_override = 0}); });
  refuses({"avg_pool2d", "QInt32"}, [] {
    return avg_pool2d(codes({1, 2, 6, 6}, DType::QInt32), {.kernel_size = {2}});
  });
  refuses({"avg_pool2d", "x"}, [] { return avg_pool2d(Tensor(), {.kernel_size = {2}}); });
  refuses({"adaptive_avg_pool2d", "output_size"}, [&] {
    return adaptive_avg_pool2d(x, {1, 2, 3});
  });
  refuses({"adaptive_avg_pool2d", "output_size", "-2"},
          [&] { return adaptive_avg_pool2d(x, {-2}); });
  refuses({"adaptive_avg_pool2d", "x"}, [] { return adaptive_avg_pool2d(codes({6, 6}), {1}); });
}

TEST_CASE("bad input: batch_norm") {
  const Tensor ones = Tensor::ones({3});
  refuses({"batch_norm", "mean", "3", "[4]"}, [&] {
    return batch_norm(Tensor::zeros({2, 3, 4, 4}), Tensor::ones({4}), ones, ones, ones);
  });
  refuses({"batch_norm", "x"},
          [&] { return batch_norm(Tensor::zeros({3}), ones, ones, ones, ones); });
  const QTensor x = codes({2, 3, 4, 4});
  refuses({"batch_norm"}, [&] { return batch_norm(x, ones, ones, ones, ones); });
  refuses({"batch_norm", "weight"},
          [&] { return q::batch_norm(x, {}, ones, ones, ones, 1e-5, 0.1, 0); });
  refuses({"batch_norm", "var", "Float32", "Int64"}, [&] {
    return q::batch_norm(x, ones, ones, ones, Tensor::ones({3}, DType::Int64), 1e-5, 0.1, 0);
  });
  refuses({"batch_norm", "PerChannelAffine"}, [&] {
    return q::batch_norm(channel_codes(x.sizes(), 1, DType::QUInt8), ones, ones, ones, ones, 1e-5,
                         0.1, 0);
  });
  refuses_bad_output_params("batch_norm", [&](double scale, std::int64_t zero_point) {
    return q::batch_norm(x, ones, ones, ones, ones, 1e-5, scale, zero_point);
  });
}

TEST_CASE("bad input: views of quantized tensors keep or refuse the channel axis") {
  const QTensor x = codes({2, 3, 4});
  refuses({"view", "sizes", "24", "[5, 5]"}, [&] { return x.view({5, 5}); });
  refuses({"reshape", "sizes", "-1"}, [&] { return x.reshape({-1, -1}); });
  refuses({"flatten", "start_dim"}, [&] { return x.flatten(2, 1); });
  refuses({"flatten", "end_dim", "3"}, [&] { return x.flatten(0, 3); });
  refuses({"permute", "order"}, [&] { return x.permute({0, 1}); });
  refuses({"permute", "order", "[0, 1, 1]"}, [&] { return x.permute({0, 1, 1}); });
  refuses({"select", "index", "-3..2", "3"}, [&] { return x.select(1, 3); });
  refuses({"select", "dim", "-3..2", "3"}, [&] { return x.select(3, 0); });
  refuses({"slice", "step", "0"}, [&] { return x.slice(0, 0, 1, 0); });
  refuses({"narrow", "length", "9"}, [&] { return x.narrow(1, 0, 9); });
  const QTensor per_channel = channel_codes({2, 3, 4}, 1, DType::QInt8);
  refuses({"flatten", "axis 1"}, [&] { return per_channel.flatten(); });
  refuses({"view", "axis 1"}, [&] { return per_channel.view({6, 4}); });
  CHECK(QTensor(per_channel.view({2, 3, 2, 2})).q_per_channel_axis() == 1);
}

}  // namespace quanta::test
