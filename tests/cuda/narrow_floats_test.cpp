#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <limits>
#include <vector>

#include "devices_support.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/embedding.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/pooling.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

// Operations on Float16 and BFloat16, which the CPU does not have: the device gives what the CPU
// gives for the same numbers in Float32, rounded once.

namespace quanta {
namespace {

constexpr std::array kNarrow{DType::Float16, DType::BFloat16};

using Call = std::function<Tensor(const std::vector<Tensor>&)>;

// A number next to another one of 16 bits, where a GPU's library calculates.
double narrow_bound() { return test::test_device().is_emulated() ? 0.0 : 0x1p-7; }

std::vector<Tensor> each(const std::vector<Tensor>& tensors, auto&& change) {
  std::vector<Tensor> changed;
  for (const Tensor& x : tensors) changed.push_back(x.defined() ? change(x) : x);
  return changed;
}
std::vector<Tensor> widened(const std::vector<Tensor>& tensors) {
  return each(tensors,
              [](const Tensor& x) { return x.is_floating_point() ? x.to(DType::Float32) : x; });
}
std::vector<Tensor> there(const std::vector<Tensor>& tensors) {
  return each(tensors, [](const Tensor& x) { return x.to(test::test_device()); });
}

// call(tensors of 16 bits on the device), held to the CPU's call in Float32 rounded once.
void check_rounded(const Call& call, const std::vector<Tensor>& narrow, double bound = 0.0) {
  const Tensor wide = call(widened(narrow));
  const Tensor want = wide.is_floating_point() ? wide.to(narrow[0].dtype()) : wide;
  const Tensor got = call(there(narrow));
  CHECK(got.device() == test::test_device());
  CHECK(test::same_numbers(got, want, bound));
  CHECK(got.strides() == wide.strides());
}

// For both dtypes; indices and masks stay what they are.
void check_narrow(const Call& call, const std::vector<Tensor>& tensors, double bound = 0.0) {
  for (const DType dtype : kNarrow) {
    CAPTURE(to_string(dtype));
    check_rounded(
        call,
        each(tensors, [&](const Tensor& x) { return x.is_floating_point() ? x.to(dtype) : x; }),
        bound);
  }
}

// The gradients of the floats among the tensors: those of the CPU in Float32, rounded once.
void check_gradients(const Call& call, const std::vector<Tensor>& tensors, double bound) {
  for (const DType dtype : kNarrow) {
    CAPTURE(to_string(dtype));
    const auto narrow =
        each(tensors, [&](const Tensor& x) { return x.is_floating_point() ? x.to(dtype) : x; });
    Generator generator(5);
    Tensor upstream;
    const auto gradients = [&](std::vector<Tensor> leaves) {
      std::vector<Tensor> asked;
      for (Tensor& leaf : leaves) {
        if (!leaf.defined() || !leaf.is_floating_point()) continue;
        leaf = leaf.detach();
        leaf.set_requires_grad();
        asked.push_back(leaf);
      }
      const Tensor y = call(leaves);
      if (!upstream.defined()) upstream = randn(y.sizes(), generator).to(dtype);
      const std::vector<Tensor> of{y};
      const std::vector<Tensor> from{upstream.to(y.device()).to(y.dtype())};
      return autograd::grad(of, asked, {.grad_outputs = from});
    };
    const std::vector<Tensor> want = gradients(widened(narrow));
    const std::vector<Tensor> got = gradients(there(narrow));
    REQUIRE(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(got[i].device() == test::test_device());
      CHECK(test::same_numbers(got[i], want[i].to(dtype), bound));
    }
  }
}

/// Numbers of several sizes, and what is at an edge.
Tensor numbers(const Dims& sizes, Generator& generator) {
  const Tensor x = randn(sizes, generator);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> edges{
      0.0F,  -0.0F, 1.0F,   -1.0F,     3.0F,
      -3.0F, 0.5F,  -1.5F,  kInfinity, -kInfinity,
      6.1F,  1e-6F, -70.0F, 65504.0F,  std::numeric_limits<float>::quiet_NaN()};
  float* const values = x.mutable_data<float>();
  for (std::size_t i = 0; i < edges.size() && 3 * static_cast<std::int64_t>(i) < x.numel(); ++i) {
    values[3 * i] = edges[i];
  }
  return x;
}

Call of_one(Tensor (*function)(const Tensor&)) {
  return [function](const std::vector<Tensor>& in) { return function(in[0]); };
}

}  // namespace

TEST_CASE("cuda narrow floats: functions of one number") {
  Generator generator(61);
  const std::vector<Call> calls{
      of_one(relu),
      of_one(relu6),
      of_one(hardsigmoid),
      of_one(hardswish),
      of_one(softsign),
      of_one(exp),
      of_one(erf),
      of_one(sqrt),
      of_one(reciprocal),
      of_one(floor),
      of_one(round),
      of_one(neg),
      of_one(abs),
      of_one(sign),
      of_one(isnan),
      [](const auto& in) { return clamp(in[0], -0.3, 0.4); },
      [](const auto& in) { return hardtanh(in[0], -0.5, 0.1); },
      [](const auto& in) { return gelu(in[0]); },
      [](const auto& in) { return gelu(in[0], GeluApproximation::Tanh); },
      [](const auto& in) { return leaky_relu(in[0], 0.3); },
      [](const auto& in) { return hardshrink(in[0], 0.7); },
      [](const auto& in) { return add_scalar(in[0], 0.3); },
      [](const auto& in) { return mul_scalar(in[0], -1.7); },
  };
  const std::vector<Call> of_library{
      of_one(sigmoid),
      of_one(tanh),
      of_one(silu),
      of_one(mish),
      of_one(logsigmoid),
      of_one(log),
      of_one(sin),
      [](const auto& in) { return elu(in[0], 0.6); },
      [](const auto& in) { return softplus(in[0], 0.8, 3.0); },
  };
  for (const auto* list : {&calls, &of_library}) {
    const double bound = list == &calls ? 0.0 : narrow_bound();
    for (std::size_t i = 0; i < list->size(); ++i) {
      CAPTURE(i);
      for (const std::int64_t count : {1, 61, 1024, 2051}) {
        check_narrow((*list)[i], {numbers({count}, generator)}, bound);
      }
      const Tensor image = numbers({2, 5, 7, 3}, generator);
      check_narrow((*list)[i], {image.contiguous(MemoryFormat::ChannelsLast)}, bound);
      check_narrow((*list)[i], {image.narrow(2, 1, 3)}, bound);
      check_narrow((*list)[i], {Tensor::zeros({0, 3})}, bound);
    }
  }
  // Dense, but not at an address for four numbers at once.
  const Tensor row = numbers({2100}, generator).to(DType::BFloat16);
  const Tensor got = gelu(row.to(test::test_device()).narrow(0, 1, 2049));
  CHECK(test::same_numbers(got, gelu(row.to(DType::Float32).narrow(0, 1, 2049)).to(row.dtype())));
  const Tensor in_place = row.to(test::test_device());
  relu_(in_place);
  CHECK(test::same_numbers(in_place, relu(row.to(DType::Float32)).to(row.dtype())));
}

TEST_CASE("cuda narrow floats: functions of two numbers") {
  Generator generator(62);
  const Tensor a = numbers({2, 3, 4, 5}, generator);
  const Tensor b = randn({2, 3, 4, 5}, generator);
  const Tensor row = randn({3, 1, 5}, generator);
  for (const auto& call : std::vector<Call>{
           [](const auto& in) { return add(in[0], in[1]); },
           [](const auto& in) { return sub(in[0], in[1]); },
           [](const auto& in) { return mul(in[0], in[1]); },
           [](const auto& in) { return div(in[0], in[1]); },
           [](const auto& in) { return add_relu(in[0], in[1]); },
           [](const auto& in) { return maximum(in[0], in[1]); },
           [](const auto& in) { return minimum(in[0], in[1]); },
           [](const auto& in) { return fmod(in[0], in[1]); },
           [](const auto& in) { return remainder(in[0], in[1]); },
       }) {
    for (const Tensor& other : {b, row, b.contiguous(MemoryFormat::ChannelsLast)}) {
      check_narrow(call, {a, other});
      check_narrow(call, {other, a});
    }
  }
  check_narrow([](const auto& in) { return pow(in[0], in[1]); }, {abs(b), row}, narrow_bound());
  const Tensor other = b.to(DType::Float16).to(test::test_device());
  test::fails({"add", "rhs", "BFloat16", "Float16"},
              [&] { add(b.to(DType::BFloat16).to(test::test_device()), other); });
}

TEST_CASE("cuda narrow floats: softmax and log_softmax of rows and of lines across memory") {
  Generator generator(63);
  for (const std::int64_t length : {1, 7, 64, 130, 300, 700}) {
    const Tensor x = mul_scalar(randn({5, length}, generator), 3.0);
    check_narrow([](const auto& in) { return softmax(in[0], 1); }, {x});
    check_narrow([](const auto& in) { return log_softmax(in[0], 1); }, {x}, narrow_bound());
    check_narrow([](const auto& in) { return softmax(in[0], 0); }, {x});
  }
}

TEST_CASE("cuda narrow floats: norms") {
  Generator generator(64);
  const auto parameter = [&](const Dims& sizes) { return randn(sizes, generator); };
  for (const std::int64_t width : {1, 9, 32, 75}) {
    const Tensor x = randn({3, 4, width}, generator);
    check_narrow([&](const auto& in) { return layer_norm(in[0], {width}, in[1], in[2]); },
                 {x, parameter({width}), parameter({width})});
    check_narrow([&](const auto& in) { return layer_norm(in[0], {width}, {}, {}); }, {x});
    check_narrow([&](const auto& in) { return rms_norm(in[0], {width}, in[1]); },
                 {x, parameter({width})});
  }
  const Tensor image = randn({2, 6, 5, 4}, generator);
  for (const Tensor& x : {image, image.contiguous(MemoryFormat::ChannelsLast)}) {
    const std::vector<Tensor> with_parameters{x, parameter({6}), parameter({6})};
    check_narrow([](const auto& in) { return group_norm(in[0], 3, in[1], in[2]); },
                 with_parameters);
    check_narrow([](const auto& in) { return instance_norm(in[0], in[1], in[2]); },
                 with_parameters);
    check_narrow([](const auto& in) { return batch_norm(in[0], in[1], in[2], in[3], in[4]); },
                 {x, parameter({6}), abs(parameter({6})), parameter({6}), parameter({6})});
    check_narrow([](const auto& in) { return batch_norm(in[0], in[1], in[2], Tensor(), Tensor()); },
                 {x, parameter({6}), abs(parameter({6}))});
  }
}

TEST_CASE("cuda narrow floats: a batch norm in training moves its statistics") {
  Generator generator(65);
  for (const DType dtype : kNarrow) {
    const Tensor x = randn({4, 3, 5, 2}, generator).to(dtype);
    const Tensor mean = randn({3}, generator).to(dtype);
    const Tensor var = abs(randn({3}, generator)).to(dtype);
    const Tensor wide[] = {mean.to(DType::Float32), var.to(DType::Float32)};
    const Tensor want = batch_norm_train(x.to(DType::Float32), wide[0], wide[1], {}, {});
    const Tensor here[] = {mean.to(test::test_device()), var.to(test::test_device())};
    const Tensor got = batch_norm_train(x.to(test::test_device()), here[0], here[1], {}, {});
    CHECK(test::same_numbers(got, want.to(dtype), 0x1p-7));
    for (int i = 0; i < 2; ++i) CHECK(test::same_numbers(here[i], wide[i].to(dtype), 0x1p-7));
    CHECK_FALSE(test::same_numbers(here[0], mean));
  }
}

TEST_CASE("cuda narrow floats: pooling") {
  Generator generator(66);
  const Tensor image = numbers({2, 5, 9, 7}, generator);
  for (const Tensor& x : {image, image.contiguous(MemoryFormat::ChannelsLast)}) {
    const MaxPoolOptions largest{.kernel_size = {3}, .stride = {2}, .padding = {1}};
    const AvgPoolOptions average{.kernel_size = {3}, .stride = {2}, .padding = {1}};
    check_narrow([&](const auto& in) { return max_pool2d(in[0], largest); }, {x});
    check_narrow([&](const auto& in) { return avg_pool2d(in[0], average); }, {x});
    check_narrow([&](const auto& in) { return adaptive_avg_pool2d(in[0], {3, 2}); }, {x});
    check_narrow([&](const auto& in) { return adaptive_max_pool2d(in[0], {2}); }, {x});
    check_narrow([&](const auto& in) { return max_pool_indices(in[0], largest, 2); }, {x});
  }
  check_narrow([](const auto& in) { return max_pool1d(in[0], {.kernel_size = {3}}); },
               {randn({3, 4, 11}, generator)});
  check_narrow([](const auto& in) { return avg_pool3d(in[0], {.kernel_size = {2}}); },
               {randn({1, 3, 4, 5, 6}, generator)});
}

TEST_CASE("cuda narrow floats: sums and means and deviations") {
  Generator generator(67);
  const Tensor x = randn({5, 37, 6}, generator);
  for (const Dims& dims : {Dims{1}, Dims{2}, Dims{0, 2}, Dims{}}) {
    check_narrow([&](const auto& in) { return sum(in[0], dims); }, {x});
    check_narrow([&](const auto& in) { return mean(in[0], dims, {.keepdim = true}); }, {x});
    check_narrow([&](const auto& in) { return std(in[0], dims); }, {x});
    check_narrow([&](const auto& in) { return var(in[0], dims); }, {x});
  }
}

TEST_CASE("cuda narrow floats: what only moves elements") {
  Generator generator(68);
  const Tensor x = numbers({3, 4, 5}, generator);
  check_narrow([](const auto& in) { return cat(in, 1); }, {x, randn({3, 2, 5}, generator)});
  check_narrow([](const auto& in) { return pad(in[0], {1, 2, 0, 1}); }, {x});
  check_narrow([](const auto& in) { return in[0].transpose(0, 2).contiguous(); }, {x});
  for (const DType dtype : kNarrow) {
    const Tensor table = randn({11, 6}, generator).to(dtype);
    const Tensor indices = Tensor::from_int64(std::vector<std::int64_t>{3, 0, 10, 3});
    const Tensor got = embedding(table.to(test::test_device()), indices.to(test::test_device()));
    CHECK(test::same_numbers(got, embedding(table.to(DType::Float32), indices).to(dtype)));
  }
}

TEST_CASE("cuda narrow floats: attention over sizes and masks") {
  Generator generator(69);
  for (int round = 0; round < 24; ++round) {
    CAPTURE(round);
    const std::int64_t heads = generator.integer(1, 3);
    const std::int64_t queries = generator.integer(1, round % 2 == 0 ? 20 : 70);
    const std::int64_t keys = generator.integer(1, round % 3 == 0 ? 72 : 150);
    const std::int64_t features = generator.integer(1, 40);
    const std::int64_t value_features = generator.integer(1, round % 5 == 0 ? 100 : 40);
    const Tensor query = randn({2, queries, heads, features}, generator).transpose(1, 2);
    const Tensor key = randn({2, heads, keys, features}, generator);
    const Tensor value = randn({2, heads, keys, value_features}, generator);
    Tensor mask;
    if (round % 4 == 1) mask = randn({queries, keys}, generator);
    if (round % 4 == 2) mask = gt(randn({heads, queries, keys}, generator), 0.3);
    const AttentionOptions options{.is_causal = round % 4 == 3};
    check_narrow(
        [&](const auto& in) {
          return scaled_dot_product_attention(in[0], in[1], in[2], in[3], options);
        },
        {query, key, value, mask});
  }
  // A Float32 mask is none of this dtype, and nobody widens it in silence.
  const Tensor x = randn({3, 4}, generator).to(DType::BFloat16).to(test::test_device());
  test::fails({"scaled_dot_product_attention", "attn_mask", "BFloat16", "Float32"}, [&] {
    scaled_dot_product_attention(x, x, x, Tensor::zeros({3, 3}).to(test::test_device()));
  });
}

TEST_CASE("cuda narrow floats: hardtanh passes no gradient on a bound that 16 bits round") {
  for (const DType dtype : kNarrow) {
    for (const double bound : {0.1, 0.3}) {
      Tensor x = Tensor::from_values({-2, -0.01F, 0.02F, 1}).to(dtype).to(test::test_device());
      x.set_requires_grad();
      const Tensor y = hardtanh(x, -bound, bound);
      y.backward(Tensor::ones({4}, dtype).to(test::test_device()));
      CHECK(x.grad().cpu().to(DType::Float32).to_float_vector() == std::vector<float>{0, 1, 1, 0});
    }
  }
}

TEST_CASE("cuda narrow floats: gradients of activations and norms and pools") {
  Generator generator(70);
  const auto parameter = [&](const Dims& sizes) { return randn(sizes, generator); };
  const Tensor image = randn({2, 6, 5, 4}, generator);
  check_gradients(of_one(relu), {image}, 0.0);
  check_gradients(of_one(hardswish), {image}, 0.0);
  check_gradients([](const auto& in) { return gelu(in[0]); }, {image}, narrow_bound());
  check_gradients([](const auto& in) { return max_pool2d(in[0], {.kernel_size = {2}}); }, {image},
                  0.0);
  check_gradients([](const auto& in) { return avg_pool2d(in[0], {.kernel_size = {3}}); },
                  {image.contiguous(MemoryFormat::ChannelsLast)}, 0.0);
  // Sums over many elements are taken in another order than the CPU's: the next number at most.
  constexpr double kNext = 0x1p-7;
  check_gradients([](const auto& in) { return layer_norm(in[0], {4}, in[1], in[2]); },
                  {image, parameter({4}), parameter({4})}, kNext);
  check_gradients([](const auto& in) { return rms_norm(in[0], {4}, in[1]); },
                  {image, parameter({4})}, kNext);
  check_gradients([](const auto& in) { return group_norm(in[0], 2, in[1], in[2]); },
                  {image, parameter({6}), parameter({6})}, kNext);
  check_gradients([](const auto& in) { return batch_norm_train(in[0], {}, {}, in[1], in[2]); },
                  {image, parameter({6}), parameter({6})}, kNext);
  check_gradients([](const auto& in) { return mul(in[0], in[1]); },
                  {image, parameter({2, 6, 5, 4})}, 0.0);
}

TEST_CASE("cuda narrow floats: gradients of attention and softmax") {
  Generator generator(71);
  constexpr double kNext = 0x1p-6;
  for (const bool causal : {false, true}) {
    check_gradients(
        [&](const auto& in) {
          return scaled_dot_product_attention(in[0], in[1], in[2], {}, {.is_causal = causal});
        },
        {randn({2, 2, 9, 5}, generator), randn({2, 2, 11, 5}, generator),
         randn({2, 2, 11, 7}, generator)},
        kNext);
  }
  check_gradients(
      [](const auto& in) { return scaled_dot_product_attention(in[0], in[1], in[2], in[3]); },
      {randn({2, 9, 5}, generator), randn({2, 11, 5}, generator), randn({2, 11, 7}, generator),
       randn({9, 11}, generator)},
      kNext);
  // From a result that was rounded.
  check_gradients([](const auto& in) { return softmax(in[0], -1); }, {randn({5, 40}, generator)},
                  kNext);
}

TEST_CASE("cuda narrow floats: dropout keeps and scales in one rounding") {
  Generator generator(72);
  const Tensor x = randn({400}, generator).to(DType::BFloat16);
  const Tensor y = dropout(x.to(test::test_device()), 0.3).cpu().to(DType::Float32);
  const Tensor kept = mul_scalar(x.to(DType::Float32), 1.0 / 0.7).to(x.dtype()).to(DType::Float32);
  std::int64_t dropped = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float value = y.data<float>()[i];
    dropped += value == 0.0F ? 1 : 0;
    CHECK((value == 0.0F || value == kept.data<float>()[i]));
  }
  CHECK(dropped > 60);
  CHECK(dropped < 200);
}

TEST_CASE("cuda narrow floats: the CPU refuses them by name") {
  const Tensor x = Tensor::zeros({2, 3}, DType::BFloat16);
  test::fails({"relu", "BFloat16"}, [&] { relu(x); });
  test::fails({"add", "BFloat16"}, [&] { add(x, x); });
  test::fails({"softmax", "BFloat16"}, [&] { softmax(x, 1); });
  test::fails({"layer_norm", "BFloat16"}, [&] { layer_norm(x, {3}, {}, {}); });
  test::fails({"scaled_dot_product_attention", "BFloat16"},
              [&] { scaled_dot_product_attention(x, x, x); });
  test::fails({"mean", "BFloat16"}, [&] { mean(x); });
}

}  // namespace quanta
