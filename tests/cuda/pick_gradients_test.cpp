#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "devices_support.h"
#include "quanta/ops/embedding.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/sort.h"
#include "quanta/runtime/random.h"

// Gradients of elements that were picked: added up where they came from in the CPU's order, to the
// last bit.

namespace quanta {
namespace {

using quantized::EmbeddingBagMode;
using test::check_devices;
using Inputs = std::vector<Tensor>;

constexpr DType kFloats[] = {DType::Float32, DType::Float64};

Tensor random(const Dims& sizes, DType dtype, Generator& generator) {
  return randn(sizes, generator).to(dtype);
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
  for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(generator.integer(1, 7));
  return sizes;
}

}  // namespace

TEST_CASE("cuda gradients: index_select and gather and take add in the CPU's order") {
  Generator generator(91);
  for (int round = 0; round < 40; ++round) {
    const Dims sizes = random_sizes(generator.integer(1, 4), generator);
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const std::int64_t dim = generator.integer(0, rank - 1);
    const std::int64_t length = sizes[static_cast<std::size_t>(dim)];
    Dims places;
    for (std::int64_t d = 0; d < rank; ++d) {
      places.push_back(generator.integer(1, d == dim ? 30 : sizes[static_cast<std::size_t>(d)]));
    }
    CAPTURE(round);
    const Tensor x = random(sizes, kFloats[round % 2], generator);
    check_devices({x, random_positions({29}, 0, length, generator)}, 1,
                  [&](const Inputs& in) { return index_select(in[0], dim, in[1]); });
    check_devices({x, random_positions(places, 0, length, generator)}, 1,
                  [&](const Inputs& in) { return gather(in[0], dim, in[1]); });
    check_devices({x, random_positions({3, 40}, -x.numel(), x.numel(), generator)}, 1,
                  [&](const Inputs& in) { return take(in[0], in[1]); });
  }
  const Tensor number = random({}, DType::Float32, generator);
  const Tensor zero = Tensor::zeros({}, DType::Int64);
  check_devices({number, zero}, 1, [](const Inputs& in) { return gather(in[0], 0, in[1]); });
  check_devices({number, zero}, 1, [](const Inputs& in) { return index_select(in[0], 0, in[1]); });
}

TEST_CASE("cuda gradients: thousands of picks of few places") {
  Generator generator(92);
  check_devices(
      {random({3, 5, 4}, DType::Float32, generator), random_positions({2100}, 0, 5, generator)}, 1,
      [](const Inputs& in) { return index_select(in[0], 1, in[1]); });
  check_devices({random({7}, DType::Float32, generator), random_positions({4200}, 0, 7, generator)},
                1, [](const Inputs& in) { return gather(in[0], 0, in[1]); });
  // What is smaller is summed up as Float32.
  check_devices(
      {random({7, 6}, DType::BFloat16, generator), random_positions({300}, 0, 7, generator)}, 1,
      [](const Inputs& in) { return index_select(in[0], 0, in[1]); });
}

TEST_CASE("cuda gradients: index with tensors among slices and numbers") {
  Generator generator(93);
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    const Tensor x = random({4, 5, 6, 3}, kFloats[round % 2], generator);
    const Tensor one = random_positions({7, 1}, -5, 5, generator);
    const Tensor other = random_positions({9}, -3, 3, generator);
    const auto check = [&](auto&& call) { check_devices({x, one, other}, 1, call); };
    check([](const Inputs& in) { return index(in[0], {Slice{}, in[1], Slice{1, 6, 2}, in[2]}); });
    check([](const Inputs& in) { return index(in[0], {Slice{}, in[1]}); });
    check([](const Inputs& in) { return index(in[0], {2, in[1], Ellipsis{}, in[2]}); });
    check([](const Inputs& in) { return index(in[0], {in[2], in[1]}); });
    check([](const Inputs& in) { return index(in[0], {Slice{}, Slice{}, in[1], in[2]}); });
    check([](const Inputs& in) { return index(in[0].transpose(0, 3), {in[2], NewAxis{}}); });
  }
}

TEST_CASE("cuda gradients: gather_nd with batches") {
  Generator generator(94);
  for (const std::int64_t batch : {0, 1, 2}) {
    for (const std::int64_t k : {1, 2}) {
      CAPTURE(batch);
      CAPTURE(k);
      Dims sizes;
      for (std::int64_t d = 0; d < batch; ++d) sizes.push_back(d + 2);
      sizes.push_back(11);
      sizes.push_back(k);
      const Tensor x = random({2, 3, 4, 5}, DType::Float32, generator);
      const Tensor index = random_positions(sizes, batch == 1 && k == 1 ? -3 : -2, 2, generator);
      check_devices({x, index}, 1,
                    [&](const Inputs& in) { return gather_nd(in[0], in[1], batch); });
    }
  }
  check_devices({random({3, 4}, DType::Float32, generator), Tensor::empty({0, 1}, DType::Int64)}, 1,
                [&](const Inputs& in) { return gather_nd(in[0], in[1]); });
}

TEST_CASE("cuda gradients: extremes and sort and topk along a dimension") {
  Generator generator(95);
  for (int round = 0; round < 16; ++round) {
    const Dims sizes = random_sizes(generator.integer(1, 4), generator);
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const std::int64_t dim = generator.integer(-rank, rank - 1);
    CAPTURE(round);
    const Tensor x = random(sizes, kFloats[round % 2], generator);
    check_devices({x}, 1,
                  [&](const Inputs& in) { return max(in[0], dim, {.keepdim = true}).values; });
    check_devices({x}, 1, [&](const Inputs& in) { return min(in[0], dim).values; });
    check_devices({x}, 1, [&](const Inputs& in) { return sort(in[0], {.dim = dim}).values; });
    check_devices({x}, 1, [&](const Inputs& in) { return topk(in[0], 1, {.dim = dim}).values; });
    check_devices({x}, 1, [](const Inputs& in) { return msort(in[0]); });
  }
}

TEST_CASE("cuda gradients: extremes of a whole tensor are shared by equal ones") {
  Generator generator(96);
  const Tensor x = random({3, 5}, DType::Float32, generator);
  x.mutable_data<float>()[2] = 5.0F;
  x.mutable_data<float>()[7] = 5.0F;
  check_devices({x}, 1, [](const Inputs& in) { return max(in[0]); });
  check_devices({x}, 1, [](const Inputs& in) { return min(in[0]); });
}

TEST_CASE("cuda gradients: padding by elements of the tensor") {
  Generator generator(97);
  const Tensor x = random({2, 3, 5, 4}, DType::Float32, generator);
  for (const PadMode mode : {PadMode::Reflect, PadMode::Replicate, PadMode::Circular}) {
    check_devices({x}, 1, [&](const Inputs& in) { return pad(in[0], {1, 2, 3, 0}, mode); });
  }
}

TEST_CASE("cuda gradients: embeddings") {
  Generator generator(98);
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    const std::int64_t columns = generator.integer(1, 48);
    const Tensor table = random({9, columns}, kFloats[round % 2], generator);
    const Tensor indices = random_positions({generator.integer(1, 8), 31}, 0, 9, generator);
    const std::optional<std::int64_t> padding =
        round % 3 == 0 ? std::optional<std::int64_t>(4) : std::nullopt;
    check_devices({table, indices}, 1,
                  [&](const Inputs& in) { return embedding(in[0], in[1], padding); });
  }
}

TEST_CASE("cuda gradients: bags of every mode") {
  Generator generator(99);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const DType dtype = kFloats[round % 2];
    const std::int64_t columns = generator.integer(1, 20);
    constexpr EmbeddingBagMode kModes[] = {EmbeddingBagMode::Sum, EmbeddingBagMode::Mean,
                                           EmbeddingBagMode::Max};
    const EmbeddingBagMode mode = kModes[round % 3];
    const Tensor table = random({7, columns}, dtype, generator);
    if (round % 4 == 0) {
      // Equal ones, of which the first has all, and NaN.
      table.select(0, 1).copy_(table.select(0, 2));
      table.select(0, 3).select(0, 0).fill_(std::numeric_limits<double>::quiet_NaN());
    }
    const std::int64_t count = generator.integer(1, 60);
    const bool has_last = generator.integer(0, 1) == 0;
    Tensor offsets;
    Tensor indices = random_positions({count}, 0, 7, generator);
    if (round % 5 == 0) {
      indices = random_positions({4, count}, 0, 7, generator);
    } else {
      std::vector<std::int64_t> begins{0};
      for (int b = 0; b < 9; ++b) {
        begins.push_back(std::min(count, begins.back() + generator.integer(0, 7)));
      }
      offsets = Tensor::from_int64(begins);
      if (round % 2 == 0) offsets = offsets.to(DType::Int32);
    }
    const bool is_weighted = mode == EmbeddingBagMode::Sum && round % 2 == 0;
    const Tensor weights = is_weighted ? random(indices.sizes(), dtype, generator) : Tensor();
    const std::optional<std::int64_t> padding =
        generator.integer(0, 1) == 0 ? std::optional<std::int64_t>(2) : std::nullopt;
    check_devices({table, indices, offsets, weights}, is_weighted ? 0b1001 : 1,
                  [&](const Inputs& in) {
                    return embedding_bag(in[0], in[1],
                                         {.offsets = in[2],
                                          .mode = mode,
                                          .per_sample_weights = in[3],
                                          .include_last_offset = has_last && in[2].defined(),
                                          .padding_idx = padding});
                  });
  }
}

}  // namespace quanta
