#include "quanta/ops/pad.h"

#include <doctest/doctest.h>

#include <vector>

#include "elementwise_support.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::codes_of;
using test::in_layout;
using test::kLayouts;
using test::Layout;
using test::random_codes;

std::vector<float> padded_line(PadMode mode, const Dims& amounts) {
  return pad(Tensor::from_values({1, 2, 3}, {1, 1, 3}), amounts, mode).to_float_vector();
}

}  // namespace

TEST_CASE("pad: each mode continues a line as torch does") {
  CHECK(padded_line(PadMode::Constant, {2, 1}) == std::vector<float>{0, 0, 1, 2, 3, 0});
  CHECK(padded_line(PadMode::Reflect, {2, 1}) == std::vector<float>{3, 2, 1, 2, 3, 2});
  CHECK(padded_line(PadMode::Replicate, {2, 1}) == std::vector<float>{1, 1, 1, 2, 3, 3});
  CHECK(padded_line(PadMode::Circular, {2, 1}) == std::vector<float>{2, 3, 1, 2, 3, 1});
  CHECK(padded_line(PadMode::Constant, {-1, 1}) == std::vector<float>{2, 3, 0});
  CHECK(padded_line(PadMode::Reflect, {-1, 1}) == std::vector<float>{2, 3, 2});
  CHECK(padded_line(PadMode::Replicate, {-2, 0}) == std::vector<float>{3});
}

TEST_CASE("pad: a quantized constant is the code of the value and parameters stay") {
  Generator generator(61);
  for (const Layout layout : kLayouts) {
    const Tensor x = in_layout(layout, 3, 4, 5, [&](const Dims& sizes) {
      return Tensor(random_codes(sizes, DType::QUInt8, 0.1, 128, generator));
    });
    const Tensor y = pad(x, {1, 2, 0, 1}, PadMode::Constant, 1.26);
    CHECK(y.sizes() == Dims{2, 3, 5, 8});
    CHECK(y.suggested_format() == x.suggested_format());
    CHECK(y.as_quantized().q_scale() == 0.1);
    CHECK(codes_of(y.narrow(3, 1, 5).narrow(2, 0, 4)) == codes_of(x));
    for (const std::int64_t code : codes_of(y.select(3, 0))) CHECK(code == 141);
    for (const std::int64_t code : codes_of(y.select(2, 4))) CHECK(code == 141);
  }
}

TEST_CASE("pad: reflect takes the mirrored rows and columns in every layout") {
  Generator generator(62);
  for (const Layout layout : kLayouts) {
    const Tensor x =
        in_layout(layout, 3, 4, 5, [&](const Dims& sizes) { return randn(sizes, generator); });
    const Tensor y = pad(x, {2, 0, 0, 3}, PadMode::Reflect);
    CHECK(y.sizes() == Dims{2, 3, 7, 7});
    CHECK(y.suggested_format() == x.suggested_format());
    CHECK(y.narrow(3, 2, 5).narrow(2, 0, 4).equal(x));
    CHECK(y.select(3, 0).equal(y.select(3, 4)));
    CHECK(y.select(2, 6).equal(y.select(2, 0)));
  }
  CHECK(pad(Tensor::ones({3, 4}), {1, 1}, PadMode::Reflect).sizes() == Dims{3, 6});
  CHECK(pad(Tensor::ones({1, 2, 3, 3, 3}), {1, 1, 1, 1, 1, 1}, PadMode::Replicate).sizes() ==
        Dims{1, 2, 5, 5, 5});
}

TEST_CASE("pad: bad arguments are refused by name") {
  const Tensor x = Tensor::ones({1, 2, 3});
  const auto refused = [](const char* text, auto&& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
  };
  refused("pad: pad: expected two numbers", [&] { pad(x, {1}); });
  refused("pad: pad: expected two numbers", [&] { pad(x, {1, 1, 1, 1, 1, 1, 1, 1}); });
  refused("pad: pad: expected less than the size 3 for Reflect", [&] {
    pad(x, {3, 0}, PadMode::Reflect);
  });
  refused("pad: pad: expected at most the size 3 for Circular", [&] {
    pad(x, {4, 0}, PadMode::Circular);
  });
  refused("pad: pad: expected at most the size cut off", [&] { pad(x, {-2, -2}); });
  refused("pad: value: expected 0", [&] { pad(x, {1, 1}, PadMode::Reflect, 1.0); });
  refused("pad: x: expected 3 or 4 dimensions", [&] {
    pad(Tensor::ones({2, 2}), {1, 1, 1, 1}, PadMode::Reflect);
  });
}

}  // namespace quanta
