// Views as Transpose, Reshape, Slice, Expand and Gather: the steps give the view's elements.

#include "quanta/fusion/graph/detail/view_steps.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "quanta/ops/indexing.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/tensor.h"

namespace quanta::graph::detail {
namespace {

Layout layout_of(const Tensor& x) {
  return {.sizes = x.sizes(), .strides = x.strides(), .offset = x.storage_offset()};
}

Tensor apply(const ViewStep& step, const Tensor& x) {
  switch (step.kind) {
    case ViewStep::Kind::Transpose:
      return x.permute(Dims(step.numbers));
    case ViewStep::Kind::Reshape:
      return x.reshape(Dims(step.numbers));
    case ViewStep::Kind::Expand:
      return x.expand(Dims(step.numbers));
    case ViewStep::Kind::Slice: {
      Tensor y = x;
      for (std::size_t d = 0; d < step.numbers.size(); ++d) {
        y = y.slice(static_cast<std::int64_t>(d), step.numbers[d], step.ends[d], step.steps[d]);
      }
      return y;
    }
    case ViewStep::Kind::Gather:
      return index_select(x, 0, Tensor::from_int64(step.numbers)).reshape(step.sizes);
  }
  return {};
}

Tensor made_of(const Tensor& base, const Tensor& view, std::string* kinds = nullptr) {
  Tensor y = base;
  for (const ViewStep& step : view_steps(layout_of(base), layout_of(view))) {
    y = apply(step, y);
    CHECK(y.sizes() == step.sizes);
    if (kinds != nullptr) *kinds += "TRSEG"[static_cast<std::size_t>(step.kind)];
  }
  return y;
}

std::string kinds_of(const Tensor& base, const Tensor& view) {
  std::string kinds;
  const Tensor made = made_of(base, view, &kinds);
  CHECK(made.sizes() == view.sizes());
  CHECK(made.contiguous().equal(view.contiguous()));
  return kinds;
}

Tensor numbers(const Dims& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return Tensor::arange(count).reshape(sizes);
}

}  // namespace

TEST_CASE("views that networks take become the operators that one would write") {
  const Tensor x = numbers({2, 6, 4, 3});
  CHECK(kinds_of(x, x).empty());
  CHECK(kinds_of(x, x.reshape({2, 72})) == "R");
  CHECK(kinds_of(x, x.permute({0, 2, 3, 1})) == "T");
  CHECK(kinds_of(x, x.narrow(1, 2, 3)) == "S");
  CHECK(kinds_of(x, x.slice(2, 1, 4, 2)) == "S");
  CHECK(kinds_of(x, x.select(1, 3)) == "SR");
  CHECK(kinds_of(x, x.unsqueeze(0)) == "R");
  const Tensor row = numbers({1, 5});
  CHECK(kinds_of(row, row.expand({4, 5})) == "E");
  // Heads of attention.
  const Tensor y = numbers({2, 5, 12});
  CHECK(kinds_of(y, y.reshape({2, 5, 3, 4}).transpose(1, 2)) == "RT");
  // Queries, keys and values out of one product.
  const Tensor qkv = numbers({2, 5, 36});
  CHECK(kinds_of(qkv, qkv.reshape({2, 5, 3, 3, 4}).permute({2, 0, 3, 1, 4}).select(0, 1)) == "RST");
}

TEST_CASE("a tensor that lies channels-last is taken apart in the order of memory") {
  const Tensor x = numbers({2, 6, 4, 3}).contiguous(MemoryFormat::ChannelsLast);
  CHECK(kinds_of(x, x.permute({0, 2, 3, 1})) == "T");
  CHECK(kinds_of(x, x.permute({0, 2, 3, 1}).reshape({2, 12, 6})) == "TR");
  CHECK(kinds_of(x, x.narrow(1, 1, 2)) == "S");
}

TEST_CASE("windows that overlap are gathered") {
  const Tensor x = numbers({2, 8});
  CHECK(kinds_of(x, unfold(x, 1, 3, 2)) == "RG");
}

TEST_CASE("chains of views give the view's elements") {
  std::mt19937_64 random(5);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 400; ++round) {
    Dims sizes;
    const std::int64_t rank = 1 + below(4);
    for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(1 + below(6));
    Tensor base = numbers(sizes);
    if (rank == 4 && below(2) == 0) base = base.contiguous(MemoryFormat::ChannelsLast);
    Tensor view = base;
    const std::int64_t length = below(5);
    for (std::int64_t i = 0; i < length && view.dim() > 0; ++i) {
      const std::int64_t d = below(view.dim());
      switch (below(6)) {
        case 0:
          view = view.transpose(d, below(view.dim()));
          break;
        case 1: {
          const std::int64_t begin = below(view.size(d));
          view = view.slice(d, begin, view.size(d), 1 + below(2));
          break;
        }
        case 2:
          view = view.select(d, below(view.size(d)));
          break;
        case 3:
          if (view.dim() < 6) view = view.unsqueeze(d);
          break;
        case 4:
          if (view.size(d) % 2 == 0 && view.dim() < 6) {
            Dims split = view.sizes();
            split[static_cast<std::size_t>(d)] /= 2;
            split.insert(static_cast<std::size_t>(d) + 1, 2);
            // A split is always a view.
            view = view.reshape(split);
          }
          break;
        default:
          if (view.size(d) == 1) {
            Dims wide = view.sizes();
            wide[static_cast<std::size_t>(d)] = 3;
            view = view.expand(wide);
          }
      }
    }
    CAPTURE(round);
    CAPTURE(base.sizes());
    CAPTURE(view.sizes());
    const Tensor made = made_of(base, view);
    REQUIRE(made.sizes() == view.sizes());
    REQUIRE(made.contiguous().equal(view.contiguous()));
  }
}

}  // namespace quanta::graph::detail
