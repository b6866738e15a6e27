#include "quanta/ops/integer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "quanta/ops/conv.h"
#include "quanta/ops/conv_dynamic.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/quantize_linear.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/error.h"

using namespace quanta;

namespace {

// Codes all over the dtype's range.
Tensor bytes(const Dims& sizes, DType dtype, std::uint64_t seed) {
  const Tensor wide = sample_tensor(sizes, DType::Float32, seed);
  return quantize_linear(wide, Tensor::scalar(0.02),
                         Tensor::full({}, dtype == DType::UInt8 ? 128.0 : 0.0, dtype),
                         {.dtype = dtype});
}

// x - zero points, exact as floats.
Tensor centred(const Tensor& x, const Tensor& zeros, std::int64_t axis) {
  const Tensor none = Tensor::zeros({}, x.dtype());
  const bool single = !zeros.defined() || zeros.numel() == 1;
  const Tensor ones = single ? Tensor::ones({}) : Tensor::ones({zeros.numel()});
  const Tensor zero = !zeros.defined() ? none : single ? zeros.reshape({}) : zeros;
  return dequantize_linear(x, ones, zero, {.axis = axis});
}

void check_same(const Tensor& sums, const Tensor& floats) {
  REQUIRE(sums.sizes() == floats.sizes());
  const std::vector<std::int64_t> got = sums.to_int64_vector();
  const std::vector<float> wanted = floats.to_float_vector();
  for (std::size_t i = 0; i < got.size(); ++i) {
    REQUIRE(got[i] == static_cast<std::int64_t>(std::nearbyint(wanted[i])));
  }
}

Tensor numbers(std::initializer_list<std::int64_t> values, DType dtype) {
  return Tensor::from_int64(std::vector<std::int64_t>(values)).to(dtype);
}

}  // namespace

TEST_CASE("matmul_integer: exact sums of any two kinds of bytes and zero points") {
  for (const DType left : {DType::UInt8, DType::Int8}) {
    for (const DType right : {DType::UInt8, DType::Int8}) {
      const Tensor a = bytes({2, 1, 3, 19}, left, 1);
      const Tensor b = bytes({4, 19, 5}, right, 2);
      const Tensor a_zeros = numbers({3, 100, 7}, left);
      const Tensor b_zeros = numbers({1, 90, 3, 4, 120}, right);
      check_same(matmul_integer(a, b, a_zeros, b_zeros),
                 matmul(centred(a, a_zeros, 2), centred(b, b_zeros, 2)));
      const Tensor one = numbers({17}, left);
      check_same(matmul_integer(a, b[1], one, {}),
                 matmul(centred(a, one, 0), centred(b[1], {}, 0)));
    }
  }
  CHECK(matmul_integer(bytes({4}, DType::UInt8, 1), bytes({4}, DType::Int8, 2)).dim() == 0);
  CHECK_THROWS_AS(matmul_integer(bytes({2, 3}, DType::UInt8, 1), bytes({2, 3}, DType::Int8, 2)),
                  ArgumentError);
  CHECK_THROWS_AS(matmul_integer(bytes({2, 3}, DType::UInt8, 1), bytes({3, 2}, DType::Int8, 2),
                                 numbers({1, 2, 3}, DType::UInt8)),
                  ArgumentError);
}

TEST_CASE("matmul_integer: views, batches and several blocks of rows and columns") {
  for (const DType left : {DType::UInt8, DType::Int8}) {
    for (const DType right : {DType::UInt8, DType::Int8}) {
      // Sums of up to 200 * 255 * 255, exact as floats.
      const Tensor a = bytes({2, 70, 3, 200}, left, 1).transpose(1, 2);
      const Tensor rows = bytes({1, 3, 290, 200}, right, 2).transpose(-1, -2);
      const Tensor columns = bytes({290, 200}, right, 3).t();
      const Tensor sparse = bytes({200, 2 * 33}, right, 4).slice(1, 0, 66, 2);
      const Tensor a_zero = numbers({left == DType::UInt8 ? 255 : -128}, left);
      const Tensor b_zero = numbers({right == DType::UInt8 ? 3 : 127}, right);
      for (const Tensor& b : {rows, columns, sparse}) {
        check_same(matmul_integer(a, b, a_zero, b_zero),
                   matmul(centred(a.contiguous(), a_zero, 0), centred(b.contiguous(), b_zero, 0)));
      }
    }
  }
  // Batches that share their right side, and ones that do not fit where they are packed at once.
  const Tensor a = bytes({3, 5, 2, 64}, DType::UInt8, 5);
  const Tensor shared = bytes({64, 40}, DType::Int8, 6);
  const Tensor zeros = numbers({7, 7}, DType::UInt8);
  check_same(matmul_integer(a, shared, zeros),
             matmul(centred(a, zeros.slice(0, 0, 1), 0), centred(shared, {}, 0)));
  check_same(matmul_integer(a.transpose(0, 1), shared),
             matmul(centred(a.transpose(0, 1).contiguous(), {}, 0), centred(shared, {}, 0)));
  const Tensor many = bytes({9000, 1, 3}, DType::UInt8, 7);
  const Tensor rights = bytes({9000, 3, 2}, DType::UInt8, 8);
  check_same(matmul_integer(many, rights), matmul(centred(many, {}, 0), centred(rights, {}, 0)));
  const Tensor wide = bytes({64, 1500}, DType::Int8, 9);
  check_same(matmul_integer(a[0], wide), matmul(centred(a[0], {}, 0), centred(wide, {}, 0)));

  CHECK(matmul_integer(Tensor::zeros({2, 0}, DType::UInt8), Tensor::zeros({0, 3}, DType::Int8))
            .to_int64_vector() == std::vector<std::int64_t>(6, 0));
}

TEST_CASE("conv_integer: pads that differ have the code of zero") {
  for (const DType left : {DType::UInt8, DType::Int8}) {
    const Tensor x = bytes({2, 4, 6, 5}, left, 1);
    const Tensor w = bytes({6, 2, 3, 2}, DType::UInt8, 2);
    const Tensor x_zero = numbers({9}, left);
    const Tensor w_zeros = numbers({1, 128, 130, 7, 200, 255}, DType::UInt8);
    const Tensor sums =
        conv_integer(x, w, x_zero, w_zeros,
                     {.stride = {2, 1}, .dilation = {1, 2}, .pads = {1, 0, 2, 3}, .groups = 2});
    const Tensor floats = conv2d(pad(centred(x, x_zero, 0), {0, 3, 1, 2}), centred(w, w_zeros, 0),
                                 {}, {.stride = {2, 1}, .dilation = {1, 2}, .groups = 2});
    check_same(sums, floats);
  }
  CHECK_THROWS_AS(conv_integer(bytes({1, 2, 4, 4}, DType::UInt8, 1),
                               bytes({3, 2, 3, 3}, DType::Int8, 2), {}, {}, {.pads = {1}}),
                  ArgumentError);
}

TEST_CASE("matmul_exact and matmul_to_float: products of two activations") {
  const QTensor a = quantized::from_codes(bytes({2, 5, 33}, DType::UInt8, 1), 0.02, 120);
  const QTensor b = quantized::from_codes(bytes({2, 33, 7}, DType::UInt8, 2), 0.03, 7);
  const Tensor sums =
      matmul_integer(quantized::to_codes(a, DType::UInt8), quantized::to_codes(b, DType::UInt8),
                     numbers({120}, DType::UInt8), numbers({7}, DType::UInt8));
  const std::vector<std::int64_t> exact = sums.to_int64_vector();
  const std::vector<float> floats = quantized::matmul_to_float(a, b).to_float_vector();
  const std::vector<std::int64_t> codes = quantized::matmul_exact(a, b, 0.5, 100).to_int64_vector();
  const float scale = 0.02F * 0.03F;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto sum = static_cast<float>(exact[i]);
    REQUIRE(floats[i] == sum * scale);
    const float code = std::nearbyint(sum * (scale / 0.5F)) + 100.0F;
    REQUIRE(codes[i] == static_cast<std::int64_t>(std::min(255.0F, std::max(0.0F, code))));
  }
}

TEST_CASE("matmul_integer: sums beyond 32 bits wrap") {
  const std::int64_t depth = 70'000;
  const Tensor a = Tensor::full({3, depth}, 255.0, DType::UInt8);
  const std::int64_t sum = depth * 255 * -128 & 0xffffffff;
  const std::vector<std::int64_t> wanted(6, sum >= 0x80000000 ? sum - 0x100000000 : sum);
  CHECK(matmul_integer(a, Tensor::full({depth, 2}, -128.0, DType::Int8)).to_int64_vector() ==
        wanted);
}

TEST_CASE("matmul_exact and matmul_to_float: views, and sums of nothing") {
  const QTensor a = quantized::from_codes(bytes({3, 65, 2, 40}, DType::UInt8, 1), 0.02, 120);
  const QTensor b = quantized::from_codes(bytes({3, 270, 2, 40}, DType::UInt8, 2), 0.03, 7);
  const QTensor rows(a.transpose(1, 2));
  const QTensor columns(b.permute({0, 2, 3, 1}));
  const QTensor dense_rows(rows.contiguous());
  const QTensor dense_columns(columns.contiguous());
  CHECK(quantized::matmul_to_float(rows, columns).to_float_vector() ==
        quantized::matmul_to_float(dense_rows, dense_columns).to_float_vector());
  CHECK(quantized::matmul_exact(rows, columns, 0.5, 100).to_int64_vector() ==
        quantized::matmul_exact(dense_rows, dense_columns, 0.5, 100).to_int64_vector());

  const QTensor no_columns = quantized::from_codes(Tensor::zeros({2, 0}, DType::UInt8), 0.02, 1);
  const QTensor no_rows = quantized::from_codes(Tensor::zeros({0, 3}, DType::UInt8), 0.03, 2);
  CHECK(quantized::matmul_to_float(no_columns, no_rows).to_float_vector() ==
        std::vector<float>(6, 0.0F));
  CHECK(quantized::matmul_exact(no_columns, no_rows, 0.5, 100).to_int64_vector() ==
        std::vector<std::int64_t>(6, 100));
}

TEST_CASE("int8 layers take integer biases and give floats") {
  const QTensor x = quantized::from_codes(bytes({2, 8, 6, 6}, DType::UInt8, 1), 0.02, 31);
  const QTensor w(sample_tensor({6, 8, 3, 3}, DType::QInt8, 2));
  const float scale = 0.02F * static_cast<float>(w.quantizer().scale);
  const Tensor units = numbers({0, 1, -500, 70000, 12, -3}, DType::Int32);
  const quantized::ConvPackedParams plain(w, {}, {.padding = {1}}, 2);
  const quantized::ConvPackedParams biased(w, units, {.padding = {1}}, 2);
  const Tensor sums = conv_integer(
      quantized::to_codes(x, DType::UInt8), w.int_repr_view(), numbers({31}, DType::UInt8),
      numbers({w.quantizer().zero_point}, DType::Int8), {.pads = {1, 1, 1, 1}});
  const std::vector<std::int64_t> exact = sums.to_int64_vector();
  const std::vector<std::int64_t> bias = units.to_int64_vector();
  const std::vector<float> floats = quantized::conv_to_float(x, biased).to_float_vector();
  const std::vector<float> without = quantized::conv_to_float(x, plain).to_float_vector();
  const std::vector<std::int64_t> codes = quantized::conv(x, biased, 0.25, 7).to_int64_vector();
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const std::int64_t sum = exact[i] + bias[i / 36 % 6];
    REQUIRE(without[i] == static_cast<float>(exact[i]) * scale);
    REQUIRE(floats[i] == static_cast<float>(sum) * scale);
    const float code = std::nearbyint(static_cast<float>(sum) * (scale / 0.25F)) + 7.0F;
    REQUIRE(codes[i] == static_cast<std::int64_t>(std::min(255.0F, std::max(0.0F, code))));
  }

  const QTensor rows = quantized::from_codes(bytes({5, 24}, DType::UInt8, 3), 0.02, 200);
  const QTensor weight(sample_tensor({6, 24}, DType::QInt8, 4));
  const Tensor products = matmul_integer(quantized::to_codes(rows, DType::UInt8),
                                         weight.int_repr_view().t(), numbers({200}, DType::UInt8),
                                         numbers({weight.quantizer().zero_point}, DType::Int8));
  const std::vector<std::int64_t> row_sums = products.to_int64_vector();
  const quantized::LinearPackedParams layer(weight, units);
  const quantized::LinearPackedParams unbiased(weight, {});
  const std::vector<float> row_floats = quantized::linear_to_float(rows, layer).to_float_vector();
  const std::vector<float> of_codes =
      quantized::linear_of_codes(quantized::to_codes(rows, DType::UInt8), Tensor::scalar(0.02),
                                 Tensor::full({}, 200.0, DType::UInt8), unbiased)
          .to_float_vector();
  const float row_scale = 0.02F * static_cast<float>(weight.quantizer().scale);
  for (std::size_t i = 0; i < row_sums.size(); ++i) {
    REQUIRE(row_floats[i] == static_cast<float>(row_sums[i] + bias[i % 6]) * row_scale);
    REQUIRE(of_codes[i] == static_cast<float>(row_sums[i]) * row_scale);
  }
  CHECK_THROWS_AS(quantized::linear_dynamic(sample_tensor({2, 24}), layer), ArgumentError);
  const std::vector<float> conv_codes =
      quantized::conv_of_codes(quantized::to_codes(x, DType::UInt8), Tensor::scalar(0.02),
                               Tensor::full({}, 31.0, DType::UInt8), plain)
          .to_float_vector();
  CHECK(conv_codes == without);
}
