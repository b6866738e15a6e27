// freeze: every operation of the catalogue as part of a network, and what is refused with a reason.

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
#include "quanta/ops/cat.h"
#include "quanta/ops/catalogue.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/embedding.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/rnn.h"
#include "quanta/ops/rnn_dynamic.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using test::random_tensor;

using Function = std::function<Tensor(const Tensor& x)>;

struct Case {
  std::string form;
  Dims sizes;
  Function function;
};

struct FunctionModule : nn::Module {
  Function function;
  explicit FunctionModule(Function given) : function(std::move(given)) { eval(); }
  Tensor forward(const Tensor& x) const override { return function(x); }
};

/// All results as one: floats side by side, so that each of them is compared.
Tensor joined(std::span<const Tensor> results) {
  std::vector<Tensor> flat;
  for (const Tensor& each : results) {
    const Tensor floats = each.is_quantized() ? dequantize(each) : each.to(DType::Float32);
    flat.push_back(floats.reshape({-1}));
  }
  return cat(flat, 0);
}

void expect_equal(const FrozenModel& frozen, const nn::Module& eager, const Tensor& x) {
  const Tensor wanted = eager(x);
  const Tensor got = frozen(x);
  CHECK(got.dtype() == wanted.dtype());
  CHECK(got.sizes() == wanted.sizes());
  CHECK(got.strides() == wanted.strides());
  // NaN, as the square root of a negative number is, equals NaN.
  CHECK((got.equal(wanted) || test::same_bits(got, wanted)));
}

void expect_frozen(const Function& function, const Dims& sizes) {
  const FunctionModule net(function);
  const FrozenModel frozen = freeze(net, random_tensor(sizes, 1));
  for (std::uint64_t seed = 2; seed < 5; ++seed)
    expect_equal(frozen, net, random_tensor(sizes, seed));
  // With a step before, so that the operation does not read the input itself.
  const FunctionModule later([&](const Tensor& x) { return function(mul_scalar(x, 0.5)); });
  expect_equal(freeze(later, random_tensor(sizes, 1)), later, random_tensor(sizes, 6));
}

/// Floats as an argument of the dtype and the parameters of `like`; integers 0..5.
Tensor as_argument(const Tensor& x, const Tensor& like) {
  if (like.is_quantized()) {
    const QTensor codes(like);
    return quantize_per_tensor(x, codes.q_scale(), codes.q_zero_point(), like.dtype());
  }
  if (like.is_floating_point()) return x.to(like.dtype());
  if (like.dtype() == DType::Bool) return gt(x, 0.0);
  return clamp(mul_scalar(x, 2.0), 0.0, 5.0).to(like.dtype());
}

TEST_CASE("freeze: every operation of the catalogue gives what the eager run gives") {
  // Refused below, or without values of its own.
  const std::set<std::string_view> left_out{
      "dropout", "empty_quantized", "non_max_suppression", "nonzero", "quantize_per_tensor_dynamic",
      "resize_", "unique"};
  std::size_t checked = 0;
  for (const OperationEntry& row : operations().entries()) {
    if (left_out.contains(row.name)) continue;
    for (const DType dtype : row.dtypes) {
      if (is_sub_byte(dtype)) continue;  // no steps make them of floats
      CAPTURE(row.name);
      CAPTURE(to_string(dtype));
      const Sample sample = row.sample(dtype);
      const auto call = [&](const Tensor& x) {
        std::vector<Tensor> inputs = sample.inputs;
        inputs[0] = as_argument(x, inputs[0]).clone();  // new memory for operations in place
        return run_all(*sample.operation, std::span<const Tensor>(inputs));
      };
      const auto first = [&](const Tensor& x) { return call(x)[0]; };
      const auto all = [&](const Tensor& x) { return joined(call(x).span()); };
      CHECK_NOTHROW(expect_frozen(first, sample.inputs[0].sizes()));
      CHECK_NOTHROW(expect_frozen(all, sample.inputs[0].sizes()));
      ++checked;
    }
  }
  CHECK(checked > 400);
}

QTensor codes(const Tensor& x, DType dtype = DType::QUInt8) {
  return quantize_per_tensor(x, 0.05, dtype == DType::QUInt8 ? 120 : 3, dtype);
}

/// Positions 0..rows-1 that depend on the input.
Tensor positions(const Tensor& x, std::int64_t rows) {
  return clamp(mul_scalar(x, 1.5), 0.0, static_cast<double>(rows) - 0.5).to(DType::Int64);
}

/// Settings and calculated arguments that change how an operation is recorded.
std::vector<Case> further_cases() {
  const Dims matrix{4, 6};
  const Dims image{2, 3, 4, 8};
  const PackedConv conv(random_tensor({4, 3, 3, 3}, 31), random_tensor({4}, 32), {}, 2,
                        Fusion::ReLU);
  const PackedLinear dense(random_tensor({5, 6}, 33), random_tensor({5}, 34), Fusion::None);
  const quantized::LinearPackedParams wide(codes(random_tensor({96, 64}, 35), DType::QInt8), {});
  const Tensor table = random_tensor({10, 16}, 51);
  const auto packed_table = quantized::embedding_bag_prepack(quantize_per_channel(
      table, Tensor::full({10}, 0.3), Tensor::full({10}, 5.0), 0, DType::QUInt8));
  const Tensor statistics = random_tensor({3}, 52);
  return {
      {"a packed convolution", image, [=](const Tensor& x) { return conv(x); }},
      {"no batch", image, [=](const Tensor& x) { return conv(x.select(0, 1)); }},
      {"a packed linear layer", matrix, [=](const Tensor& x) { return dense(x); }},
      {"a row", {1, 64}, [=](const Tensor& x) { return quantized::linear_dynamic(x, wide); }},
      {"many rows", {40, 64}, [=](const Tensor& x) { return quantized::linear_dynamic(x, wide); }},
      {"a vector", {4, 4}, [](const Tensor& x) { return matmul(x.select(0, 1), x); }},
      {"transposed", {4, 4}, [](const Tensor& x) { return add(x, x.t()); }},
      {"a tensor and its result", matrix,
       [](const Tensor& x) {
         const QTensor q = codes(x);
         return dequantize(quantized::add(q, quantized::mul_scalar(q, 1.5), 0.1, 3));
       }},
      {"float zero points", matrix,
       [](const Tensor& x) -> Tensor {
         return quantize_per_channel(x, Tensor::full({4}, 0.3), Tensor::full({4}, 0.5), 0,
                                     DType::QUInt4x2);
       }},
      {"batch statistics of no batch norm before", image,
       [=](const Tensor& x) { return batch_norm_train(x, {}, {}, statistics, {}); }},
      {"calculated positions", matrix,
       [](const Tensor& x) {
         return index(x, {Slice{}, positions(x.select(1, 0), 6)});
       }},
      {"a calculated place to write to", matrix,
       [](const Tensor& x) { return index_put_(x.clone(), {positions(x.select(1, 0), 4)}, 0.25); }},
      {"calculated indices", matrix, [](const Tensor& x) { return gather(x, 0, positions(x, 4)); }},
      {"a calculated mask", matrix,
       [](const Tensor& x) { return masked_fill(x, lt(x, 0.1), 0.3); }},
      {"a calculated range", matrix, [](const Tensor& x) { return fake_tensor_quant(x, max(x)); }},
      {"calculated weights of a bag",
       {3, 5},
       [=](const Tensor& x) {
         return quantized::embedding_bag_byte(packed_table, positions(x, 10),
                                              {.per_sample_weights = x});
       }},
      {"masked attention", image,
       [](const Tensor& x) {
         return scaled_dot_product_attention(x, x, x, gt(x.slice(3, 0, 4), -0.5));
       }},
      {"causal attention of turned heads", image,
       [](const Tensor& x) {
         const Tensor y = x.transpose(1, 2);
         return scaled_dot_product_attention(y, mul_scalar(y, 0.5), y, {}, {.is_causal = true});
       }},
  };
}

TEST_CASE("freeze: packed weights and calculated arguments give what the eager run gives") {
  for (const Case& each : further_cases()) {
    CAPTURE(each.form);
    CHECK_NOTHROW(expect_frozen(each.function, each.sizes));
  }
}

TEST_CASE("freeze: recurrent steps of packed and plain weights give what the eager run gives") {
  static constexpr std::array<std::int64_t, 3> kBatchSizes{2, 2, 1};
  const quantized::LinearPackedParams packed(codes(random_tensor({8, 2}, 60), DType::QInt8),
                                             random_tensor({8}, 61));
  const auto product = quantized::dynamic_hidden_product(packed);
  const Tensor weight = random_tensor({8, 2}, 62);
  for (const StepOrder order : {StepOrder::Forward, StepOrder::Reverse}) {
    for (const bool is_plain : {false, true}) {
      CAPTURE(is_plain);
      const auto steps = [&](const Tensor& x) {
        const RecurrentSteps call{
            .hidden_size = 2, .batch_sizes = kBatchSizes, .order = order, .hidden = product.get()};
        const Tensor state = x.slice(0, 0, 2).slice(1, 0, 2);
        const RecurrentResult result =
            is_plain ? recurrent_steps(call, {.weight_hh = weight}, x, state, state)
                     : recurrent_steps(call, x, state, state);
        return joined(std::array{result.output, result.h_n, result.c_n});
      };
      CHECK_NOTHROW(expect_frozen(steps, {5, 8}));
    }
  }
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

TEST_CASE("freeze: what depends on values or on chance is refused with the reason") {
  for (const auto& [op, each] : refused_cases()) {
    CAPTURE_BINDING(op);
    CHECK_THROWS_WITH_AS(freeze(FunctionModule(each.function), random_tensor(each.sizes, 1)),
                         doctest::Contains(each.form.c_str()), UnsupportedError);
  }
}

}  // namespace
}  // namespace quanta
