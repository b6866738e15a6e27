#include "quanta/nn/data/dataset.h"

#include <utility>

#include "quanta/runtime/check.h"

namespace quanta::data {
namespace {

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

}  // namespace quanta::data
