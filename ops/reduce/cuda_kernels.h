#pragma once

// Private: the kernels of cuda_reduce.h and of running sums.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta::cuda {

/// A dense block [outer, count, inner].
struct Block {
  DType dtype{};  // what visit_ordered() takes
  const void* x = nullptr;
  std::int64_t outer = 1;
  std::int64_t count = 1;
  std::int64_t inner = 1;
};

/// An element as a double or an Int64, and where it stood.
struct FoundExtreme {
  std::uint64_t bits = 0;
  std::int64_t index = 0;
};

struct ExtremeParams {
  Block block;
  bool smallest = false;
  bool last = false;  // of equal ones
  // Of long rows, a warp each; each has a result of its own in `partial`.
  std::int64_t parts = 1;
  FoundExtreme* partial = nullptr;
  // Otherwise either may be null.
  void* values = nullptr;
  std::int64_t* indices = nullptr;
};
/// Rows, where inner is 1: a warp for each part. Then the parts of each row.
QUANTA_CUDA_ENTRY(find_row_extremes, ExtremeParams)
QUANTA_CUDA_ENTRY(join_row_extremes, ExtremeParams)
/// A thread for each result.
QUANTA_CUDA_ENTRY(find_column_extremes, ExtremeParams)

struct SumParams {
  Block block;
  // What is added up: integers as they are, numbers as doubles, or what codes stand for.
  bool in_integers = false;
  bool dequantizes = false;
  float scale = 1.0F;
  std::int32_t zero_point = 0;
  const double* means = nullptr;  // of each result: squares of differences are added up
  std::int64_t parts = 1;         // of each row
  std::int64_t part = 0;          // how long they are; the last one may be shorter
  void* sums = nullptr;           // double or std::uint64_t: [outer, parts] or [outer, inner]
};
/// Rows, where inner is 1: eight threads for each part.
QUANTA_CUDA_ENTRY(sum_rows, SumParams)
/// A thread for each result.
QUANTA_CUDA_ENTRY(sum_columns, SumParams)

enum class SumEnd : std::uint8_t {
  Sum,
  Mean,             // sum / count
  Variance,         // sum / divisor
  Deviation,        // its root
  CodeOfMean,       // of float32(sum) / count; of an integer sum, the quotient rounded
  CodeOfDeviation,  // of the root times a factor
};

struct FinishParams {
  std::int64_t count = 0;  // of results
  std::int64_t parts = 1;  // sums for each
  const void* sums = nullptr;
  bool in_integers = false;
  SumEnd end{};
  double divisor = 1.0;
  double factor = 1.0;
  DType dtype{};  // of the results
  float inv_scale = 1.0F;
  std::int32_t zero_point = 0;
  std::int32_t low = 0;
  std::int32_t high = 0;
  void* out = nullptr;
};
QUANTA_CUDA_ENTRY(finish_sums, FinishParams)

struct ProductParams {
  Block block;
  void* out = nullptr;  // the block's dtype for floats, else Int64
};
QUANTA_CUDA_ENTRY(multiply_columns, ProductParams)

struct RunningParams {
  Block block;
  bool products = false;
  bool exclusive = false;
  bool reverse = false;
  void* out = nullptr;  // the block's dtype
};
QUANTA_CUDA_ENTRY(run_along, RunningParams)

}  // namespace quanta::cuda
