// Activations, sums, products, joins, lookups and quantization, of the size of a layer's output:
// bytes read and written beside the machine's copy speed.

#include <array>

#include "op_bench.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/embedding.h"

namespace quanta::bench {
namespace {

const Dims kImage{1, 64, 56, 56};
constexpr double kElements = 64.0 * 56 * 56;

template <typename Int8, typename Float>
void add_unary(const std::string& name, Int8 int8, Float float32) {
  add_benchmark(name, {.bytes = 2.0 * kElements}, [=] {
    return std::pair{[int8, x = quint8_input(kImage)] { int8(x); },
                     [float32, x = float_input(kImage)] { float32(x); }};
  });
}

template <typename Int8, typename Float>
void add_binary(const std::string& name, const Dims& other, Int8 int8, Float float32) {
  add_benchmark(name, {.bytes = (other == kImage ? 3.0 : 2.0) * kElements}, [=] {
    return std::pair{[int8, x = quint8_input(kImage), y = quint8_input(other)] { int8(x, y); },
                     [float32, x = float_input(kImage), y = float_input(other)] { float32(x, y); }};
  });
}

void add_activations() {
  add_unary(
      "relu", [](const QTensor& x) { relu(x); }, [](const Tensor& x) { relu(x); });
  add_unary(
      "hardtanh", [](const QTensor& x) { hardtanh(x); }, [](const Tensor& x) { hardtanh(x); });
  add_unary(
      "leaky_relu", [](const QTensor& x) { leaky_relu(x); },
      [](const Tensor& x) { leaky_relu(x); });
  add_unary(
      "sigmoid", [](const QTensor& x) { sigmoid(x); }, [](const Tensor& x) { sigmoid(x); });
  add_unary(
      "tanh", [](const QTensor& x) { tanh(x); }, [](const Tensor& x) { tanh(x); });
  add_unary(
      "gelu", [](const QTensor& x) { gelu(x); }, [](const Tensor& x) { gelu(x); });
  add_unary(
      "hardsigmoid", [](const QTensor& x) { hardsigmoid(x); },
      [](const Tensor& x) { hardsigmoid(x); });
  add_unary(
      "hardswish", [](const QTensor& x) { quantized::hardswish(x, kScale, kZeroPoint); },
      [](const Tensor& x) { hardswish(x); });
  add_unary(
      "silu", [](const QTensor& x) { quantized::silu(x, kScale, kZeroPoint); },
      [](const Tensor& x) { silu(x); });
  add_unary(
      "elu", [](const QTensor& x) { quantized::elu(x, kScale, kZeroPoint); },
      [](const Tensor& x) { elu(x); });
  add_unary(
      "celu", [](const QTensor& x) { quantized::celu(x, kScale, kZeroPoint); },
      [](const Tensor& x) { celu(x); });
  add_unary(
      "prelu",
      [weight = quint8_input({64})](const QTensor& x) {
        quantized::prelu(x, weight, kScale, kZeroPoint);
      },
      [weight = Tensor::ones({64})](const Tensor& x) { prelu(x, weight); });
  // Long rows, and those of an encoder's attention over 128 tokens.
  for (const Dims& sizes : {Dims{128, 512}, Dims{1536, 128}}) {
    const double elements = static_cast<double>(sizes[0] * sizes[1]);
    add_benchmark("softmax/" + std::to_string(sizes[0]) + "x" + std::to_string(sizes[1]),
                  {.bytes = 2.0 * elements}, [sizes] {
                    return std::pair{
                        [x = quint8_input(sizes)] { quantized::softmax(x, 1, 1.0 / 256, 0); },
                        [x = float_input(sizes)] { softmax(x, 1); }};
                  });
  }
}

void add_arithmetic() {
  const Dims vector{1, 64, 1, 1};
  const auto q_add = [](const QTensor& x, const QTensor& y) {
    quantized::add(x, y, kScale, kZeroPoint);
  };
  const auto q_mul = [](const QTensor& x, const QTensor& y) {
    quantized::mul(x, y, kScale, kZeroPoint);
  };
  const auto f_add = [](const Tensor& x, const Tensor& y) { add(x, y); };
  const auto f_mul = [](const Tensor& x, const Tensor& y) { mul(x, y); };
  add_binary("add", kImage, q_add, f_add);
  add_binary("add/channel_vector", vector, q_add, f_add);
  add_binary("mul", kImage, q_mul, f_mul);
  add_binary("mul/channel_vector", vector, q_mul, f_mul);
  add_binary(
      "add_relu", kImage,
      [](const QTensor& x, const QTensor& y) { quantized::add_relu(x, y, kScale, kZeroPoint); },
      [](const Tensor& x, const Tensor& y) { add_relu(x, y); });
  add_unary(
      "mul_scalar", [](const QTensor& x) { quantized::mul_scalar(x, 0.5); },
      [](const Tensor& x) { mul_scalar(x, 0.5); });
  add_benchmark("cat/channels", {.bytes = 4.0 * kElements}, [] {
    return std::pair{[x = quint8_input(kImage)] {
                       quantized::cat(std::array{x, x}, 1, kScale, kZeroPoint);
                     },
                     [x = float_input(kImage)] {
                       cat(std::array{x, x}, 1);
                     }};
  });
  add_benchmark("cat/channels/requantized", {.bytes = 4.0 * kElements}, [] {
    return std::pair{[x = quint8_input(kImage)] {
                       quantized::cat(std::array{x, x}, 1, 2 * kScale, 0);
                     },
                     [x = float_input(kImage)] {
                       cat(std::array{x, x}, 1);
                     }};
  });
  add_benchmark("matmul/12x128x64x128", {.operations = 2.0 * 12 * 128 * 64 * 128}, [] {
    return std::pair{
        [x = quint8_input({12, 128, 64}), y = quint8_input({12, 64, 128})] {
          quantized::matmul(x, y, 0.2, kZeroPoint);
        },
        [x = float_input({12, 128, 64}), y = float_input({12, 64, 128})] { matmul(x, y); }};
  });
}

void add_quantization() {
  add_benchmark("quantize_per_tensor", {.bytes = 5.0 * kElements}, [] {
    return std::pair{
        [x = float_input(kImage)] { quantize_per_tensor(x, kScale, kZeroPoint, DType::QUInt8); },
        nullptr};
  });
  add_benchmark("quantize_per_channel", {.bytes = 5.0 * kElements}, [] {
    const Tensor scales = Tensor::full({64}, kScale);
    const Tensor zero_points = Tensor::zeros({64}, DType::Int64);
    return std::pair{[=, x = float_input(kImage)] {
                       quantize_per_channel(x, scales, zero_points, 1, DType::QInt8);
                     },
                     nullptr};
  });
  add_benchmark("quantize_per_tensor_dynamic", {.bytes = 9.0 * kElements}, [] {
    return std::pair{
        [x = float_input(kImage)] { quantize_per_tensor_dynamic(x, DType::QUInt8, false); },
        nullptr};
  });
  add_benchmark("dequantize", {.bytes = 5.0 * kElements}, [] {
    return std::pair{[x = quint8_input(kImage)] { dequantize(x); }, nullptr};
  });
}

/// 64 bags of 32 rows of 128 columns; the rows that are read and the sums that are written.
void add_embedding() {
  constexpr double kLookups = 64 * 32;
  add_benchmark("embedding_bag_byte/64x32x128", {.bytes = kLookups * 136 + 64 * 128 * 4}, [] {
    Generator generator(9);
    const Tensor packed = quantized::embedding_bag_byte_prepack(randn({10000, 128}, generator));
    const Tensor indices = randint(0, 10000, {64, 32}, DType::Int64, generator);
    return std::pair{[=] { quantized::embedding_bag_byte_rowwise_offsets(packed, indices); },
                     nullptr};
  });
  add_benchmark("embedding_bag_4bit/64x32x128", {.bytes = kLookups * 68 + 64 * 128 * 4}, [] {
    Generator generator(9);
    const Tensor packed = quantized::embedding_bag_4bit_prepack(randn({10000, 128}, generator));
    const Tensor indices = randint(0, 10000, {64, 32}, DType::Int64, generator);
    return std::pair{[=] { quantized::embedding_bag_4bit_rowwise_offsets(packed, indices); },
                     nullptr};
  });
}

const Family kActivations(add_activations);
const Family kArithmetic(add_arithmetic);
const Family kQuantization(add_quantization);
const Family kEmbedding(add_embedding);

}  // namespace
}  // namespace quanta::bench
