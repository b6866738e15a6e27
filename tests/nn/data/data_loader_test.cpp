#include "quanta/nn/data/data_loader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace {

using namespace quanta;
using data::DataLoader;
using data::DataLoaderOptions;

std::shared_ptr<const data::TensorDataset> numbers(std::int64_t count) {
  return std::make_shared<data::TensorDataset>(Tensor::arange(count).reshape({count, 1, 1, 1}),
                                               Tensor::arange(count, DType::Int64));
}

using Epoch = std::vector<std::vector<std::int64_t>>;

Epoch targets_of(DataLoader& loader) {
  Epoch epoch;
  for (const data::Batch& batch : loader) epoch.push_back(batch.target.to_int64_vector());
  return epoch;
}

std::vector<std::int64_t> flat(const Epoch& epoch) {
  std::vector<std::int64_t> result;
  for (const auto& batch : epoch) result.insert(result.end(), batch.begin(), batch.end());
  return result;
}

// Fails at one item.
struct Faulty : data::Dataset {
  std::int64_t size() const override { return 8; }
  data::Example item(std::int64_t index) const override {
    if (index == 5) throw FileError("item 5 cannot be read");
    return {Tensor::zeros({2})};
  }
};

}  // namespace

TEST_CASE("DataLoader: without shuffling the batches come in order") {
  for (const std::int64_t prefetch : {0, 1, 3}) {
    DataLoader loader(numbers(7), {.batch_size = 3, .prefetch = prefetch});
    CHECK(loader.size() == 3);
    CHECK(targets_of(loader) == Epoch{{0, 1, 2}, {3, 4, 5}, {6}});
    CHECK(loader.epochs_done() == 1);
    DataLoader dropping(numbers(7), {.batch_size = 3, .drop_last = true, .prefetch = prefetch});
    CHECK(targets_of(dropping) == Epoch{{0, 1, 2}, {3, 4, 5}});
  }
}

TEST_CASE("DataLoader: a batch has the items' sizes behind a new dimension") {
  DataLoader loader(numbers(5), {.batch_size = 5});
  const auto batch = loader.begin();
  CHECK(batch->input.sizes() == Dims{5, 1, 1, 1});
  CHECK(batch->input.dtype() == DType::Float32);
  CHECK(batch->target.sizes() == Dims{5});
  CHECK(batch->target.dtype() == DType::Int64);
  DataLoader unlabelled(std::make_shared<data::TensorDataset>(Tensor::zeros({2, 3})),
                        {.batch_size = 2});
  CHECK_FALSE(unlabelled.begin()->target.defined());
}

TEST_CASE("DataLoader: shuffled epochs hold every example once and differ") {
  DataLoader loader(numbers(50), {.batch_size = 8, .shuffle = true, .seed = 3});
  const std::vector<std::int64_t> first = flat(targets_of(loader));
  const std::vector<std::int64_t> second = flat(targets_of(loader));
  CHECK(first != second);
  for (std::vector<std::int64_t> epoch : {first, second}) {
    std::sort(epoch.begin(), epoch.end());
    for (std::int64_t i = 0; i < 50; ++i) CHECK(epoch[static_cast<std::size_t>(i)] == i);
  }
}

TEST_CASE("DataLoader: the same seed gives the same epochs however far it reads ahead") {
  const data::Transform transform = data::random_shift(1, -1.0);
  const auto all = [&](std::int64_t prefetch) {
    DataLoader loader(
        std::make_shared<data::TensorDataset>(Tensor::arange(90).reshape({10, 1, 3, 3})),
        {.batch_size = 4,
         .shuffle = true,
         .prefetch = prefetch,
         .transform = transform,
         .seed = 9});
    std::vector<float> values;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const data::Batch& batch : loader) {
        const std::vector<float> more = batch.input.to_float_vector();
        values.insert(values.end(), more.begin(), more.end());
      }
    }
    return values;
  };
  CHECK(all(0) == all(4));
  manual_seed(4);
  DataLoader a(numbers(20), {.batch_size = 20, .shuffle = true});
  const Epoch first = targets_of(a);
  manual_seed(4);
  DataLoader b(numbers(20), {.batch_size = 20, .shuffle = true});
  CHECK(targets_of(b) == first);
}

TEST_CASE("DataLoader: a loader that was stopped goes on with the same batches") {
  const DataLoaderOptions options{
      .batch_size = 4, .shuffle = true, .transform = data::random_shift(1)};
  manual_seed(1);
  DataLoader whole(numbers(18), options);
  Epoch expected = targets_of(whole);
  const Epoch next = targets_of(whole);
  expected.insert(expected.end(), next.begin(), next.end());

  for (std::size_t stop = 1; stop <= 9; ++stop) {
    manual_seed(1);
    DataLoader first(numbers(18), options);
    Epoch seen;
    DataLoader::Position position;
    std::string generator;
    while (seen.size() < stop) {
      for (const data::Batch& batch : first) {
        seen.push_back(batch.target.to_int64_vector());
        position = first.position();
        generator = default_generator().state();
        if (seen.size() == stop) break;
      }
    }
    manual_seed(99);
    default_generator().set_state(generator);
    DataLoader second(numbers(18), options);
    second.set_position(position);
    while (second.epochs_done() < 2) {
      for (const data::Batch& batch : second) seen.push_back(batch.target.to_int64_vector());
    }
    CHECK(seen == expected);
  }
}

TEST_CASE("DataLoader: leaving an epoch early ends it") {
  DataLoader loader(numbers(100), {.batch_size = 1, .prefetch = 4});
  for (const data::Batch& batch : loader) {
    if (batch.target.item() == 3.0) break;
  }
  CHECK(loader.epochs_done() == 0);
  CHECK(loader.begin()->target.item() == 0.0);
  CHECK(loader.epochs_done() == 1);
}

TEST_CASE("DataLoader: what an item throws comes out of the loop after the batches before it") {
  for (const std::int64_t prefetch : {0, 2}) {
    DataLoader loader(std::make_shared<Faulty>(), {.batch_size = 2, .prefetch = prefetch});
    int batches = 0;
    const auto run = [&] {
      for ([[maybe_unused]] const data::Batch& batch : loader) ++batches;
    };
    CHECK_THROWS_WITH_AS(run(), "item 5 cannot be read", FileError);
    CHECK(batches == 2);
  }
}

TEST_CASE("DataLoader: examples that do not fit together are refused") {
  struct Uneven : data::Dataset {
    std::int64_t size() const override { return 2; }
    data::Example item(std::int64_t index) const override { return {Tensor::zeros({index + 1})}; }
  };
  DataLoader loader(std::make_shared<Uneven>(), {.batch_size = 2});
  CHECK_THROWS_WITH_AS(loader.begin(),
                       doctest::Contains("input: expected Float32 [1] as of the first example in "
                                         "the batch, got Float32 [2]"),
                       ArgumentError);
}

TEST_CASE("DataLoader: shards share every batch of an epoch") {
  const data::Transform noise = [](const Tensor& x, Generator& generator) {
    return add(x.to(DType::Float32), Tensor::scalar(generator.uniform()));
  };
  for (const std::int64_t prefetch : {0, 2}) {
    for (const std::int64_t count : {1, 2, 3, 5, 9}) {
      DataLoaderOptions options{
          .batch_size = 8, .shuffle = true, .prefetch = prefetch, .transform = noise, .seed = 7};
      DataLoader whole(numbers(27), options);
      std::vector<std::unique_ptr<DataLoader>> shards;
      for (std::int64_t i = 0; i < count; ++i) {
        options.shard = {.index = i, .count = count};
        shards.push_back(std::make_unique<DataLoader>(numbers(27), options));
        CHECK(shards.back()->size() == whole.size());
      }
      for (int epoch = 0; epoch < 2; ++epoch) {
        std::vector<DataLoader::Iterator> parts;
        for (const auto& shard : shards) parts.push_back(shard->begin());
        for (const data::Batch& batch : whole) {
          std::int64_t at = 0;
          for (DataLoader::Iterator& part : parts) {
            REQUIRE(part != shards.front()->end());
            const std::int64_t n = part->input.size(0);
            CHECK(n >= batch.input.size(0) / count);
            CHECK(n <= (batch.input.size(0) + count - 1) / count);
            CHECK(part->target.size(0) == n);
            CHECK(part->input.sizes() == Dims{n, 1, 1, 1});
            CHECK(part->input.equal(batch.input.narrow(0, at, n)));
            CHECK(part->target.equal(batch.target.narrow(0, at, n)));
            at += n;
            ++part;
          }
          CHECK(at == batch.input.size(0));
        }
      }
    }
  }
}

TEST_CASE("DataLoader: shards that cannot be are refused") {
  const auto make = [](DataLoaderOptions options) { DataLoader(numbers(3), std::move(options)); };
  CHECK_THROWS_AS(make({.shard = {.index = 0, .count = 0}}), ArgumentError);
  CHECK_THROWS_AS(make({.shard = {.index = 2, .count = 2}}), ArgumentError);
  CHECK_THROWS_AS(make({.shard = {.index = -1, .count = 2}}), ArgumentError);
  CHECK_THROWS_WITH_AS(make({.shuffle = true, .shard = {.index = 1, .count = 2}}),
                       doctest::Contains("DataLoader: seed: expected one"), ArgumentError);
  make({.shard = {.index = 1, .count = 2}});
}

TEST_CASE("whole_batches: every batch is one shard's, in order") {
  for (const std::int64_t size : {0, 1, 7, 8, 9, 64}) {
    for (const std::int64_t batch : {1, 3, 8, 100}) {
      for (const std::int64_t count : {1, 2, 3, 7}) {
        std::vector<std::int64_t> seen;
        for (std::int64_t i = 0; i < count; ++i) {
          const auto shard = data::whole_batches(numbers(size), batch, i, count);
          const bool ends = seen.size() + static_cast<std::size_t>(shard->size()) ==
                            static_cast<std::size_t>(size);
          CHECK((shard->size() % batch == 0 || ends));
          for (std::int64_t j = 0; j < shard->size(); ++j) {
            seen.push_back(shard->item(j).target.to_int64_vector().front());
          }
        }
        CHECK(seen == Tensor::arange(size, DType::Int64).to_int64_vector());
      }
    }
  }
  CHECK_THROWS_AS(data::whole_batches(nullptr, 1, 0, 1), ArgumentError);
  CHECK_THROWS_AS(data::whole_batches(numbers(3), 0, 0, 1), ArgumentError);
  CHECK_THROWS_AS(data::whole_batches(numbers(3), 1, 1, 1), ArgumentError);
  CHECK_THROWS_AS(data::whole_batches(numbers(3), 1, 0, 0), ArgumentError);
}

TEST_CASE("DataLoader: wrong options and positions are refused") {
  CHECK_THROWS_AS(DataLoader(nullptr, {}), ArgumentError);
  CHECK_THROWS_AS(DataLoader(numbers(3), {.batch_size = 0}), ArgumentError);
  CHECK_THROWS_AS(DataLoader(numbers(3), {.prefetch = -1}), ArgumentError);
  CHECK_THROWS_AS(DataLoader(numbers(0), {}), ArgumentError);
  CHECK_THROWS_WITH_AS(DataLoader(numbers(3), {.batch_size = 4, .drop_last = true}),
                       doctest::Contains("at least one batch, got 3 examples, batch_size 4"),
                       ArgumentError);
  DataLoader loader(numbers(3), {});
  CHECK_THROWS_AS(loader.set_position({.batch = 4}), ArgumentError);
  CHECK_THROWS_AS(loader.set_position({.epoch = -1}), ArgumentError);
  CHECK_THROWS_AS(loader.set_position({.seed = ~std::uint64_t{0}}), ArgumentError);
}

TEST_CASE("TensorDataset and Subset: items and what is refused") {
  const auto all = numbers(5);
  const data::Subset some(all, 2, 3);
  CHECK(some.size() == 3);
  CHECK(some.item(0).target.item() == 2.0);
  CHECK_THROWS_AS(some.item(3), ArgumentError);
  CHECK_THROWS_AS(all->item(-1), ArgumentError);
  CHECK_THROWS_AS(data::Subset(all, 3, 3), ArgumentError);
  CHECK_THROWS_AS(data::Subset(nullptr, 0, 0), ArgumentError);
  CHECK_THROWS_AS(data::TensorDataset(Tensor::zeros({3}), Tensor::zeros({2})), ArgumentError);
  CHECK_THROWS_AS(data::TensorDataset(Tensor::scalar(1.0)), ArgumentError);
}

TEST_CASE("transforms: normalize scales codes to 0..1 first") {
  Generator generator;
  const data::Transform transform = data::normalize({0.5F, 0.25F}, {0.5F, 0.25F});
  const Tensor codes = Tensor::full({2, 1, 1}, 255.0, DType::UInt8);
  CHECK(transform(codes, generator).to_float_vector() == std::vector<float>{1.0F, 3.0F});
  CHECK(transform(Tensor::zeros({2, 1, 1}), generator).to_float_vector() ==
        std::vector<float>{-1.0F, -1.0F});
  CHECK_THROWS_AS(transform(Tensor::zeros({3, 1, 1}), generator), ArgumentError);
  CHECK_THROWS_AS(transform(Tensor::zeros({2, 1, 1}, DType::Int32), generator), ArgumentError);
  CHECK_THROWS_AS(data::normalize({0.0F}, {0.0F}), ArgumentError);
  CHECK_THROWS_AS(data::normalize({0.0F}, {1.0F, 1.0F}), ArgumentError);
}

TEST_CASE("transforms: random_shift moves the picture and fills what comes in") {
  Generator generator(5);
  const Tensor x = Tensor::arange(24).reshape({2, 3, 4});
  const std::vector<float> from = x.to_float_vector();
  for (int round = 0; round < 50; ++round) {
    const Tensor y = data::random_shift(4, -1.0)(x, generator);
    const std::vector<float> values = y.to_float_vector();
    REQUIRE(y.sizes() == x.sizes());
    // One shift explains all elements.
    int explained = 0;
    for (int down = -4; down <= 4; ++down) {
      for (int right = -4; right <= 4; ++right) {
        bool fits = true;
        for (int i = 0; i < 24; ++i) {
          const int row = i / 4 % 3 - down;
          const int column = i % 4 - right;
          const bool inside = row >= 0 && row < 3 && column >= 0 && column < 4;
          const float want =
              inside ? from[static_cast<std::size_t>(i / 12 * 12 + row * 4 + column)] : -1.0F;
          fits = fits && values[static_cast<std::size_t>(i)] == want;
        }
        explained += fits ? 1 : 0;
      }
    }
    CHECK(explained >= 1);
  }
}

TEST_CASE("transforms: random_horizontal_flip mirrors rows") {
  Generator generator(5);
  const Tensor x = Tensor::arange(6).reshape({1, 2, 3});
  const auto flipped = data::random_horizontal_flip(1.0)(x, generator).to_float_vector();
  CHECK(flipped == std::vector<float>{2.0F, 1.0F, 0.0F, 5.0F, 4.0F, 3.0F});
  CHECK(data::random_horizontal_flip(0.0)(x, generator).equal(x));
  CHECK_THROWS_AS(data::random_horizontal_flip(1.5), ArgumentError);
  CHECK_THROWS_AS(data::random_shift(-1), ArgumentError);
  CHECK_THROWS_AS(data::random_shift(1)(Tensor::zeros({2, 2}), generator), ArgumentError);
}

TEST_CASE("transforms: resize and compose") {
  Generator generator;
  const Tensor codes = Tensor::full({3, 4, 6}, 77.0, DType::UInt8);
  const data::Transform both =
      data::compose({data::resize(8, 3), data::normalize({0.0F, 0.0F, 0.0F}, {1.0F, 1.0F, 1.0F})});
  const Tensor small = data::resize(8, 3)(codes, generator);
  CHECK(small.sizes() == Dims{3, 8, 3});
  CHECK(small.dtype() == DType::UInt8);
  CHECK(small.equal(Tensor::full({3, 8, 3}, 77.0, DType::UInt8)));
  CHECK(both(codes, generator).to_float_vector().front() == doctest::Approx(77.0 / 255.0));
  CHECK_THROWS_AS(data::resize(0, 1), ArgumentError);
}
