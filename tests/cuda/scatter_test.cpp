#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "devices_support.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "schedule_scope.h"
#include "support/on_device.h"

// Writing by index on the device: the last of a place stays, and what is combined follows in the
// CPU's order, to the last bit.

namespace quanta {
namespace {

using test::check_on_device;
using test::check_same_on_device;
using test::on_device;

constexpr DType kDTypes[] = {DType::Float32, DType::Float64, DType::UInt8,  DType::Int8,
                             DType::Int16,   DType::UInt16,  DType::Int32,  DType::Int64,
                             DType::Bool,    DType::Float16, DType::QUInt8, DType::QInt8,
                             DType::QInt32};
constexpr int kPlain = 9;  // that can be combined
constexpr ScatterReduce kReductions[] = {ScatterReduce::None, ScatterReduce::Add,
                                         ScatterReduce::Multiply, ScatterReduce::Minimum,
                                         ScatterReduce::Maximum};

Tensor random_elements(const Dims& sizes, DType dtype, Generator& generator) {
  const Tensor floats = randn(sizes, generator);
  float* const values = floats.mutable_data<float>();
  for (std::int64_t i = 0; i < floats.numel(); ++i) {
    const bool is_float = dtype == DType::Float32 || dtype == DType::Float64;
    if (!is_float) values[i] = static_cast<float>(generator.integer(0, 90));
    if (is_float && generator.integer(0, 50) == 0) {
      values[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  if (dtype == DType::QUInt8 || dtype == DType::QInt8 || dtype == DType::QInt32) {
    return quantize_per_tensor(floats, 0.9, dtype == DType::QUInt8 ? 3 : 0, dtype);
  }
  return floats.to(dtype);
}

Tensor random_positions(const Dims& sizes, std::int64_t low, std::int64_t length,
                        Generator& generator) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < product(sizes); ++i) {
    values.push_back(generator.integer(low, length - 1));
  }
  Tensor result = Tensor::from_int64(values).view(sizes);
  if (generator.integer(0, 1) == 0) result = result.to(DType::Int32);
  if (sizes.size() == 2 && generator.integer(0, 1) == 0) result = result.t().contiguous().t();
  return result;
}

Dims random_sizes(std::int64_t rank, Generator& generator) {
  Dims sizes;
  for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(generator.integer(1, 9));
  return sizes;
}

}  // namespace

TEST_CASE("scatter on a device: every dtype and reduction as on the CPU") {
  Generator generator(81);
  for (int round = 0; round < 130; ++round) {
    const DType dtype = kDTypes[round % 13];
    const Dims sizes = random_sizes(generator.integer(1, 4), generator);
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const std::int64_t dim = generator.integer(0, rank - 1);
    const std::int64_t length = sizes[static_cast<std::size_t>(dim)];
    Dims places;
    for (std::int64_t d = 0; d < rank; ++d) {
      places.push_back(generator.integer(1, d == dim ? 21 : sizes[static_cast<std::size_t>(d)]));
    }
    CAPTURE(round);
    const Tensor x = random_elements(sizes, dtype, generator);
    const Tensor index = random_positions(places, -length, length, generator);
    const Tensor source = random_elements(places, dtype, generator);
    const ScatterReduce reduce =
        round % 13 < kPlain ? kReductions[generator.integer(0, 4)] : ScatterReduce::None;
    check_on_device([&](const Tensor& a, const Tensor& b,
                        const Tensor& c) { return scatter(a, dim, b, c, reduce); },
                    x, index, source);
    check_on_device(
        [&](const Tensor& a, const Tensor& b, const Tensor& c) {
          const std::int64_t turned = dim == 0 ? rank - 1 : dim == rank - 1 ? 0 : dim;
          return scatter(a.transpose(0, -1), turned, b.transpose(0, -1), c.transpose(0, -1),
                         reduce);
        },
        x, index, source);
  }
}

TEST_CASE("scatter on a device: more updates than a tile holds") {
  Generator generator(82);
  const test::ScheduleScope schedule(cuda::emulation::Schedule::Greedy, 3);
  for (const std::int64_t updates : {2048, 2049, 5000}) {
    for (const ScatterReduce reduce : kReductions) {
      CAPTURE(updates);
      const Tensor x = random_elements({3, 40}, DType::Float32, generator);
      const Tensor index = random_positions({3, updates}, 0, 40, generator);
      const Tensor source = random_elements({3, updates}, DType::Float32, generator);
      check_on_device([&](const Tensor& a, const Tensor& b,
                          const Tensor& c) { return scatter(a, 1, b, c, reduce); },
                      x, index, source);
    }
  }
}

TEST_CASE("scatter_nd on a device: slices of every width") {
  Generator generator(83);
  for (int round = 0; round < 104; ++round) {
    const DType dtype = kDTypes[round % 13];
    Dims sizes = random_sizes(generator.integer(1, 3), generator);
    if (round % 2 == 0) sizes.push_back(8 * generator.integer(1, 4));
    const std::int64_t k = generator.integer(1, static_cast<std::int64_t>(sizes.size()));
    Dims rows = random_sizes(generator.integer(0, 2), generator);
    std::vector<Tensor> columns;
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t length = sizes[static_cast<std::size_t>(i)];
      columns.push_back(random_positions(rows, -length, length, generator).to(DType::Int64));
    }
    Dims index_sizes = rows;
    index_sizes.push_back(k);
    const Tensor index = Tensor::empty(index_sizes, DType::Int64);
    for (std::int64_t i = 0; i < k; ++i) {
      index.select(-1, i).copy_(columns[static_cast<std::size_t>(i)]);
    }
    for (std::size_t d = static_cast<std::size_t>(k); d < sizes.size(); ++d) {
      rows.push_back(sizes[d]);
    }
    CAPTURE(round);
    const Tensor x = random_elements(sizes, dtype, generator);
    const Tensor updates = random_elements(rows, dtype, generator);
    const ScatterReduce reduce = round % 13 < kPlain && round % 3 == 0
                                     ? kReductions[generator.integer(0, 4)]
                                     : ScatterReduce::None;
    check_on_device([&](const Tensor& a, const Tensor& b,
                        const Tensor& c) { return scatter_nd(a, b, c, reduce); },
                    x, index, updates);
  }
}

TEST_CASE("scatter_nd on a device: many slices for few places") {
  Generator generator(84);
  for (const ScatterReduce reduce : kReductions) {
    const Tensor x = random_elements({7, 3, 4}, DType::Float32, generator);
    const Tensor index = random_positions({2500, 1}, -7, 7, generator);
    const Tensor updates = random_elements({2500, 3, 4}, DType::Float32, generator);
    check_on_device([&](const Tensor& a, const Tensor& b,
                        const Tensor& c) { return scatter_nd(a, b, c, reduce); },
                    x, index, updates);
  }
}

TEST_CASE("index_put_ on a device: views and slices among index tensors") {
  Generator generator(85);
  for (int round = 0; round < 78; ++round) {
    const DType dtype = kDTypes[round % 13];
    CAPTURE(round);
    const Tensor x = random_elements({4, 5, 6, 8}, dtype, generator);
    const Tensor one = random_positions({3, 1}, -5, 5, generator);
    const Tensor other = random_positions({4}, -6, 6, generator);
    const std::int64_t start = generator.integer(0, 2);
    const auto put = [&](const Tensor& a, const Tensor& i, const Tensor& j, const Tensor& values,
                         int which) {
      const Tensor to = a.clone();
      const Tensor turned = to.transpose(1, 3);
      switch (which) {
        case 0:
          index_put_(to, {Slice{start, {}, 2}, i, j}, values);
          break;
        case 1:
          index_put_(to, {start, i.view({3}), Slice{}, Slice{0, 8, 2}}, values);
          break;
        case 2:
          index_put_(turned, {Slice{}, Slice{1, 5}, Ellipsis{}, i}, values);
          break;
        default:
          index_put_(to, {Ellipsis{}, j}, 7.0);
      }
      return to;
    };
    const Tensor value = random_elements({1}, DType::Float32, generator);
    const Tensor row = random_elements({8}, dtype, generator);
    check_on_device([&](const Tensor& a, const Tensor& i, const Tensor& j,
                        const Tensor& v) { return put(a, i, j, v, 0); },
                    x, one, other, row);
    for (int which = 1; which < 4; ++which) {
      check_on_device([&](const Tensor& a, const Tensor& i, const Tensor& j,
                          const Tensor& v) { return put(a, i, j, v, which); },
                      x, one, other, value);
    }
  }
}

TEST_CASE("index_put_ on a device: many values for few places and values of its own memory") {
  Generator generator(86);
  const Tensor x = random_elements({5, 4, 6}, DType::Float32, generator);
  const Tensor index = random_positions({3000}, -4, 4, generator);
  const Tensor values = random_elements({5, 3000, 6}, DType::Float32, generator);
  check_on_device(
      [](const Tensor& a, const Tensor& i, const Tensor& v) {
        const Tensor to = a.clone();
        index_put_(to, {Slice{}, i}, v);
        return to;
      },
      x, index, values);
  const Tensor turn = Tensor::from_int64(std::vector<std::int64_t>{4, 3, 2, 1, 0});
  check_on_device(
      [](const Tensor& a, const Tensor& i) {
        const Tensor to = a.clone();
        index_put_(to, {i}, to);
        return to;
      },
      x, turn);
}

TEST_CASE("scatter_cache on a device: starts for each batch and around the end") {
  Generator generator(87);
  for (int round = 0; round < 78; ++round) {
    const DType dtype = kDTypes[round % 13];
    Dims sizes = random_sizes(generator.integer(2, 4), generator);
    if (round % 2 == 0) sizes[sizes.size() - 1] *= 8;
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const std::int64_t dim = generator.integer(1, rank - 1);
    const std::int64_t length = sizes[static_cast<std::size_t>(dim)];
    const std::int64_t count = generator.integer(0, length);
    const bool circular = generator.integer(0, 1) == 0;
    Dims of_update = sizes;
    of_update[static_cast<std::size_t>(dim)] = count;
    CAPTURE(round);
    Tensor x = random_elements(sizes, dtype, generator);
    if (round % 3 == 0) x = x.transpose(0, -1).contiguous().transpose(0, -1);
    const Tensor update = random_elements(of_update, dtype, generator);
    Tensor start =
        random_positions({2 * sizes[0]}, 0, circular ? length : length - count + 1, generator);
    start = start.slice(0, 0, 2 * sizes[0], 2);
    if (round % 5 == 0) start = Tensor();
    const Tensor got = scatter_cache(on_device(x), on_device(update),
                                     start.defined() ? on_device(start) : start, dim, circular);
    check_same_on_device(got, scatter_cache(x, update, start, dim, circular));
  }
}

TEST_CASE("writing by index on a device: nothing is written for nothing") {
  const Tensor x = Tensor::ones({3, 4});
  const Tensor none = Tensor::empty({0, 4}, DType::Int64);
  check_on_device([](const Tensor& a, const Tensor& b,
                     const Tensor& c) { return scatter(a, 0, b, c, ScatterReduce::Add); },
                  x, none, Tensor::empty({0, 4}));
  check_on_device(
      [](const Tensor& a, const Tensor& b, const Tensor& c) { return scatter(a, 0, b, c); }, x,
      none, Tensor::empty({0, 4}));
  check_on_device(
      [](const Tensor& a, const Tensor& b, const Tensor& c) { return scatter_nd(a, b, c); }, x,
      Tensor::empty({0, 1}, DType::Int64), Tensor::empty({0, 4}));
}

TEST_CASE("writing by index on a device: one outside is the CPU's error and writes nothing") {
  const Tensor x = on_device(Tensor::ones({4, 6}));
  const auto positions = [](std::int64_t bad) {
    return on_device(Tensor::from_int64(std::vector<std::int64_t>{0, bad, 1}));
  };
  const Tensor three = on_device(Tensor::zeros({3, 1}));
  for (const std::int64_t bad : {std::int64_t{4}, std::int64_t{-5}, std::int64_t{1} << 40}) {
    CHECK_THROWS_WITH_AS(scatter(x, 0, positions(bad).view({3, 1}), three),
                         doctest::Contains("scatter: index: expected -4..3, got"), ArgumentError);
    CHECK_THROWS_WITH_AS(
        scatter_nd(x, positions(bad).view({3, 1}), on_device(Tensor::zeros({3, 6}))),
        doctest::Contains("scatter_nd: index: expected -4..3, got"), ArgumentError);
    CHECK_THROWS_WITH_AS(index_put_(x, {positions(bad)}, 0.0),
                         doctest::Contains("index_put_: indices: expected -4..3 along dim 0, got"),
                         ArgumentError);
  }
  CHECK(x.cpu().equal(Tensor::ones({4, 6})));
  const auto start = [](std::int64_t bad) {
    return on_device(Tensor::from_int64(std::vector<std::int64_t>{1, bad, 0, 0}));
  };
  const Tensor update = on_device(Tensor::zeros({4, 2}));
  for (const std::int64_t bad : {5, -1}) {
    CHECK_THROWS_WITH_AS(scatter_cache(x, update, start(bad), 1),
                         doctest::Contains("scatter_cache: start: expected 0..4, got"),
                         ArgumentError);
  }
  CHECK_THROWS_WITH_AS(scatter_cache(x, update, start(6), 1, true),
                       doctest::Contains("scatter_cache: start: expected 0..5, got 6"),
                       ArgumentError);
}

}  // namespace quanta
