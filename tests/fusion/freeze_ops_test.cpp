// freeze: every op of the table is recorded, or refused with a reason.

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "quanta/fusion/freeze.h"
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
#include "quanta/ops/rnn_dynamic.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/shuffle.h"
#include "quanta/ops/sort.h"
#include "quanta/ops/support.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

using Function = std::function<Tensor(const Tensor& x)>;

/// An op on a Float32 input, with quantize and dequantize around it where it works on codes.
struct Case {
  std::string form;
  Dims sizes;
  Function function;
};
using Cases = std::map<std::string, std::vector<Case>>;

struct FunctionModule : nn::Module {
  Function function;
  explicit FunctionModule(Function given) : function(std::move(given)) { eval(); }
  Tensor forward(const Tensor& x) const override { return function(x); }
};

Tensor random(const Dims& sizes, std::uint64_t seed) {
  Generator generator(seed);
  return randn(sizes, generator);
}

QTensor codes(const Tensor& x, DType dtype = DType::QUInt8) {
  return quantize_per_tensor(x, 0.05, dtype == DType::QUInt8 ? 120 : 3, dtype);
}

/// Positions 0..rows-1 that depend on the input.
Tensor positions(const Tensor& x, std::int64_t rows) {
  return clamp(mul_scalar(x, 1.5), 0.0, static_cast<double>(rows) - 0.5).to(DType::Int64);
}

QTensor weight_codes(const Dims& sizes) { return codes(random(sizes, 77), DType::QInt8); }

/// All results as one: floats side by side, so that each of them is compared.
Tensor joined(const std::vector<Tensor>& results) {
  std::vector<Tensor> flat;
  for (const Tensor& each : results) {
    const Tensor floats = each.is_quantized() ? dequantize(each) : each.to(DType::Float32);
    flat.push_back(floats.reshape({-1}));
  }
  return cat(flat, 0);
}
Tensor both(const ValuesIndices& result) { return joined({result.values, result.indices}); }

void expect_equal(const FrozenModel& frozen, const nn::Module& eager, const Tensor& x) {
  const Tensor wanted = eager(x);
  const Tensor got = frozen(x);
  CHECK(got.dtype() == wanted.dtype());
  CHECK(got.sizes() == wanted.sizes());
  CHECK(got.strides() == wanted.strides());
  CHECK(got.equal(wanted));
}

void expect_frozen(const Case& each) {
  const FunctionModule net(each.function);
  const FrozenModel frozen = freeze(net, random(each.sizes, 1));
  for (std::uint64_t seed = 2; seed < 5; ++seed) {
    const Tensor x = random(each.sizes, seed);
    // What comes before, so that the op does not read the input itself.
    expect_equal(frozen, net, x);
  }
  const FunctionModule later([&](const Tensor& x) { return each.function(mul_scalar(x, 0.5)); });
  expect_equal(freeze(later, random(each.sizes, 1)), later, random(each.sizes, 6));
}

/// A float form, and one for codes of each 8-bit dtype.
template <typename Quantized>
void add_codes(Cases& cases, const std::string& op, const Dims& sizes, Quantized quantized,
               std::initializer_list<DType> dtypes = {DType::QUInt8, DType::QInt8}) {
  for (const DType dtype : dtypes) {
    cases[op].push_back({std::string(to_string(dtype)), sizes,
                         [=](const Tensor& x) -> Tensor { return quantized(codes(x, dtype)); }});
  }
}

void add_activations(Cases& cases) {
  const Dims sizes{2, 3, 5, 4};
  const auto floats = [&](const std::string& op, Function function) {
    cases[op].push_back({"Float32", sizes, function});
    cases[op].push_back(
        {"Float64", sizes, [function](const Tensor& x) { return function(x.to(DType::Float64)); }});
  };
  const auto every = [&](const std::string& op, Function function) {
    floats(op, function);
    add_codes(cases, op, sizes, function, {DType::QUInt8, DType::QInt8, DType::QInt32});
  };
  const auto both = [&](const std::string& op, Function function, auto quantized) {
    floats(op, std::move(function));
    add_codes(cases, op, sizes, quantized, {DType::QUInt8, DType::QInt8, DType::QInt32});
  };
  every("relu", [](const Tensor& x) { return relu(x); });
  every("relu_", [](const Tensor& x) { return relu_(x.clone()); });
  every("relu6", [](const Tensor& x) { return relu6(x); });
  every("clamp", [](const Tensor& x) { return clamp(x, -0.25, 1.0); });
  every("hardtanh", [](const Tensor& x) { return hardtanh(x); });
  every("threshold", [](const Tensor& x) { return threshold(x, 0.1, 0.5); });
  every("leaky_relu", [](const Tensor& x) { return leaky_relu(x); });
  every("hardsigmoid", [](const Tensor& x) { return hardsigmoid(x); });
  every("sigmoid", [](const Tensor& x) { return sigmoid(x); });
  every("tanh", [](const Tensor& x) { return tanh(x); });
  every("gelu", [](const Tensor& x) { return gelu(x); });
  both(
      "hardswish", [](const Tensor& x) { return hardswish(x); },
      [](const QTensor& x) { return quantized::hardswish(x, 0.04, 9); });
  both(
      "silu", [](const Tensor& x) { return silu(x); },
      [](const QTensor& x) { return quantized::silu(x, 0.04, 9); });
  both(
      "elu", [](const Tensor& x) { return elu(x); },
      [](const QTensor& x) { return quantized::elu(x, 0.04, 9); });
  both(
      "celu", [](const Tensor& x) { return celu(x, 0.5); },
      [](const QTensor& x) { return quantized::celu(x, 0.04, 9, 0.5); });
  both(
      "prelu", [](const Tensor& x) { return prelu(x, Tensor::full({3}, 0.25, x.dtype())); },
      [](const QTensor& x) {
        return quantized::prelu(x, codes(Tensor::full({3}, 0.25), x.dtype()), 0.04, 9);
      });
  both(
      "softmax", [](const Tensor& x) { return softmax(x, 1); },
      [](const QTensor& x) { return quantized::softmax(x, -1, 1.0 / 256, 0); });
  for (const char* op : {"log_softmax", "softplus", "mish", "selu", "logsigmoid", "softsign"}) {
    static const std::map<std::string, Function> functions{
        {"log_softmax", [](const Tensor& x) { return log_softmax(x, 1); }},
        {"softplus", [](const Tensor& x) { return softplus(x); }},
        {"mish", [](const Tensor& x) { return mish(x); }},
        {"selu", [](const Tensor& x) { return selu(x); }},
        {"logsigmoid", [](const Tensor& x) { return logsigmoid(x); }},
        {"softsign", [](const Tensor& x) { return softsign(x); }}};
    floats(op, functions.at(op));
  }
}

void add_arithmetic(Cases& cases) {
  const Dims sizes{4, 4};
  const auto add_case = [&](const std::string& op, auto plain, auto quantized) {
    cases[op].push_back({"Float32", sizes, plain});
    add_codes(cases, op, sizes, quantized);
  };
  const auto scaled = [](const QTensor& x) { return quantized::mul_scalar(x, 1.5); };
  add_case(
      "add", [](const Tensor& x) { return add(x, x.t()); },
      [=](const QTensor& x) { return quantized::add(x, scaled(x), 0.1, 3); });
  add_case(
      "mul", [](const Tensor& x) { return mul(x, x.t()); },
      [=](const QTensor& x) { return quantized::mul(x, scaled(x), 0.1, 3); });
  add_case(
      "add_relu", [](const Tensor& x) { return add_relu(x, x.t()); },
      [=](const QTensor& x) { return quantized::add_relu(x, scaled(x), 0.1, 3); });
  add_case(
      "add_scalar", [](const Tensor& x) { return add_scalar(x, 0.5); },
      [](const QTensor& x) { return quantized::add_scalar(x, 0.5); });
  add_case(
      "mul_scalar", [](const Tensor& x) { return mul_scalar(x, -2.0); },
      [](const QTensor& x) { return quantized::mul_scalar(x, -2.0); });
  add_case(
      "matmul", [](const Tensor& x) { return matmul(x, x.t()); },
      [](const QTensor& x) { return quantized::matmul(x, x, 0.2, 4); });
  cases["matmul"].push_back(
      {"a vector", sizes, [](const Tensor& x) { return matmul(x.select(0, 1), x); }});
  cases["matmul"].push_back({"Float64", sizes, [](const Tensor& x) {
                               return matmul(x.to(DType::Float64), x.to(DType::Float64));
                             }});
  cases["bmm"].push_back({"Float32", {2, 3, 3}, [](const Tensor& x) { return bmm(x, x); }});
  cases["bmm"].push_back({"QUInt8", {2, 3, 3}, [](const Tensor& x) -> Tensor {
                            return quantized::bmm(codes(x), codes(x), 0.2, 4);
                          }});
  cases["sub"].push_back({"Float32", sizes, [](const Tensor& x) { return sub(x, x.t()); }});
  cases["div"].push_back({"Float32", sizes, [](const Tensor& x) { return div(x, x.t()); }});
  add_codes(cases, "mul_relu", sizes,
            [](const QTensor& x) { return quantized::mul_relu(x, x, 0.1, 3); });
  add_codes(cases, "add_scalar_relu", sizes,
            [](const QTensor& x) { return quantized::add_scalar_relu(x, 0.5); });
  add_codes(cases, "mul_scalar_relu", sizes,
            [](const QTensor& x) { return quantized::mul_scalar_relu(x, -0.5); });
  add_codes(cases, "cat_relu", sizes, [=](const QTensor& x) {
    return quantized::cat_relu(std::array{x, scaled(x)}, 0);
  });
  cases["cat"].push_back({"Float32", sizes, [](const Tensor& x) {
                            return cat(std::array{x, x.t(), x.slice(1, 0, 2)}, 1);
                          }});
  add_codes(cases, "cat", sizes, [=](const QTensor& x) {
    return quantized::cat(std::array{x, scaled(x)}, 1, 0.1, 4);
  });
}

void add_convolutions(Cases& cases) {
  for (const std::int64_t spatial : {1, 2, 3}) {
    const std::string rank = std::to_string(spatial) + "d";
    Dims sizes{2, 4};
    Dims kernel{4, 4};
    for (std::int64_t i = 0; i < spatial; ++i) sizes.push_back(5), kernel.push_back(3);
    const Tensor weight = random(kernel, 31);
    const Tensor bias = random({4}, 32);
    const quantized::ConvPackedParams packed(weight_codes(kernel), bias, {.padding = {1}}, spatial);
    const auto turned = quantized::ConvPackedParams::transposed(weight_codes(kernel), bias,
                                                                {.stride = {2}}, spatial);
    const auto plain = [=](const Tensor& x) {
      if (spatial == 1) return conv1d(x, weight, bias);
      return spatial == 2 ? conv2d(x, weight, bias) : conv3d(x, weight, bias);
    };
    cases["conv" + rank].push_back({"Float32", sizes, plain});
    const PackedConv ready(weight, bias, {}, spatial, Fusion::ReLU);
    cases["conv" + rank].push_back({"packed", sizes, [=](const Tensor& x) { return ready(x); }});
    cases["conv" + rank].push_back(
        {"no batch", sizes, [=](const Tensor& x) { return ready(x.select(0, 1)); }});
    add_codes(cases, "conv" + rank, sizes,
              [=](const QTensor& x) { return quantized::conv(x, packed, 0.3, 90); },
              {DType::QUInt8});
    add_codes(cases, "conv" + rank + "_relu", sizes,
              [=](const QTensor& x) { return quantized::conv_relu(x, packed, 0.3, 0); },
              {DType::QUInt8});
    cases["conv_dynamic"].push_back(
        {rank, sizes, [=](const Tensor& x) { return quantized::conv_dynamic(x, packed); }});
    cases["conv_transpose" + rank].push_back({"Float32", sizes, [=](const Tensor& x) {
                                                if (spatial == 1)
                                                  return conv_transpose1d(x, weight, bias);
                                                return spatial == 2
                                                           ? conv_transpose2d(x, weight, bias)
                                                           : conv_transpose3d(x, weight, bias);
                                              }});
    add_codes(cases, "conv_transpose" + rank, sizes,
              [=](const QTensor& x) { return quantized::conv(x, turned, 0.3, 90); },
              {DType::QUInt8});
    if (spatial != 2) continue;
    add_codes(cases, "conv2d_add", sizes,
              [=](const QTensor& x) { return quantized::conv_add(x, x, packed, 0.3, 90); },
              {DType::QUInt8});
    add_codes(cases, "conv2d_add_relu", sizes,
              [=](const QTensor& x) { return quantized::conv_add_relu(x, x, packed, 0.3, 9); },
              {DType::QUInt8});
  }
}

void add_linear(Cases& cases) {
  const Dims sizes{3, 4};
  const Tensor weight = random({5, 4}, 33);
  const Tensor bias = random({5}, 34);
  const quantized::LinearPackedParams packed(weight_codes({5, 4}), bias);
  const auto one = [&](const std::string& op, auto quantized) {
    add_codes(cases, op, sizes, quantized, {DType::QUInt8});
  };
  cases["linear"].push_back(
      {"Float32", sizes, [=](const Tensor& x) { return linear(x, weight, bias); }});
  const PackedLinear ready(weight, bias, Fusion::None);
  cases["linear"].push_back({"packed", sizes, [=](const Tensor& x) { return ready(x); }});
  one("linear", [=](const QTensor& x) { return quantized::linear(x, packed, 0.2, 80); });
  one("linear_relu", [=](const QTensor& x) { return quantized::linear_relu(x, packed, 0.2, 0); });
  one("linear_leaky_relu",
      [=](const QTensor& x) { return quantized::linear_leaky_relu(x, packed, 0.2, 80, 0.1); });
  one("linear_tanh",
      [=](const QTensor& x) { return quantized::linear_tanh(x, packed, 0.01, 128); });
  const WeightOnlyPackedParams weight_only = quantize_weight_only(weight, bias);
  cases["linear_weight_only"].push_back(
      {"Float32", sizes, [=](const Tensor& x) { return linear_weight_only(x, weight_only); }});
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{40}}) {
    const Dims many{rows, 64};
    const quantized::LinearPackedParams wide(weight_codes({96, 64}), random({96}, 35));
    const quantized::LinearPackedParamsFp16 half(random({96, 64}, 36), {});
    const auto add_case = [&](const std::string& op, Function function) {
      cases[op].push_back({std::to_string(rows) + " rows", many, std::move(function)});
    };
    add_case("linear_dynamic", [=](const Tensor& x) { return quantized::linear_dynamic(x, wide); });
    add_case("linear_relu_dynamic",
             [=](const Tensor& x) { return quantized::linear_relu_dynamic(x, wide); });
    add_case("linear_dynamic_fp16",
             [=](const Tensor& x) { return quantized::linear_dynamic_fp16(x, half); });
    add_case("linear_relu_dynamic_fp16",
             [=](const Tensor& x) { return quantized::linear_relu_dynamic_fp16(x, half); });
  }
}

void add_norms(Cases& cases) {
  const Tensor weight = random({4}, 41);
  const Tensor bias = random({4}, 42);
  const Tensor mean = random({4}, 43);
  const Tensor var = relu(random({4}, 44));
  for (const std::int64_t spatial : {1, 2, 3}) {
    Dims sizes{2, 4};
    for (std::int64_t i = 0; i < spatial; ++i) sizes.push_back(4);
    const std::string op = "batch_norm" + std::to_string(spatial) + "d";
    cases[op].push_back({"Float32", sizes,
                         [=](const Tensor& x) { return batch_norm(x, mean, var, weight, bias); }});
    add_codes(cases, op, sizes, [=](const QTensor& x) {
      return quantized::batch_norm(x, weight, bias, mean, var, 1e-5, 0.1, 5);
    });
    add_codes(cases, op + "_relu", sizes, [=](const QTensor& x) {
      return quantized::batch_norm_relu(x, weight, bias, mean, var, 1e-5, 0.1, 5);
    });
  }
  cases["batch_norm"] = cases.at("batch_norm2d");
  cases["batch_norm_relu"] = cases.at("batch_norm2d_relu");
  const Dims sizes{2, 4, 4};
  cases["batch_norm_train"].push_back({"Float32", sizes, [=](const Tensor& x) {
                                         return batch_norm_train(x, {}, {}, weight, bias);
                                       }});
  const auto both = [&](const std::string& op, Function plain, auto quantized) {
    cases[op].push_back({"Float32", sizes, plain});
    add_codes(cases, op, sizes, quantized);
  };
  both(
      "layer_norm", [=](const Tensor& x) { return layer_norm(x, {4}, weight, bias); },
      [=](const QTensor& x) { return quantized::layer_norm(x, {4}, weight, {}, 1e-5, 0.1, 7); });
  both(
      "group_norm", [=](const Tensor& x) { return group_norm(x, 2, weight, bias); },
      [=](const QTensor& x) { return quantized::group_norm(x, 2, {}, bias, 1e-5, 0.1, 7); });
  both(
      "instance_norm", [=](const Tensor& x) { return instance_norm(x, weight, bias); },
      [=](const QTensor& x) { return quantized::instance_norm(x, {}, {}, 1e-5, 0.1, 7); });
}

void add_spatial(Cases& cases) {
  const auto every = [&](const std::string& op, const Dims& sizes, Function function) {
    cases[op].push_back({"Float32", sizes, function});
    cases[op].push_back({"channels last", sizes, [function](const Tensor& x) {
                           return function(x.dim() == 4 ? x.contiguous(MemoryFormat::ChannelsLast)
                                                        : x);
                         }});
    add_codes(cases, op, sizes, function);
  };
  const MaxPoolOptions max{.kernel_size = {2}};
  const AvgPoolOptions avg{.kernel_size = {2}};
  const Dims one{2, 4, 5};
  const Dims two{2, 4, 4, 6};
  const Dims three{1, 4, 4, 4, 4};
  every("max_pool1d", one, [=](const Tensor& x) { return max_pool1d(x, max); });
  every("max_pool2d", two, [=](const Tensor& x) { return max_pool2d(x, max); });
  every("max_pool3d", three, [=](const Tensor& x) { return max_pool3d(x, max); });
  every("avg_pool1d", one, [=](const Tensor& x) { return avg_pool1d(x, avg); });
  every("avg_pool2d", two, [=](const Tensor& x) { return avg_pool2d(x, avg); });
  every("avg_pool3d", three, [=](const Tensor& x) { return avg_pool3d(x, avg); });
  every("adaptive_avg_pool1d", one, [](const Tensor& x) { return adaptive_avg_pool1d(x, {2}); });
  every("adaptive_avg_pool2d", two, [](const Tensor& x) { return adaptive_avg_pool2d(x, {2}); });
  every("adaptive_avg_pool3d", three, [](const Tensor& x) { return adaptive_avg_pool3d(x, {2}); });
  every("adaptive_max_pool1d", one, [](const Tensor& x) { return adaptive_max_pool1d(x, {2}); });
  every("adaptive_max_pool2d", two, [](const Tensor& x) { return adaptive_max_pool2d(x, {2}); });
  every("adaptive_max_pool3d", three, [](const Tensor& x) { return adaptive_max_pool3d(x, {2}); });
  every("interpolate", two, [](const Tensor& x) { return interpolate(x, {.size = {7}}); });
  every("interpolate", two, [](const Tensor& x) {
    return interpolate(x, {.size = {7}, .mode = InterpolateMode::Bilinear});
  });
  every("pad", two, [](const Tensor& x) { return pad(x, {1, 2}); });
  every("pad", two, [](const Tensor& x) { return pad(x, {1, 2, 0, 1}, PadMode::Reflect); });
  every("channel_shuffle", two, [](const Tensor& x) { return channel_shuffle(x, 2); });
  every("pixel_shuffle", two, [](const Tensor& x) { return pixel_shuffle(x, 2); });
  every("pixel_unshuffle", two, [](const Tensor& x) { return pixel_unshuffle(x, 2); });
}

void add_shapes(Cases& cases) {
  const Dims sizes{4, 6};
  const auto every = [&](const std::string& op, Function function) {
    cases[op].push_back({"Float32", sizes, function});
    add_codes(cases, op, sizes, function);
  };
  every("stack", [](const Tensor& x) { return stack(std::array{x, x}, 1); });
  every("chunk", [](const Tensor& x) { return chunk(x, 2).back(); });
  every("split", [](const Tensor& x) { return split(x, 1)[2]; });
  every("split_with_sizes", [](const Tensor& x) { return split_with_sizes(x, {1, 3})[1]; });
  every("unbind", [](const Tensor& x) { return unbind(x, 1)[3]; });
  every("unfold", [](const Tensor& x) { return unfold(x, 1, 2, 2); });
  every("flip", [](const Tensor& x) { return flip(x, {0, 1}); });
  every("repeat", [](const Tensor& x) { return repeat(x, {2, 1, 3}); });
  every("dropout",
        [](const Tensor& x) { return x.is_quantized() ? quantized::dropout(QTensor(x)) : x; });
  every("dequantize", [](const Tensor& x) { return dequantize(x); });
  add_codes(cases, "int_repr", sizes, [](const QTensor& x) { return int_repr(x); });
  cases["quantize_per_tensor"].push_back(
      {"QInt8", sizes, [](const Tensor& x) -> Tensor { return codes(x, DType::QInt8); }});
  cases["quantize_per_channel"].push_back({"QInt8", sizes, [](const Tensor& x) -> Tensor {
                                             return quantize_per_channel(
                                                 x, Tensor::full({4}, 0.05),
                                                 Tensor::zeros({4}, DType::Int64), 0, DType::QInt8);
                                           }});
  cases["quantize_per_channel"].push_back({"QUInt4x2", sizes, [](const Tensor& x) -> Tensor {
                                             return quantize_per_channel(x, Tensor::full({4}, 0.3),
                                                                         Tensor::full({4}, 0.5), 0,
                                                                         DType::QUInt4x2);
                                           }});
  cases["make_per_tensor_quantized_tensor"].push_back(
      {"Int8", sizes, [](const Tensor& x) -> Tensor {
         return make_per_tensor_quantized_tensor(mul_scalar(x, 9.0).to(DType::Int8), 0.1, 1);
       }});
  cases["make_per_channel_quantized_tensor"].push_back(
      {"Int8", sizes, [](const Tensor& x) -> Tensor {
         return make_per_channel_quantized_tensor(mul_scalar(x, 9.0).to(DType::Int8),
                                                  Tensor::ones({4}),
                                                  Tensor::zeros({4}, DType::Int64), 0);
       }});
  cases["empty_quantized"].push_back({"written", sizes, [](const Tensor& x) -> Tensor {
                                        const QTensor result = empty_quantized({4, 6}, codes(x));
                                        result.copy_(x);
                                        return result;
                                      }});
}

void add_elements(Cases& cases) {
  const Dims sizes{4, 6};
  const auto every = [&](const std::string& op, Function function) {
    cases[op].push_back({"Float32", sizes, function});
    add_codes(cases, op, sizes, function);
  };
  const auto plain = [&](const std::string& op, Function function) {
    cases[op].push_back({"Float32", sizes, std::move(function)});
  };
  every("eq", [](const Tensor& x) { return eq(x, x.slice(0, 0, 1)); });
  every("ne", [](const Tensor& x) { return ne(x, 0.5); });
  every("lt", [](const Tensor& x) { return lt(x, x.slice(0, 0, 1)); });
  every("le", [](const Tensor& x) { return le(x, 0.5); });
  every("gt", [](const Tensor& x) { return gt(x, x.slice(0, 0, 1)); });
  every("ge", [](const Tensor& x) { return ge(x, x.slice(0, 0, 1)); });
  every("where", [](const Tensor& x) { return where(gt(x, 0.0), x, x.slice(0, 1, 2)); });
  every("index", [](const Tensor& x) {
    return index(x, {Slice{}, positions(dequantize(x).select(1, 0), 6)});
  });
  every("index_put_", [](const Tensor& x) {
    return index_put_(x.clone(), {positions(dequantize(x).select(1, 0), 4)}, 0.25);
  });
  every("index_select", [](const Tensor& x) {
    return index_select(x, 1, positions(dequantize(x).select(1, 0), 6));
  });
  every("gather", [](const Tensor& x) { return gather(x, 0, positions(dequantize(x), 4)); });
  every("take", [](const Tensor& x) { return take(x, positions(dequantize(x), 24)); });
  every("masked_fill", [](const Tensor& x) { return masked_fill(x, lt(x, 0.1), 0.3); });
  every("masked_fill_", [](const Tensor& x) { return masked_fill_(x.clone(), lt(x, 0.1), 0.3); });
  every("max", [](const Tensor& x) { return both(max(x, 1)); });
  every("max", [](const Tensor& x) { return max(x); });
  every("min", [](const Tensor& x) { return both(min(x, 0)); });
  every("mean", [](const Tensor& x) { return mean(x, {1}); });
  every("std", [](const Tensor& x) { return quanta::std(x, {0}); });
  plain("var", [](const Tensor& x) { return var(x, {1}); });
  plain("argmax", [](const Tensor& x) { return argmax(x, 1); });
  plain("sum", [](const Tensor& x) { return sum(x, {0}); });
  every("sort", [](const Tensor& x) { return both(sort(x, {.dim = 0, .descending = true})); });
  every("argsort", [](const Tensor& x) { return argsort(x); });
  every("msort", [](const Tensor& x) { return msort(x); });
  every("topk", [](const Tensor& x) { return both(topk(x, 2)); });
}

void add_losses(Cases& cases) {
  const Dims sizes{4, 6};
  const auto loss = [&](const std::string& op, Function function) {
    cases[op].push_back({"Float32", sizes, std::move(function)});
  };
  loss("mse_loss", [](const Tensor& x) { return mse_loss(x, Tensor::ones({4, 6})); });
  loss("l1_loss", [](const Tensor& x) { return l1_loss(x, Tensor::ones({4, 6})); });
  loss("smooth_l1_loss", [](const Tensor& x) { return smooth_l1_loss(x, Tensor::ones({4, 6})); });
  loss("binary_cross_entropy_with_logits", [](const Tensor& x) {
    return binary_cross_entropy_with_logits(x, sigmoid(x), {.weight = relu(x)});
  });
  loss("nll_loss", [](const Tensor& x) { return nll_loss(x, positions(x.select(1, 0), 6)); });
  loss("cross_entropy", [](const Tensor& x) {
    return cross_entropy(x, positions(x.select(1, 0), 6), {.weight = sigmoid(x.select(0, 0))});
  });
}

void add_quantizers(Cases& cases) {
  const Dims sizes{2, 16};
  const auto one = [&](const std::string& op, Function function) {
    cases[op].push_back({"Float32", sizes, function});
    cases[op].push_back({"BFloat16", sizes,
                         [function](const Tensor& x) { return function(x.to(DType::BFloat16)); }});
  };
  // Of the values of the run.
  const auto amax = [](const Tensor& x) { return max(x.to(DType::Float32)); };
  one("tensor_quant", [=](const Tensor& x) {
    const TensorQuantResult result = tensor_quant(x, amax(x));
    return joined({result.values, result.scale});
  });
  one("legacy_fake_tensor_quant",
      [=](const Tensor& x) { return legacy_fake_tensor_quant(x, amax(x)); });
  one("fake_tensor_quant", [=](const Tensor& x) { return fake_tensor_quant(x, amax(x)); });
  one("fake_affine_tensor_quant", [=](const Tensor& x) {
    return fake_affine_tensor_quant(x, min(x.to(DType::Float32)), amax(x));
  });
  one("int_cast_ste", [](const Tensor& x) { return int_cast_ste(x); });
  one("scaled_e4m3", [=](const Tensor& x) { return scaled_e4m3(x, amax(x)); });
  one("fp4_cast_ste", [](const Tensor& x) { return fp4_cast_ste(x); });
  one("static_fp4", [=](const Tensor& x) { return static_fp4(x, amax(x)); });
  one("dynamic_block_quant", [=](const Tensor& x) { return dynamic_block_quant(x, amax(x)); });
  cases["clip"].push_back({"Float32", sizes, [](const Tensor& x) {
                             return clip(x, Tensor::scalar(-0.5), Tensor::scalar(0.75));
                           }});
  const Tensor scale = Tensor::full({2}, 0.1);
  const Tensor zeros = Tensor::zeros({2});
  one("fake_quantize_per_tensor_affine",
      [](const Tensor& x) { return fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255); });
  one("fake_quantize_per_channel_affine", [=](const Tensor& x) {
    return fake_quantize_per_channel_affine(x, scale, zeros, 0, -128, 127);
  });
  one("fake_quantize_learnable_per_tensor_affine", [](const Tensor& x) {
    return fake_quantize_learnable_per_tensor_affine(x, Tensor::full({1}, 0.1), Tensor::zeros({1}),
                                                     0, 255);
  });
  one("fake_quantize_learnable_per_channel_affine", [=](const Tensor& x) {
    return fake_quantize_learnable_per_channel_affine(x, scale, zeros, 0, 0, 255);
  });
  const Tensor step = Tensor::full({}, 0.1);
  const Tensor offset = Tensor::full({}, 2.0);
  one("quantize_affine", [=](const Tensor& x) { return quantize_affine(x, step, offset); });
  one("dequantize_affine", [=](const Tensor& x) { return dequantize_affine(x, step, offset); });
  one("quantize_dequantize_affine",
      [=](const Tensor& x) { return quantize_dequantize_affine(x, step, offset); });
}

void add_embeddings(Cases& cases) {
  const Dims sizes{3, 5};
  const Tensor table = random({10, 16}, 51);
  const auto packed = [&](DType dtype) {
    return quantized::embedding_bag_prepack(
        quantize_per_channel(table, Tensor::full({10}, 0.3), Tensor::full({10}, 5.0), 0, dtype));
  };
  const auto byte = packed(DType::QUInt8);
  const auto nibble = packed(DType::QUInt4x2);
  const auto bytes = quantized::embedding_bag_byte_prepack(table);
  const auto nibbles = quantized::embedding_bag_4bit_prepack(table);
  const auto pairs = quantized::embedding_bag_2bit_prepack(table);
  const auto by_rows = [&](const std::string& op, Function function) {
    cases[op].push_back(
        {"rows", sizes, [=](const Tensor& x) { return function(positions(x, 10)); }});
  };
  by_rows("embedding", [=](const Tensor& i) { return embedding(table, i); });
  by_rows("embedding_bag", [=](const Tensor& i) { return embedding_bag(table, i, {}); });
  by_rows("embedding_byte", [=](const Tensor& i) { return quantized::embedding_byte(byte, i); });
  by_rows("embedding_4bit", [=](const Tensor& i) { return quantized::embedding_4bit(nibble, i); });
  by_rows("embedding_bag_byte",
          [=](const Tensor& i) { return quantized::embedding_bag_byte(byte, i); });
  by_rows("embedding_bag_4bit",
          [=](const Tensor& i) { return quantized::embedding_bag_4bit(nibble, i); });
  cases["embedding_bag_byte"].push_back({"weighted", sizes, [=](const Tensor& x) {
                                           return quantized::embedding_bag_byte(
                                               byte, positions(x, 10), {.per_sample_weights = x});
                                         }});
  by_rows("embedding_bag_byte_rowwise_offsets",
          [=](const Tensor& i) { return quantized::embedding_bag_byte_rowwise_offsets(bytes, i); });
  by_rows("embedding_bag_4bit_rowwise_offsets", [=](const Tensor& i) {
    return quantized::embedding_bag_4bit_rowwise_offsets(nibbles, i);
  });
  by_rows("embedding_bag_2bit_rowwise_offsets",
          [=](const Tensor& i) { return quantized::embedding_bag_2bit_rowwise_offsets(pairs, i); });
  const auto round_trip = [&](const std::string& bits, auto pack, auto unpack) {
    cases["embedding_bag_" + bits + "_prepack"].push_back(
        {"Float32", {3, 16}, [=](const Tensor& x) { return pack(x); }});
    cases["embedding_bag_" + bits + "_unpack"].push_back(
        {"Float32", {3, 16}, [=](const Tensor& x) { return unpack(pack(x)); }});
  };
  round_trip(
      "byte", [](const Tensor& x) { return quantized::embedding_bag_byte_prepack(x); },
      [](const Tensor& x) { return quantized::embedding_bag_byte_unpack(x); });
  round_trip(
      "4bit", [](const Tensor& x) { return quantized::embedding_bag_4bit_prepack(x); },
      [](const Tensor& x) { return quantized::embedding_bag_4bit_unpack(x); });
  round_trip(
      "2bit", [](const Tensor& x) { return quantized::embedding_bag_2bit_prepack(x); },
      [](const Tensor& x) { return quantized::embedding_bag_2bit_unpack(x); });
}

void add_attention(Cases& cases) {
  const Dims sizes{2, 3, 4, 8};
  const auto attend = [&](const std::string& form, Function function) {
    cases["scaled_dot_product_attention"].push_back({form, sizes, std::move(function)});
  };
  attend("plain", [](const Tensor& x) { return scaled_dot_product_attention(x, x, x); });
  attend("turned", [](const Tensor& x) {
    const Tensor y = x.transpose(1, 2);
    return scaled_dot_product_attention(y, mul_scalar(y, 0.5), y);
  });
  attend("masked", [](const Tensor& x) {
    return scaled_dot_product_attention(x, x, x, gt(x.slice(3, 0, 4), -0.5));
  });
  attend("causal", [](const Tensor& x) {
    return scaled_dot_product_attention(x, x, x, {}, {.is_causal = true});
  });
  attend("Float64", [](const Tensor& x) {
    const Tensor y = x.to(DType::Float64);
    return scaled_dot_product_attention(y, y, y, {}, {.is_causal = true});
  });
  cases["additive_mask"].push_back({"Float32", sizes, [](const Tensor& x) {
                                      return additive_mask("test", "mask", gt(x, 0.0), true);
                                    }});
  cases["attention_weights"].push_back(
      {"Float32", sizes, [](const Tensor& x) { return attention_weights(x, x, {}, 0.3); }});
}

void add_recurrent(Cases& cases) {
  static constexpr std::array<std::int64_t, 3> kBatchSizes{2, 2, 1};
  const quantized::LinearPackedParams packed(weight_codes({8, 2}), random({8}, 61));
  const auto product = quantized::dynamic_hidden_product(packed);
  const Tensor weight = random({8, 2}, 62);
  const auto steps = [=](const Tensor& x, StepOrder order, bool plain) {
    const RecurrentSteps call{
        .hidden_size = 2, .batch_sizes = kBatchSizes, .order = order, .hidden = product.get()};
    const Tensor state = x.slice(0, 0, 2).slice(1, 0, 2);
    const RecurrentResult result =
        plain ? recurrent_steps(call, {.weight_hh = weight}, x, state, state)
              : recurrent_steps(call, x, state, state);
    return joined({result.output, result.h_n, result.c_n});
  };
  cases["recurrent_steps"] = {
      {"packed", {5, 8}, [=](const Tensor& x) { return steps(x, StepOrder::Forward, false); }},
      {"reverse", {5, 8}, [=](const Tensor& x) { return steps(x, StepOrder::Reverse, false); }},
      {"plain", {5, 8}, [=](const Tensor& x) { return steps(x, StepOrder::Forward, true); }}};
}

Cases all_cases() {
  Cases cases;
  add_activations(cases);
  add_arithmetic(cases);
  add_convolutions(cases);
  add_linear(cases);
  add_norms(cases);
  add_spatial(cases);
  add_shapes(cases);
  add_elements(cases);
  add_losses(cases);
  add_quantizers(cases);
  add_embeddings(cases);
  add_attention(cases);
  add_recurrent(cases);
  return cases;
}

/// What cannot be replayed, and why: by the text of the error.
std::map<std::string, Case> refused_cases() {
  const Dims sizes{4, 6};
  return {
      {"quantize_per_tensor_dynamic",
       {"depend on the values", sizes,
        [](const Tensor& x) { return quantize_per_tensor_dynamic(x, DType::QUInt8, false); }}},
      {"nonzero", {"depend on the values", sizes, [](const Tensor& x) { return nonzero(x); }}},
      {"running statistics",
       {"no statistics that a call changes", sizes,
        [](const Tensor& x) {
          return batch_norm_train(x, Tensor::zeros({6}), Tensor::ones({6}), {}, {});
        }}},
      {"resize_",
       {"changed in place", sizes,
        [](const Tensor& x) {
          return add(resize_(add(x, x), {6, 4}), x.t());
        }}},
      {"a mask as an index",
       {"depend on the values", sizes, [](const Tensor& x) { return index(x, {gt(x, 0.0)}); }}},
      {"an operation in place on the input",
       {"older than the recording", sizes, [](const Tensor& x) { return relu_(x); }}},
      {"calculated scales",
       {"depend on the values", sizes,
        [](const Tensor& x) -> Tensor {
          return quantize_per_channel(x, add_scalar(relu(x.select(1, 0)), 0.1),
                                      Tensor::zeros({4}, DType::Int64), 0, DType::QInt8);
        }}},
      {"random numbers",
       {"operations that can be replayed", sizes, [](const Tensor& x) { return dropout(x, 0.5); }}},
  };
}

TEST_CASE("freeze: every op of the table gives what the eager run gives") {
  const Cases cases = all_cases();
  const std::map<std::string, Case> refused = refused_cases();
  std::set<std::string> missing;
  for (const OpSupport& row : op_table()) {
    const std::string op(row.op);
    if (!cases.contains(op) && !refused.contains(op)) missing.insert(op);
  }
  for (const std::string& op : missing) FAIL_CHECK("no case for " << op);
  for (const auto& [op, forms] : cases) {
    for (const Case& each : forms) {
      CAPTURE(op);
      CAPTURE(each.form);
      CHECK_NOTHROW(expect_frozen(each));
    }
  }
}

TEST_CASE("freeze: what depends on values or on chance is refused with the reason") {
  for (const auto& [op, each] : refused_cases()) {
    CAPTURE(op);
    CHECK_THROWS_WITH_AS(freeze(FunctionModule(each.function), random(each.sizes, 1)),
                         doctest::Contains(each.form.c_str()), UnsupportedError);
  }
}

}  // namespace
}  // namespace quanta
