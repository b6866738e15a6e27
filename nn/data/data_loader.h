#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>

#include "quanta/nn/data/dataset.h"
#include "quanta/nn/data/transforms.h"

namespace quanta::data {

/// Input [N, ...] and target [N, ...] of N examples.
using Batch = Example;

/// One of several loaders that share every batch: number `index` of `count`.
struct Shard {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  bool shuffle = false;
  /// Leaves out the last batch of an epoch when it is not full.
  bool drop_last = false;
  /// How many batches a thread makes ahead; with 0 each is made when it is asked for.
  std::int64_t prefetch = 2;
  /// Applied to each input before they are put together.
  Transform transform{};
  /// Makes all epochs the same in every run; without it each epoch draws from default_generator().
  std::optional<std::uint64_t> seed{};
  /// Gives out a part of each batch: the examples from batch_size * index / count on, in the order
  /// that all loaders of one seed have, with the same transforms. So all of them together see every
  /// example once an epoch, and a batch is the same one for any number of them. Where a batch has
  /// fewer examples than there are shards, some get a part with none: tensors of size 0 along the
  /// first dimension. With `shuffle` or `transform` several shards need a seed.
  Shard shard{};
};

/// Goes through a data set in batches, one epoch each time:
///
///   data::DataLoader loader(dataset, {.batch_size = 128, .shuffle = true});
///   while (loader.epochs_done() < 5) {
///     for (const data::Batch& batch : loader) step(batch.input, batch.target);
///   }
///
/// What reading an item or a transform throws comes out of the loop. For one thread at a time.
class DataLoader {
 public:
  /// Throws ArgumentError: no data set, batch_size < 1, prefetch < 0, not a single batch, a shard
  /// that is none of its count, or several without the seed that they need.
  DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options);

  /// How many batches an epoch has; the same for all shards.
  std::int64_t size() const noexcept { return batches_; }
  const DataLoaderOptions& options() const noexcept { return options_; }

  /// Where it stands, for a training that goes on later: plain numbers to save.
  struct Position {
    std::int64_t epoch = 0;
    std::uint64_t seed = 0;  ///< gives this epoch's order and transforms; below 2^63
    std::int64_t batch = 0;  ///< batches of the epoch that were given out
    bool operator==(const Position&) const = default;
  };
  Position position() const noexcept { return position_; }
  /// The next loop goes on there, with the same batches. Throws ArgumentError for numbers that do
  /// not fit this loader.
  void set_position(const Position& position);
  /// Epochs whose last batch was given out, those that were left early included once the next
  /// one has begun.
  std::int64_t epochs_done() const noexcept {
    return position_.epoch + (position_.batch == batches_ ? 1 : 0);
  }

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;

    const Batch& operator*() const { return batch_; }
    const Batch* operator->() const { return &batch_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const noexcept { return epoch_ == nullptr; }

   private:
    friend class DataLoader;
    DataLoader* loader_ = nullptr;
    std::shared_ptr<class LoaderEpoch> epoch_;  // null at the end
    Batch batch_;
  };
  /// Begins an epoch, or goes on with the one that set_position named.
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::int64_t batches_ = 0;
  Position position_;
  bool go_on_ = false;  // set_position named a place within an epoch
};

}  // namespace quanta::data
