#include <array>
#include <vector>

#include "gradients_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/interpolate.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/shuffle.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::check_float32;
using test::check_gradient;
using test::check_gradients;
using test::Inputs;
using test::leaf;
using test::Order;

Tensor indices(std::initializer_list<std::int64_t> values, const Dims& sizes) {
  return Tensor::from_int64({values.begin(), values.size()}).view(sizes);
}

}  // namespace

TEST_CASE("gradients of cat and stack agree with finite differences") {
  for (const std::int64_t dim : {0, 1, -1}) {
    check_gradients([&](Inputs inputs) { return cat(inputs, dim); },
                    {leaf({2, 3, 4}, 1), leaf({2, 3, 4}, 2), leaf({2, 3, 4}, 3)});
    check_gradients([&](Inputs inputs) { return stack(inputs, dim); },
                    {leaf({2, 3}, 1), leaf({2, 3}, 2)});
  }
  check_gradients([](Inputs inputs) { return cat(inputs, 1); },
                  {leaf({2, 3}, 1), leaf({2, 1}, 2).detach(), leaf({2, 2}, 3), leaf({0}, 4)});
  check_float32([](Inputs inputs) { return cat(inputs, 1); },
                {leaf({2, 3, 4, 4}, 1), leaf({2, 5, 4, 4}, 2)}, Order::ChannelsLast);
}

TEST_CASE("gradients of parts agree with finite differences") {
  const Tensor x = leaf({5, 4, 3});
  check_gradient([](const Tensor& v) { return chunk(v, 2)[1]; }, x);
  check_gradient([](const Tensor& v) { return split(v, 3, 1)[0]; }, x);
  check_gradient([](const Tensor& v) { return split_with_sizes(v, {1, 3}, 1)[1]; }, x);
  check_gradient([](const Tensor& v) { return unbind(v, 2)[1]; }, x);
  check_gradient([](const Tensor& v) { return cat(chunk(v, 2), 1); }, leaf({4, 3}));
}

TEST_CASE("gradients of flip and repeat and unfold agree with finite differences") {
  const Tensor x = leaf({3, 4, 2});
  check_gradient([](const Tensor& v) { return flip(v, {0, -1}); }, x);
  check_gradient([](const Tensor& v) { return repeat(v, {2, 1, 3}); }, x);
  check_gradient([](const Tensor& v) { return repeat(v, {2, 3, 1, 1, 2}); }, x);
  check_gradient([](const Tensor& v) { return repeat(v, {4}); }, leaf({}));
  check_gradient([](const Tensor& v) { return unfold(v, 1, 3, 1); }, x);
  check_gradient([](const Tensor& v) { return unfold(v, 0, 2, 1); }, leaf({7}));
  check_gradient([](const Tensor& v) { return unfold(v, 0, 2, 3); }, leaf({7, 2}));
}

TEST_CASE("gradients of padding agree with finite differences") {
  const Tensor x = leaf({2, 3, 4, 5});
  check_gradient([](const Tensor& v) { return pad(v, {1, 2, 3, 0}, PadMode::Constant, 7.0); }, x);
  check_gradient([](const Tensor& v) { return pad(v, {-1, 2, 1, -2}); }, x);
  for (const PadMode mode : {PadMode::Reflect, PadMode::Replicate, PadMode::Circular}) {
    check_gradient([&](const Tensor& v) { return pad(v, {1, 2, 3, 0}, mode); }, x);
    check_gradient([&](const Tensor& v) { return pad(v, {2, 2}, mode); }, leaf({3, 4}));
    check_float32(
        [&](Inputs in) {
          return pad(in[0], {1, 2, 3, 0}, mode);
        },
        {x}, Order::ChannelsLast);
  }
}

TEST_CASE("gradients of shuffles agree with finite differences") {
  const Tensor x = leaf({2, 8, 4, 6});
  check_gradient([](const Tensor& v) { return channel_shuffle(v, 4); }, x);
  check_gradient([](const Tensor& v) { return pixel_shuffle(v, 2); }, x);
  check_gradient([](const Tensor& v) { return pixel_unshuffle(v, 2); }, x);
  check_float32([](Inputs in) { return channel_shuffle(in[0], 2); }, {x}, Order::ChannelsLast);
}

TEST_CASE("gradients of picked elements agree with finite differences") {
  const Tensor x = leaf({4, 3, 5});
  const Tensor rows = indices({2, 0, 2, 3}, {4});
  check_gradient([&](const Tensor& v) { return index_select(v, 0, rows); }, x);
  check_gradient([&](const Tensor& v) { return index_select(v, 2, rows); }, x);
  check_gradient([&](const Tensor& v) { return take(v, indices({5, -1, 5, 59}, {2, 2})); }, x);
  check_gradient(
      [&](const Tensor& v) {
        return gather(v, 1, indices({2, 0, 2, 1}, {1, 2, 2}));
      },
      x);
  check_gradient([&](const Tensor& v) { return index(v, {rows, Slice{}, rows}); }, x);
  check_gradient(
      [&](const Tensor& v) {
        return index(v, {Slice{1, 4}, indices({0, 2, 2}, {3})});
      },
      x);
  check_gradient([&](const Tensor& v) { return index(v, {Ellipsis{}, std::int64_t{2}}); }, x);
  const Tensor mask = gt(leaf({4, 3}, 5).detach(), 0.0);
  check_gradient([&](const Tensor& v) { return index(v, {mask}); }, x);
  check_gradient([&](const Tensor& v) { return index(v, {NewAxis{}, rows, NewAxis{}}); }, x);
}

TEST_CASE("gradients of interpolation agree with finite differences") {
  struct Case {
    Dims sizes;
    InterpolateMode mode;
  };
  const std::vector<Case> cases{
      {{2, 3, 5}, InterpolateMode::Nearest},         {{2, 3, 5}, InterpolateMode::Linear},
      {{2, 3, 4, 5}, InterpolateMode::NearestExact}, {{2, 3, 4, 5}, InterpolateMode::Bilinear},
      {{1, 2, 3, 2, 4}, InterpolateMode::Nearest},   {{1, 2, 3, 2, 4}, InterpolateMode::Trilinear}};
  for (const auto& [sizes, mode] : cases) {
    for (const double factor : {0.7, 1.0, 1.8}) {
      const bool linear = mode != InterpolateMode::Nearest && mode != InterpolateMode::NearestExact;
      for (const bool align_corners : {false, true}) {
        if (align_corners && !linear) continue;
        InterpolateOptions options;
        options.scale_factor = {factor};
        options.mode = mode;
        options.align_corners = align_corners;
        check_gradient([&](const Tensor& v) { return interpolate(v, options); }, leaf(sizes));
        for (const Order order : {Order::Contiguous, Order::ChannelsLast}) {
          check_float32([&](Inputs in) { return interpolate(in[0], options); }, {leaf(sizes)},
                        order);
        }
      }
    }
  }
}

TEST_CASE("index_put_: values that require a gradient are refused") {
  const Tensor x = Tensor::zeros({3});
  const Tensor values = Tensor::ones({3}).set_requires_grad();
  CHECK_THROWS_WITH_AS(
      index_put_(x, {Slice{}}, values),
      doctest::Contains("index_put_: x: expected tensors that require no gradient"),
      UnsupportedError);
  x.set_requires_grad();
  CHECK_THROWS_WITH_AS(index_put_(x, {Slice{}}, 1.0),
                       doctest::Contains("index_put_: x: expected a tensor that requires no"),
                       ArgumentError);
  CHECK_THROWS_AS(masked_fill_(x, Tensor::zeros({3}, DType::Bool), 1.0), ArgumentError);
  CHECK_THROWS_AS(resize_(x, {2}), ArgumentError);
}

}  // namespace quanta
