// Pooling, interpolation and norms: bytes read and written beside the machine's copy speed.

#include "op_bench.h"
#include "quanta/ops/interpolate.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/pooling.h"
#include "quanta/runtime/dims.h"

namespace quanta::bench {
namespace {

/// An op that is called in the same way for both types; `growth` is outputs by inputs.
template <typename Op>
void add_same(const std::string& name, const Dims& sizes, double growth, Op op) {
  const double bytes = static_cast<double>(product(sizes)) * (1.0 + growth);
  add_benchmark(name, {.bytes = bytes}, [sizes, op] {
    return std::pair{[op, x = quint8_input(sizes)] { op(Tensor(x)); },
                     [op, x = float_input(sizes)] { op(x); }};
  });
}

template <typename Int8, typename Float>
void add_pair(const std::string& name, const Dims& sizes, Int8 int8, Float float32) {
  const double bytes = 2.0 * static_cast<double>(product(sizes));
  add_benchmark(name, {.bytes = bytes}, [=] {
    return std::pair{[int8, x = quint8_input(sizes)] { int8(x); },
                     [float32, x = float_input(sizes)] { float32(x); }};
  });
}

void add_pooling() {
  const Dims image{1, 64, 112, 112};
  add_same("max_pool2d/3x3/stride2", image, 0.25, [](const Tensor& x) {
    max_pool2d(x, {.kernel_size = {3}, .stride = {2}, .padding = {1}});
  });
  add_same("max_pool1d/3", {1, 64, 4096}, 1.0, [](const Tensor& x) {
    max_pool1d(x, {.kernel_size = {3}, .stride = {1}, .padding = {1}});
  });
  add_same("max_pool3d/2x2x2", {1, 64, 8, 28, 28}, 0.125,
           [](const Tensor& x) { max_pool3d(x, {.kernel_size = {2}}); });
  add_same("avg_pool2d/3x3", image, 1.0, [](const Tensor& x) {
    avg_pool2d(x, {.kernel_size = {3}, .stride = {1}, .padding = {1}});
  });
  add_same("avg_pool1d/3", {1, 64, 4096}, 1.0, [](const Tensor& x) {
    avg_pool1d(x, {.kernel_size = {3}, .stride = {1}, .padding = {1}});
  });
  add_same("avg_pool3d/2x2x2", {1, 64, 8, 28, 28}, 0.125,
           [](const Tensor& x) { avg_pool3d(x, {.kernel_size = {2}}); });
  add_same("adaptive_avg_pool2d/7x7->1", {1, 2048, 7, 7}, 1.0 / 49,
           [](const Tensor& x) { adaptive_avg_pool2d(x, {1}); });
  add_same("adaptive_avg_pool2d/56x56->7", {1, 256, 56, 56}, 1.0 / 64,
           [](const Tensor& x) { adaptive_avg_pool2d(x, {7}); });
}

void add_interpolation() {
  const Dims image{1, 64, 56, 56};
  add_same("interpolate/nearest/x2", image, 4.0,
           [](const Tensor& x) { interpolate(x, {.scale_factor = {2.0}}); });
  add_same("interpolate/bilinear/x2", image, 4.0, [](const Tensor& x) {
    interpolate(x, {.scale_factor = {2.0}, .mode = InterpolateMode::Bilinear});
  });
  add_same("interpolate/bilinear/align_corners", image, 4.0, [](const Tensor& x) {
    interpolate(x, {.size = {112, 112}, .mode = InterpolateMode::Bilinear, .align_corners = true});
  });
}

void add_norms() {
  const Dims image{1, 64, 56, 56};
  const Tensor ones = Tensor::ones({64});
  add_pair(
      "batch_norm2d", image,
      [=](const QTensor& x) {
        quantized::batch_norm(x, ones, ones, ones, ones, 1e-5, kScale, kZeroPoint);
      },
      [=](const Tensor& x) { batch_norm(x, ones, ones, ones, ones); });
  const Tensor wide = Tensor::ones({768});
  add_pair(
      "layer_norm/128x768", {128, 768},
      [=](const QTensor& x) {
        quantized::layer_norm(x, {768}, wide, wide, 1e-5, kScale, kZeroPoint);
      },
      [=](const Tensor& x) { layer_norm(x, {768}, wide, wide); });
  add_pair(
      "group_norm/8", image,
      [=](const QTensor& x) { quantized::group_norm(x, 8, ones, ones, 1e-5, kScale, kZeroPoint); },
      [=](const Tensor& x) { group_norm(x, 8, ones, ones); });
  add_pair(
      "instance_norm", image,
      [=](const QTensor& x) { quantized::instance_norm(x, ones, ones, 1e-5, kScale, kZeroPoint); },
      [=](const Tensor& x) { instance_norm(x, ones, ones); });
}

const Family kPooling(add_pooling);
const Family kInterpolation(add_interpolation);
const Family kNorms(add_norms);

}  // namespace
}  // namespace quanta::bench
