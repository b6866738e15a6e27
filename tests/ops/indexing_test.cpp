#include "quanta/ops/indexing.h"

#include <doctest/doctest.h>

#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/compare.h"
#include "quanta/runtime/error.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using test::codes_of;
using test::in_layout;
using test::iota;
using test::kLayouts;
using test::Layout;
using test::random_codes;
using Codes = std::vector<std::int64_t>;

Tensor positions(const Codes& values) { return Tensor::from_int64(values); }

QTensor per_channel(const Dims& sizes, std::int64_t axis) {
  const std::int64_t channels = sizes[static_cast<std::size_t>(axis)];
  const auto count = static_cast<std::size_t>(channels);
  std::vector<double> scales(count, 0.5);
  scales[0] = 0.25;
  return QTensor::from_int_repr(iota(sizes).to(DType::Int8),
                                Quantizer::per_channel(scales, Codes(count, 1), axis));
}

template <typename Call>
void refused(const char* text, const Call& call) {
  CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
}

template <typename Call>
void unsupported(const char* text, const Call& call) {
  CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), UnsupportedError);
}

}  // namespace

TEST_CASE("indexing: the examples of torch's documentation") {
  const Tensor x = Tensor::from_values({1, 2, 3, 4}, {2, 2});
  CHECK(gather(x, 1, positions({0, 0, 1, 0}).view({2, 2})).to_float_vector() ==
        std::vector<float>{1, 1, 4, 3});
  const Tensor y = Tensor::from_values({4, 3, 5, 6, 7, 8}, {2, 3});
  CHECK(take(y, positions({0, 2, 5})).to_float_vector() == std::vector<float>{4, 5, 8});
  CHECK(take(y, positions({-1})).to_float_vector() == std::vector<float>{8});
  CHECK(index_select(y, 1, positions({0, 2})).to_float_vector() == std::vector<float>{4, 5, 6, 8});
  CHECK(nonzero(Tensor::from_values({0.6F, 0, 0, 0, 0, 0.4F, 0, 0, 0}, {3, 3})).to_int64_vector() ==
        Codes{0, 0, 1, 2});
}

TEST_CASE("index_select and gather: agree with index arithmetic in any layout") {
  Generator generator(41);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    for (const Layout layout : kLayouts) {
      const QTensor x(in_layout(layout, 5, 3, 4, [&](const Dims& sizes) {
        return Tensor(random_codes(sizes, dtype, 0.05, 1, generator));
      }));
      const Codes codes = codes_of(x);
      for (std::int64_t dim = 0; dim < 4; ++dim) {
        const Tensor chosen = randint(0, x.size(dim), {6}, DType::Int64, generator);
        const QTensor selected(index_select(x, dim - 4, chosen.to(DType::Int32)));
        CHECK(selected.quantizer() == x.quantizer());
        for (std::int64_t i = 0; i < 6; ++i) {
          CHECK(selected.select(dim, i).equal(
              x.select(dim, chosen.to_int64_vector()[static_cast<std::size_t>(i)])));
        }
        Dims sizes{2, 4, 2, 3};
        sizes[static_cast<std::size_t>(dim)] = 7;
        const Tensor at = randint(0, x.size(dim), sizes, DType::Int64, generator);
        const Codes where_from = at.to_int64_vector();
        const Codes gathered = codes_of(gather(x, dim, at));
        for (std::size_t flat = 0; flat < gathered.size(); ++flat) {
          std::int64_t rest = static_cast<std::int64_t>(flat);
          std::int64_t offset = 0;
          std::int64_t step = 1;
          for (std::size_t d = 4; d-- > 0;) {
            const std::int64_t i = rest % sizes[d];
            rest /= sizes[d];
            offset += (static_cast<std::int64_t>(d) == dim ? where_from[flat] : i) * step;
            step *= x.sizes()[d];
          }
          REQUIRE(gathered[flat] == codes[static_cast<std::size_t>(offset)]);
        }
      }
    }
  }
}

TEST_CASE("index: slices and integers are views that follow the channel axis") {
  const Tensor x = iota({2, 3, 4, 5});
  const Tensor part = index(x, {Slice{}, 0, Slice{1, 3}});
  CHECK(part.equal(x.select(1, 0).slice(1, 1, 3)));
  CHECK(part.data_ptr() != x.data_ptr());
  CHECK(part.storage() == x.storage());
  CHECK(index(x, {Ellipsis{}, Slice{.step = 2}}).equal(x.slice(3, 0, 5, 2)));
  CHECK(index(x, {NewAxis{}, -1, Ellipsis{}, 0}).equal(x.select(0, 1).select(2, 0).unsqueeze(0)));
  CHECK(index(x, {}).equal(x));
  const QTensor q(index(per_channel({2, 3, 4}, 1), {1, Slice{1, {}}}));
  CHECK(q.q_per_channel_axis() == 0);
  CHECK(q.q_per_channel_scales().numel() == 2);
  const QTensor one(index(per_channel({2, 3, 4}, 1), {Slice{}, Slice{0, 1}}));
  CHECK(one.qscheme() == QScheme::PerTensorAffine);
  CHECK(one.q_scale() == 0.25);
}

TEST_CASE("index: index tensors take the place that numpy gives them") {
  const Tensor x = iota({4, 3, 5});
  const Tensor rows = positions({3, -4});
  const Tensor columns = positions({0, 2, 1, 1}).view({2, 2});
  CHECK(index(x, {rows}).equal(index_select(x, 0, positions({3, 0}))));
  CHECK(index(x, {Slice{}, columns}).sizes() == Dims{4, 2, 2, 5});
  CHECK(index(x, {Slice{}, columns}).select(1, 1).select(1, 0).equal(x.select(1, 1)));
  CHECK(index(x, {rows, columns}).sizes() == Dims{2, 2, 5});
  CHECK(index(x, {rows, columns}).select(0, 0).select(0, 1).equal(x.select(0, 0).select(0, 2)));
  // Not neighbours: to the front.
  CHECK(index(x, {rows, Slice{}, positions({4, 2})}).sizes() == Dims{2, 3});
  CHECK(
      index(x, {rows, Slice{}, positions({4, 2})}).select(0, 1).equal(x.select(0, 0).select(1, 2)));
  CHECK(index(x, {0, Slice{}, positions({4, 2})}).sizes() == Dims{3, 2});
  // A mask over the first two dimensions.
  const Tensor mask = gt(x.select(2, 0), 30.0);
  const Tensor masked = index(x, {mask});
  CHECK(masked.sizes() == Dims{5, 5});
  CHECK(masked.select(0, 0).equal(x.select(0, 2).select(0, 1)));
  CHECK(index(x, {positions({})}).sizes() == Dims{0, 3, 5});
}

TEST_CASE("index and index_put_: quantized elements agree with plain ones") {
  Generator generator(42);
  for (const Layout layout : kLayouts) {
    const QTensor x(in_layout(layout, 5, 3, 4, [&](const Dims& sizes) {
      return Tensor(random_codes(sizes, DType::QUInt8, 0.1, 128, generator));
    }));
    const std::vector<TensorIndex> indices{Slice{}, positions({4, 0, 2}), Slice{1, {}},
                                           positions({0, -1, 0})};
    const QTensor picked(index(x, indices));
    CHECK(picked.quantizer() == x.quantizer());
    CHECK(codes_of(picked) == index(x.int_repr_view(), indices).to_int64_vector());
    if (layout == Layout::Expanded) continue;
    const QTensor codes_before(x.clone());
    index_put_(x, indices, Tensor::full({3, 1, 1}, 1.26));
    CHECK(codes_of(index(x, indices)) == Codes(static_cast<std::size_t>(picked.numel()), 141));
    index_put_(x, indices, picked);
    CHECK(x.equal(codes_before));
  }
  const Tensor y = Tensor::zeros({3});
  index_put_(y, {positions({1, 1, 0})}, Tensor::from_values({1, 2, 3}));
  CHECK(y.to_float_vector() == std::vector<float>{3, 2, 0});
  index_put_(y, {gt(y, 2.5)}, -1.0);
  CHECK(y.to_float_vector() == std::vector<float>{-1, 2, 0});
  index_put_(y, {Slice{1, {}}}, y.slice(0, 0, 2));
  CHECK(y.to_float_vector() == std::vector<float>{-1, -1, 2});
}

TEST_CASE("masked_fill: stores the value's code where the mask holds") {
  Generator generator(43);
  for (const DType dtype : {DType::QUInt8, DType::QInt8, DType::QInt32}) {
    for (const Layout layout : kLayouts) {
      const QTensor x(in_layout(layout, 5, 3, 4, [&](const Dims& sizes) {
        return Tensor(random_codes(sizes, dtype, 0.1, 3, generator));
      }));
      const Codes before = codes_of(x);
      const Tensor mask = gt(randn({5, 1, 4}, generator), 0.0);
      const QTensor filled(masked_fill(x, mask, 0.55));
      CHECK(codes_of(x) == before);
      CHECK(filled.quantizer() == x.quantizer());
      const Codes chosen = mask.expand({2, 5, 3, 4}).to_int64_vector();
      for (std::size_t i = 0; i < before.size(); ++i) {
        // 0.55 * float32(1 / 0.1) is 5.5, which rounds to the even 6.
        REQUIRE(codes_of(filled)[i] == (chosen[i] != 0 ? 9 : before[i]));
      }
      if (layout == Layout::Expanded) {
        refused("masked_fill_: x: expected elements that do not share memory",
                [&] { masked_fill_(x, mask, 1.0); });
        continue;
      }
      CHECK(masked_fill_(x, mask, 0.55).equal(filled));
    }
  }
  CHECK(masked_fill(Tensor::zeros({3}), Tensor::ones({2, 1}, DType::Bool), 1.0).sizes() ==
        Dims{2, 3});
}

TEST_CASE("in-place ops: overlapping views are refused and sources may overlap") {
  const Tensor x = iota({8});
  const Tensor windows = iota({7}).as_strided({3, 3}, {1, 2}, 0);
  refused(
      "copy_: x: expected elements that do not share memory (clone an expanded view first), "
      "got sizes [3, 3] with strides [1, 2]",
      [&] {
        windows.copy_(Tensor::ones({3, 3}));
      });
  refused("index_put_: x: expected elements that do not share memory",
          [&] { index_put_(Tensor::zeros({1}).expand({3}), {0}, 1.0); });
  // Strides that look entangled but reach six different elements.
  x.as_strided({3, 2}, {2, 3}, 0).copy_(Tensor::ones({3, 2}));
  CHECK(x.to_float_vector() == std::vector<float>{1, 1, 1, 1, 1, 1, 6, 1});
  const Tensor y = iota({6});
  y.slice(0, 1, 6).copy_(y.slice(0, 0, 5));
  CHECK(y.to_float_vector() == std::vector<float>{0, 0, 1, 2, 3, 4});
}

TEST_CASE("indexing: what it cannot do is refused by name") {
  const Tensor x = iota({2, 3});
  refused("index_select: index: expected 0..2, got -1",
          [&] { index_select(x, 1, positions({-1})); });
  refused("index_select: index: expected at most 1 dimension, got [1, 1]", [&] {
    index_select(x, 1, positions({0}).view({1, 1}));
  });
  refused("index_select: index: expected Int64 or Int32, got Float32",
          [&] { index_select(x, 1, x); });
  refused("gather: index: expected sizes up to [2, 3] but along dim 0, got [1, 4]", [&] {
    gather(x, 0, positions({0, 0, 0, 0}).view({1, 4}));
  });
  refused("gather: index: expected 2 dimensions as x has, got [1]",
          [&] { gather(x, 0, positions({0})); });
  refused("take: index: expected -6..5, got 6", [&] { take(x, positions({6})); });
  refused("index: indices: expected at most 2 for [2, 3], got 3", [&] { index(x, {0, 0, 0}); });
  refused("index: indices: expected -2..1 along dim 0, got 2", [&] { index(x, {positions({2})}); });
  refused("index: indices: expected a mask of size 2 along dim 0, got [3]",
          [&] { index(x, {Tensor::ones({3}, DType::Bool)}); });
  refused("index_put_: values: expected sizes that broadcast to [3], got [2]",
          [&] { index_put_(x, {0}, Tensor::ones({2})); });
  refused("masked_fill_: mask: expected Bool, got Float32", [&] { masked_fill_(x, x, 0.0); });
  refused("masked_fill_: mask: expected sizes that broadcast to [2, 3], got [2, 2, 3]", [&] {
    masked_fill_(x, Tensor::ones({2, 2, 3}, DType::Bool), 0.0);
  });
  const QTensor q = QTensor::empty({2, 3}, 0.1, 0, DType::QInt8);
  refused("index_put_: values: expected Float32, or QInt8 with scale 0.1 and zero_point 0",
          [&] { index_put_(q, {0}, QTensor::empty({3}, 0.2, 0, DType::QInt8)); });
  refused("index_put_: values: expected a plain tensor for Float32, got QInt8",
          [&] { index_put_(x, {0}, q.select(0, 0)); });
  const QTensor channels = per_channel({2, 3}, 0);
  unsupported(
      "index_select: x: expected one scale and zero point (PerTensorAffine), got "
      "PerChannelAffine",
      [&] { index_select(channels, 0, positions({0})); });
  unsupported("index: x: expected one scale", [&] { index(channels, {positions({0})}); });
  unsupported("masked_fill_: x: expected one scale",
              [&] { masked_fill_(channels, Tensor::ones({3}, DType::Bool), 0.0); });
  unsupported("nonzero: x: expected a plain tensor", [&] { nonzero(q); });
}

}  // namespace quanta
