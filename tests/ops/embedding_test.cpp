#include "quanta/ops/embedding.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "quanta/ops/embedding/rows.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/half.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"

namespace quanta::quantized {
namespace {

using test::indices;

// Codes 0, 1, 2, ... (modulo the range) with a scale and zero point of its own for each row.
QTensor table(std::int64_t rows, std::int64_t columns, DType dtype) {
  std::vector<float> scales;
  std::vector<float> zero_points;
  for (std::int64_t i = 0; i < rows; ++i) {
    scales.push_back(0.25F * static_cast<float>(i + 1));  // exact in float16
    zero_points.push_back(static_cast<float>(i) + 0.5F);
  }
  const Quantizer quantizer = Quantizer::per_channel_float_qparams(scales, zero_points, 0);
  if (dtype == DType::QUInt8) {
    return QTensor::from_int_repr(
        Tensor::arange(rows * columns).to(DType::UInt8).view({rows, columns}), quantizer);
  }
  const Tensor bytes = Tensor::zeros({(rows * columns + 1) / 2}, DType::UInt8);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    auto& byte = bytes.mutable_data<std::uint8_t>()[i / 2];
    byte = static_cast<std::uint8_t>(byte | ((i % 16) << (i % 2 * 4)));
  }
  return QTensor::from_packed_bytes(bytes, {rows, columns}, dtype, quantizer);
}

}  // namespace

TEST_CASE("embedding: looked-up rows are the dequantized rows of the table") {
  for (const DType dtype : {DType::QUInt8, DType::QUInt4x2}) {
    // Seven columns: rows of the flat 4-bit table do not start at bytes.
    const QTensor weight = table(5, 7, dtype);
    const EmbeddingPackedParams packed = embedding_bag_prepack(weight);
    CHECK(packed.unpack().equal(weight));
    CHECK(packed.num_embeddings() == 5);
    CHECK(packed.embedding_dim() == 7);
    const std::vector<float> all = weight.to_float_vector();
    const Tensor chosen = indices({4, 0, 2, 2}).view({2, 2});
    const Tensor rows =
        dtype == DType::QUInt8 ? embedding_byte(packed, chosen) : embedding_4bit(packed, chosen);
    CHECK(rows.sizes() == Dims{2, 2, 7});
    const std::vector<float> got = rows.to_float_vector();
    const std::int64_t order[] = {4, 0, 2, 2};
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t c = 0; c < 7; ++c) {
        CHECK(got[i * 7 + c] == all[static_cast<std::size_t>(order[i]) * 7 + c]);
      }
    }
  }
}

TEST_CASE("embedding_bag: sums follow offsets and weights") {
  const EmbeddingPackedParams packed = embedding_bag_prepack(table(5, 6, DType::QUInt8));
  const Tensor rows = embedding_byte(packed, indices({0, 1, 2, 3, 4}));
  const auto value = [&](std::int64_t row, std::int64_t c) { return rows[row][c].item(); };
  const Tensor some = indices({3, 1, 1, 4});
  EmbeddingBagOptions options{.offsets = indices({0, 2, 2})};
  const Tensor bags = embedding_bag_byte(packed, some, options);
  CHECK(bags.sizes() == Dims{3, 6});
  for (std::int64_t c = 0; c < 6; ++c) {
    CHECK(bags[0][c].item() == doctest::Approx(value(3, c) + value(1, c)));
    CHECK(bags[1][c].item() == 0.0);
    CHECK(bags[2][c].item() == doctest::Approx(value(1, c) + value(4, c)));
  }
  options.per_sample_weights = Tensor::from_values({2, 0.5F, -1, 1});
  options.include_last_offset = true;
  options.offsets = indices({0, 2, 4}).to(DType::Int32);
  const Tensor weighted = embedding_bag_byte(packed, some.to(DType::Int32), options);
  CHECK(weighted.sizes() == Dims{2, 6});
  CHECK(weighted[0][5].item() == doctest::Approx(2 * value(3, 5) + 0.5 * value(1, 5)));
  CHECK(weighted[1][5].item() == doctest::Approx(value(4, 5) - value(1, 5)));
  const Tensor square = embedding_bag_byte(packed, some.view({2, 2}));
  CHECK(square.equal(embedding_bag_byte(packed, some, {.offsets = indices({0, 2})})));
  CHECK(
      square.equal(embedding_bag_byte_rowwise_offsets(packed.packed_weight(), some.view({2, 2}))));
}

// The definition, from the codes and parameters of a 4- or 8-bit table.
std::vector<float> plain_sum(const QTensor& weight, const std::vector<std::int64_t>& rows,
                             const std::vector<float>& factors) {
  const bool bytes = weight.dtype() == DType::QUInt8;
  const std::int64_t columns = weight.size(1);
  const std::vector<float> scales = weight.q_per_channel_scales().to_float_vector();
  const std::vector<float> zero_points = weight.q_per_channel_zero_points().to_float_vector();
  const std::vector<std::int64_t> codes = weight.to_int64_vector();
  const auto rounded = [&](float x) {
    return bytes ? x : math::float16_to_float(math::float_to_float16(x));
  };
  std::vector<float> sum(static_cast<std::size_t>(columns), 0.0F);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::size_t>(rows[i]);
    const float scale = rounded(scales[row]) * factors[i];
    const float bias = rounded(-zero_points[row] * scales[row]) * factors[i];
    for (std::size_t c = 0; c < sum.size(); ++c) {
      const auto code = static_cast<float>(codes[row * sum.size() + c]);
      sum[c] += std::fma(scale, code, bias);
    }
  }
  return sum;
}

TEST_CASE("embedding_bag: sums are those of the definition for any number of columns") {
  Generator generator(72);
  for (const DType dtype : {DType::QUInt8, DType::QUInt4x2}) {
    for (const std::int64_t columns : {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 67, 130}) {
      CAPTURE(columns);
      const std::int64_t count = 11;
      const Tensor scales = Tensor::empty({count});
      const Tensor zero_points = Tensor::empty({count});
      for (std::int64_t i = 0; i < count; ++i) {
        scales.mutable_data<float>()[i] = 0.013F * static_cast<float>(i + 1);
        zero_points.mutable_data<float>()[i] = 3.7F + static_cast<float>(i);
      }
      const QTensor weight =
          quantize_per_channel(randn({count, columns}, generator), scales, zero_points, 0, dtype);
      const EmbeddingPackedParams packed = embedding_bag_prepack(weight);
      const std::vector<std::int64_t> rows{10, 0, 3, 3, 9};
      const Tensor factors = randn({5}, generator);
      const EmbeddingBagOptions options{.offsets = indices({0}), .per_sample_weights = factors};
      const Tensor index = Tensor::from_int64(rows);
      const Tensor bag = dtype == DType::QUInt8 ? embedding_bag_byte(packed, index, options)
                                                : embedding_bag_4bit(packed, index, options);
      CHECK(bag.to_float_vector() == plain_sum(weight, rows, factors.to_float_vector()));
      const Tensor row = dtype == DType::QUInt8 ? embedding_byte(packed, indices({4}))
                                                : embedding_4bit(packed, indices({4}));
      CHECK(row.to_float_vector() == plain_sum(weight, {4}, {1.0F}));
    }
  }
}

TEST_CASE("embedding prepack: unpacked rows are within half a step of the floats") {
  const Tensor weight = test::random_tensor({9, 24}, 71);
  const std::vector<float> want = weight.to_float_vector();
  const auto worst = [&](const Tensor& unpacked) {
    const std::vector<float> got = unpacked.to_float_vector();
    double result = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      result = std::max(result, std::abs(static_cast<double>(got[i] - want[i])));
    }
    return result;
  };
  // Rows of a normal distribution span less than eight.
  CHECK(worst(embedding_bag_byte_unpack(embedding_bag_byte_prepack(weight))) < 8.0 / 255 * 0.51);
  CHECK(worst(embedding_bag_4bit_unpack(embedding_bag_4bit_prepack(weight))) < 8.0 / 15 * 0.51);
  CHECK(worst(embedding_bag_2bit_unpack(embedding_bag_2bit_prepack(weight))) < 8.0 / 3 * 0.51);
  CHECK(embedding_bag_2bit_prepack(weight).sizes() == Dims{9, 10});
  const auto squares = [&](const Tensor& unpacked) {
    const std::vector<float> got = unpacked.to_float_vector();
    double sum = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      sum += static_cast<double>(got[i] - want[i]) * static_cast<double>(got[i] - want[i]);
    }
    return sum;
  };
  CHECK(squares(embedding_bag_2bit_unpack(
            embedding_bag_2bit_prepack(weight, {.optimized_qparams = true}))) <
        squares(embedding_bag_2bit_unpack(embedding_bag_2bit_prepack(weight))));
  const Tensor flat = Tensor::full({2, 8}, 1.5);
  CHECK(embedding_bag_byte_unpack(embedding_bag_byte_prepack(flat)).equal(flat));
  CHECK(embedding_bag_4bit_unpack(embedding_bag_4bit_prepack(flat)).equal(flat));
}

TEST_CASE("embedding: bad arguments are refused by name") {
  const EmbeddingPackedParams packed = embedding_bag_prepack(table(5, 6, DType::QUInt8));
  const auto refused = [](const char* text, auto&& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
  };
  refused("embedding_byte: indices: expected rows in 0..4, got 5", [&] {
    embedding_byte(packed, indices({0, 5}));
  });
  refused("embedding_byte: indices: expected rows in 0..4, got -1",
          [&] { embedding_byte(packed, indices({-1})); });
  refused("embedding_byte: indices: expected Int32 or Int64, got Float32",
          [&] { embedding_byte(packed, Tensor::ones({2})); });
  refused("embedding_4bit: weight: expected parameters packed from QUInt4x2, got QUInt8",
          [&] { embedding_4bit(packed, indices({0})); });
  refused("embedding_byte: weight: expected parameters packed from QUInt8, got empty ones",
          [&] { embedding_byte(EmbeddingPackedParams(), indices({0})); });
  refused("embedding_bag_byte: offsets: expected a tensor for 1-d indices, got none",
          [&] { embedding_bag_byte(packed, indices({0})); });
  refused("embedding_bag_byte: offsets: expected numbers that do not fall", [&] {
    embedding_bag_byte(packed, indices({0, 1}), {.offsets = indices({0, 3})});
  });
  refused("embedding_bag_byte: offsets: expected 0 first", [&] {
    embedding_bag_byte(packed, indices({0, 1}), {.offsets = indices({1, 2})});
  });
  refused("embedding_bag_byte: per_sample_weights: expected Float32 [1]", [&] {
    embedding_bag_byte(packed, indices({0}),
                       {.offsets = indices({0}), .per_sample_weights = Tensor::ones({2})});
  });
  refused("embedding_bag_byte_rowwise_offsets: weight: expected UInt8", [&] {
    embedding_bag_byte_rowwise_offsets(Tensor::ones({2, 20}), indices({0}));
  });
  refused("embedding_bag_4bit_prepack: weight: expected a multiple of 2 columns, got 3", [&] {
    embedding_bag_4bit_prepack(Tensor::ones({1, 3}));
  });
  refused("embedding_bag_byte_prepack: weight: expected finite numbers", [&] {
    embedding_bag_byte_prepack(Tensor::full({1, 4}, std::numeric_limits<double>::infinity()));
  });
  refused("embedding_bag_prepack: weight", [&] {
    embedding_bag_prepack(QTensor::empty({2, 4}, 0.1, 0, DType::QUInt8));
  });
  CHECK_THROWS_WITH_AS(
      embedding_bag_byte(packed, indices({0}),
                         {.offsets = indices({0}), .mode = EmbeddingBagMode::Mean}),
      doctest::Contains("mode: expected Sum"), UnsupportedError);
}

TEST_CASE("embedding_bag prepack: rows whose range leaves the floats have codes of 0") {
  CHECK(detail::nbit_code(3e38F, -3e38F, 0.0F, 8) == 0);  // infinity times 0
  CHECK(detail::nbit_code(3e38F, -3e38F, 1.0F, 4) == 15);
  const Tensor weight = Tensor::from_values({-3e38F, 3e38F, 0.0F, 1.0F}, {1, 4});
  const Tensor bytes = embedding_bag_byte_prepack(weight);
  for (std::int64_t i = 0; i < 4; ++i) CHECK(bytes.data<std::uint8_t>()[i] == 0);
  const Tensor few = embedding_bag_4bit_prepack(weight);
  for (std::int64_t i = 0; i < 2; ++i) CHECK(few.data<std::uint8_t>()[i] == 0);
}

}  // namespace quanta::quantized
