#include "quanta/nn/quantized/functional.h"
#include "registry.h"

namespace quanta::coverage {

// The text of a row is the call as a user writes it after this.
namespace F = nn::quantized::functional;

std::vector<Section> nn_functional_sections() {
  Section s{"nn.quantized.functional (F)", {}};
  s.from("nn/quantized/functional.h", "tests/nn/functional_test.cpp");
  s.row("conv1d", QUANTA_QUANTIZED_CALL(F::conv1d(signal, weight({4, 4, 1}), {})),
        "conv_fbgemm/conv1d");
  s.row("conv2d", QUANTA_QUANTIZED_CALL(F::conv2d(x, weight({4, 4, 1, 1}), {})),
        "conv_fbgemm/conv2d");
  s.row("conv3d", QUANTA_QUANTIZED_CALL(F::conv3d(volume, weight({4, 4, 1, 1, 1}), {})),
        "conv_fbgemm/conv3d");
  s.row("linear", QUANTA_QUANTIZED_CALL(F::linear(x, weight({3, 6}), {}, scale, zero_point)),
        "conv_fbgemm/linear");
  s.row("max_pool1d", QUANTA_QUANTIZED_CALL(F::max_pool1d(signal, {.kernel_size = {2}})),
        "functional_pool/max_pool1d");
  s.row("max_pool2d", QUANTA_QUANTIZED_CALL(F::max_pool2d(x, {.kernel_size = {2}})),
        "functional_pool/max_pool2d");
  s.row("avg_pool2d", QUANTA_QUANTIZED_CALL(F::avg_pool2d(x, {.kernel_size = {2}})),
        "functional_pool/avg_pool2d");
  s.row("avg_pool3d", QUANTA_QUANTIZED_CALL(F::avg_pool3d(volume, {.kernel_size = {2}})),
        "functional_pool/avg_pool3d");
  s.row("adaptive_avg_pool2d", QUANTA_QUANTIZED_CALL(F::adaptive_avg_pool2d(x, {2})),
        "functional_pool/adaptive_avg_pool2d");
  s.row("adaptive_avg_pool3d", QUANTA_QUANTIZED_CALL(F::adaptive_avg_pool3d(volume, {2})),
        "functional_pool/adaptive_avg_pool3d");
  s.row("interpolate", QUANTA_QUANTIZED_CALL(F::interpolate(x, {.size = {9, 4}})),
        "functional_pool/interpolate");
  s.row("upsample", QUANTA_QUANTIZED_CALL(F::upsample(x, {.size = {9, 4}})),
        "functional_pool/interpolate");
  s.row("upsample_nearest", QUANTA_QUANTIZED_CALL(F::upsample_nearest(x, {9, 4})),
        "functional_pool/interpolate");
  s.row("upsample_bilinear", QUANTA_QUANTIZED_CALL(F::upsample_bilinear(x, {9, 4})),
        "functional_pool/interpolate");
  s.row("relu", QUANTA_QUANTIZED_CALL(F::relu(x)), "functional_activations/relu");
  s.row("hardtanh", QUANTA_QUANTIZED_CALL(F::hardtanh(x)), "functional_activations/hardtanh");
  s.row("clamp", QUANTA_QUANTIZED_CALL(F::clamp(x, 0.0, 1.0)), "functional_activations/clamp");
  s.row("threshold", QUANTA_QUANTIZED_CALL(F::threshold(x, 0.0, 1.0)),
        "functional_activations/threshold");
  s.row("hardsigmoid", QUANTA_QUANTIZED_CALL(F::hardsigmoid(x)),
        "functional_activations/hardsigmoid");
  s.row("leaky_relu", QUANTA_QUANTIZED_CALL(F::leaky_relu(x)), "functional_activations/leaky_relu");
  s.row("hardswish", QUANTA_QUANTIZED_CALL(F::hardswish(x, scale, zero_point)),
        "functional_activations/hardswish");
  s.row("elu", QUANTA_QUANTIZED_CALL(F::elu(x, scale, zero_point)), "functional_activations/elu");
  s.row("celu", QUANTA_QUANTIZED_CALL(F::celu(x, scale, zero_point)),
        "functional_activations/celu");
  return {s};
}

}  // namespace quanta::coverage
