#pragma once

// Private: which of the data each step of a training loop takes.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quanta/runtime/random.h"
#include "quanta/runtime/tensor.h"

namespace quanta::accuracy {

/// The numbers [0, count), of which each comes once before one comes again.
class ShuffledNumbers {
 public:
  explicit ShuffledNumbers(std::int64_t count);
  /// Int64 [size].
  Tensor next(std::int64_t size, Generator& generator);

 private:
  std::vector<std::int64_t> order_;
  std::size_t next_ = 0;
};

}  // namespace quanta::accuracy
