#include "quanta/nn/data/data_loader.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/share.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/random.h"

namespace quanta::data {
namespace {

// splitmix64 (Steele, Lea and Flood 2014): neighbouring numbers give unrelated ones.
std::uint64_t scramble(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

// Positions are saved as signed numbers.
constexpr std::uint64_t kSeedMask = ~std::uint64_t{0} >> 1U;

std::vector<std::int64_t> make_order(std::int64_t size, bool shuffle, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (!shuffle) return order;
  Generator generator(seed);
  for (std::size_t i = order.size(); i > 1; --i) {  // Fisher-Yates
    const auto j = static_cast<std::size_t>(generator.integer(0, static_cast<std::int64_t>(i) - 1));
    std::swap(order[i - 1], order[j]);
  }
  return order;
}

// Tensors of equal sizes along a new first dimension: none of them if `like` is all that is known.
Tensor stack_items(const std::vector<Tensor>& items, const Tensor& like, std::string_view what) {
  const Tensor& first = items.empty() ? like : items.front();
  if (!first.defined()) return {};
  QUANTA_CHECK(!first.is_quantized(), "DataLoader: {}: expected a plain dtype, got {}", what,
               first.dtype());
  Dims sizes = first.sizes();
  sizes.insert(0, static_cast<std::int64_t>(items.size()));
  const Tensor batch = Tensor::empty(sizes, first.dtype());
  auto* to = static_cast<std::byte*>(batch.data_ptr());
  for (const Tensor& item : items) {
    QUANTA_CHECK(item.defined() && item.sizes() == first.sizes() && item.dtype() == first.dtype(),
                 "DataLoader: {}: expected {} {} as of the first example in the batch, got {}",
                 what, first.dtype(), first.sizes(),
                 item.defined() ? fmt::format("{} {}", item.dtype(), item.sizes()) : "none");
    const Tensor values = item.contiguous();
    std::memcpy(to, values.data_ptr(), values.nbytes());
    to += values.nbytes();
  }
  return batch;
}

}  // namespace

/// One way through the data set; owned by the iterator, so that leaving the loop ends its thread.
class LoaderEpoch {
 public:
  LoaderEpoch(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options,
              std::int64_t batches, const DataLoader::Position& from)
      : dataset_(std::move(dataset)),
        options_(options),
        order_(make_order(dataset_->size(), options.shuffle, from.seed)),
        seed_(from.seed),
        next_(from.batch),
        end_(batches) {
    if (options_.prefetch > 0) {
      thread_ = std::thread([this] { make_ahead(); });
    }
  }
  ~LoaderEpoch() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  LoaderEpoch(const LoaderEpoch&) = delete;
  LoaderEpoch& operator=(const LoaderEpoch&) = delete;

  Batch take() {
    if (!thread_.joinable()) return make(next_++);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty() || error_ != nullptr; });
    if (ready_.empty()) std::rethrow_exception(error_);
    Batch batch = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

 private:
  Batch make(std::int64_t number) const {
    const std::int64_t begin = number * options_.batch_size;
    const std::int64_t size = std::min(options_.batch_size, dataset_->size() - begin);
    const auto& [index, count] = options_.shard;
    std::vector<Tensor> inputs;
    std::vector<Tensor> targets;
    const std::int64_t last = begin + quanta::detail::share_begin(size, index + 1, count);
    for (std::int64_t i = begin + quanta::detail::share_begin(size, index, count); i < last; ++i) {
      Example example = item(i);
      inputs.push_back(std::move(example.input));
      targets.push_back(std::move(example.target));
    }
    const Example like = inputs.empty() ? item(begin) : Example{};
    return {stack_items(inputs, like.input, "input"), stack_items(targets, like.target, "target")};
  }

  Example item(std::int64_t place) const {
    Example example = dataset_->item(order_[static_cast<std::size_t>(place)]);
    if (options_.transform) {
      // Numbers of its own for each place in the epoch, so that one can begin anywhere.
      Generator generator(scramble(seed_ ^ scramble(static_cast<std::uint64_t>(place))));
      example.input = options_.transform(example.input, generator);
    }
    return example;
  }

  void make_ahead() {
    // The cores are for the training itself.
    set_num_threads(1);
    try {
      for (; next_ < end_; ++next_) {
        Batch batch = make(next_);
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] {
          return stop_ || static_cast<std::int64_t>(ready_.size()) < options_.prefetch;
        });
        if (stop_) return;
        ready_.push_back(std::move(batch));
        lock.unlock();
        changed_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      changed_.notify_all();
    }
  }

  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::vector<std::int64_t> order_;
  std::uint64_t seed_;
  std::int64_t next_;  // the thread's, where there is one
  std::int64_t end_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;   // guarded by mutex_
  std::exception_ptr error_;  // guarded by mutex_
  bool stop_ = false;         // guarded by mutex_
  std::thread thread_;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
  QUANTA_CHECK(dataset_ != nullptr, "DataLoader: dataset: expected one, got none");
  QUANTA_CHECK(options_.batch_size >= 1, "DataLoader: batch_size: expected at least 1, got {}",
               options_.batch_size);
  QUANTA_CHECK(options_.prefetch >= 0, "DataLoader: prefetch: expected >= 0, got {}",
               options_.prefetch);
  const Shard& shard = options_.shard;
  QUANTA_CHECK(shard.count >= 1 && shard.count <= quanta::detail::kMostShards,
               "DataLoader: shard.count: expected 1..{}, got {}", quanta::detail::kMostShards,
               shard.count);
  QUANTA_CHECK(shard.index >= 0 && shard.index < shard.count,
               "DataLoader: shard.index: expected 0..{}, got {}", shard.count - 1, shard.index);
  QUANTA_CHECK(shard.count == 1 || options_.seed || !(options_.shuffle || options_.transform),
               "DataLoader: seed: expected one, so that all shards have the same order and "
               "transforms, got none");
  const std::int64_t size = dataset_->size();
  batches_ = size / options_.batch_size;
  if (!options_.drop_last && size % options_.batch_size != 0) ++batches_;
  QUANTA_CHECK(batches_ > 0,
               "DataLoader: dataset: expected at least one batch, got {} examples, batch_size {}{}",
               size, options_.batch_size, options_.drop_last ? " and drop_last" : "");
}

void DataLoader::set_position(const Position& position) {
  QUANTA_CHECK(position.epoch >= 0, "DataLoader: position: expected an epoch >= 0, got {}",
               position.epoch);
  QUANTA_CHECK(position.batch >= 0 && position.batch <= batches_,
               "DataLoader: position: expected batch 0..{}, got {}", batches_, position.batch);
  QUANTA_CHECK(position.seed <= kSeedMask, "DataLoader: position: expected a seed < 2^63, got {}",
               position.seed);
  position_ = position;
  go_on_ = position.batch > 0 && position.batch < batches_;
}

DataLoader::Iterator DataLoader::begin() {
  if (!go_on_) {
    if (position_.batch > 0) ++position_.epoch;
    position_.batch = 0;
    position_.seed =
        kSeedMask & (options_.seed ? scramble(*options_.seed ^
                                              scramble(static_cast<std::uint64_t>(position_.epoch)))
                                   : default_generator().next());
  }
  go_on_ = false;
  Iterator iterator;
  iterator.loader_ = this;
  iterator.epoch_ = std::make_shared<LoaderEpoch>(dataset_, options_, batches_, position_);
  ++iterator;
  return iterator;
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  if (loader_->position_.batch == loader_->batches_) {
    epoch_.reset();
    batch_ = {};
    return *this;
  }
  batch_ = epoch_->take();
  ++loader_->position_.batch;
  return *this;
}

}  // namespace quanta::data
