// Every op of the table either hands its gradient on or says that it has none.

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <map>
#include <set>
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
#include "quanta/ops/support.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using Call = std::function<Tensor(const Tensor&)>;
struct Caller {
  Dims sizes;
  Call call;
};
using Callers = std::map<std::string, Caller>;

const Dims kImage{2, 4, 4, 6};
const Dims kMatrix{3, 4};

// Their results are integers, codes or truth values, which have no gradient.
const std::set<std::string>& without_gradient() {
  static const std::set<std::string> names{"eq",
                                           "ne",
                                           "lt",
                                           "le",
                                           "gt",
                                           "ge",
                                           "nonzero",
                                           "argmax",
                                           "argsort",
                                           "embedding_bag_byte_prepack",
                                           "embedding_bag_4bit_prepack",
                                           "embedding_bag_2bit_prepack",
                                           "quantize_per_tensor",
                                           "quantize_per_channel",
                                           "quantize_per_tensor_dynamic"};
  return names;
}

void add_activations(Callers& callers) {
  callers["relu"] = {kImage, [](const Tensor& x) { return relu(x); }};
  callers["relu_"] = {kImage, [](const Tensor& x) { return relu_(x); }};
  callers["relu6"] = {kImage, [](const Tensor& x) { return relu6(x); }};
  callers["clamp"] = {kImage, [](const Tensor& x) { return clamp(x, 0.0, 1.0); }};
  callers["hardtanh"] = {kImage, [](const Tensor& x) { return hardtanh(x); }};
  callers["threshold"] = {kImage, [](const Tensor& x) { return threshold(x, 0.0, 1.0); }};
  callers["leaky_relu"] = {kImage, [](const Tensor& x) { return leaky_relu(x); }};
  callers["hardsigmoid"] = {kImage, [](const Tensor& x) { return hardsigmoid(x); }};
  callers["sigmoid"] = {kImage, [](const Tensor& x) { return sigmoid(x); }};
  callers["tanh"] = {kImage, [](const Tensor& x) { return tanh(x); }};
  callers["gelu"] = {kImage, [](const Tensor& x) { return gelu(x); }};
  callers["hardswish"] = {kImage, [](const Tensor& x) { return hardswish(x); }};
  callers["silu"] = {kImage, [](const Tensor& x) { return silu(x); }};
  callers["elu"] = {kImage, [](const Tensor& x) { return elu(x); }};
  callers["celu"] = {kImage, [](const Tensor& x) { return celu(x); }};
  callers["prelu"] = {kImage, [](const Tensor& x) { return prelu(x, Tensor::ones({4})); }};
  callers["softmax"] = {kImage, [](const Tensor& x) { return softmax(x, 1); }};
  callers["log_softmax"] = {kImage, [](const Tensor& x) { return log_softmax(x, 1); }};
  callers["softplus"] = {kImage, [](const Tensor& x) { return softplus(x); }};
  callers["mish"] = {kImage, [](const Tensor& x) { return mish(x); }};
  callers["selu"] = {kImage, [](const Tensor& x) { return selu(x); }};
  callers["logsigmoid"] = {kImage, [](const Tensor& x) { return logsigmoid(x); }};
  callers["softsign"] = {kImage, [](const Tensor& x) { return softsign(x); }};
  callers["dropout"] = {kImage, [](const Tensor& x) { return dropout(x); }};
}

void add_arithmetic(Callers& callers) {
  const Tensor other = Tensor::ones(kMatrix);
  callers["add"] = {kMatrix, [=](const Tensor& x) { return add(other, x); }};
  callers["sub"] = {kMatrix, [=](const Tensor& x) { return sub(other, x); }};
  callers["mul"] = {kMatrix, [=](const Tensor& x) { return mul(other, x); }};
  callers["div"] = {kMatrix, [=](const Tensor& x) { return div(other, x); }};
  callers["add_relu"] = {kMatrix, [=](const Tensor& x) { return add_relu(other, x); }};
  callers["add_scalar"] = {kMatrix, [](const Tensor& x) { return add_scalar(x, 2.0); }};
  callers["mul_scalar"] = {kMatrix, [](const Tensor& x) { return mul_scalar(x, 2.0); }};
  callers["cat"] = {kMatrix, [=](const Tensor& x) { return cat(std::array{other, x}); }};
  callers["matmul"] = {kMatrix, [](const Tensor& x) { return matmul(x, Tensor::ones({4, 2})); }};
  callers["bmm"] = {{2, 3, 4}, [](const Tensor& x) { return bmm(x, Tensor::ones({2, 4, 2})); }};
  callers["where"] = {kMatrix, [=](const Tensor& x) { return where(gt(other, 0.0), other, x); }};
  const Tensor rows = Tensor::zeros({2, 2}, DType::Int64);
  callers["embedding"] = {kMatrix, [=](const Tensor& x) { return embedding(x, rows); }};
  callers["embedding_bag"] = {kMatrix, [=](const Tensor& x) { return embedding_bag(x, rows, {}); }};
  callers["scaled_dot_product_attention"] = {
      kImage, [](const Tensor& x) { return scaled_dot_product_attention(x, x, x); }};
  callers["attention_weights"] = {kImage,
                                  [](const Tensor& x) { return attention_weights(x, x, {}, 1.0); }};
  callers["mse_loss"] = {kMatrix, [=](const Tensor& x) { return mse_loss(x, other); }};
  callers["l1_loss"] = {kMatrix, [=](const Tensor& x) { return l1_loss(x, other); }};
  callers["smooth_l1_loss"] = {kMatrix, [=](const Tensor& x) { return smooth_l1_loss(x, other); }};
  callers["binary_cross_entropy_with_logits"] = {
      kMatrix, [=](const Tensor& x) { return binary_cross_entropy_with_logits(x, other); }};
  const Tensor classes = Tensor::zeros({3}, DType::Int64);
  callers["nll_loss"] = {kMatrix, [=](const Tensor& x) { return nll_loss(x, classes); }};
  callers["cross_entropy"] = {kMatrix, [=](const Tensor& x) { return cross_entropy(x, classes); }};
}

void add_products(Callers& callers) {
  for (const std::int64_t spatial : {1, 2, 3}) {
    const std::string rank = std::to_string(spatial) + "d";
    Dims sizes{1, 4};
    Dims kernel{4, 4};
    Dims ones;
    for (std::int64_t i = 0; i < spatial; ++i) {
      sizes.push_back(4);
      kernel.push_back(1);
      ones.push_back(1);
    }
    const Tensor weight = Tensor::ones(kernel);
    callers["conv" + rank] = {sizes, [=](const Tensor& x) {
                                if (spatial == 1) return conv1d(x, weight, {});
                                if (spatial == 2) return conv2d(x, weight, {});
                                return conv3d(x, weight, {});
                              }};
    callers["conv_transpose" + rank] = {sizes, [=](const Tensor& x) {
                                          if (spatial == 1) return conv_transpose1d(x, weight, {});
                                          if (spatial == 2) return conv_transpose2d(x, weight, {});
                                          return conv_transpose3d(x, weight, {});
                                        }};
    callers["batch_norm" + rank] = {sizes, [](const Tensor& x) {
                                      const Tensor one = Tensor::ones({4});
                                      return batch_norm(x, one, one, one, one);
                                    }};
    callers["max_pool" + rank] = {sizes, [=](const Tensor& x) {
                                    const MaxPoolOptions options{.kernel_size = {2}};
                                    if (spatial == 1) return max_pool1d(x, options);
                                    if (spatial == 2) return max_pool2d(x, options);
                                    return max_pool3d(x, options);
                                  }};
    callers["avg_pool" + rank] = {sizes, [=](const Tensor& x) {
                                    const AvgPoolOptions options{.kernel_size = {2}};
                                    if (spatial == 1) return avg_pool1d(x, options);
                                    if (spatial == 2) return avg_pool2d(x, options);
                                    return avg_pool3d(x, options);
                                  }};
    callers["adaptive_avg_pool" + rank] = {sizes, [=](const Tensor& x) {
                                             if (spatial == 1) return adaptive_avg_pool1d(x, ones);
                                             if (spatial == 2) return adaptive_avg_pool2d(x, ones);
                                             return adaptive_avg_pool3d(x, ones);
                                           }};
    callers["adaptive_max_pool" + rank] = {sizes, [=](const Tensor& x) {
                                             if (spatial == 1) return adaptive_max_pool1d(x, ones);
                                             if (spatial == 2) return adaptive_max_pool2d(x, ones);
                                             return adaptive_max_pool3d(x, ones);
                                           }};
  }
  callers["linear"] = {kMatrix, [](const Tensor& x) { return linear(x, Tensor::ones({2, 4})); }};
  callers["batch_norm"] = callers.at("batch_norm2d");
  callers["batch_norm_train"] = {
      kImage, [](const Tensor& x) { return batch_norm_train(x, {}, {}, {}, {}); }};
  callers["layer_norm"] = {kMatrix, [](const Tensor& x) { return layer_norm(x, {4}, {}, {}); }};
  callers["group_norm"] = {kImage, [](const Tensor& x) { return group_norm(x, 2, {}, {}); }};
  callers["instance_norm"] = {kImage, [](const Tensor& x) { return instance_norm(x, {}, {}); }};
  callers["interpolate"] = {
      kImage, [](const Tensor& x) { return interpolate(x, {.scale_factor = {2.0}}); }};
}

void add_quantized_weights(Callers& callers) {
  const auto weight = [] {
    return quantize_per_tensor(Tensor::ones({2, 4}), 0.1, 0, DType::QInt8);
  };
  const auto packed = [=] { return quantized::LinearPackedParams(weight(), {}); };
  const auto half = [] { return quantized::LinearPackedParamsFp16(Tensor::ones({2, 4}), {}); };
  const auto conv_packed = [] {
    const QTensor ones = quantize_per_tensor(Tensor::ones({2, 4, 1, 1}), 0.1, 0, DType::QInt8);
    return quantized::ConvPackedParams(ones, {}, {}, 2);
  };
  callers["conv_dynamic"] = {
      kImage, [=](const Tensor& x) { return quantized::conv_dynamic(x, conv_packed()); }};
  callers["linear_dynamic"] = {
      kMatrix, [=](const Tensor& x) { return quantized::linear_dynamic(x, packed()); }};
  callers["linear_relu_dynamic"] = {
      kMatrix, [=](const Tensor& x) { return quantized::linear_relu_dynamic(x, packed()); }};
  callers["linear_dynamic_fp16"] = {
      kMatrix, [=](const Tensor& x) { return quantized::linear_dynamic_fp16(x, half()); }};
  callers["linear_relu_dynamic_fp16"] = {
      kMatrix, [=](const Tensor& x) { return quantized::linear_relu_dynamic_fp16(x, half()); }};
  callers["linear_weight_only"] = {
      kMatrix, [](const Tensor& x) {
        return linear_weight_only(x, quantize_weight_only(Tensor::ones({2, 4}), {}));
      }};
  const Tensor one = Tensor::ones({1});
  const Tensor zero = Tensor::zeros({1});
  callers["fake_quantize_per_tensor_affine"] = {
      kMatrix, [](const Tensor& x) { return fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255); }};
  callers["fake_quantize_per_channel_affine"] = {kMatrix, [](const Tensor& x) {
                                                   return fake_quantize_per_channel_affine(
                                                       x, Tensor::ones({3}), Tensor::zeros({3}), 0,
                                                       0, 255);
                                                 }};
  callers["fake_quantize_learnable_per_tensor_affine"] = {
      kMatrix, [=](const Tensor& x) {
        return fake_quantize_learnable_per_tensor_affine(x, one, zero, 0, 255);
      }};
  callers["fake_quantize_learnable_per_channel_affine"] = {
      kMatrix, [](const Tensor& x) {
        return fake_quantize_learnable_per_channel_affine(x, Tensor::ones({3}), Tensor::zeros({3}),
                                                          0, 0, 255);
      }};
  callers["dequantize"] = {kMatrix, [](const Tensor& x) { return dequantize(x); }};
}

void add_fake_quantizers(Callers& callers) {
  const Tensor one = Tensor::scalar(1.0);
  const auto by_affine = [=](auto op) {
    return Caller{kMatrix, [=](const Tensor& x) { return op(x, one, Tensor::scalar(0.0), {}); }};
  };
  callers["quantize_affine"] = by_affine(quantize_affine);
  callers["dequantize_affine"] = by_affine(dequantize_affine);
  callers["quantize_dequantize_affine"] = by_affine(quantize_dequantize_affine);
  callers["tensor_quant"] = {kMatrix, [=](const Tensor& x) { return tensor_quant(x, one).values; }};
  callers["legacy_fake_tensor_quant"] = {
      kMatrix, [=](const Tensor& x) { return legacy_fake_tensor_quant(x, one); }};
  callers["fake_tensor_quant"] = {kMatrix,
                                  [=](const Tensor& x) { return fake_tensor_quant(x, one); }};
  callers["fake_affine_tensor_quant"] = {
      kMatrix,
      [=](const Tensor& x) { return fake_affine_tensor_quant(x, Tensor::scalar(-1.0), one); }};
  callers["int_cast_ste"] = {kMatrix, [](const Tensor& x) { return int_cast_ste(x); }};
  callers["scaled_e4m3"] = {kMatrix, [=](const Tensor& x) { return scaled_e4m3(x, one); }};
  callers["fp4_cast_ste"] = {kMatrix, [](const Tensor& x) { return fp4_cast_ste(x); }};
  callers["static_fp4"] = {{2, 16}, [=](const Tensor& x) { return static_fp4(x, one); }};
  callers["clip"] = {kMatrix, [=](const Tensor& x) { return clip(x, one, one); }};
  callers["dynamic_block_quant"] = {{2, 16},
                                    [](const Tensor& x) { return dynamic_block_quant(x); }};
}

void add_moves(Callers& callers) {
  const Tensor index = Tensor::zeros({2}, DType::Int64);
  const Tensor mask = gt(Tensor::ones({3, 4}), 0.0);
  callers["index"] = {kMatrix, [=](const Tensor& x) { return quanta::index(x, {index}); }};
  callers["index_put_"] = {kMatrix, [=](const Tensor& x) { return index_put_(x, {index}, 1.0); }};
  callers["index_select"] = {kMatrix, [=](const Tensor& x) { return index_select(x, 0, index); }};
  callers["gather"] = {{4}, [=](const Tensor& x) { return gather(x, 0, index); }};
  callers["take"] = {kMatrix, [=](const Tensor& x) { return take(x, index); }};
  callers["masked_fill"] = {kMatrix, [=](const Tensor& x) { return masked_fill(x, mask, 1.0); }};
  callers["masked_fill_"] = {kMatrix, [=](const Tensor& x) { return masked_fill_(x, mask, 1.0); }};
  callers["pad"] = {kMatrix, [](const Tensor& x) { return pad(x, {1, 1}); }};
  callers["max"] = {kMatrix, [](const Tensor& x) { return max(x); }};
  callers["min"] = {kMatrix, [](const Tensor& x) { return min(x, 0).values; }};
  callers["sum"] = {kMatrix, [](const Tensor& x) { return sum(x); }};
  callers["mean"] = {kMatrix, [](const Tensor& x) { return mean(x); }};
  callers["std"] = {kMatrix, [](const Tensor& x) { return quanta::std(x); }};
  callers["var"] = {kMatrix, [](const Tensor& x) { return var(x); }};
  callers["stack"] = {kMatrix, [](const Tensor& x) { return stack(std::array{x, x}); }};
  callers["chunk"] = {kMatrix, [](const Tensor& x) { return chunk(x, 2)[0]; }};
  callers["split"] = {kMatrix, [](const Tensor& x) { return split(x, 2)[1]; }};
  callers["split_with_sizes"] = {kMatrix, [](const Tensor& x) {
                                   return split_with_sizes(x, {1, 2})[1];
                                 }};
  callers["unbind"] = {kMatrix, [](const Tensor& x) { return unbind(x)[0]; }};
  callers["unfold"] = {kMatrix, [](const Tensor& x) { return unfold(x, 0, 2, 1); }};
  callers["flip"] = {kMatrix, [](const Tensor& x) { return flip(x, {0}); }};
  callers["repeat"] = {kMatrix, [](const Tensor& x) { return repeat(x, {2, 1}); }};
  callers["resize_"] = {kMatrix, [](const Tensor& x) { return resize_(x, {2}); }};
  callers["channel_shuffle"] = {kImage, [](const Tensor& x) { return channel_shuffle(x, 2); }};
  callers["pixel_shuffle"] = {kImage, [](const Tensor& x) { return pixel_shuffle(x, 2); }};
  callers["pixel_unshuffle"] = {kImage, [](const Tensor& x) { return pixel_unshuffle(x, 2); }};
  callers["sort"] = {kMatrix, [](const Tensor& x) { return sort(x).values; }};
  callers["msort"] = {kMatrix, [](const Tensor& x) { return msort(x); }};
  callers["topk"] = {kMatrix, [](const Tensor& x) { return topk(x, 2).values; }};
}

Callers all_callers() {
  Callers callers;
  add_activations(callers);
  add_arithmetic(callers);
  add_products(callers);
  add_quantized_weights(callers);
  add_fake_quantizers(callers);
  add_moves(callers);
  return callers;
}

enum class Outcome : std::uint8_t { Recorded, Refused, Lost };

Outcome outcome_of(const Caller& caller) {
  const Tensor x = Tensor::full(caller.sizes, 0.5).set_requires_grad();
  try {
    const Tensor y = caller.call(x);
    if (!y.requires_grad()) return Outcome::Lost;
    y.backward(Tensor::ones(y.sizes()));
    return x.grad().defined() ? Outcome::Recorded : Outcome::Lost;
  } catch (const UnsupportedError&) {
    return Outcome::Refused;
  } catch (const ArgumentError& error) {
    // A change in place.
    return std::string(error.what()).find("requires no gradient") != std::string::npos
               ? Outcome::Refused
               : Outcome::Lost;
  }
}

}  // namespace

TEST_CASE("gradients: no float op loses one in silence") {
  for (const auto& [op, caller] : all_callers()) {
    CAPTURE(op);
    CHECK(outcome_of(caller) != Outcome::Lost);
  }
}

TEST_CASE("gradients: ops for training have one") {
  const Callers callers = all_callers();
  for (const std::string op :
       {"relu", "hardswish", "add", "mul", "cat", "conv2d", "conv_transpose2d", "linear", "matmul",
        "batch_norm_train", "layer_norm", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d",
        "softmax", "cross_entropy", "mse_loss", "mean", "fake_quantize_per_tensor_affine"}) {
    CAPTURE(op);
    CHECK(outcome_of(callers.at(op)) == Outcome::Recorded);
  }
}

TEST_CASE("gradients: every op of the table on floats is looked at") {
  const Callers callers = all_callers();
  // Shown by tests of the recurrent layers.
  const std::set<std::string> elsewhere{"recurrent_steps"};
  for (const OpSupport& row : op_table()) {
    if (row.dtype != DType::Float32) continue;
    const std::string op(row.op);
    CAPTURE(op);
    CHECK((callers.contains(op) || without_gradient().contains(op) || elsewhere.contains(op)));
  }
}

}  // namespace quanta
