// Convolutions and linear layers, which compute: GOP/s beside the machine's int8 peak.

#include "op_bench.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"

namespace quanta::bench {
namespace {

struct Shape {
  Dims x;                 ///< [N, C, spatial...]
  std::int64_t channels;  ///< of the output
  std::int64_t kernel;
  ConvTransposeOptions options{};
};

/// Multiply-adds of one output (or, transposed, input) position times positions, twice.
double operations(const Shape& shape, bool is_transposed) {
  const std::size_t spatial = shape.x.size() - 2;
  double positions = static_cast<double>(shape.x[0]);
  double taps = 1.0;
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::int64_t out =
        (shape.x[2 + d] + 2 * shape.options.padding[0] - shape.kernel) / shape.options.stride[0] +
        1;
    positions *= static_cast<double>(is_transposed ? shape.x[2 + d] : out);
    taps *= static_cast<double>(shape.kernel);
  }
  return 2.0 * positions * taps * static_cast<double>(shape.x[1]) *
         static_cast<double>(shape.channels) / static_cast<double>(shape.options.groups);
}

Dims weight_sizes(std::int64_t first, std::int64_t second, const Shape& shape) {
  Dims sizes{first, second};
  for (std::size_t d = 2; d < shape.x.size(); ++d) sizes.push_back(shape.kernel);
  return sizes;
}

void add_conv(const std::string& name, const Shape& shape) {
  add_benchmark(name, {.operations = operations(shape, false)}, [shape] {
    const auto spatial = static_cast<std::int64_t>(shape.x.size()) - 2;
    const ConvOptions options{shape.options.stride, shape.options.padding, shape.options.dilation,
                              shape.options.groups};
    const QTensor weight =
        qint8_weight(weight_sizes(shape.channels, shape.x[1] / options.groups, shape));
    const quantized::ConvPackedParams packed(weight, Tensor::zeros({shape.channels}), options,
                                             spatial);
    const PackedConv float_packed(dequantize(weight), Tensor::zeros({shape.channels}), options,
                                  spatial);
    return std::pair{[=, x = quint8_input(shape.x)] { quantized::conv(x, packed, 1.0, 128); },
                     [=, x = float_input(shape.x)] { float_packed(x); }};
  });
}

void add_conv_transpose(const std::string& name, const Shape& shape) {
  add_benchmark(name, {.operations = operations(shape, true)}, [shape] {
    const Dims sizes = weight_sizes(shape.x[1], shape.channels / shape.options.groups, shape);
    const QTensor weight = quantize_per_tensor(float_input(sizes), 0.02, 0, DType::QInt8);
    const auto packed = quantized::ConvPackedParams::transposed(weight, {}, shape.options, 2);
    return std::pair{[=, x = quint8_input(shape.x)] { quantized::conv(x, packed, 1.0, 128); },
                     [=, x = float_input(shape.x), float_weight = dequantize(weight)] {
                       conv_transpose2d(x, float_weight, {}, shape.options);
                     }};
  });
}

void add_linear(std::int64_t rows, std::int64_t in, std::int64_t out) {
  const std::string name =
      "linear/" + std::to_string(rows) + "x" + std::to_string(in) + "->" + std::to_string(out);
  const double work = 2.0 * static_cast<double>(rows * in * out);
  add_benchmark(name, {.operations = work}, [=] {
    const QTensor weight = qint8_weight({out, in});
    const quantized::LinearPackedParams packed(weight, Tensor::zeros({out}));
    const PackedLinear float_packed(dequantize(weight), Tensor::zeros({out}));
    return std::pair{[=, x = quint8_input({rows, in})] { quantized::linear(x, packed, 1.0, 128); },
                     [=, x = float_input({rows, in})] { float_packed(x); }};
  });
}

void add_all() {
  add_conv("conv2d/3x3/64", {{1, 64, 56, 56}, 64, 3, {.padding = {1}}});
  add_conv("conv2d/3x3/128", {{1, 128, 28, 28}, 128, 3, {.padding = {1}}});
  add_conv("conv2d/3x3/256", {{1, 256, 14, 14}, 256, 3, {.padding = {1}}});
  add_conv("conv2d/3x3/64/stride2", {{1, 64, 56, 56}, 128, 3, {.stride = {2}, .padding = {1}}});
  add_conv("conv2d/1x1/16->96", {{1, 16, 112, 112}, 96, 1});
  add_conv("conv2d/1x1/64->256", {{1, 64, 56, 56}, 256, 1});
  add_conv("conv2d/1x1/256->64", {{1, 256, 56, 56}, 64, 1});
  add_conv("conv2d/1x1/1024->256", {{1, 1024, 14, 14}, 256, 1});
  add_conv("conv2d/first/7x7/3->64", {{1, 3, 224, 224}, 64, 7, {.stride = {2}, .padding = {3}}});
  add_conv("conv2d/first/3x3/3->32", {{1, 3, 224, 224}, 32, 3, {.stride = {2}, .padding = {1}}});
  add_conv("conv2d/depthwise3x3/144", {{1, 144, 56, 56}, 144, 3, {.padding = {1}, .groups = 144}});
  add_conv("conv2d/depthwise3x3/144/stride2",
           {{1, 144, 56, 56}, 144, 3, {.stride = {2}, .padding = {1}, .groups = 144}});
  add_conv("conv2d/depthwise5x5/240", {{1, 240, 14, 14}, 240, 5, {.padding = {2}, .groups = 240}});
  add_conv("conv2d/grouped32/3x3/128", {{1, 128, 56, 56}, 128, 3, {.padding = {1}, .groups = 32}});
  add_conv("conv1d/k5/128", {{1, 128, 512}, 128, 5, {.padding = {2}}});
  add_conv("conv3d/3x3x3/32", {{1, 32, 8, 28, 28}, 32, 3, {.padding = {1}}});
  add_conv_transpose("conv_transpose2d/2x2/128->64", {{1, 128, 28, 28}, 64, 2, {.stride = {2}}});
  add_conv_transpose("conv_transpose2d/4x4/64->64",
                     {{1, 64, 28, 28}, 64, 4, {.stride = {2}, .padding = {1}}});
  add_linear(1, 512, 1000);
  add_linear(1, 2048, 1000);
  add_linear(8, 768, 768);
  add_linear(128, 768, 768);
  add_linear(128, 768, 3072);
}

const Family kFamily(add_all);

}  // namespace
}  // namespace quanta::bench
