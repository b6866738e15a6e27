#include "quanta/ops/support.h"

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention.h"
#include "quanta/ops/block_quant.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/conv_dynamic.h"
#include "quanta/ops/embedding.h"
#include "quanta/ops/factory.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/interpolate.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/linear_weight_only.h"
#include "quanta/ops/loss.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/pooling.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/quantize_affine.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/rnn.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/shuffle.h"
#include "quanta/ops/sort.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

constexpr std::array kTypes{DType::Float32, DType::Float64,  DType::Float16, DType::BFloat16,
                            DType::UInt8,   DType::Int8,     DType::Int16,   DType::Int32,
                            DType::Int64,   DType::Bool,     DType::QUInt8,  DType::QInt8,
                            DType::QInt32,  DType::QUInt4x2, DType::QUInt2x4};

Tensor image(const Dims& sizes, DType dtype) {
  if (is_quantized(dtype)) {
    const QTensor x = QTensor::empty(sizes, 0.1, 1, dtype);
    if (!is_sub_byte(dtype)) x.fill_(0.3);
    return x;
  }
  return Tensor::zeros(sizes, dtype);
}

using Call = std::function<void(const Tensor& x)>;
struct Caller {
  Dims sizes;
  Call call;
};

/// The float form for plain tensors, the quantized one for quantized ones.
template <typename Plain, typename Quantized>
Call either(Plain plain, Quantized quantized) {
  return [=](const Tensor& x) {
    if (x.is_quantized()) {
      quantized(QTensor(x));
    } else {
      plain(x);
    }
  };
}

template <typename Quantized>
Call only_quantized(Quantized quantized) {
  return [=](const Tensor& x) { quantized(x.as_quantized("op")); };
}

QTensor weight(const Dims& sizes) {
  const QTensor result = QTensor::empty(sizes, 0.1, 0, DType::QInt8);
  result.fill_(0.2);
  return result;
}

quantized::EmbeddingPackedParams table(const Tensor& x) {
  const QTensor codes = x.as_quantized("embedding");
  return quantized::embedding_bag_prepack(
      codes.with_quantizer(Quantizer::per_channel_float_qparams({0.1F, 0.1F}, {0.0F, 0.0F}, 0)));
}

void add_activations(std::map<std::string, Caller>& callers) {
  const Dims sizes{1, 2, 4, 4};
  const auto both = [&](const std::string& op, auto plain, auto quantized) {
    callers[op] = {sizes, either(plain, quantized)};
  };
  callers["relu"] = {sizes, [](const Tensor& x) { relu(x); }};
  callers["relu_"] = {sizes, [](const Tensor& x) { relu_(x); }};
  callers["relu6"] = {sizes, [](const Tensor& x) { relu6(x); }};
  callers["clamp"] = {sizes, [](const Tensor& x) { clamp(x, 0.0, 1.0); }};
  callers["hardtanh"] = {sizes, [](const Tensor& x) { hardtanh(x); }};
  callers["threshold"] = {sizes, [](const Tensor& x) { threshold(x, 0.0, 1.0); }};
  callers["leaky_relu"] = {sizes, [](const Tensor& x) { leaky_relu(x); }};
  callers["hardsigmoid"] = {sizes, [](const Tensor& x) { hardsigmoid(x); }};
  callers["sigmoid"] = {sizes, [](const Tensor& x) { sigmoid(x); }};
  callers["tanh"] = {sizes, [](const Tensor& x) { tanh(x); }};
  callers["gelu"] = {sizes, [](const Tensor& x) { gelu(x); }};
  both(
      "hardswish", [](const Tensor& x) { hardswish(x); },
      [](const QTensor& x) { quantized::hardswish(x, 1.0, 0); });
  both(
      "silu", [](const Tensor& x) { silu(x); },
      [](const QTensor& x) { quantized::silu(x, 1.0, 0); });
  both(
      "elu", [](const Tensor& x) { elu(x); }, [](const QTensor& x) { quantized::elu(x, 1.0, 0); });
  both(
      "celu", [](const Tensor& x) { celu(x); },
      [](const QTensor& x) { quantized::celu(x, 1.0, 0); });
  both(
      "prelu", [](const Tensor& x) { prelu(x, Tensor::ones({2}, x.dtype())); },
      [](const QTensor& x) { quantized::prelu(x, QTensor(image({2}, x.dtype())), 1.0, 0); });
  both(
      "softmax", [](const Tensor& x) { softmax(x, 1); },
      [](const QTensor& x) { quantized::softmax(x, 1, 1.0, 0); });
  both(
      "dropout", [](const Tensor& x) { dropout(x); },
      [](const QTensor& x) { quantized::dropout(x); });
}

void add_smooth_activations(std::map<std::string, Caller>& callers) {
  const Dims sizes{1, 2, 4, 4};
  callers["log_softmax"] = {sizes, [](const Tensor& x) { log_softmax(x, 1); }};
  callers["softplus"] = {sizes, [](const Tensor& x) { softplus(x); }};
  callers["mish"] = {sizes, [](const Tensor& x) { mish(x); }};
  callers["selu"] = {sizes, [](const Tensor& x) { selu(x); }};
  callers["logsigmoid"] = {sizes, [](const Tensor& x) { logsigmoid(x); }};
  callers["softsign"] = {sizes, [](const Tensor& x) { softsign(x); }};
}

/// Ones of x's dtype where an op wants its float tensors alike, else of Float32.
Tensor ones_for(const Tensor& x, const Dims& sizes) {
  return Tensor::ones(sizes, x.dtype() == DType::Float64 ? x.dtype() : DType::Float32);
}

void add_recurrent(std::map<std::string, Caller>& callers) {
  callers["recurrent_steps"] = {
      {6, 8}, [](const Tensor& x) {
        const std::array<std::int64_t, 2> batch_sizes{3, 3};
        const RecurrentSteps steps{.hidden_size = 2, .batch_sizes = batch_sizes};
        const Tensor state = ones_for(x, {3, 2});
        recurrent_steps(steps, {.weight_hh = ones_for(x, {8, 2})}, x, state, state);
      }};
}

void add_attention(std::map<std::string, Caller>& callers) {
  const Dims sizes{1, 2, 4, 4};
  callers["additive_mask"] = {sizes, [](const Tensor& x) {
                                // A mask of the wanted dtype is given back.
                                additive_mask(
                                    "op", "mask", x, true,
                                    x.dtype() == DType::Float32 ? DType::Float64 : DType::Float32);
                              }};
  callers["scaled_dot_product_attention"] = {
      sizes, [](const Tensor& x) { scaled_dot_product_attention(x, x, x); }};
  callers["attention_weights"] = {sizes, [](const Tensor& x) { attention_weights(x, x, {}, 1.0); }};
}

void add_arithmetic(std::map<std::string, Caller>& callers) {
  const Dims sizes{4, 4};
  callers["add"] = {sizes, either([](const Tensor& x) { add(x, x); },
                                  [](const QTensor& x) { quantized::add(x, x, 1.0, 0); })};
  callers["mul"] = {sizes, either([](const Tensor& x) { mul(x, x); },
                                  [](const QTensor& x) { quantized::mul(x, x, 1.0, 0); })};
  callers["add_relu"] = {sizes,
                         either([](const Tensor& x) { add_relu(x, x); },
                                [](const QTensor& x) { quantized::add_relu(x, x, 1.0, 0); })};
  callers["add_scalar"] = {sizes, either([](const Tensor& x) { add_scalar(x, 1.0); },
                                         [](const QTensor& x) { quantized::add_scalar(x, 1.0); })};
  callers["mul_scalar"] = {sizes, either([](const Tensor& x) { mul_scalar(x, 2.0); },
                                         [](const QTensor& x) { quantized::mul_scalar(x, 2.0); })};
  callers["sub"] = {sizes, [](const Tensor& x) { sub(x, x); }};
  callers["div"] = {sizes, [](const Tensor& x) { div(x, x); }};
  callers["matmul"] = {sizes, either([](const Tensor& x) { matmul(x, x); },
                                     [](const QTensor& x) { quantized::matmul(x, x, 1.0, 0); })};
  callers["bmm"] = {{2, 3, 3},
                    either([](const Tensor& x) { bmm(x, x); },
                           [](const QTensor& x) { quantized::bmm(x, x, 1.0, 0); })};
  callers["mul_relu"] = {
      sizes, only_quantized([](const QTensor& x) { quantized::mul_relu(x, x, 1.0, 0); })};
  callers["add_scalar_relu"] = {
      sizes, only_quantized([](const QTensor& x) { quantized::add_scalar_relu(x, 1.0); })};
  callers["mul_scalar_relu"] = {
      sizes, only_quantized([](const QTensor& x) { quantized::mul_scalar_relu(x, 1.0); })};
  callers["cat_relu"] = {sizes, only_quantized([](const QTensor& x) {
                           quantized::cat_relu(std::array{x, x}, 0);
                         })};
  callers["cat"] = {sizes, [](const Tensor& x) { cat(std::array{x, x}, 0); }};
}

void add_weighted(std::map<std::string, Caller>& callers) {
  for (const std::int64_t spatial : {1, 2, 3}) {
    const std::string rank = std::to_string(spatial) + "d";
    Dims sizes{1, 4};
    Dims kernel{4, 4};
    for (std::int64_t i = 0; i < spatial; ++i) sizes.push_back(4), kernel.push_back(1);
    const auto packed = [=] {
      return quantized::ConvPackedParams(weight(kernel), {}, {}, spatial);
    };
    const auto run = [=](const QTensor& x) { quantized::conv(x, packed(), 1.0, 0); };
    callers["conv" + rank] = {sizes, either(
                                         [=](const Tensor& x) {
                                           const Tensor ones = ones_for(x, kernel);
                                           if (spatial == 1) conv1d(x, ones, {});
                                           if (spatial == 2) conv2d(x, ones, {});
                                           if (spatial == 3) conv3d(x, ones, {});
                                         },
                                         run)};
    callers["conv" + rank + "_relu"] = {sizes, only_quantized([=](const QTensor& x) {
                                          quantized::conv_relu(x, packed(), 1.0, 0);
                                        })};
    callers["conv_transpose" + rank] = {
        sizes, either(
                   [=](const Tensor& x) {
                     const Tensor ones = ones_for(x, kernel);
                     if (spatial == 1) conv_transpose1d(x, ones, {});
                     if (spatial == 2) conv_transpose2d(x, ones, {});
                     if (spatial == 3) conv_transpose3d(x, ones, {});
                   },
                   [=](const QTensor& x) {
                     quantized::conv(
                         x,
                         quantized::ConvPackedParams::transposed(weight(kernel), {}, {}, spatial),
                         1.0, 0);
                   })};
    if (spatial != 2) continue;
    callers["conv2d_add"] = {sizes, only_quantized([=](const QTensor& x) {
                               quantized::conv_add(x, x, packed(), 1.0, 0);
                             })};
    callers["conv2d_add_relu"] = {sizes, only_quantized([=](const QTensor& x) {
                                    quantized::conv_add_relu(x, x, packed(), 1.0, 0);
                                  })};
  }
  const auto packed = [] { return quantized::LinearPackedParams(weight({3, 4}), {}); };
  callers["linear"] = {{2, 4},
                       either(
                           [](const Tensor& x) {
                             linear(x, ones_for(x, {3, 4}));
                           },
                           [=](const QTensor& x) { quantized::linear(x, packed(), 1.0, 0); })};
  callers["linear_weight_only"] = {
      {2, 4}, [](const Tensor& x) {
        linear_weight_only(x, quantize_weight_only(Tensor::ones({3, 4}), {}));
      }};
  callers["linear_relu"] = {{2, 4}, only_quantized([=](const QTensor& x) {
                              quantized::linear_relu(x, packed(), 1.0, 0);
                            })};
  callers["linear_leaky_relu"] = {{2, 4}, only_quantized([=](const QTensor& x) {
                                    quantized::linear_leaky_relu(x, packed(), 1.0, 0, 0.1);
                                  })};
  callers["linear_tanh"] = {{2, 4}, only_quantized([=](const QTensor& x) {
                              quantized::linear_tanh(x, packed(), 1.0, 0);
                            })};
  const quantized::ConvPackedParams conv_packed(weight({2, 2, 1, 1}), {}, {}, 2);
  callers["conv_dynamic"] = {{1, 2, 4, 4},
                             [=](const Tensor& x) { quantized::conv_dynamic(x, conv_packed); }};
  callers["linear_dynamic"] = {{2, 4},
                               [=](const Tensor& x) { quantized::linear_dynamic(x, packed()); }};
  callers["linear_relu_dynamic"] = {
      {2, 4}, [=](const Tensor& x) { quantized::linear_relu_dynamic(x, packed()); }};
  const quantized::LinearPackedParamsFp16 half(Tensor::ones({3, 4}), {});
  callers["linear_dynamic_fp16"] = {
      {2, 4}, [=](const Tensor& x) { quantized::linear_dynamic_fp16(x, half); }};
  callers["linear_relu_dynamic_fp16"] = {
      {2, 4}, [=](const Tensor& x) { quantized::linear_relu_dynamic_fp16(x, half); }};
}

void add_norms(std::map<std::string, Caller>& callers) {
  const Tensor ones = Tensor::ones({2});
  for (const std::int64_t spatial : {1, 2, 3}) {
    Dims sizes{1, 2};
    for (std::int64_t i = 0; i < spatial; ++i) sizes.push_back(4);
    const std::string op = "batch_norm" + std::to_string(spatial) + "d";
    callers[op] = {sizes, either(
                              [](const Tensor& x) {
                                const Tensor one = Tensor::ones({2}, x.dtype());
                                batch_norm(x, one, one, one, one);
                              },
                              [=](const QTensor& x) {
                                quantized::batch_norm(x, ones, ones, ones, ones, 1e-5, 1.0, 0);
                              })};
    callers[op + "_relu"] = {sizes, only_quantized([=](const QTensor& x) {
                               quantized::batch_norm_relu(x, ones, ones, ones, ones, 1e-5, 1.0, 0);
                             })};
  }
  callers["batch_norm"] = callers.at("batch_norm2d");
  callers["batch_norm_relu"] = callers.at("batch_norm2d_relu");
  const Dims sizes{1, 2, 4};
  callers["batch_norm_train"] = {sizes,
                                 [](const Tensor& x) { batch_norm_train(x, {}, {}, {}, {}); }};
  callers["layer_norm"] = {
      sizes, either([](const Tensor& x) { layer_norm(x, {4}, {}, {}); },
                    [](const QTensor& x) { quantized::layer_norm(x, {4}, {}, {}, 1e-5, 1.0, 0); })};
  callers["group_norm"] = {
      sizes, either([](const Tensor& x) { group_norm(x, 1, {}, {}); },
                    [](const QTensor& x) { quantized::group_norm(x, 1, {}, {}, 1e-5, 1.0, 0); })};
  callers["instance_norm"] = {
      sizes, either([](const Tensor& x) { instance_norm(x, {}, {}); },
                    [](const QTensor& x) { quantized::instance_norm(x, {}, {}, 1e-5, 1.0, 0); })};
}

void add_losses(std::map<std::string, Caller>& callers) {
  const Dims sizes{3, 2};
  callers["mse_loss"] = {sizes, [](const Tensor& x) { mse_loss(x, x); }};
  callers["l1_loss"] = {sizes, [](const Tensor& x) { l1_loss(x, x); }};
  callers["smooth_l1_loss"] = {sizes, [](const Tensor& x) { smooth_l1_loss(x, x); }};
  callers["binary_cross_entropy_with_logits"] = {
      sizes, [](const Tensor& x) { binary_cross_entropy_with_logits(x, x); }};
  const Tensor classes = Tensor::zeros({3}, DType::Int64);
  callers["nll_loss"] = {sizes, [=](const Tensor& x) { nll_loss(x, classes); }};
  callers["cross_entropy"] = {sizes, [=](const Tensor& x) { cross_entropy(x, classes); }};
}

void add_spatial(std::map<std::string, Caller>& callers) {
  const MaxPoolOptions max{.kernel_size = {2}};
  const AvgPoolOptions avg{.kernel_size = {2}};
  const Dims one{1, 4, 4};
  const Dims two{1, 4, 4, 4};
  const Dims three{1, 4, 4, 4, 4};
  callers["max_pool1d"] = {one, [=](const Tensor& x) { max_pool1d(x, max); }};
  callers["max_pool2d"] = {two, [=](const Tensor& x) { max_pool2d(x, max); }};
  callers["max_pool3d"] = {three, [=](const Tensor& x) { max_pool3d(x, max); }};
  callers["avg_pool1d"] = {one, [=](const Tensor& x) { avg_pool1d(x, avg); }};
  callers["avg_pool2d"] = {two, [=](const Tensor& x) { avg_pool2d(x, avg); }};
  callers["avg_pool3d"] = {three, [=](const Tensor& x) { avg_pool3d(x, avg); }};
  callers["adaptive_avg_pool1d"] = {one, [](const Tensor& x) { adaptive_avg_pool1d(x, {2}); }};
  callers["adaptive_avg_pool2d"] = {two, [](const Tensor& x) { adaptive_avg_pool2d(x, {2}); }};
  callers["adaptive_avg_pool3d"] = {three, [](const Tensor& x) { adaptive_avg_pool3d(x, {2}); }};
  callers["adaptive_max_pool1d"] = {one, [](const Tensor& x) { adaptive_max_pool1d(x, {2}); }};
  callers["adaptive_max_pool2d"] = {two, [](const Tensor& x) { adaptive_max_pool2d(x, {2}); }};
  callers["adaptive_max_pool3d"] = {three, [](const Tensor& x) { adaptive_max_pool3d(x, {2}); }};
  callers["interpolate"] = {two, [](const Tensor& x) { interpolate(x, {.size = {8}}); }};
  callers["pad"] = {two, [](const Tensor& x) { pad(x, {1, 1}); }};
  callers["channel_shuffle"] = {two, [](const Tensor& x) { channel_shuffle(x, 2); }};
  callers["pixel_shuffle"] = {two, [](const Tensor& x) { pixel_shuffle(x, 2); }};
  callers["pixel_unshuffle"] = {two, [](const Tensor& x) { pixel_unshuffle(x, 2); }};
}

void add_quantizers_by_amax(std::map<std::string, Caller>& callers) {
  const Dims sizes{2, 16};
  const Tensor one = Tensor::scalar(1.0);
  callers["tensor_quant"] = {sizes, [=](const Tensor& x) { tensor_quant(x, one); }};
  callers["legacy_fake_tensor_quant"] = {
      sizes, [=](const Tensor& x) { legacy_fake_tensor_quant(x, one); }};
  callers["fake_tensor_quant"] = {sizes, [=](const Tensor& x) { fake_tensor_quant(x, one); }};
  callers["fake_affine_tensor_quant"] = {
      sizes, [=](const Tensor& x) { fake_affine_tensor_quant(x, Tensor::scalar(-1.0), one); }};
  callers["int_cast_ste"] = {sizes, [](const Tensor& x) { int_cast_ste(x); }};
  callers["scaled_e4m3"] = {sizes, [=](const Tensor& x) { scaled_e4m3(x, one); }};
  callers["fp4_cast_ste"] = {sizes, [](const Tensor& x) { fp4_cast_ste(x); }};
  callers["static_fp4"] = {sizes, [=](const Tensor& x) { static_fp4(x, one); }};
  callers["clip"] = {sizes, [](const Tensor& x) {
                       const Tensor bound = Tensor::scalar(
                           1.0, x.dtype() == DType::Float64 ? DType::Float64 : DType::Float32);
                       clip(x, bound, bound);
                     }};
  callers["dynamic_block_quant"] = {sizes, [](const Tensor& x) { dynamic_block_quant(x); }};
}

void add_others(std::map<std::string, Caller>& callers) {
  add_quantizers_by_amax(callers);
  const Dims sizes{2, 4};
  callers["quantize_per_tensor"] = {
      sizes, [](const Tensor& x) { quantize_per_tensor(x, 0.1, 0, DType::QUInt8); }};
  callers["fake_quantize_per_tensor_affine"] = {
      sizes, [](const Tensor& x) { fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255); }};
  callers["fake_quantize_per_channel_affine"] = {sizes, [](const Tensor& x) {
                                                   fake_quantize_per_channel_affine(
                                                       x, Tensor::ones({x.size(0)}),
                                                       Tensor::zeros({x.size(0)}), 0, 0, 255);
                                                 }};
  callers["fake_quantize_learnable_per_tensor_affine"] = {
      sizes, [](const Tensor& x) {
        fake_quantize_learnable_per_tensor_affine(x, Tensor::ones({1}), Tensor::zeros({1}), 0, 255);
      }};
  callers["fake_quantize_learnable_per_channel_affine"] = {
      sizes, [](const Tensor& x) {
        fake_quantize_learnable_per_channel_affine(x, Tensor::ones({x.size(0)}),
                                                   Tensor::zeros({x.size(0)}), 0, 0, 255);
      }};
  const auto by_affine = [sizes](auto op) {
    return Caller{sizes, [op](const Tensor& x) {
                    op(x, Tensor::ones({}), Tensor::zeros({}), AffineOptions());
                  }};
  };
  callers["quantize_affine"] = by_affine(quantize_affine);
  callers["dequantize_affine"] = by_affine(dequantize_affine);
  callers["quantize_dequantize_affine"] = by_affine(quantize_dequantize_affine);
  callers["quantize_per_channel"] = {sizes, [](const Tensor& x) {
                                       quantize_per_channel(x, Tensor::ones({2}),
                                                            Tensor::zeros({2}, DType::Int64), 0,
                                                            DType::QInt8);
                                     }};
  callers["quantize_per_tensor_dynamic"] = {
      sizes, [](const Tensor& x) { quantize_per_tensor_dynamic(x, DType::QUInt8, false); }};
  callers["dequantize"] = {sizes, [](const Tensor& x) { dequantize(x); }};
  callers["int_repr"] = {sizes, only_quantized([](const QTensor& x) { int_repr(x); })};

  const Tensor indices = Tensor::zeros({1, 1}, DType::Int64);
  const Dims row{2, 16};
  // Either of the two arguments shows its dtype: the table, or the indices.
  const auto look_up = [=](DType of_table, auto op) -> Caller {
    return {row, [=](const Tensor& x) {
              const bool is_index = x.dtype() == DType::Int64 || x.dtype() == DType::Int32;
              op(table(is_index ? image(row, of_table) : x),
                 is_index ? Tensor::zeros({1, 1}, x.dtype()) : indices);
            }};
  };
  callers["embedding_byte"] = look_up(DType::QUInt8, quantized::embedding_byte);
  callers["embedding_4bit"] = look_up(DType::QUInt4x2, quantized::embedding_4bit);
  callers["embedding_bag_byte"] = look_up(DType::QUInt8, [](const auto& packed, const Tensor& at) {
    return quantized::embedding_bag_byte(packed, at);
  });
  callers["embedding_bag_4bit"] =
      look_up(DType::QUInt4x2, [](const auto& packed, const Tensor& at) {
        return quantized::embedding_bag_4bit(packed, at);
      });
  callers["embedding"] = {row, [=](const Tensor& x) { embedding(x, indices); }};
  callers["embedding_bag"] = {row, [=](const Tensor& x) { embedding_bag(x, indices, {}); }};
  callers["embedding_bag_byte_rowwise_offsets"] = {
      row, [=](const Tensor& x) { quantized::embedding_bag_byte_rowwise_offsets(x, indices); }};
  callers["embedding_bag_4bit_rowwise_offsets"] = {
      row, [=](const Tensor& x) { quantized::embedding_bag_4bit_rowwise_offsets(x, indices); }};
  callers["embedding_bag_2bit_rowwise_offsets"] = {
      row, [=](const Tensor& x) { quantized::embedding_bag_2bit_rowwise_offsets(x, indices); }};
  callers["embedding_bag_byte_unpack"] = {
      row, [](const Tensor& x) { quantized::embedding_bag_byte_unpack(x); }};
  callers["embedding_bag_4bit_unpack"] = {
      row, [](const Tensor& x) { quantized::embedding_bag_4bit_unpack(x); }};
  callers["embedding_bag_2bit_unpack"] = {
      row, [](const Tensor& x) { quantized::embedding_bag_2bit_unpack(x); }};
  callers["embedding_bag_byte_prepack"] = {
      row, [](const Tensor& x) { quantized::embedding_bag_byte_prepack(x); }};
  callers["embedding_bag_4bit_prepack"] = {
      row, [](const Tensor& x) { quantized::embedding_bag_4bit_prepack(x); }};
  callers["embedding_bag_2bit_prepack"] = {
      row, [](const Tensor& x) { quantized::embedding_bag_2bit_prepack(x); }};
}

void add_methods(std::map<std::string, Caller>& callers) {
  const Dims sizes{2, 4};
  const auto add = [&](const char* op, Call call) { callers[op] = {sizes, std::move(call)}; };
  const Tensor zero = Tensor::zeros({1}, DType::Int64);
  const Tensor mask = Tensor::ones({4}, DType::Bool);
  add("eq", [](const Tensor& x) { eq(x, x); });
  add("ne", [](const Tensor& x) { ne(x, 1.0); });
  add("lt", [](const Tensor& x) { lt(x, x); });
  add("le", [](const Tensor& x) { le(x, 1.5); });
  add("gt", [](const Tensor& x) { gt(x, x); });
  add("ge", [](const Tensor& x) { ge(x, x); });
  add("where", [=](const Tensor& x) { where(mask, x, x); });
  add("index", [=](const Tensor& x) { index(x, {zero}); });
  add("index_put_", [=](const Tensor& x) { index_put_(x, {zero}, 1.0); });
  add("index_select", [=](const Tensor& x) { index_select(x, 0, zero); });
  add("gather", [=](const Tensor& x) { gather(x, 0, zero.view({1, 1})); });
  add("take", [=](const Tensor& x) { take(x, zero); });
  add("masked_fill", [=](const Tensor& x) { masked_fill(x, mask, 1.0); });
  add("masked_fill_", [=](const Tensor& x) { masked_fill_(x, mask, 1.0); });
  add("nonzero", [](const Tensor& x) { nonzero(x); });
  add("max", [](const Tensor& x) { max(x, 0); });
  add("min", [](const Tensor& x) { min(x); });
  add("argmax", [](const Tensor& x) { argmax(x); });
  add("sum", [](const Tensor& x) { sum(x); });
  add("mean", [](const Tensor& x) { mean(x); });
  add("std", [](const Tensor& x) { quanta::std(x); });
  add("var", [](const Tensor& x) { var(x); });
  add("sort", [](const Tensor& x) { sort(x); });
  add("argsort", [](const Tensor& x) { argsort(x); });
  add("msort", [](const Tensor& x) { msort(x); });
  add("topk", [](const Tensor& x) { topk(x, 1); });
  add("stack", [](const Tensor& x) { stack(std::array{x, x}); });
  add("chunk", [](const Tensor& x) { chunk(x, 2); });
  add("split", [](const Tensor& x) { split(x, 1); });
  add("split_with_sizes", [](const Tensor& x) { split_with_sizes(x, {1, 1}); });
  add("unbind", [](const Tensor& x) { unbind(x); });
  add("unfold", [](const Tensor& x) { unfold(x, 1, 2, 1); });
  add("flip", [](const Tensor& x) { flip(x, {0}); });
  add("repeat", [](const Tensor& x) { repeat(x, {2, 1}); });
  add("resize_", [](const Tensor& x) { resize_(x, {4, 2}); });
  add("make_per_tensor_quantized_tensor",
      [](const Tensor& x) { make_per_tensor_quantized_tensor(x, 0.1, 1); });
  add("make_per_channel_quantized_tensor", [](const Tensor& x) {
    make_per_channel_quantized_tensor(x, Tensor::ones({2}), Tensor::zeros({2}, DType::Int64), 0);
  });
  add("empty_quantized", only_quantized([](const QTensor& x) { empty_quantized({3}, x); }));
}

std::map<std::string, Caller> all_callers() {
  std::map<std::string, Caller> callers;
  add_activations(callers);
  add_smooth_activations(callers);
  add_recurrent(callers);
  add_attention(callers);
  add_arithmetic(callers);
  add_weighted(callers);
  add_norms(callers);
  add_losses(callers);
  add_spatial(callers);
  add_methods(callers);
  add_others(callers);
  return callers;
}

}  // namespace

TEST_CASE("supports: what it says of an op and a dtype is what a call does") {
  const std::map<std::string, Caller> callers = all_callers();
  for (const OpSupport& row : op_table()) {
    CAPTURE(row.op);
    CHECK(callers.count(std::string(row.op)) == 1);
  }
  for (const auto& [op, caller] : callers) {
    for (const DType dtype : kTypes) {
      CAPTURE(op);
      CAPTURE(to_string(dtype));
      bool runs = true;
      std::string text;
      try {
        caller.call(image(caller.sizes, dtype));
      } catch (const ArgumentError& error) {
        runs = false;
        text = error.what();
      } catch (const UnsupportedError& error) {
        runs = false;
        text = error.what();
      }
      CAPTURE(text);
      CHECK(runs == supports(op, Device::cpu(), dtype));
    }
  }
}

TEST_CASE("supports: unknown ops and devices without kernels are not supported") {
  CHECK_FALSE(supports("conv4d", Device::cpu(), DType::Float32));
  CHECK_FALSE(supports("conv2d", Device::cuda(), DType::QUInt8));
  CHECK(supports("conv2d", Device::cpu(), DType::QUInt8));
}

}  // namespace quanta
