#include "quanta/ops/attention.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "quanta/ops/attention/cuda_attention.h"
#include "quanta/ops/compare.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/test_device.h"

// Attention has the CPU's floats: its order of products and of sums.

namespace quanta {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Call {
  Tensor query, key, value, mask;
  AttentionOptions options;
};

Tensor attend(const Call& call) {
  return scaled_dot_product_attention(call.query, call.key, call.value, call.mask, call.options);
}

void check_both(const Call& call) {
  const Device device = test::test_device();
  const Tensor want = attend(call);
  const Tensor got = attend({call.query.to(device), call.key.to(device), call.value.to(device),
                             call.mask.defined() ? call.mask.to(device) : Tensor(), call.options});
  CAPTURE(call.query.sizes());
  CAPTURE(call.key.sizes());
  CAPTURE(call.value.sizes());
  CAPTURE(call.options.is_causal);
  CHECK(got.device() == device);
  CHECK(got.sizes() == want.sizes());
  CHECK(got.strides() == want.strides());
  test::check_same(got.cpu(), want.to_float_vector());
}

/// [batch, heads, rows, features], which lie as [batch, rows, heads, features] every second time.
Tensor heads_of(std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t features,
                Generator& generator) {
  if (generator.integer(0, 1) == 0) return randn({batch, heads, rows, features}, generator);
  return randn({batch, rows, heads, features}, generator).transpose(1, 2);
}

Tensor mask_of(int kind, const Call& call, Generator& generator) {
  const std::int64_t heads = call.query.size(1);
  const std::int64_t queries = call.query.size(2);
  const std::int64_t keys = call.key.size(2);
  switch (kind) {
    case 1:
      return randn({queries, keys}, generator);
    case 2:
      return randn({call.query.size(0), 1, 1, keys}, generator);
    case 3:
      return gt(randn({heads, queries, keys}, generator), 0.3);
    case 4:
      return randn({heads, queries, 1}, generator);
    default:
      return {};
  }
}

}  // namespace

TEST_CASE("cuda attention: the CPU's floats over sizes, masks and orders of memory") {
  Generator generator(51);
  for (int round = 0; round < 60; ++round) {
    const std::int64_t batch = generator.integer(1, 2);
    const std::int64_t heads = generator.integer(1, 3);
    // Tiles of 72 keys, of 32 features, of 64 features of values; blocks of 16 queries.
    const std::int64_t queries = generator.integer(1, round % 2 == 0 ? 20 : 90);
    const std::int64_t keys = generator.integer(1, round % 3 == 0 ? 72 : 170);
    const std::int64_t features = generator.integer(1, round % 4 == 0 ? 70 : 36);
    const std::int64_t value_features = generator.integer(1, round % 5 == 0 ? 150 : 70);
    Call call{heads_of(batch, heads, queries, features, generator),
              heads_of(batch, heads, keys, features, generator),
              heads_of(batch, heads, keys, value_features, generator),
              {},
              {}};
    call.mask = mask_of(round % 7, call, generator);
    call.options.is_causal = round % 7 == 5;
    if (round % 4 == 1) call.options.scale = 0.7;
    check_both(call);
  }
}

TEST_CASE("cuda attention: blocks of 16 and 32 and 64 queries give the same floats") {
  Generator generator(52);
  const Device device = test::test_device();
  for (const std::int64_t queries : {1, 33, 64, 70}) {
    for (const std::int64_t value_features : {5, 64, 70}) {
      for (const bool causal : {false, true}) {
        const Tensor query = randn({3, queries, 9}, generator);
        const Tensor key = randn({3, 75, 9}, generator);
        const Tensor value = randn({3, 75, value_features}, generator);
        const Tensor want = attend({query, key, value, {}, {.is_causal = causal, .scale = 0.25}});
        const Tensor there[] = {query.to(device), key.to(device), value.to(device)};
        for (const std::int64_t block : {16, 32, 64}) {
          const Tensor out = Tensor::zeros(want.sizes()).to(device);
          const auto rows_of = [](const Tensor& x) {
            return cpu::AttentionStrides{0, x.strides()[0], x.strides()[1]};
          };
          cuda::attend_queries(device, {.shape = {.batch = 1,
                                                  .heads = 3,
                                                  .queries = queries,
                                                  .keys = 75,
                                                  .features = 9,
                                                  .value_features = value_features,
                                                  .query_strides = rows_of(query),
                                                  .key_strides = rows_of(key),
                                                  .value_strides = rows_of(value),
                                                  .out_strides = rows_of(want),
                                                  .mask_strides = {},
                                                  .scale = 0.25F,
                                                  .causal = causal},
                                        .operands = {.dtype = DType::Float32,
                                                     .query = there[0].device_ptr(),
                                                     .key = there[1].device_ptr(),
                                                     .value = there[2].device_ptr(),
                                                     .mask = nullptr,
                                                     .out = out.device_ptr()},
                                        .block = block,
                                        .span = 64});
          CAPTURE(queries);
          CAPTURE(block);
          test::check_same(out.cpu(), want.to_float_vector());
        }
      }
    }
  }
}

TEST_CASE("cuda attention: more heads take more queries at a time") {
  Generator generator(57);
  check_both({randn({257, 40, 3}, generator),
              randn({257, 20, 3}, generator),
              randn({257, 20, 6}, generator),
              {},
              {}});
}

TEST_CASE("cuda attention: causal blocks end where the CPU's do") {
  Generator generator(53);
  // The CPU takes 64, 32 and 16 queries at a time for so many keys. Values behind a query's keys
  // have no weight, and where one is looked at and infinite it gives NaN.
  for (const std::int64_t keys : {100, 3000, 5000}) {
    Tensor value = randn({1, keys, 3}, generator);
    for (const std::int64_t i : {20, 40, 70, 90}) value.mutable_data<float>()[i * 3] = kInfinity;
    check_both({randn({1, 100, 2}, generator),
                randn({1, keys, 2}, generator),
                value,
                {},
                {.is_causal = true}});
  }
}

TEST_CASE("cuda attention: two dimensions, batches that broadcast and empty ones") {
  Generator generator(54);
  check_both(
      {randn({5, 4}, generator), randn({7, 4}, generator), randn({7, 3}, generator), {}, {}});
  check_both({randn({3, 1, 5, 4}, generator),
              randn({2, 7, 4}, generator),
              randn({3, 2, 7, 3}, generator),
              randn({}, generator),
              {}});
  check_both({randn({2, 2, 2, 5, 4}, generator),
              randn({2, 1, 2, 7, 4}, generator),
              randn({1, 7, 3}, generator),
              {},
              {}});
  check_both(
      {Tensor::zeros({2, 0, 4}), Tensor::zeros({2, 7, 4}), Tensor::zeros({2, 7, 3}), {}, {}});
  check_both(
      {randn({2, 5, 4}, generator), Tensor::zeros({2, 0, 4}), Tensor::zeros({2, 0, 3}), {}, {}});
  check_both({randn({4, 5, 3}, generator).permute({1, 2, 0}),
              randn({5, 6, 4}, generator),
              randn({5, 3, 6}, generator).transpose(1, 2),
              {},
              {}});
}

TEST_CASE("cuda attention: what is no number, and queries without any key") {
  Generator generator(55);
  for (const std::int64_t keys : {9, 100}) {
    Call call{randn({2, 20, 5}, generator),
              randn({2, keys, 5}, generator),
              randn({2, keys, 4}, generator),
              randn({20, keys}, generator),
              {}};
    auto* mask = call.mask.mutable_data<float>();
    for (std::int64_t k = 0; k < keys; ++k) mask[3 * keys + k] = -kInfinity;
    mask[4 * keys + 2] = -kInfinity;
    mask[5 * keys + 2] = kInfinity;
    mask[6 * keys + 2] = kNan;
    mask[7 * keys + 2] = -200.0F;
    call.query.mutable_data<float>()[8 * 5] = kNan;
    call.query.mutable_data<float>()[9 * 5] = kInfinity;
    check_both(call);
    call.value.mutable_data<float>()[4] = kNan;
    call.value.mutable_data<float>()[9] = -kInfinity;
    check_both(call);
  }
}

TEST_CASE("cuda attention: truth values as numbers to add") {
  Generator generator(56);
  const Device device = test::test_device();
  for (const Tensor& mask :
       {gt(randn({5, 300}, generator), 0.0), gt(randn({7, 6}, generator), 0.0).transpose(0, 1)}) {
    for (const bool left_out : {false, true}) {
      const Tensor want = additive_mask("op", "mask", mask, left_out, DType::Float32);
      const Tensor got = additive_mask("op", "mask", mask.to(device), left_out, DType::Float32);
      test::check_same(got.cpu(), want.to_float_vector());
    }
  }
}

TEST_CASE("cuda attention: codes and doubles are refused by name") {
  const Tensor x = Tensor::zeros({2, 3, 4}).to(test::test_device());
  test::fails({"scaled_dot_product_attention", "cuda"}, [&] {
    scaled_dot_product_attention(x, x, x, Tensor(), {.attention_dtype = DType::QInt8});
  });
  const Tensor y = Tensor::zeros({2, 3, 4}, DType::Float64).to(test::test_device());
  test::fails({"scaled_dot_product_attention", "Float64", "cuda"},
              [&] { scaled_dot_product_attention(y, y, y); });
}

}  // namespace quanta
