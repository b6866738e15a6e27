#pragma once

#include <cstdint>
#include <memory>

#include "quanta/runtime/tensor.h"

/// Data to train on: data sets on disk, transforms, and a loader that shuffles, batches and reads
/// ahead. A library of its own, quanta::data, so that the core needs no zlib, libpng or libjpeg.
namespace quanta::data {

/// What a network gets and what it should answer (undefined where nothing is known), for one item,
/// or for a batch of them along a new first dimension.
struct Example {
  Tensor input;
  Tensor target{};
};

/// Numbered examples. Const functions are called from several threads at once.
class Dataset {
 public:
  Dataset() = default;
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  virtual std::int64_t size() const = 0;
  /// `index` 0..size() - 1. Throws ArgumentError outside, FileError for what cannot be read.
  virtual Example item(std::int64_t index) const = 0;
};

/// Tensors whose first dimension counts the examples: an item is a view of them.
class TensorDataset : public Dataset {
 public:
  /// `targets` may be undefined. Throws ArgumentError for 0-d tensors, and for counts that differ.
  explicit TensorDataset(Tensor inputs, Tensor targets = {});

  std::int64_t size() const override { return inputs_.size(0); }
  Example item(std::int64_t index) const override;
  const Tensor& inputs() const noexcept { return inputs_; }
  const Tensor& targets() const noexcept { return targets_; }

 private:
  Tensor inputs_;
  Tensor targets_;
};

/// Items begin .. begin + count - 1 of another data set.
class Subset : public Dataset {
 public:
  /// Throws ArgumentError for a range outside of the data set.
  Subset(std::shared_ptr<const Dataset> dataset, std::int64_t begin, std::int64_t count);

  std::int64_t size() const override { return count_; }
  Example item(std::int64_t index) const override;

 private:
  std::shared_ptr<const Dataset> dataset_;
  std::int64_t begin_;
  std::int64_t count_;
};

/// What shard `index` of `count` is to see where every batch stays whole, as for evaluation and
/// calibration: of the data set's batches of `batch_size`, the last of which may be smaller, those
/// that come one after the other from batches * index / count on. With fewer batches than shards
/// some get none. Throws ArgumentError for no data set, batch_size < 1, and an index that is not
/// below the count.
std::shared_ptr<Subset> whole_batches(std::shared_ptr<const Dataset> dataset,
                                      std::int64_t batch_size, std::int64_t index,
                                      std::int64_t count);

}  // namespace quanta::data
