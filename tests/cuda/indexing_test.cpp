#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "quanta/ops/indexing.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/test_device.h"

// Picking elements and masks: on the device as on the CPU, for every dtype of whole bytes.

namespace quanta {
namespace {

const Device kDevice = test::test_device();

constexpr DType kDTypes[] = {DType::Float32,      DType::Float64, DType::Float16, DType::BFloat16,
                             DType::Float8E4M3FN, DType::UInt8,   DType::Int8,    DType::Int16,
                             DType::UInt16,       DType::Int32,   DType::Int64,   DType::Bool,
                             DType::QUInt8,       DType::QInt8,   DType::QInt32};

// Small numbers of any dtype; now and then a transposed or a stepped view.
Tensor random_elements(const Dims& sizes, DType dtype, Generator& generator) {
  Dims stored = sizes;
  const std::int64_t layout = sizes.empty() ? 0 : generator.integer(0, 2);
  const auto last = static_cast<std::int64_t>(sizes.size()) - 1;
  if (layout == 1) std::swap(stored[0], stored[sizes.size() - 1]);
  if (layout == 2) stored[sizes.size() - 1] *= 2;
  const Tensor floats = randn(stored, generator);
  for (std::int64_t i = 0; i < floats.numel(); ++i) {
    floats.mutable_data<float>()[i] = static_cast<float>(generator.integer(0, 90));
  }
  Tensor x = dtype == DType::QUInt8 || dtype == DType::QInt8 || dtype == DType::QInt32
                 ? Tensor(quantize_per_tensor(floats, 0.9, dtype == DType::QUInt8 ? 3 : 0, dtype))
                 : floats.to(dtype);
  if (layout == 1) x = x.transpose(0, last);
  if (layout == 2) x = x.slice(last, 0, stored[sizes.size() - 1], 2);
  return x;
}

Dims random_sizes(std::int64_t rank, Generator& generator) {
  Dims sizes;
  for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(generator.integer(1, 9));
  return sizes;
}

Tensor random_positions(const Dims& sizes, std::int64_t low, std::int64_t length,
                        Generator& generator) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < product(sizes); ++i) {
    values.push_back(generator.integer(low, length - 1));
  }
  Tensor result = Tensor::from_int64(values).view(sizes);
  if (generator.integer(0, 1) == 0) result = result.to(DType::Int32);
  if (sizes.size() == 2 && generator.integer(0, 1) == 0) {
    result = result.t().contiguous().t();
  }
  return result;
}

Tensor random_mask(const Dims& sizes, Generator& generator) {
  return random_positions(sizes, 0, 2, generator).to(DType::Bool);
}

Tensor there(const Tensor& x) { return x.to(kDevice); }

void check_same(const Tensor& got, const Tensor& want) {
  CHECK(got.device() == kDevice);
  CHECK(got.strides() == want.strides());
  CHECK(got.cpu().equal(want));
}

}  // namespace

TEST_CASE("index_select and gather and take on a device: the CPU's elements") {
  Generator generator(61);
  for (int round = 0; round < 90; ++round) {
    const DType dtype = kDTypes[round % 15];
    const Dims sizes = random_sizes(generator.integer(1, 4), generator);
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const std::int64_t dim = generator.integer(0, rank - 1);
    const std::int64_t length = sizes[static_cast<std::size_t>(dim)];
    CAPTURE(round);
    const Tensor x = random_elements(sizes, dtype, generator);
    const Tensor line = random_positions({generator.integer(1, 11)}, 0, length, generator);
    check_same(index_select(there(x), dim, there(line)), index_select(x, dim, line));

    Dims places;
    for (std::int64_t d = 0; d < rank; ++d) {
      places.push_back(generator.integer(1, d == dim ? 11 : sizes[static_cast<std::size_t>(d)]));
    }
    const Tensor index = random_positions(places, 0, length, generator);
    check_same(gather(there(x), dim, there(index)), gather(x, dim, index));

    const Tensor any = random_positions({3, 4}, -x.numel(), x.numel(), generator);
    check_same(take(there(x), there(any)), take(x, any));
  }
}

TEST_CASE("index_select on a device: tensors without dimensions and pieces of 16 bytes") {
  Generator generator(62);
  const Tensor number = Tensor::scalar(3.0);
  const Tensor zero = Tensor::from_int64(std::vector<std::int64_t>{0});
  check_same(index_select(there(number), 0, there(zero)), index_select(number, 0, zero));
  check_same(index_select(there(number), 0, there(zero.view({}))),
             index_select(number, 0, zero.view({})));
  check_same(gather(there(number), 0, there(zero.view({}))), gather(number, 0, zero.view({})));
  for (const std::int64_t width : {16, 24, 32, 40, 48, 20, 7}) {
    const Tensor x = random_elements({5, width}, DType::UInt8, generator).contiguous();
    const Tensor line = random_positions({9}, 0, 5, generator);
    check_same(index_select(there(x), 0, there(line)), index_select(x, 0, line));
    const Tensor across = random_positions({9}, 0, width, generator);
    check_same(index_select(there(x), 1, there(across)), index_select(x, 1, across));
  }
}

TEST_CASE("indices on a device: one outside is the CPU's error") {
  Generator generator(63);
  const Tensor x = there(randn({4, 6}, generator));
  const auto positions = [](std::int64_t bad) {
    return there(Tensor::from_int64(std::vector<std::int64_t>{0, bad, 1}));
  };
  for (const std::int64_t bad : {std::int64_t{4}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    CHECK_THROWS_WITH_AS(index_select(x, 0, positions(bad)),
                         doctest::Contains("index_select: index: expected 0..3, got"),
                         ArgumentError);
    CHECK_THROWS_WITH_AS(gather(x, 0, positions(bad).view({3, 1})),
                         doctest::Contains("gather: index: expected 0..3, got"), ArgumentError);
  }
  CHECK_THROWS_WITH_AS(take(x, positions(24)), doctest::Contains("expected -24..23, got 24"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(take(x, positions(-25)), doctest::Contains("expected -24..23, got -25"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(index(x, {Slice{}, positions(6)}),
                       doctest::Contains("index: indices: expected -6..5 along dim 1, got 6"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(gather_nd(x, positions(4).view({3, 1})),
                       doctest::Contains("gather_nd: index: expected -4..3, got 4"), ArgumentError);
  // Nothing can be picked from nothing.
  CHECK_THROWS_AS(index_select(there(Tensor::empty({0, 6})), 0, positions(0)), ArgumentError);
}

TEST_CASE("index on a device: index tensors among slices and numbers and new axes") {
  Generator generator(64);
  for (int round = 0; round < 45; ++round) {
    const DType dtype = kDTypes[round % 15];
    const Tensor x = random_elements({4, 5, 6, 3}, dtype, generator);
    CAPTURE(round);
    const auto picked = [&](const Dims& sizes, std::int64_t length) {
      return random_positions(sizes, -length, length, generator);
    };
    const auto check = [&](const std::vector<TensorIndex>& entries) {
      std::vector<TensorIndex> on_device = entries;
      for (TensorIndex& entry : on_device) {
        if (Tensor* tensor = std::get_if<Tensor>(&entry)) entry = there(*tensor);
      }
      check_same(index(there(x), on_device), index(x, entries));
    };
    check({picked({7}, 4)});
    check({Slice{}, picked({2, 3}, 5)});
    check({picked({3, 1}, 4), picked({2}, 5)});
    check({picked({3}, 4), Slice{1, 4}, picked({2, 3}, 6)});
    check({Ellipsis{}, picked({4}, 6), std::int64_t{1}});
    check({Slice{0, 4, 2}, NewAxis{}, picked({2}, 5), picked({1}, 6), picked({2}, 3)});
  }
}

TEST_CASE("gather_nd on a device: rows of numbers and batches") {
  Generator generator(65);
  for (int round = 0; round < 30; ++round) {
    const DType dtype = kDTypes[round % 15];
    const Tensor x = random_elements({3, 4, 5}, dtype, generator);
    CAPTURE(round);
    for (std::int64_t k = 1; k <= 3; ++k) {
      const Tensor index = random_positions({2, 3, k}, -3, 3, generator);
      check_same(gather_nd(there(x), there(index)), gather_nd(x, index));
    }
    const Tensor index = random_positions({3, 2, 1}, -4, 4, generator);
    check_same(gather_nd(there(x), there(index), 1), gather_nd(x, index, 1));
  }
}

TEST_CASE("masked_fill on a device: masks that broadcast and masks that are larger") {
  Generator generator(66);
  for (int round = 0; round < 45; ++round) {
    const DType dtype = kDTypes[round % 15];
    const Dims sizes{3, 4, 5};
    const Dims few = round % 2 == 0 ? Dims{4, 1} : Dims{3, 1, 5};
    CAPTURE(round);
    const Tensor x = random_elements(sizes, dtype, generator);
    const Tensor mask = random_mask(round % 5 == 0 ? few : sizes, generator);
    check_same(masked_fill(there(x), there(mask), 1.0), masked_fill(x, mask, 1.0));
    const Tensor small = random_elements({5}, dtype, generator);
    check_same(masked_fill(there(small), there(mask), 2.0), masked_fill(small, mask, 2.0));

    const Tensor changed = x.clone();
    const Tensor on_device = there(changed);
    masked_fill_(on_device, there(mask), 1.0);
    masked_fill_(changed, mask, 1.0);
    CHECK(on_device.cpu().equal(changed));
  }
  const Tensor nan = masked_fill(there(Tensor::ones({3})), there(Tensor::ones({3}, DType::Bool)),
                                 -std::numeric_limits<double>::infinity());
  CHECK(nan.cpu().to_float_vector() ==
        std::vector<float>(3, -std::numeric_limits<float>::infinity()));
}

TEST_CASE("masked_fill_ on a device: a mask that is the tensor itself") {
  const Tensor x = Tensor::from_int64(std::vector<std::int64_t>{1, 0, 1}).to(DType::Bool);
  const Tensor on_device = there(x);
  masked_fill_(on_device, on_device, 0.0);
  CHECK(on_device.cpu().equal(Tensor::zeros({3}, DType::Bool)));
}

TEST_CASE("one_hot and wrap_indices on a device: the CPU's numbers") {
  Generator generator(67);
  for (const DType dtype : kDTypes) {
    if (is_quantized(dtype)) continue;
    const Tensor values = random_elements({2}, dtype, generator);
    const Tensor index = random_positions({3, 5}, -8, 8, generator);
    for (std::int64_t dim = -3; dim < 3; ++dim) {
      check_same(one_hot(there(index), 6, there(values), dim), one_hot(index, 6, values, dim));
    }
  }
  const Tensor index = random_positions({3, 5}, -8, 8, generator);
  check_same(wrap_indices(there(index), 8), wrap_indices(index, 8));
}

}  // namespace quanta
