#include "quanta/nn/data/dataset.h"

#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/share.h"

namespace quanta::data {
namespace {

using quanta::detail::kMostShards;
using quanta::detail::share_begin;

void check_index(std::string_view op, std::int64_t index, std::int64_t size) {
  QUANTA_CHECK(index >= 0 && index < size, "{}: index: expected 0..{}, got {}", op, size - 1,
               index);
}

}  // namespace

TensorDataset::TensorDataset(Tensor inputs, Tensor targets)
    : inputs_(std::move(inputs)), targets_(std::move(targets)) {
  QUANTA_CHECK(inputs_.defined() && inputs_.dim() > 0,
               "TensorDataset: inputs: expected a first dimension that counts the examples, got {}",
               inputs_.defined() ? "a 0-d tensor" : "none");
  QUANTA_CHECK(!targets_.defined() || (targets_.dim() > 0 && targets_.size(0) == inputs_.size(0)),
               "TensorDataset: targets: expected {} of them, as there are inputs, got sizes {}",
               inputs_.size(0), targets_.sizes());
}

Example TensorDataset::item(std::int64_t index) const {
  check_index("TensorDataset", index, size());
  return {inputs_.select(0, index), targets_.defined() ? targets_.select(0, index) : Tensor()};
}

Subset::Subset(std::shared_ptr<const Dataset> dataset, std::int64_t begin, std::int64_t count)
    : dataset_(std::move(dataset)), begin_(begin), count_(count) {
  QUANTA_CHECK(dataset_ != nullptr, "Subset: dataset: expected one, got none");
  QUANTA_CHECK(begin >= 0 && count >= 0 && begin <= dataset_->size() - count,
               "Subset: begin: expected a range within {} examples, got {} + {}", dataset_->size(),
               begin, count);
}

Example Subset::item(std::int64_t index) const {
  check_index("Subset", index, count_);
  return dataset_->item(begin_ + index);
}

std::shared_ptr<Subset> whole_batches(std::shared_ptr<const Dataset> dataset,
                                      std::int64_t batch_size, std::int64_t index,
                                      std::int64_t count) {
  QUANTA_CHECK(dataset != nullptr, "whole_batches: dataset: expected one, got none");
  QUANTA_CHECK(batch_size >= 1, "whole_batches: batch_size: expected at least 1, got {}",
               batch_size);
  QUANTA_CHECK(count >= 1 && count <= kMostShards, "whole_batches: count: expected 1..{}, got {}",
               kMostShards, count);
  QUANTA_CHECK(index >= 0 && index < count, "whole_batches: index: expected 0..{}, got {}",
               count - 1, index);
  const std::int64_t size = dataset->size();
  const std::int64_t batches = size / batch_size + (size % batch_size != 0 ? 1 : 0);
  const auto begin_of = [&](std::int64_t shard) {
    const std::int64_t batch = share_begin(batches, shard, count);
    return batch == batches ? size : batch * batch_size;
  };
  const std::int64_t begin = begin_of(index);
  return std::make_shared<Subset>(std::move(dataset), begin, begin_of(index + 1) - begin);
}

}  // namespace quanta::data
