#include "quanta/fusion/accuracy/detail/shuffled_numbers.h"

#include <numeric>
#include <utility>

namespace quanta::accuracy {

ShuffledNumbers::ShuffledNumbers(std::int64_t count) : order_(static_cast<std::size_t>(count)) {
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
}

Tensor ShuffledNumbers::next(std::int64_t size, Generator& generator) {
  Tensor batch = Tensor::empty({size}, DType::Int64);
  for (std::int64_t& number : batch.mutable_span<std::int64_t>()) {
    if (next_ == 0) {
      for (std::size_t i = order_.size(); i > 1; --i) {
        const auto other = generator.integer(0, static_cast<std::int64_t>(i) - 1);
        std::swap(order_[i - 1], order_[static_cast<std::size_t>(other)]);
      }
    }
    number = order_[next_];
    next_ = (next_ + 1) % order_.size();
  }
  return batch;
}

}  // namespace quanta::accuracy
