#include "quanta/ops/arithmetic.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "elementwise_support.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "support/threads.h"

namespace quanta {
namespace {

using test::codes_of;
using test::for_each_target;
using test::in_layout;
using test::Layout;
using Codes = std::vector<std::int64_t>;

// The two tensors of the specification's examples.
const std::vector<float> kValues = {-1.3F, -.55F, -.05F, 0, .05F, .15F, .25F, .35F, 1.95F, 3.2F};
QTensor example_a() {
  return quantize_per_tensor(Tensor::from_values(kValues, {10}), 0.1, 10, DType::QUInt8);
}
QTensor example_b() {
  const std::vector<float> reversed(kValues.rbegin(), kValues.rend());
  return quantize_per_tensor(Tensor::from_values(reversed, {10}), 0.05, 100, DType::QUInt8);
}

enum class Op { Add, AddReLU, Mul, MulReLU };
constexpr Op kOps[] = {Op::Add, Op::AddReLU, Op::Mul, Op::MulReLU};

QTensor run(Op op, const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  switch (op) {
    case Op::Add:
      return quantized::add(lhs, rhs, scale, zero_point);
    case Op::AddReLU:
      return quantized::add_relu(lhs, rhs, scale, zero_point);
    case Op::Mul:
      return quantized::mul(lhs, rhs, scale, zero_point);
    case Op::MulReLU:
      return quantized::mul_relu(lhs, rhs, scale, zero_point);
  }
  return {};
}

// The scalar rule for one pair of codes, written from the specification.
std::int64_t reference(Op op, std::int64_t a, std::int64_t b, const Quantizer& qa,
                       const Quantizer& qb, const Quantizer& out, DType dtype) {
  const auto sa = static_cast<float>(qa.scale);
  const auto sb = static_cast<float>(qb.scale);
  const float inverse = 1.0F / static_cast<float>(out.scale);
  const IntRange range = quant_range(dtype);
  const auto min = static_cast<std::int32_t>(range.min);
  const auto max = static_cast<std::int32_t>(range.max);
  const auto zero = static_cast<std::int32_t>(out.zero_point);
  std::int64_t code = 0;
  if (op == Op::Add || op == Op::AddReLU) {
    float sum = std::fma(static_cast<float>(a), sa, sa * -static_cast<float>(qa.zero_point)) +
                std::fma(static_cast<float>(b), sb, sb * -static_cast<float>(qb.zero_point));
    if (op == Op::AddReLU) sum = std::max(sum, 0.0F);
    code = dtype == DType::QInt32 ? math::quantize_qint32(sum, inverse, zero)
                                  : math::quantize(sum, inverse, zero, min, max);
  } else {
    const std::int64_t product = (a - qa.zero_point) * (b - qb.zero_point);
    const float multiplier = sa * sb * inverse;
    // In double, where the sum is exact and infinities clamp.
    const auto steps =
        static_cast<double>(std::nearbyint(static_cast<float>(product) * multiplier));
    code = static_cast<std::int64_t>(std::clamp(steps + static_cast<double>(zero),
                                                static_cast<double>(range.min),
                                                static_cast<double>(range.max)));
    if (op == Op::MulReLU) code = std::max<std::int64_t>(code, zero);
  }
  return code;
}

void check_against_reference(Op op, const QTensor& lhs, const QTensor& rhs, double scale,
                             std::int64_t zero_point) {
  const QTensor out = run(op, lhs, rhs, scale, zero_point);
  const Codes a = codes_of(lhs.expand(out.sizes()));
  const Codes b = codes_of(rhs.expand(out.sizes()));
  const Codes got = codes_of(out);
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CAPTURE(a[i]);
    CAPTURE(b[i]);
    REQUIRE(got[i] == reference(op, a[i], b[i], lhs.quantizer(), rhs.quantizer(), out.quantizer(),
                                lhs.dtype()));
  }
}

TEST_CASE("quantized::add and mul: torch's printed examples") {
  CHECK(codes_of(quantized::add(example_a(), example_b(), .12, 20)) ==
        Codes{38, 31, 23, 22, 21, 22, 22, 23, 32, 36});
  CHECK(codes_of(quantized::mul(example_a(), example_b(), .07, 64)) ==
        Codes{18, 47, 64, 64, 64, 64, 64, 64, 48, 5});
}

TEST_CASE("quantized::add and mul: all pairs of codes on every instruction set") {
  // 256 x 256 codes by broadcasting a column against a row, in both dtypes.
  for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
    const std::int64_t low = dtype == DType::QUInt8 ? 0 : -128;
    Tensor all = Tensor::empty({256}, int_repr_dtype(dtype));
    for (std::int64_t i = 0; i < 256; ++i) {
      static_cast<std::uint8_t*>(all.data_ptr())[i] = static_cast<std::uint8_t>(i);
    }
    const QTensor row = QTensor::from_int_repr(all, Quantizer::per_tensor(0.037, low + 3));
    const QTensor column =
        QTensor::from_int_repr(all.reshape({256, 1}), Quantizer::per_tensor(0.1, low + 128));
    for_each_target([&] {
      for (const Op op : kOps) {
        check_against_reference(op, column, row, 0.05, low + 77);
        check_against_reference(op, row, column, 0.5, low);
      }
    });
  }
}

TEST_CASE("quantized::add and mul: ties and saturation on every instruction set") {
  // A scale of powers of two makes every sum and product a tie or an integer.
  Generator generator(5);
  for_each_target([&] {
    for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
      const QTensor lhs = test::random_codes({1003}, dtype, 0.5, 1, generator);
      const QTensor rhs = test::random_codes({1003}, dtype, 0.25, 2, generator);
      for (const Op op : kOps) {
        check_against_reference(op, lhs, rhs, 0.5, 3);
        check_against_reference(op, lhs, rhs, 1e-3, 3);
        check_against_reference(op, lhs, rhs, 1e-38, 3);
        check_against_reference(op, lhs, rhs, 1e30, 3);
      }
    }
  });
}

TEST_CASE("quantized::add and mul: layouts and broadcasts give the reference's codes") {
  Generator generator(6);
  const std::vector<Dims> partners = {{2, 5, 3, 7}, {2, 5, 1, 1}, {1},          {7},
                                      {5, 1, 1},    {2, 1, 3, 7}, {1, 5, 3, 1}, {}};
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    for (const Layout layout : test::kLayouts) {
      const QTensor lhs(in_layout(layout, 5, 3, 7, [&](const Dims& sizes) {
        return test::random_codes(sizes, dtype, 0.1, 7, generator);
      }));
      for (const Dims& sizes : partners) {
        const QTensor rhs = test::random_codes(sizes, dtype, 0.03, 4, generator);
        check_against_reference(Op::Add, lhs, rhs, 0.09, 11);
        check_against_reference(Op::MulReLU, rhs, lhs, 0.09, 11);
      }
      for (const Layout other : test::kLayouts) {
        const QTensor rhs(in_layout(other, 5, 3, 7, [&](const Dims& sizes) {
          return test::random_codes(sizes, dtype, 0.03, 4, generator);
        }));
        check_against_reference(Op::AddReLU, lhs, rhs, 0.09, 11);
        check_against_reference(Op::Mul, lhs, rhs, 0.09, 11);
      }
    }
  }
}

TEST_CASE("quantized::mul: a channel scale against a channels-last image stays channels-last") {
  Generator generator(7);
  const QTensor image(test::random_codes({2, 40, 9, 9}, DType::QUInt8, 0.1, 7, generator)
                          .contiguous(MemoryFormat::ChannelsLast));
  const QTensor gate = test::random_codes({2, 40, 1, 1}, DType::QUInt8, 1.0 / 256, 0, generator);
  check_against_reference(Op::Mul, image, gate, 0.08, 5);
  CHECK(quantized::mul(image, gate, 0.08, 5).is_contiguous(MemoryFormat::ChannelsLast));
  CHECK(quantized::mul(gate, image, 0.08, 5).is_contiguous(MemoryFormat::ChannelsLast));
}

TEST_CASE("quantized::add and mul: a vector of any number of channels on every instruction set") {
  Generator generator(9);
  std::vector<std::int64_t> counts = {1023, 1025, 2100};
  for (std::int64_t channels = 1; channels <= 130; ++channels) counts.push_back(channels);
  for_each_target([&] {
    for (const std::int64_t channels : counts) {
      CAPTURE(channels);
      const DType dtype = channels % 2 == 0 ? DType::QUInt8 : DType::QInt8;
      // The second image of two, so that rows begin anywhere.
      const QTensor image(test::random_codes({2, channels, 3, 3}, dtype, 0.1, 7, generator)
                              .contiguous(MemoryFormat::ChannelsLast)
                              .slice(0, 1, 2));
      const QTensor gate(
          test::random_codes({2, channels, 1, 1}, dtype, 0.03, 4, generator).slice(0, 1, 2));
      for (const Op op : kOps) check_against_reference(op, image, gate, 0.09, 11);
      check_against_reference(Op::Mul, gate, image, 1e-38, 11);
      check_against_reference(Op::Add, image, gate, 1e-38, 11);
    }
  });
}

TEST_CASE("quantized::add and mul: rows of any length on every instruction set") {
  Generator generator(10);
  for_each_target([&] {
    for (std::int64_t length = 1; length <= 200; ++length) {
      CAPTURE(length);
      const DType dtype = length % 2 == 0 ? DType::QUInt8 : DType::QInt8;
      const QTensor lhs(
          test::random_codes({length + 3}, dtype, 0.1, 7, generator).slice(0, 3, length + 3));
      const QTensor rhs(
          test::random_codes({length + 1}, dtype, 0.03, 4, generator).slice(0, 1, length + 1));
      for (const Op op : kOps) {
        check_against_reference(op, lhs, rhs, 0.09, 11);
        check_against_reference(op, lhs, QTensor(rhs.slice(0, 0, 1)), 0.09, 11);
      }
    }
  });
}

TEST_CASE("quantized::add: the number of threads does not change a code") {
  Generator generator(8);
  const QTensor lhs = test::random_codes({200001}, DType::QUInt8, 0.1, 7, generator);
  const QTensor rhs = test::random_codes({200001}, DType::QUInt8, 0.03, 4, generator);
  const test::Threads guard(1);
  const QTensor one = quantized::add(lhs, rhs, 0.11, 3);
  set_num_threads(3);
  const QTensor three = quantized::add(lhs, rhs, 0.11, 3);
  CHECK(one.equal(three));
}

TEST_CASE("quantized arithmetic: bad operands are refused by name") {
  const QTensor a = example_a();
  const QTensor other = quantize_per_tensor(Tensor::ones({10}), 0.1, 0, DType::QInt8);
  CHECK_THROWS_WITH_AS(
      quantized::add(a, other, 0.1, 0),
      doctest::Contains("quantized::add: rhs: expected QUInt8 as lhs has, got QInt8"),
      ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::mul(a, a, -0.1, 0),
                       doctest::Contains("quantized::mul: scale: expected"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::mul(a, a, 0.1, 300),
                       doctest::Contains("zero_point: expected 0..255 for QUInt8, got 300"),
                       ArgumentError);
  CHECK_THROWS_AS(quantized::add(a, QTensor(a.slice(0, 0, 3)), 0.1, 0), ArgumentError);
  const QTensor channels = quantize_per_channel(
      Tensor::ones({10}), Tensor::ones({10}), Tensor::zeros({10}, DType::Int64), 0, DType::QUInt8);
  CHECK_THROWS_WITH_AS(quantized::add(a, channels, 0.1, 0),
                       doctest::Contains("rhs: expected one scale and zero point"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::add(QTensor(), a, 0.1, 0), doctest::Contains("undefined"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::add_scalar(a, std::numeric_limits<double>::quiet_NaN()),
                       doctest::Contains("value: expected a finite number"), ArgumentError);
}

void check_scalar_example(const QTensor& got, double scale, std::int64_t zero_point,
                          const Codes& codes) {
  CHECK(got.q_scale() == doctest::Approx(scale).epsilon(1e-8));
  CHECK(got.q_zero_point() == zero_point);
  CHECK(codes_of(got) == codes);
}

TEST_CASE("quantized::add_scalar and mul_scalar: torch's printed examples") {
  const QTensor a = example_a();
  check_scalar_example(quantized::add_scalar(a, .37), .1, 6, codes_of(a));
  check_scalar_example(quantized::add_scalar(a, -3), .1, 40, codes_of(a));
  check_scalar_example(quantized::add_scalar(a, 30), .213725490, 0,
                       {136, 138, 140, 140, 140, 141, 141, 142, 150, 155});
  check_scalar_example(quantized::mul_scalar(a, .5), .05, 10, codes_of(a));
  check_scalar_example(quantized::mul_scalar(a, 0), 1.0, 0, Codes(10, 0));
  check_scalar_example(quantized::mul_scalar(a, -2), .2, 245,
                       {255, 251, 245, 245, 245, 243, 243, 241, 225, 213});
  CHECK_FALSE(quantized::add_scalar(a, .37).data_ptr() == a.data_ptr());
}

TEST_CASE("quantized::add_scalar_relu: no code is below the new zero point") {
  Generator generator(9);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    const QTensor x = test::random_codes({301}, dtype, 0.1, 10, generator);
    for (const double value : {-40.0, -0.3, 0.0, 0.3, 40.0}) {
      const QTensor plain = quantized::add_scalar(x, value);
      const QTensor relu = quantized::add_scalar_relu(x, value);
      Codes expected = codes_of(plain);
      for (std::int64_t& code : expected) code = std::max(code, plain.q_zero_point());
      CHECK(codes_of(relu) == expected);
      CHECK(relu.quantizer() == plain.quantizer());
      const QTensor scaled = quantized::mul_scalar_relu(x, value);
      const Codes scaled_codes = codes_of(scaled);
      CHECK(*std::min_element(scaled_codes.begin(), scaled_codes.end()) >= scaled.q_zero_point());
    }
  }
}

TEST_CASE("quantized::cat: torch's printed example and the first tensor's parameters") {
  const std::array<QTensor, 2> both = {example_a(), example_b()};
  CHECK(codes_of(quantized::cat(both, 0, .08, 30)) ==
        Codes{18, 22, 30, 30, 30, 32, 32, 35, 55, 70, 70, 54, 34, 33, 32, 31, 30, 29, 23, 14});
  const QTensor same = quantized::cat(both, 0);
  CHECK(same.q_scale() == 0.1);
  CHECK(codes_of(same.slice(0, 0, 10)) == codes_of(example_a()));
  const std::array<Tensor, 2> tensors = {both[0], both[1]};
  CHECK(cat(tensors, -1).equal(same));
  for (const std::int64_t code : codes_of(quantized::cat_relu(both, 0, .08, 30))) CHECK(code >= 30);
}

TEST_CASE("cat: layouts and dimensions give the parts back") {
  Generator generator(10);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    for (const Layout layout : test::kLayouts) {
      std::vector<QTensor> parts;
      for (int i = 0; i < 3; ++i) {
        parts.emplace_back(
            in_layout(i == 1 ? Layout::Contiguous : layout, 5, 3, 4, [&](const Dims& sizes) {
              return test::random_codes(sizes, dtype, 0.1 + 0.05 * (i % 2), i, generator);
            }));
      }
      for (std::int64_t dim = -4; dim < 4; ++dim) {
        const QTensor out = quantized::cat(parts, dim, 0.12, 5);
        std::int64_t start = 0;
        for (const QTensor& part : parts) {
          const std::int64_t length = part.size(dim);
          const Tensor got = out.narrow(dim < 0 ? dim + 4 : dim, start, length);
          CHECK(codes_of(got) == codes_of(quantize_per_tensor(dequantize(part), 0.12, 5, dtype)));
          start += length;
        }
      }
    }
  }
}

TEST_CASE("cat: plain tensors of any width are joined and empty ones skipped") {
  const Tensor a = Tensor::arange(6).reshape({2, 3});
  const Tensor b = Tensor::arange(4).reshape({2, 2});
  const std::array<Tensor, 3> tensors = {a, Tensor::empty({0}), b};
  CHECK(cat(tensors, 1).to_float_vector() == std::vector<float>{0, 1, 2, 0, 1, 3, 4, 5, 2, 3});
  const std::array<Tensor, 2> wide = {a.to(DType::Int64), b.to(DType::Int64)};
  CHECK(codes_of(cat(wide, 1)) == Codes{0, 1, 2, 0, 1, 3, 4, 5, 2, 3});
  const std::array<Tensor, 2> bytes = {a.t().to(DType::UInt8), b.t().to(DType::UInt8)};
  CHECK(codes_of(cat(bytes, 0)) == Codes{0, 3, 1, 4, 2, 5, 0, 2, 1, 3});
}

TEST_CASE("cat: bad tensors are refused by name") {
  CHECK_THROWS_WITH_AS(cat(std::span<const Tensor>{}, 0),
                       doctest::Contains("cat: tensors: expected at least one"), ArgumentError);
  const std::array<Tensor, 2> sizes = {Tensor::ones({2, 3}), Tensor::ones({3, 3})};
  CHECK_THROWS_WITH_AS(cat(sizes, 1), doctest::Contains("cat: tensors[1]: expected [2, 3]"),
                       ArgumentError);
  const std::array<Tensor, 2> dtypes = {Tensor::ones({2}), Tensor::ones({2}, DType::Int32)};
  CHECK_THROWS_WITH_AS(cat(dtypes, 0), doctest::Contains("expected Float32 as the first has"),
                       ArgumentError);
  CHECK_THROWS_AS(cat(sizes, 2), ArgumentError);
}

TEST_CASE("float arithmetic: broadcasting and layouts follow torch") {
  const Tensor a = Tensor::arange(6).reshape({2, 3});
  const Tensor b = Tensor::from_values({1, 2, 4});
  CHECK((a + b).to_float_vector() == std::vector<float>{1, 3, 6, 4, 6, 9});
  CHECK((b - a).to_float_vector() == std::vector<float>{1, 1, 2, -2, -2, -1});
  CHECK((a * b).to_float_vector() == std::vector<float>{0, 2, 8, 3, 8, 20});
  CHECK((a / b).to_float_vector() == std::vector<float>{0, .5F, .5F, 3, 2, 1.25F});
  CHECK(div(Tensor::scalar(6), b).to_float_vector() == std::vector<float>{6, 3, 1.5F});
  CHECK(add_relu(a, Tensor::scalar(-3)).to_float_vector() == std::vector<float>{0, 0, 0, 0, 1, 2});
  CHECK(add_scalar(a.t(), 1).to_float_vector() == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(mul_scalar(a.to(DType::Int64), 3).to_int64_vector() == Codes{0, 3, 6, 9, 12, 15});
  CHECK(sub(a.to(DType::Int32), a.to(DType::Int32)).to_int64_vector() == Codes(6, 0));
  CHECK(add(Tensor::empty({0, 3}), b).sizes() == Dims{0, 3});
}

TEST_CASE("float arithmetic: each instruction set and layout gives the element's own result") {
  Generator generator(11);
  for_each_target([&] {
    for (const Layout layout : test::kLayouts) {
      const Tensor a =
          in_layout(layout, 5, 3, 7, [&](const Dims& sizes) { return randn(sizes, generator); });
      for (const Dims& sizes : {Dims{2, 5, 3, 7}, Dims{5, 1, 1}, Dims{1}, Dims{7}}) {
        const Tensor b = randn(sizes, generator);
        const std::vector<float> x = a.to_float_vector();
        const std::vector<float> y = b.expand(a.sizes()).to_float_vector();
        const std::vector<float> sum = add(a, b).to_float_vector();
        const std::vector<float> difference = sub(b, a).to_float_vector();
        const std::vector<float> product = mul(b, a).to_float_vector();
        const std::vector<float> quotient = div(a, b).to_float_vector();
        for (std::size_t i = 0; i < x.size(); ++i) {
          REQUIRE(sum[i] == x[i] + y[i]);
          REQUIRE(difference[i] == y[i] - x[i]);
          REQUIRE(product[i] == y[i] * x[i]);
          REQUIRE(quotient[i] == x[i] / y[i]);
        }
      }
    }
  });
}

TEST_CASE("float arithmetic: a quantized operand is refused with what to do") {
  const QTensor q = example_a();
  const Tensor x = Tensor::ones({10});
  CHECK_THROWS_WITH_AS(q + x, doctest::Contains("add: lhs: expected a plain tensor"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(x * q,
                       doctest::Contains("use nn::FloatFunctional (prepare observes it and "
                                         "convert gives it a scale), or dequantize first"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(matmul(q, x), doctest::Contains("nn::FloatFunctional"), UnsupportedError);
  CHECK_THROWS_WITH_AS(add(x, Tensor::ones({10}, DType::Int32)),
                       doctest::Contains("add: rhs: expected Float32 as lhs has, got Int32"),
                       ArgumentError);
  CHECK_THROWS_AS(div(Tensor::ones({1}, DType::Int32), Tensor::ones({1}, DType::Int32)),
                  UnsupportedError);
  CHECK_THROWS_AS(add(x, Tensor::ones({3})), ArgumentError);
}

// Sums in double, for small whole numbers exact.
float dot(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.to_float_vector();
  const std::vector<float> y = b.to_float_vector();
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return static_cast<float>(sum);
}

TEST_CASE("bmm: batches of matrices are multiplied pairwise and nothing else is taken") {
  Generator generator(4);
  const Tensor a = randn({3, 2, 4}, generator);
  const Tensor b = randn({3, 4, 5}, generator);
  const Tensor product = bmm(a, b);
  CHECK(product.sizes() == Dims{3, 2, 5});
  CHECK(product.equal(matmul(a, b)));
  const QTensor qa = quantize_per_tensor(a, 0.05, 100, DType::QUInt8);
  const QTensor qb = quantize_per_tensor(b, 0.04, 90, DType::QUInt8);
  CHECK(quantized::bmm(qa, qb, 0.1, 128).equal(quantized::matmul(qa, qb, 0.1, 128)));
  CHECK_THROWS_WITH_AS(bmm(a[0], b), doctest::Contains("lhs: expected [B, M, K], got [2, 4]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(bmm(a.slice(0, 0, 1), b), doctest::Contains("rhs: expected [1, K, N]"),
                       ArgumentError);
}

TEST_CASE("matmul: vectors and batches follow torch's rules") {
  const auto numbers = [](const Dims& sizes) {
    return add_scalar(randint(0, 9, sizes, DType::Int64), -4).to(DType::Float32);
  };
  const Tensor v = numbers({4});
  const Tensor w = numbers({5});
  const Tensor m = numbers({5, 4});
  CHECK(matmul(v, v).sizes() == Dims{});
  CHECK(static_cast<float>(matmul(v, v).item()) == dot(v, v));
  CHECK(matmul(m, v).sizes() == Dims{5});
  CHECK(matmul(w, m).sizes() == Dims{4});
  CHECK(static_cast<float>(matmul(w, m)[2].item()) == dot(w, m.select(1, 2)));

  const Tensor batch = numbers({2, 1, 3, 5});
  const Tensor other = numbers({6, 4, 5}).transpose(1, 2);
  const Tensor out = matmul(batch, other);
  REQUIRE(out.sizes() == Dims{2, 6, 3, 4});
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t j = 0; j < 6; ++j) {
      for (std::int64_t r = 0; r < 3; ++r) {
        for (std::int64_t c = 0; c < 4; ++c) {
          REQUIRE(static_cast<float>(out[i][j][r][c].item()) ==
                  dot(batch[i][0][r], other[j].select(1, c)));
        }
      }
    }
  }
  CHECK(matmul(Tensor::ones({2, 0}), Tensor::ones({0, 3})).to_float_vector() ==
        std::vector<float>(6, 0.0F));
  CHECK(matmul(Tensor::ones({0, 2}), Tensor::ones({2, 3})).sizes() == Dims{0, 3});
  CHECK_THROWS_WITH_AS(matmul(m, w), doctest::Contains("matmul: rhs: expected 4 rows"),
                       ArgumentError);
  CHECK_THROWS_AS(matmul(Tensor::scalar(1), v), ArgumentError);
}

TEST_CASE("quantized::matmul: dequantizes and quantizes the float product") {
  Generator generator(12);
  const QTensor a = test::random_codes({3, 4}, DType::QUInt8, 0.1, 120, generator);
  const QTensor b = test::random_codes({4, 5}, DType::QUInt8, 0.2, 7, generator);
  CHECK(quantized::matmul(a, b, 0.5, 100)
            .equal(quantize_per_tensor(matmul(dequantize(a), dequantize(b)), 0.5, 100,
                                       DType::QUInt8)));
  const QTensor wide = test::random_codes({4, 4}, DType::QInt32, 0.2, 7, generator);
  CHECK_THROWS_AS(quantized::matmul(wide, wide, 0.5, 1), UnsupportedError);
}

}  // namespace
}  // namespace quanta
