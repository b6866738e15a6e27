#include "quanta/ops/attention/cpu_attention.h"

#include <algorithm>
#include <vector>

#include "quanta/ops/attention/cpu_kernels.h"
#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

// Queries of a head that are taken at a time: enough for the product's own blocking, few enough
// that their weights stay in the cache.
constexpr std::int64_t kBlockRows = 128;

std::int64_t offset(const AttentionStrides& strides, std::int64_t batch, std::int64_t head,
                    std::int64_t row) {
  return batch * strides.batch + head * strides.head + row * strides.row;
}

void gemm(char transpose_b, std::int64_t rows, std::int64_t columns, std::int64_t depth,
          float alpha, const float* a, std::int64_t a_row, const float* b, std::int64_t b_row,
          float* c, std::int64_t c_row) {
  // A row stride may be anything when there is one row only, but oneDNN looks at it.
  const auto leading = [](std::int64_t stride, std::int64_t least) {
    return std::max(stride, least);
  };
  const std::int64_t b_least = transpose_b == 'T' ? depth : columns;
  const dnnl_status_t status =
      dnnl_sgemm('N', transpose_b, rows, columns, depth, alpha, a, leading(a_row, depth), b,
                 leading(b_row, b_least), 0.0F, c, leading(c_row, columns));
  if (status != dnnl_success) {
    onednn::throw_backend_error("sgemm", dnnl::error(status, "execution failed"));
  }
}

// Products of one query with all keys to weights, in place, up to the factor that is returned: it
// is cheaper to give it to the results, of which there are fewer.
float to_weights(float* row, std::int64_t keys, std::int64_t visible, const float* mask) {
  const float sum = exp_row(row, visible, mask);
  std::fill(row + visible, row + keys, 0.0F);
  return sum == 0.0F ? 0.0F : 1.0F / sum;
}

class BlockRunner {
 public:
  explicit BlockRunner(const AttentionProblem& problem)
      : problem_(problem),
        blocks_(ceil_div(problem.queries, kBlockRows)),
        block_rows_(ceil_div(problem.queries, blocks_)) {}

  std::int64_t tasks() const { return problem_.batch * problem_.heads * blocks_; }

  void run(std::int64_t task, float* weights) const {
    const AttentionProblem& p = problem_;
    const std::int64_t first = task % blocks_ * block_rows_;
    const std::int64_t rows = std::min(block_rows_, p.queries - first);
    if (rows <= 0) return;
    const std::int64_t head = task / blocks_ % p.heads;
    const std::int64_t batch = task / blocks_ / p.heads;
    // Keys that no query of the block takes part in are not looked at.
    const std::int64_t keys = p.causal ? std::min(p.keys, first + rows) : p.keys;
    gemm('T', rows, keys, p.features, p.scale,
         p.query + offset(p.query_strides, batch, head, first), p.query_strides.row,
         p.key + offset(p.key_strides, batch, head, 0), p.key_strides.row, weights, keys);
    float* factors = weights + block_rows_ * p.keys;
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* mask =
          p.mask == nullptr ? nullptr : p.mask + offset(p.mask_strides, batch, head, first + i);
      factors[i] = to_weights(weights + i * keys, keys,
                              p.causal ? std::min(keys, first + i + 1) : keys, mask);
    }
    float* out = p.out + offset(p.out_strides, batch, head, first);
    gemm('N', rows, p.value_features, keys, 1.0F, weights, keys,
         p.value + offset(p.value_strides, batch, head, 0), p.value_strides.row, out,
         p.out_strides.row);
    for (std::int64_t i = 0; i < rows; ++i) {
      scale_row(out + i * p.out_strides.row, p.value_features, factors[i]);
    }
  }

  /// Floats: the weights of a block and a factor for each of its rows.
  std::size_t buffer_size() const {
    return static_cast<std::size_t>(block_rows_ * (problem_.keys + 1));
  }

 private:
  const AttentionProblem& problem_;
  std::int64_t blocks_, block_rows_;
};

}  // namespace

void attention(const AttentionProblem& problem) {
  const BlockRunner runner(problem);
  // Each thread takes whole blocks, so that the products inside run on one thread each.
  parallel_for(runner.tasks(), 1, [&](std::int64_t begin, std::int64_t end) {
    const onednn::ThreadScope one_thread(1);
    auto* weights = reinterpret_cast<float*>(
        onednn::thread_buffer(onednn::Buffer::Sums, runner.buffer_size() * sizeof(float)));
    for (std::int64_t task = begin; task < end; ++task) runner.run(task, weights);
  });
}

}  // namespace quanta::cpu
