#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quanta/nn/quantized/embedding.h"
#include "quanta/ops/embedding.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/test_device.h"

// Embedding tables: on the device as on the CPU, to the last bit.

namespace quanta {
namespace {

using quantized::EmbeddingBagMode;
using quantized::EmbeddingBagOptions;
using quantized::EmbeddingPackedParams;

const Device kDevice = test::test_device();

// Within 0..most - 1, Int64 or Int32, now and then a view with strides.
Tensor random_indices(const Dims& sizes, std::int64_t most, Generator& generator) {
  Dims wide = sizes;
  const bool is_strided = generator.integer(0, 2) == 0;
  if (is_strided) wide[0] *= 2;
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < product(wide); ++i) values.push_back(generator.integer(0, most - 1));
  Tensor result = Tensor::from_int64(values).view(wide);
  if (generator.integer(0, 1) == 0) result = result.to(DType::Int32);
  return is_strided ? result.slice(0, 0, wide[0], 2) : result;
}

Tensor random_offsets(std::int64_t bags, std::int64_t count, bool has_last, Generator& generator) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(bags), 0);
  for (std::size_t i = 1; i < values.size(); ++i) {
    values[i] = std::min(count, values[i - 1] + generator.integer(0, 4));
  }
  if (has_last) values.push_back(std::min(count, values.back() + generator.integer(0, 3)));
  const Tensor result = Tensor::from_int64(values);
  return generator.integer(0, 1) == 0 ? result : result.to(DType::Int32);
}

Tensor there(const Tensor& x) { return x.defined() ? x.to(kDevice) : x; }

EmbeddingBagOptions there(EmbeddingBagOptions options) {
  options.offsets = there(options.offsets);
  options.per_sample_weights = there(options.per_sample_weights);
  return options;
}

void check_same(const Tensor& got, const Tensor& want) {
  CHECK(got.device() == kDevice);
  CHECK(got.cpu().equal(want));
}

EmbeddingPackedParams random_table(std::int64_t rows, std::int64_t columns, DType dtype,
                                   Generator& generator) {
  const Tensor scales = Tensor::empty({rows});
  const Tensor zero_points = Tensor::empty({rows});
  for (std::int64_t i = 0; i < rows; ++i) {
    scales.mutable_data<float>()[i] = 0.01F + 0.003F * static_cast<float>(i % 13);
    zero_points.mutable_data<float>()[i] = static_cast<float>(i % 7) + 0.37F;
  }
  return quantized::embedding_bag_prepack(QTensor(
      quantize_per_channel(randn({rows, columns}, generator), scales, zero_points, 0, dtype)));
}

// Bags of one call, 1-d with offsets or 2-d.
struct Call {
  Tensor indices;
  EmbeddingBagOptions options;
};
Call random_call(std::int64_t rows, Generator& generator) {
  Call call;
  if (generator.integer(0, 2) == 0) {
    call.indices =
        random_indices({generator.integer(1, 5), generator.integer(0, 4)}, rows, generator);
  } else {
    const std::int64_t count = generator.integer(0, 12);
    call.options.include_last_offset = generator.integer(0, 1) == 0;
    call.indices = random_indices({count}, rows, generator);
    call.options.offsets =
        random_offsets(generator.integer(1, 6), count, call.options.include_last_offset, generator);
  }
  if (generator.integer(0, 1) == 0) call.options.padding_idx = generator.integer(0, rows - 1);
  if (generator.integer(0, 1) == 0) {
    call.options.per_sample_weights = randn(call.indices.sizes(), generator);
  }
  return call;
}

}  // namespace

TEST_CASE("embedding on a device: the rows of float tables") {
  Generator generator(51);
  for (int round = 0; round < 40; ++round) {
    const std::int64_t rows = generator.integer(1, 9);
    const std::int64_t columns = generator.integer(1, 48);
    CAPTURE(columns);
    Tensor table = randn({rows, columns}, generator);
    if (round % 3 == 0) table = table.to(DType::Float64);
    const Tensor indices =
        random_indices({generator.integer(1, 4), generator.integer(1, 3)}, rows, generator);
    check_same(embedding(there(table), there(indices), 0), embedding(table, indices, 0));
  }
  const Tensor table = randn({3, 4}, generator);
  const Tensor one = Tensor::from_int64(std::vector<std::int64_t>{2}).view({});
  check_same(embedding(there(table), there(one)), embedding(table, one));
  // Rows of 16 bytes that do not begin at multiples of 16.
  const Tensor odd = randn({13}, generator);
  const Tensor moved = odd.slice(0, 1, 13).view({3, 4});
  const Tensor on_device = odd.to(kDevice).slice(0, 1, 13).view({3, 4});
  check_same(embedding(on_device, there(one)), embedding(moved, one));
  const Tensor none = Tensor::empty({0, 2}, DType::Int64);
  CHECK(embedding(there(table), there(none)).sizes() == Dims{0, 2, 4});
}

TEST_CASE("embedding on a device: an index outside the table is the CPU's error") {
  Generator generator(52);
  const Tensor table = randn({5, 7}, generator);
  const EmbeddingPackedParams packed = random_table(5, 6, DType::QUInt8, generator);
  for (const std::int64_t bad : {std::int64_t{5}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    const Tensor indices = Tensor::from_int64(std::vector<std::int64_t>{1, bad, 2});
    const std::string text = "indices: expected rows in 0..4, got " + std::to_string(bad);
    CHECK_THROWS_WITH_AS(embedding(there(table), there(indices)), doctest::Contains(text.c_str()),
                         ArgumentError);
    CHECK_THROWS_WITH_AS(quantized::embedding_byte(packed, there(indices)),
                         doctest::Contains(text.c_str()), ArgumentError);
    const EmbeddingBagOptions options{.offsets = Tensor::from_int64(std::vector<std::int64_t>{0})};
    CHECK_THROWS_WITH_AS(embedding_bag(there(table), there(indices), there(options)),
                         doctest::Contains(text.c_str()), ArgumentError);
    // Behind the last bag.
    const EmbeddingBagOptions last{.offsets = Tensor::from_int64(std::vector<std::int64_t>{0, 1}),
                                   .include_last_offset = true};
    CHECK_THROWS_WITH_AS(quantized::embedding_bag_byte(packed, there(indices), there(last)),
                         doctest::Contains(text.c_str()), ArgumentError);
  }
}

TEST_CASE("embedding on a device: rows of 8 and 4 bits") {
  Generator generator(53);
  for (int round = 0; round < 30; ++round) {
    const std::int64_t rows = generator.integer(1, 9);
    const std::int64_t columns = generator.integer(1, 48);
    CAPTURE(columns);
    const Tensor indices = random_indices({generator.integer(1, 4), 3}, rows, generator);
    const EmbeddingPackedParams bytes = random_table(rows, columns, DType::QUInt8, generator);
    check_same(quantized::embedding_byte(bytes, there(indices)),
               quantized::embedding_byte(bytes, indices));
    const EmbeddingPackedParams nibbles = random_table(rows, columns, DType::QUInt4x2, generator);
    check_same(quantized::embedding_4bit(nibbles, there(indices)),
               quantized::embedding_4bit(nibbles, indices));
  }
}

TEST_CASE("embedding bags on a device: sums of rows of 8 and 4 and 2 bits") {
  Generator generator(54);
  using Rowwise = Tensor (*)(const Tensor&, const Tensor&, const EmbeddingBagOptions&);
  struct Kind {
    Tensor packed;
    Rowwise sum;
    Tensor (*unpack)(const Tensor&);
  };
  for (int round = 0; round < 40; ++round) {
    const std::int64_t rows = generator.integer(1, 9);
    const std::int64_t columns = generator.integer(1, 12) * 4;
    const Call call = random_call(rows, generator);
    CAPTURE(round);
    const EmbeddingPackedParams bytes = random_table(rows, columns - 1, DType::QUInt8, generator);
    check_same(quantized::embedding_bag_byte(bytes, there(call.indices), there(call.options)),
               quantized::embedding_bag_byte(bytes, call.indices, call.options));
    const EmbeddingPackedParams nibbles =
        random_table(rows, columns - 3, DType::QUInt4x2, generator);
    check_same(quantized::embedding_bag_4bit(nibbles, there(call.indices), there(call.options)),
               quantized::embedding_bag_4bit(nibbles, call.indices, call.options));
    const Tensor table = randn({rows, columns}, generator);
    for (const Kind& kind :
         {Kind{quantized::embedding_bag_byte_prepack(table),
               quantized::embedding_bag_byte_rowwise_offsets, quantized::embedding_bag_byte_unpack},
          Kind{quantized::embedding_bag_4bit_prepack(table),
               quantized::embedding_bag_4bit_rowwise_offsets, quantized::embedding_bag_4bit_unpack},
          Kind{quantized::embedding_bag_2bit_prepack(table),
               quantized::embedding_bag_2bit_rowwise_offsets,
               quantized::embedding_bag_2bit_unpack}}) {
      check_same(kind.sum(there(kind.packed), there(call.indices), there(call.options)),
                 kind.sum(kind.packed, call.indices, call.options));
      check_same(kind.unpack(there(kind.packed)), kind.unpack(kind.packed));
    }
  }
}

TEST_CASE("embedding bags on a device: sums and means and maxima of float rows") {
  Generator generator(55);
  for (int round = 0; round < 60; ++round) {
    const std::int64_t rows = generator.integer(1, 9);
    Call call = random_call(rows, generator);
    call.options.mode = static_cast<EmbeddingBagMode>(round % 3);
    if (call.options.mode != EmbeddingBagMode::Sum) call.options.per_sample_weights = Tensor();
    Tensor table = randn({rows, generator.integer(1, 40)}, generator);
    if (round % 4 == 0) {
      table = table.to(DType::Float64);
      if (call.options.per_sample_weights.defined()) {
        call.options.per_sample_weights = call.options.per_sample_weights.to(DType::Float64);
      }
    } else if (round % 4 == 1) {
      table.mutable_data<float>()[0] = -std::numeric_limits<float>::infinity();
    }
    CAPTURE(round);
    check_same(embedding_bag(there(table), there(call.indices), there(call.options)),
               embedding_bag(table, call.indices, call.options));
  }
}

TEST_CASE("embedding bags on a device: offsets that do not fit are the CPU's errors") {
  Generator generator(56);
  const Tensor table = randn({5, 3}, generator);
  const Tensor indices = random_indices({6}, 5, generator);
  struct Wrong {
    std::vector<std::int64_t> offsets;
    bool has_last;
    const char* text;
  };
  for (const Wrong& wrong :
       {Wrong{{1, 2}, false, "expected 0 first, got 1"},
        Wrong{{0, 3, 2}, false, "expected numbers that do not fall, within 0..6, got 2 after 3"},
        Wrong{{0, 7}, false, "within 0..6, got 7 after 0"},
        Wrong{{0, 7}, true, "within 0..6, got 7 after 0"},
        Wrong{{-1, 3}, false, "within 0..6, got -1 after 0"}}) {
    const EmbeddingBagOptions options{.offsets = Tensor::from_int64(wrong.offsets),
                                      .include_last_offset = wrong.has_last};
    CHECK_THROWS_WITH_AS(embedding_bag(there(table), there(indices), there(options)),
                         doctest::Contains(wrong.text), ArgumentError);
  }
}

TEST_CASE("embedding on a device: a table goes there once and the CPU keeps its own") {
  Generator generator(57);
  const EmbeddingPackedParams packed = random_table(50, 100, DType::QUInt8, generator);
  const EmbeddingPackedParams copy = packed;
  const Tensor indices = random_indices({4}, 50, generator).to(kDevice);
  const auto check_copied = [] {
    if (!kDevice.is_emulated()) return;  // nobody counts there
    CHECK(cuda::emulation::counters().bytes_to_device == 50 * 108);
  };
  cuda::emulation::reset_counters();
  quantized::embedding_byte(packed, indices);
  check_copied();
  quantized::embedding_byte(copy, indices);
  quantized::embedding_bag_byte(copy, indices.view({2, 2}));
  check_copied();
  CHECK(packed.packed_weight().device() == Device::cpu());

  nn::quantized::Embedding module(packed.unpack());
  module.to(kDevice);
  check_same(module(indices), module(indices.cpu()));
}

}  // namespace quanta
