#include "quanta/ops/shuffle.h"

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

}  // namespace

TEST_CASE("channel_shuffle: channels of the groups take turns") {
  for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
    const Tensor x = Tensor::arange(12).view({1, 6, 1, 2}).contiguous(format);
    const Tensor y = channel_shuffle(x, 2);
    CHECK(y.is_contiguous(format));
    CHECK(y.to_float_vector() == std::vector<float>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11});
    CHECK(channel_shuffle(y, 3).equal(x));
  }
}

TEST_CASE("pixel_shuffle: blocks of channels become pixels and back") {
  CHECK(pixel_shuffle(Tensor::arange(8).view({1, 4, 1, 2}), 2).to_float_vector() ==
        std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7});
  Generator generator(63);
  for (const Layout layout : kLayouts) {
    const Tensor x = in_layout(layout, 8, 3, 5, [&](const Dims& sizes) {
      return Tensor(random_codes(sizes, DType::QInt8, 0.1, 2, generator));
    });
    const Tensor y = pixel_shuffle(x, 2);
    CHECK(y.sizes() == Dims{2, 2, 6, 10});
    CHECK(y.suggested_format() == x.suggested_format());
    CHECK(pixel_unshuffle(y, 2).equal(x));
    CHECK(codes_of(y.select(2, 1).select(2, 0)) ==
          codes_of(x.slice(1, 2, 8, 4).select(2, 0).select(2, 0)));
  }
}

TEST_CASE("shuffles: sizes that do not divide are refused by name") {
  const Tensor x = Tensor::ones({1, 6, 3, 4});
  const auto refused = [](const char* text, auto&& call) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
  };
  refused("channel_shuffle: groups: expected a divisor of the 6 channels, got 4",
          [&] { channel_shuffle(x, 4); });
  refused("channel_shuffle: groups: expected 1..", [&] { channel_shuffle(x, 0); });
  refused("pixel_shuffle: x: expected a multiple of upscale_factor^2 = 4 channels, got 6",
          [&] { pixel_shuffle(x, 2); });
  refused("pixel_unshuffle: x: expected height and width divisible by 2",
          [&] { pixel_unshuffle(x, 2); });
}

}  // namespace quanta
