#include <array>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/embedding.h"
#include "quanta/ops/interpolate.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/pooling.h"
#include "quanta/ops/shuffle.h"
#include "registry.h"

namespace quanta::coverage {
namespace {

Dims with_kernel(std::int64_t spatial) {
  Dims sizes{4, 4};
  for (std::int64_t i = 0; i < spatial; ++i) sizes.push_back(1);
  return sizes;
}

quantized::ConvPackedParams packed_conv(std::int64_t spatial) {
  return {weight(with_kernel(spatial)), {}, {}, spatial};
}

quantized::ConvPackedParams packed_conv_transpose(std::int64_t spatial) {
  return quantized::ConvPackedParams::transposed(weight(with_kernel(spatial)), {}, {}, spatial);
}

quantized::LinearPackedParams packed_linear() { return {weight({3, 6}), {}}; }

/// A table of as many rows as x has channels, quantized as x's dtype with float zero points.
quantized::EmbeddingPackedParams packed_embedding(const QTensor& x) {
  const std::vector<float> values(6, 1.0F);
  return quantized::embedding_bag_prepack(
      QTensor::empty({6, 4}, x.dtype(), Quantizer::per_channel_float_qparams(values, values, 0)));
}

void add_activations(Section& s) {
  s.from("ops/activation.h", "tests/ops/activation_test.cpp");
  s.row("relu", QUANTA_CALL(relu(x)), "functional_activations/relu");
  s.row("relu_", QUANTA_CALL(relu_(x)), "functional_activations/relu_");
  s.row("dropout", QUANTA_QUANTIZED_CALL(quantized::dropout(x)), "");
  s.row("relu6", QUANTA_CALL(relu6(x)), "functional_activations/relu6");
  s.row("leaky_relu", QUANTA_CALL(leaky_relu(x, 0.1)), "functional_activations/leaky_relu");
  s.row("leaky_relu (output parameters)",
        QUANTA_QUANTIZED_CALL(quantized::leaky_relu(x, 0.1, scale, zero_point)),
        "functional_activations/leaky_relu");
  s.row("elu", QUANTA_QUANTIZED_CALL(quantized::elu(x, scale, zero_point)),
        "functional_activations/elu");
  s.row("celu", QUANTA_QUANTIZED_CALL(quantized::celu(x, scale, zero_point)),
        "functional_activations/celu");
  s.row("prelu",
        QUANTA_QUANTIZED_CALL(quantized::prelu(x, QTensor::empty({4}, scale, zero_point, x.dtype()),
                                               scale, zero_point)),
        "functional_activations/prelu");
  s.row("hardsigmoid", QUANTA_CALL(hardsigmoid(x)), "functional_activations/hardsigmoid");
  s.row("hardswish", QUANTA_QUANTIZED_CALL(quantized::hardswish(x, scale, zero_point)),
        "functional_activations/hardswish");
  s.row("hardtanh", QUANTA_CALL(hardtanh(x)), "functional_activations/hardtanh");
  s.row("sigmoid", QUANTA_CALL(sigmoid(x)), "functional_activations/sigmoid");
  s.row("sigmoid (output parameters)",
        QUANTA_QUANTIZED_CALL(quantized::sigmoid(x, scale, zero_point)),
        "functional_activations/sigmoid");
  s.row("tanh", QUANTA_CALL(tanh(x)), "functional_activations/tanh");
  s.row("gelu", QUANTA_CALL(gelu(x)), "functional_activations/gelu");
  s.row("silu", QUANTA_QUANTIZED_CALL(quantized::silu(x, scale, zero_point)));
  s.row("softplus", QUANTA_QUANTIZED_CALL(quantized::softplus(x, scale, zero_point)));
  s.row("mish", QUANTA_QUANTIZED_CALL(quantized::mish(x, scale, zero_point)));
  s.row("selu", QUANTA_QUANTIZED_CALL(quantized::selu(x, scale, zero_point)));
  s.row("logsigmoid", QUANTA_QUANTIZED_CALL(quantized::logsigmoid(x, scale, zero_point)));
  s.row("softsign", QUANTA_QUANTIZED_CALL(quantized::softsign(x, scale, zero_point)));
  s.row("log_softmax", QUANTA_QUANTIZED_CALL(quantized::log_softmax(x, 1, scale, zero_point)));
  s.row("softmax", QUANTA_QUANTIZED_CALL(quantized::softmax(x, 1, scale, zero_point)),
        "functional_activations/softmax");
  s.row("clamp", QUANTA_CALL(clamp(x, 0.0, 1.0)), "functional_activations/clamp");
  s.row("threshold", QUANTA_CALL(threshold(x, 0.0, 1.0)), "functional_activations/threshold");
}

void add_spatial(Section& s) {
  s.from("ops/pooling.h", "tests/ops/pooling_test.cpp");
  s.row("max_pool1d", QUANTA_CALL(max_pool1d(signal, {.kernel_size = {2}})),
        "functional_pool/max_pool1d");
  s.row("max_pool2d", QUANTA_CALL(max_pool2d(x, {.kernel_size = {2}})),
        "functional_pool/max_pool2d");
  s.row("max_pool3d", QUANTA_CALL(max_pool3d(volume, {.kernel_size = {2}})),
        "functional_pool/max_pool3d");
  s.row("avg_pool1d", QUANTA_CALL(avg_pool1d(signal, {.kernel_size = {2}})),
        "functional_pool/avg_pool1d");
  s.row("avg_pool2d", QUANTA_CALL(avg_pool2d(x, {.kernel_size = {2}})),
        "functional_pool/avg_pool2d");
  s.row("avg_pool3d", QUANTA_CALL(avg_pool3d(volume, {.kernel_size = {2}})),
        "functional_pool/avg_pool3d");
  s.row("adaptive_avg_pool1d", QUANTA_CALL(adaptive_avg_pool1d(signal, {2})),
        "functional_pool/adaptive_avg_pool1d");
  s.row("adaptive_avg_pool2d", QUANTA_CALL(adaptive_avg_pool2d(x, {2})),
        "functional_pool/adaptive_avg_pool2d");
  s.row("adaptive_avg_pool3d", QUANTA_CALL(adaptive_avg_pool3d(volume, {2})),
        "functional_pool/adaptive_avg_pool3d");
  s.from("ops/interpolate.h", "tests/ops/interpolate_test.cpp");
  s.row("interpolate (nearest, size)", QUANTA_CALL(interpolate(x, {.size = {9, 4}})),
        "functional_pool/interpolate");
  s.row("interpolate (nearest, scale)", QUANTA_CALL(interpolate(x, {.scale_factor = {1.5}})),
        "functional_pool/interpolate");
  s.row("interpolate (bilinear)",
        QUANTA_CALL(interpolate(x, {.size = {9, 4}, .mode = InterpolateMode::Bilinear})),
        "functional_pool/interpolate");
  s.row("interpolate (bilinear, align_corners)",
        QUANTA_CALL(interpolate(
            x, {.size = {9, 4}, .mode = InterpolateMode::Bilinear, .align_corners = true})),
        "functional_pool/interpolate");
  s.row("upsample", QUANTA_CALL(upsample(x, {.size = {9, 4}})), "functional_pool/interpolate");
  s.row("upsample_nearest", QUANTA_CALL(upsample_nearest(x, {9, 4})),
        "functional_pool/interpolate");
  s.row("upsample_bilinear", QUANTA_CALL(upsample_bilinear(x, {9, 4})),
        "functional_pool/interpolate");
  s.from("ops/pad.h", "tests/ops/pad_test.cpp");
  s.row("pad (constant)", QUANTA_CALL(pad(x, {1, 2})), "functional_pool/pad");
  s.row("pad (reflect)", QUANTA_CALL(pad(x, {1, 2, 1, 1}, PadMode::Reflect)),
        "functional_pool/pad");
  s.row("pad (replicate)", QUANTA_CALL(pad(x, {1, 2, 1, 1}, PadMode::Replicate)),
        "functional_pool/pad");
  s.from("ops/shuffle.h", "tests/ops/shuffle_test.cpp");
  s.row("pixel_shuffle", QUANTA_CALL(pixel_shuffle(x, 2)), "functional_pool/pixel_shuffle");
  s.row("pixel_unshuffle", QUANTA_CALL(pixel_unshuffle(x, 2)), "functional_pool/pixel_unshuffle");
  s.row("channel_shuffle", QUANTA_CALL(channel_shuffle(x, 2)), "functional_pool/channel_shuffle");
}

void add_weighted(Section& s) {
  s.from("ops/conv.h", "tests/ops/conv_test.cpp");
  s.row("conv1d", QUANTA_QUANTIZED_CALL(quantized::conv(signal, packed_conv(1), scale, zero_point)),
        "conv_fbgemm/conv1d conv_x86/conv1d conv_qnnpack/conv1d");
  s.row("conv2d", QUANTA_QUANTIZED_CALL(quantized::conv(x, packed_conv(2), scale, zero_point)),
        "conv_fbgemm/conv2d conv_x86/conv2d conv_qnnpack/conv2d");
  s.row("conv3d", QUANTA_QUANTIZED_CALL(quantized::conv(volume, packed_conv(3), scale, zero_point)),
        "conv_fbgemm/conv3d conv_x86/conv3d conv_qnnpack/conv3d");
  s.row("conv_relu (1d, 2d, 3d)",
        QUANTA_QUANTIZED_CALL(quantized::conv_relu(x, packed_conv(2), scale, zero_point)),
        "conv_fbgemm/conv1d_relu conv_x86/conv2d_relu conv_qnnpack/conv3d_relu");
  s.row("conv2d_add",
        QUANTA_QUANTIZED_CALL(quantized::conv_add(x, x, packed_conv(2), scale, zero_point)),
        "conv_x86/conv2d_add");
  s.row("conv2d_add_relu",
        QUANTA_QUANTIZED_CALL(quantized::conv_add_relu(x, x, packed_conv(2), scale, zero_point)),
        "conv_x86/conv2d_add_relu");
  s.row("conv_transpose1d",
        QUANTA_QUANTIZED_CALL(quantized::conv(signal, packed_conv_transpose(1), scale, zero_point)),
        "conv_fbgemm/conv_transpose1d conv_x86/conv_transpose1d conv_qnnpack/conv_transpose1d");
  s.row("conv_transpose2d",
        QUANTA_QUANTIZED_CALL(quantized::conv(x, packed_conv_transpose(2), scale, zero_point)),
        "conv_fbgemm/conv_transpose2d conv_x86/conv_transpose2d conv_qnnpack/conv_transpose2d");
  s.row("conv_transpose3d",
        QUANTA_QUANTIZED_CALL(quantized::conv(volume, packed_conv_transpose(3), scale, zero_point)),
        "conv_fbgemm/conv_transpose3d conv_x86/conv_transpose3d");
  s.from("ops/linear.h", "tests/ops/linear_test.cpp");
  s.row("linear", QUANTA_QUANTIZED_CALL(quantized::linear(x, packed_linear(), scale, zero_point)),
        "conv_fbgemm/linear conv_x86/linear conv_qnnpack/linear");
  s.row("linear_relu",
        QUANTA_QUANTIZED_CALL(quantized::linear_relu(x, packed_linear(), scale, zero_point)),
        "conv_fbgemm/linear_relu conv_x86/linear_relu conv_qnnpack/linear_relu");
  s.row("linear_leaky_relu",
        QUANTA_QUANTIZED_CALL(
            quantized::linear_leaky_relu(x, packed_linear(), scale, zero_point, 0.1)),
        "conv_x86/linear_leaky_relu");
  s.row("linear_tanh",
        QUANTA_QUANTIZED_CALL(quantized::linear_tanh(x, packed_linear(), scale, zero_point)),
        "conv_x86/linear_tanh");
}

void add_arithmetic(Section& s) {
  s.from("ops/matmul.h", "tests/ops/arithmetic_test.cpp");
  s.row("matmul", QUANTA_QUANTIZED_CALL(quantized::matmul(x, x, scale, zero_point)),
        "arithmetic/matmul");
  s.row("bmm",
        QUANTA_QUANTIZED_CALL(
            quantized::bmm(QTensor(x.flatten(0, 1)), QTensor(x.flatten(0, 1)), scale, zero_point)),
        "arithmetic/matmul");
  s.from("ops/arithmetic.h", "tests/ops/arithmetic_test.cpp");
  s.row("add", QUANTA_QUANTIZED_CALL(quantized::add(x, x, scale, zero_point)), "arithmetic/add");
  s.row("add_scalar", QUANTA_QUANTIZED_CALL(quantized::add_scalar(x, 1.0)),
        "arithmetic/add_scalar");
  s.row("add_scalar_relu", QUANTA_QUANTIZED_CALL(quantized::add_scalar_relu(x, 1.0)),
        "arithmetic/add_scalar_relu");
  s.row("add_relu", QUANTA_QUANTIZED_CALL(quantized::add_relu(x, x, scale, zero_point)),
        "arithmetic/add_relu");
  s.row("mul", QUANTA_QUANTIZED_CALL(quantized::mul(x, x, scale, zero_point)), "arithmetic/mul");
  s.row("mul_scalar", QUANTA_QUANTIZED_CALL(quantized::mul_scalar(x, 2.0)),
        "arithmetic/mul_scalar");
  s.row("mul_scalar_relu", QUANTA_QUANTIZED_CALL(quantized::mul_scalar_relu(x, 2.0)),
        "arithmetic/mul_scalar_relu");
  s.row("mul_relu", QUANTA_QUANTIZED_CALL(quantized::mul_relu(x, x, scale, zero_point)),
        "arithmetic/mul_relu");
  s.from("ops/cat.h", "tests/ops/arithmetic_test.cpp");
  s.row("cat (output parameters)",
        QUANTA_QUANTIZED_CALL(quantized::cat(std::array{x, x}, 1, scale, zero_point)),
        "arithmetic/cat");
  s.row("cat_relu", QUANTA_QUANTIZED_CALL(quantized::cat_relu(std::array{x, x}, 1)),
        "arithmetic/cat_relu");
}

void add_embedding_and_norm(Section& s) {
  s.from("ops/embedding.h", "tests/ops/embedding_test.cpp");
  s.row("embedding (8 bit)",
        QUANTA_QUANTIZED_CALL(quantized::embedding_byte(packed_embedding(x), indices())),
        "functional_norm/embedding_byte");
  s.row("embedding (4 bit)",
        QUANTA_QUANTIZED_CALL(quantized::embedding_4bit(packed_embedding(x), indices())),
        "functional_norm/embedding_4bit");
  s.row("embedding_bag (8 bit)",
        QUANTA_QUANTIZED_CALL(
            quantized::embedding_bag_byte(packed_embedding(x), indices(), {.offsets = indices()})),
        "functional_norm/embedding_bag_byte functional_norm/embedding_bag_byte_rowwise_offsets");
  s.row("embedding_bag (4 bit)",
        QUANTA_QUANTIZED_CALL(
            quantized::embedding_bag_4bit(packed_embedding(x), indices(), {.offsets = indices()})),
        "functional_norm/embedding_bag_4bit functional_norm/embedding_bag_4bit_rowwise_offsets")
      .tested_in("tests/ops/embedding_test.cpp");
  s.row("embedding_bag_byte_prepack", QUANTA_CALL(quantized::embedding_bag_byte_prepack(matrix)),
        "functional_norm/embedding_bag_byte_prepack functional_norm/embedding_bag_byte_unpack");
  s.row("embedding_bag_4bit_prepack", QUANTA_CALL(quantized::embedding_bag_4bit_prepack(matrix)),
        "functional_norm/embedding_bag_4bit_prepack functional_norm/embedding_bag_4bit_unpack");
  s.row("embedding_bag_2bit_prepack", QUANTA_CALL(quantized::embedding_bag_2bit_prepack(matrix)),
        "functional_norm/embedding_bag_2bit_prepack functional_norm/embedding_bag_2bit_unpack");
  s.from("ops/norm.h", "tests/ops/norm_test.cpp");
  s.row("batch_norm (1d, 2d, 3d)",
        QUANTA_QUANTIZED_CALL(quantized::batch_norm(x, ones({4}), ones({4}), ones({4}), ones({4}),
                                                    1e-5, scale, zero_point)),
        "functional_norm/batch_norm1d functional_norm/batch_norm2d functional_norm/batch_norm3d");
  s.row("batch_norm_relu",
        QUANTA_QUANTIZED_CALL(quantized::batch_norm_relu(x, ones({4}), ones({4}), ones({4}),
                                                         ones({4}), 1e-5, scale, zero_point)),
        "functional_norm/batch_norm2d_relu functional_norm/batch_norm3d_relu");
  s.row("layer_norm",
        QUANTA_QUANTIZED_CALL(quantized::layer_norm(x, {6}, {}, {}, 1e-5, scale, zero_point)),
        "functional_norm/layer_norm");
  s.row("group_norm",
        QUANTA_QUANTIZED_CALL(quantized::group_norm(x, 2, {}, {}, 1e-5, scale, zero_point)),
        "functional_norm/group_norm");
  s.row("instance_norm",
        QUANTA_QUANTIZED_CALL(quantized::instance_norm(x, {}, {}, 1e-5, scale, zero_point)),
        "functional_norm/instance_norm");
}

}  // namespace

std::vector<Section> functional_sections() {
  Section s{"Functional on quantized tensors", {}};
  add_activations(s);
  add_spatial(s);
  add_weighted(s);
  add_arithmetic(s);
  add_embedding_and_norm(s);
  return {s};
}

}  // namespace quanta::coverage
