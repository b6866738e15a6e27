// quantized::matmul beside plain loops over its formula.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "elementwise_support.h"
#include "instruction_sets.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/quant_math.h"

namespace quanta {
namespace {

/// The formula's codes of [batch, rows, depth] times [batch, depth, columns].
std::vector<std::int64_t> reference(const QTensor& lhs, const QTensor& rhs, double scale,
                                    std::int64_t zero_point) {
  const std::vector<std::int64_t> a = test::codes_of(lhs);
  const std::vector<std::int64_t> b = test::codes_of(rhs);
  const std::int64_t za = lhs.quantizer().zero_point;
  const std::int64_t zb = rhs.quantizer().zero_point;
  const float factor =
      static_cast<float>(lhs.quantizer().scale) * static_cast<float>(rhs.quantizer().scale);
  const std::int64_t rows = lhs.size(1);
  const std::int64_t depth = lhs.size(2);
  const std::int64_t columns = rhs.size(2);
  const bool is_signed = lhs.dtype() == DType::QInt8;
  std::vector<std::int64_t> codes;
  for (std::int64_t row = 0; row < lhs.size(0) * rows; ++row) {
    for (std::int64_t n = 0; n < columns; ++n) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        sum += (a[static_cast<std::size_t>(row * depth + k)] - za) *
               (b[static_cast<std::size_t>((row / rows * depth + k) * columns + n)] - zb);
      }
      codes.push_back(math::quantize(
          static_cast<float>(sum) * factor, 1.0F / static_cast<float>(scale),
          static_cast<std::int32_t>(zero_point), is_signed ? -128 : 0, is_signed ? 127 : 255));
    }
  }
  return codes;
}

TEST_CASE("quantized::matmul: exact sums on every instruction set and number of threads") {
  Generator generator(91);
  const int threads = get_num_threads();
  for (int i = 0; i < 60; ++i) {
    const DType dtype = i % 2 == 0 ? DType::QUInt8 : DType::QInt8;
    const std::int64_t least = dtype == DType::QInt8 ? -128 : 0;
    const std::int64_t batch = generator.integer(1, 3);
    // Every fifth is large enough for several threads and blocks.
    const std::int64_t most = i % 5 == 0 ? 300 : 40;
    const std::int64_t rows = generator.integer(1, most);
    const std::int64_t depth = generator.integer(1, 150);
    const std::int64_t columns = generator.integer(1, most);
    const QTensor a = test::random_codes({batch, rows, depth}, dtype, 0.02,
                                         least + generator.integer(0, 255), generator);
    const QTensor b = test::random_codes({batch, depth, columns}, dtype, 0.03,
                                         least + generator.integer(0, 255), generator);
    const QTensor turned(Tensor(b).transpose(1, 2).contiguous().transpose(1, 2));
    const double scale = 0.05 * std::sqrt(static_cast<double>(depth));
    const std::int64_t zero_point = least + generator.integer(0, 255);
    const std::vector<std::int64_t> want = reference(a, b, scale, zero_point);
    CAPTURE(to_string(a.sizes()));
    CAPTURE(columns);
    test::for_each_instruction_set([&] {
      for (const int count : {1, 2, 3}) {
        set_num_threads(count);
        CHECK(test::codes_of(quantized::matmul(a, b, scale, zero_point)) == want);
        CHECK(test::codes_of(quantized::matmul(a, turned, scale, zero_point)) == want);
      }
      set_num_threads(threads);
    });
  }
}

TEST_CASE("quantized::matmul: operands broadcast and lie anywhere") {
  Generator generator(92);
  const QTensor a = test::random_codes({2, 3, 5, 20}, DType::QUInt8, 0.02, 7, generator);
  const QTensor b = test::random_codes({3, 20, 18}, DType::QUInt8, 0.03, 250, generator);
  const auto matrix = [](const Tensor& x, std::int64_t i, std::int64_t j) {
    const Tensor part = x.dim() == 4 ? x.select(0, i).select(0, j) : x.select(0, j);
    return QTensor(part.contiguous().unsqueeze(0));
  };
  const QTensor all = quantized::matmul(a, b, 0.1, 30);
  CHECK(all.sizes() == Dims{2, 3, 5, 18});
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) {
      CHECK(test::codes_of(matrix(all, i, j)) ==
            reference(matrix(a, i, j), matrix(b, i, j), 0.1, 30));
    }
  }
  // Rows that are not dense, columns that are neither, and vectors.
  const QTensor spread(Tensor(a).transpose(2, 3).contiguous().transpose(2, 3));
  CHECK(quantized::matmul(spread, b, 0.1, 30).equal(all));
  const QTensor wide = test::random_codes({3, 20, 36}, DType::QUInt8, 0.03, 250, generator);
  const QTensor every_second(Tensor(wide).slice(2, 0, 36, 2));
  CHECK(quantized::matmul(a, every_second, 0.1, 30)
            .equal(quantized::matmul(a, QTensor(Tensor(every_second).contiguous()), 0.1, 30)));
  const QTensor row(Tensor(a).select(0, 0).select(0, 0).select(0, 0));
  const QTensor column(Tensor(b).select(0, 0).select(1, 0));
  const QTensor dot = quantized::matmul(row, column, 0.1, 30);
  CHECK(dot.sizes() == Dims{});
  CHECK(test::codes_of(dot).front() == test::codes_of(all).front());
}

TEST_CASE("quantized::matmul: the codes of the float product but for ties") {
  Generator generator(93);
  const QTensor a = test::random_codes({4, 64, 64}, DType::QUInt8, 0.02, 120, generator);
  const QTensor b = test::random_codes({4, 64, 64}, DType::QUInt8, 0.03, 7, generator);
  const std::vector<std::int64_t> got = test::codes_of(quantized::matmul(a, b, 0.4, 128));
  const std::vector<std::int64_t> floats = test::codes_of(
      quantize_per_tensor(matmul(dequantize(a), dequantize(b)), 0.4, 128, DType::QUInt8));
  std::int64_t equal = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    REQUIRE(std::abs(got[i] - floats[i]) <= 1);
    equal += got[i] == floats[i] ? 1 : 0;
  }
  CHECK(equal >= static_cast<std::int64_t>(got.size()) * 999 / 1000);
}

TEST_CASE("quantized::matmul: inner dimensions of nothing and of very many") {
  const QTensor none = QTensor::empty({2, 0}, 0.1, 3, DType::QUInt8);
  const QTensor nothing = QTensor::empty({0, 4}, 0.1, 3, DType::QUInt8);
  CHECK(test::codes_of(quantized::matmul(none, nothing, 0.1, 9)) ==
        std::vector<std::int64_t>(8, 9));
  const QTensor four = QTensor::empty({4, 2}, 0.1, 3, DType::QUInt8);
  CHECK(quantized::matmul(nothing, four, 0.1, 9).sizes() == Dims{0, 2});
  // 33025 is the last one whose sums are known to fit.
  for (const std::int64_t depth : {33025, 33026, 40000}) {
    const QTensor ones = quantize_per_tensor(Tensor::full({1, depth}, 25.5), 0.1, 0, DType::QUInt8);
    const QTensor column =
        quantize_per_tensor(Tensor::full({depth, 1}, 25.5), 0.1, 0, DType::QUInt8);
    CHECK(test::codes_of(quantized::matmul(ones, column, 1e6, 1)).front() ==
          1 + std::lrint(25.5 * 25.5 * static_cast<double>(depth) / 1e6));
  }
}

}  // namespace
}  // namespace quanta
