#include "quanta/ops/attention/cpu_attention.h"

#include <algorithm>

#include "quanta/ops/attention/cpu_kernels.h"
#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

// The products of a block's queries with all keys are kept until their largest is known: they stay
// in the L2 cache as long as there are so many of them.
constexpr std::int64_t kMostProducts = std::int64_t{128} * 1024;

std::int64_t offset(const AttentionStrides& strides, std::int64_t batch, std::int64_t head,
                    std::int64_t row) {
  return batch * strides.batch + head * strides.head + row * strides.row;
}

class BlockRunner {
 public:
  explicit BlockRunner(const AttentionProblem& problem)
      : problem_(problem),
        block_rows_(attention_block_queries(problem.keys)),
        blocks_(ceil_div(problem.queries, block_rows_)) {}

  std::int64_t tasks() const { return problem_.batch * problem_.heads * blocks_; }

  void run(std::int64_t task, float* buffer) const {
    const AttentionProblem& p = problem_;
    const std::int64_t first = task % blocks_ * block_rows_;
    const std::int64_t rows = std::min(block_rows_, p.queries - first);
    const std::int64_t head = task / blocks_ % p.heads;
    const std::int64_t batch = task / blocks_ / p.heads;
    const float* mask =
        p.mask == nullptr ? nullptr : p.mask + offset(p.mask_strides, batch, head, first);
    attend_block({.queries = rows,
                  // Keys that no query of the block takes part in are not looked at.
                  .keys = p.causal ? std::min(p.keys, first + rows) : p.keys,
                  .features = p.features,
                  .value_features = p.value_features,
                  .query = p.query + offset(p.query_strides, batch, head, first),
                  .key = p.key + offset(p.key_strides, batch, head, 0),
                  .value = p.value + offset(p.value_strides, batch, head, 0),
                  .mask = mask,
                  .out = p.out + offset(p.out_strides, batch, head, first),
                  .query_row = p.query_strides.row,
                  .key_row = p.key_strides.row,
                  .value_row = p.value_strides.row,
                  .mask_row = p.mask_strides.row,
                  .out_row = p.out_strides.row,
                  .scale = p.scale,
                  .visible = p.causal ? first : p.keys},
                 buffer);
  }

  std::size_t buffer_bytes() const {
    const std::int64_t rows = std::min(block_rows_, problem_.queries);
    return attention_floats(rows, problem_.keys, problem_.features, problem_.value_features) *
           sizeof(float);
  }

 private:
  const AttentionProblem& problem_;
  std::int64_t block_rows_;
  std::int64_t blocks_;
};

}  // namespace

std::int64_t attention_block_queries(std::int64_t keys) {
  std::int64_t rows = kMostQueries;
  while (rows > 16 && rows * keys > kMostProducts) rows /= 2;
  return rows;
}

void attention(const AttentionProblem& problem) {
  const BlockRunner runner(problem);
  parallel_for(runner.tasks(), 1, [&](std::int64_t begin, std::int64_t end) {
    auto* buffer = reinterpret_cast<float*>(
        onednn::thread_buffer(onednn::Buffer::Sums, runner.buffer_bytes()));
    for (std::int64_t task = begin; task < end; ++task) runner.run(task, buffer);
  });
}

}  // namespace quanta::cpu
