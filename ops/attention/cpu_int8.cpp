#include "quanta/ops/attention/cpu_int8.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "quanta/ops/attention/cpu_int8_kernels.h"
#include "quanta/ops/cpu/gemm/multiply_codes.h"
#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

// Queries whose sums are taken at a time.
constexpr std::int64_t kBlockRows = 64;

/// Parts of one piece of memory, each aligned to a line of the cache.
class Arena {
 public:
  explicit Arena(std::byte* begin) : begin_(begin) {}
  template <typename T>
  T* take(std::int64_t count) {
    // Without memory it only counts.
    auto* part = begin_ == nullptr ? nullptr : reinterpret_cast<T*>(begin_ + bytes_);
    bytes_ += round_up(static_cast<std::size_t>(count) * sizeof(T), std::size_t{64});
    return part;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* begin_;
  std::size_t bytes_ = 0;
};

struct Sizes {
  explicit Sizes(const AttentionProblem& p)
      : feature_depth(packed_depth(p.features)),
        key_depth(packed_depth(p.keys)),
        key_panels(packed_panels(p.keys)),
        value_panels(packed_panels(p.value_features)) {}
  std::int64_t key_columns() const { return key_panels * kPanelChannels; }
  std::int64_t value_columns() const { return value_panels * kPanelChannels; }

  std::int64_t feature_depth, key_depth, key_panels, value_panels;
};

/// What a head and a block of its queries are calculated in.
struct Workspace {
  Workspace(const AttentionProblem& p, const Sizes& s, std::byte* memory) {
    Arena arena(memory);
    // Keys, then values: codes row after row are wanted no longer than it takes to pack them.
    codes = arena.take<std::uint8_t>(p.keys * std::max(p.features, p.value_features));
    key_panels = arena.take<std::int8_t>(s.key_columns() * s.feature_depth);
    key_scales = arena.take<float>(s.key_columns());
    key_sums = arena.take<std::int32_t>(s.key_columns());
    value_panels = arena.take<std::int8_t>(s.value_columns() * s.key_depth);
    value_scales = arena.take<float>(s.value_columns());
    query_codes = arena.take<std::uint8_t>(kBlockRows * s.feature_depth);
    query_scales = arena.take<float>(kBlockRows);
    query_sums = arena.take<std::int32_t>(kBlockRows);
    sums = arena.take<std::int32_t>(kBlockRows * std::max(s.key_columns(), s.value_columns()));
    scores = arena.take<float>(s.key_columns());
    weights = arena.take<std::uint8_t>(kBlockRows * s.key_depth);
    bytes = arena.bytes();
  }

  std::uint8_t* codes;
  std::int8_t* key_panels;
  float* key_scales;
  std::int32_t* key_sums;
  std::int8_t* value_panels;
  float* value_scales;
  std::uint8_t* query_codes;
  float* query_scales;
  std::int32_t* query_sums;
  std::int32_t* sums;
  float* scores;
  std::uint8_t* weights;
  std::size_t bytes = 0;
};

const float* rows_of(const float* first, const AttentionStrides& strides, std::int64_t batch,
                     std::int64_t head, std::int64_t row) {
  return first + batch * strides.batch + head * strides.head + row * strides.row;
}

void check_finite(bool finite, std::string_view argument) {
  QUANTA_CHECK(finite,
               "scaled_dot_product_attention: {}: expected finite numbers with attention_dtype "
               "QInt8, got NaN or infinity",
               argument);
}

class Int8Attention {
 public:
  Int8Attention(const AttentionProblem& problem, int threads)
      : problem_(problem),
        sizes_(problem),
        blocks_(ceil_div(problem.queries, kBlockRows)),
        // A head is one thread's, so that its keys and values are quantized once, unless there are
        // too few of them.
        parts_(std::clamp<std::int64_t>(ceil_div(threads, problem.batch * problem.heads), 1,
                                        blocks_)) {}

  std::int64_t tasks() const { return problem_.batch * problem_.heads * parts_; }

  void run(std::int64_t task, const Workspace& space) const {
    const AttentionProblem& p = problem_;
    const std::int64_t part = task % parts_;
    const std::int64_t head = task / parts_ % p.heads;
    const std::int64_t batch = task / parts_ / p.heads;
    const std::int64_t first = blocks_ * part / parts_ * kBlockRows;
    const std::int64_t end = std::min(blocks_ * (part + 1) / parts_ * kBlockRows, p.queries);
    pack_keys(batch, head, space);
    pack_values(batch, head, space);
    for (std::int64_t row = first; row < end; row += kBlockRows) {
      attend(batch, head, row, std::min(kBlockRows, end - row), space);
    }
  }

  std::size_t buffer_bytes() const { return Workspace(problem_, sizes_, nullptr).bytes; }

 private:
  void pack_keys(std::int64_t batch, std::int64_t head, const Workspace& space) const {
    const AttentionProblem& p = problem_;
    std::fill_n(space.key_scales, sizes_.key_columns(), 0.0F);
    std::fill_n(space.key_sums, sizes_.key_columns(), 0);
    check_finite(quantize_each_row({.src = rows_of(p.key, p.key_strides, batch, head, 0),
                                    .src_row = p.key_strides.row,
                                    .rows = p.keys,
                                    .width = p.features,
                                    .codes = space.codes,
                                    .codes_row = p.features,
                                    .offset = 0,
                                    .scales = space.key_scales},
                                   space.key_sums),
                 "key");
    // A key is a column of the first product.
    pack_columns({space.codes, p.features, p.keys, 1, p.features}, 0, 0, sizes_.key_panels,
                 space.key_panels);
  }

  void pack_values(std::int64_t batch, std::int64_t head, const Workspace& space) const {
    const AttentionProblem& p = problem_;
    check_finite(quantize_each_column({.src = rows_of(p.value, p.value_strides, batch, head, 0),
                                       .src_row = p.value_strides.row,
                                       .rows = p.keys,
                                       .width = p.value_features,
                                       .codes = space.codes,
                                       .codes_row = p.value_features,
                                       .offset = 0,
                                       .scales = space.value_scales}),
                 "value");
    pack_columns({space.codes, p.keys, p.value_features, p.value_features, 1}, 0, 0,
                 sizes_.value_panels, space.value_panels);
  }

  void attend(std::int64_t batch, std::int64_t head, std::int64_t first, std::int64_t rows,
              const Workspace& space) const {
    const AttentionProblem& p = problem_;
    check_finite(quantize_each_row({.src = rows_of(p.query, p.query_strides, batch, head, first),
                                    .src_row = p.query_strides.row,
                                    .rows = rows,
                                    .width = p.features,
                                    .codes = space.query_codes,
                                    .codes_row = sizes_.feature_depth,
                                    .offset = 128,
                                    .scales = space.query_scales},
                                   space.query_sums),
                 "query");
    multiply_codes({space.query_codes, rows, space.key_panels, sizes_.key_panels, p.features},
                   space.sums);
    std::array<WeightSum, kBlockRows> totals;
    for (std::int64_t i = 0; i < rows; ++i) {
      totals[static_cast<std::size_t>(i)] = weights_of_row(
          {.sums = space.sums + i * sizes_.key_columns(),
           .code_sums = space.key_sums,
           .scales = space.key_scales,
           .scale = space.query_scales[i] * p.scale,
           .mask = p.mask == nullptr ? nullptr
                                     : rows_of(p.mask, p.mask_strides, batch, head, first + i),
           .keys = p.keys,
           .visible = p.causal ? std::min(p.keys, first + i + 1) : p.keys,
           .scores = space.scores,
           .codes = space.weights + i * sizes_.key_depth,
           .codes_row = sizes_.key_depth});
    }
    multiply_codes({space.weights, rows, space.value_panels, sizes_.value_panels, p.keys},
                   space.sums);
    for (std::int64_t i = 0; i < rows; ++i) {
      const WeightSum& total = totals[static_cast<std::size_t>(i)];
      const float factor = total.is_nan       ? std::numeric_limits<float>::quiet_NaN()
                           : total.codes == 0 ? 0.0F
                                              : 1.0F / static_cast<float>(total.codes);
      float* out = p.out + batch * p.out_strides.batch + head * p.out_strides.head +
                   (first + i) * p.out_strides.row;
      sums_to_output(space.sums + i * sizes_.value_columns(), space.value_scales, factor,
                     p.value_features, out);
    }
  }

  const AttentionProblem& problem_;
  Sizes sizes_;
  std::int64_t blocks_, parts_;
};

}  // namespace

std::string_view attention_int8(const AttentionProblem& problem) {
  const Int8Attention attention(problem, get_num_threads());
  const std::size_t bytes = attention.buffer_bytes();
  parallel_for(attention.tasks(), 1, [&](std::int64_t begin, std::int64_t end) {
    const Workspace space(problem, Sizes(problem),
                          onednn::thread_buffer(onednn::Buffer::Sums, bytes));
    for (std::int64_t task = begin; task < end; ++task) attention.run(task, space);
  });
  return "int8";
}

}  // namespace quanta::cpu
