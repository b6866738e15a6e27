#include "quanta/ops/attention/cpu_kernels.h"

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/attention/cpu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "quanta/ops/attention/cpu_few_queries_simd.h"
#include "quanta/ops/attention/cpu_products_simd.h"
#include "quanta/ops/attention/cpu_softmax_simd.h"
#include "quanta/runtime/detail/ceil_div.h"

// Queries lie in the lanes of vectors, for the products as for softmax: a key's feature is one
// number for all of them, softmax needs no sum over lanes, and the weights lie as the second product
// broadcasts them. Only the queries are turned, each once.

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

class BlockOfQueries {
 public:
  BlockOfQueries(const AttentionBlock& block, float* buffer)
      : block_(block),
        width_(round_up(block.queries, kAttentionPad)),
        columns_(round_up(block.value_features, kAttentionPad)),
        weights_(buffer),
        turned_(weights_ + block.keys * width_),
        result_(turned_ + block.features * width_),
        values_(result_ + width_ * columns_),
        tops_(values_ + kAttentionKeys * columns_),
        totals_(tops_ + width_),
        few_(totals_ + width_) {}

  void run() {
    if (block_.queries <= kFewQueries) {
      FewQueries(block_, turned_, few_, few_ + block_.features * kFewKeys)
          .run(width_, weights_, totals_);
      for_blocks_of_keys([&](std::int64_t key, std::int64_t end) { add_values(key, end); });
    } else {
      weigh_and_add();
    }
    for (std::int64_t i = 0; i < block_.queries; ++i) {
      const float factor = totals_[i] == 0.0F ? 0.0F : 1.0F / totals_[i];
      scale_row(result_ + i * columns_, block_.value_features, factor,
                block_.out + i * block_.out_row);
    }
  }

 private:
  void weigh_and_add() {
    turn_queries();
    std::fill_n(tops_, width_, -std::numeric_limits<float>::infinity());
    std::fill_n(totals_, width_, 0.0F);
    for_blocks_of_keys([&](std::int64_t key, std::int64_t end) { scores(key, end); });
    finish_tops(tops_, width_);
    for_blocks_of_keys([&](std::int64_t key, std::int64_t end) {
      to_weights(weights_ + key * width_, end - key, width_, tops_, totals_);
      add_values(key, end);
    });
  }

  template <class Body>
  void for_blocks_of_keys(const Body& body) const {
    for (std::int64_t key = 0; key < block_.keys; key += kAttentionKeys) {
      body(key, std::min(key + kAttentionKeys, block_.keys));
    }
  }

  /// turned_[feature][query] = scale * query; zeros in lanes without one.
  void turn_queries() {
    turn_rows(block_.query, block_.query_row, block_.queries, block_.features, block_.scale, width_,
              turned_);
  }

  /// kVectors vectors of queries from `lane` on times the keys [key, end).
  template <int kVectors, int kRows = tile_rows(kVectors)>
  HWY_INLINE void score_tiles(std::int64_t lane, std::int64_t key, std::int64_t end) {
    const AttentionTag d;
    for (; key + kRows <= end; key += kRows) {
      AttentionVector sums[kRows][kVectors];
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
      }
      prefetch_rows(block_.key, block_.key_row, key + kRows, kRows, block_.features);
      if (lane == 0) {
        prefetch_rows(block_.value, block_.value_row, key, kRows, block_.value_features);
      }
      add_products(sums, Broadcasts<kRows>(block_.key + key * block_.key_row, block_.key_row), 1,
                   turned_ + lane, width_, block_.features);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* top = tops_ + lane + v * kAttentionLanes;
        auto best = hn::LoadU(d, top);
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
          hn::StoreU(sums[r][v], d, weights_ + (key + r) * width_ + lane + v * kAttentionLanes);
          best = hn::Max(best, sums[r][v]);
        }
        hn::StoreU(best, d, top);
      }
    }
    if constexpr (kRows > 1) score_tiles<kVectors, fewer_rows(kRows)>(lane, key, end);
  }

  void scores(std::int64_t key, std::int64_t end) {
    const bool changes = block_.mask != nullptr || end - 1 > block_.visible;
    // Of what the mask makes of the products, not of these themselves.
    float tops[kMostQueries];
    if (changes) std::copy_n(tops_, width_, tops);
    for_groups(width_, [&](auto count, std::int64_t lane)
                           QUANTA_ATTR { score_tiles<decltype(count)::value>(lane, key, end); });
    if (!changes) return;
    std::copy_n(tops, width_, tops_);
    for (; key < end; ++key) {
      const float* mask = block_.mask == nullptr ? nullptr : block_.mask + key;
      mask_scores({mask, block_.mask_row, block_.queries, key - block_.visible}, width_,
                  weights_ + key * width_, tops_);
    }
  }

  /// Rows that are wanted soon: `stride` keeps the processor from seeing them come.
  HWY_INLINE void prefetch_rows(const float* rows, std::int64_t stride, std::int64_t first,
                                std::int64_t count, std::int64_t width) const {
    constexpr std::int64_t kLine = 16;
    const std::int64_t end = std::min(first + count, block_.keys);
    for (const float* row = rows + first * stride; first < end; ++first, row += stride) {
      for (std::int64_t i = 0; i < width; i += kLine) __builtin_prefetch(row + i, 0, 2);
    }
  }

  /// values_[key][feature] of the keys [key, end), zeros behind the last feature. Rows that lie
  /// further apart fall on the same few lines of the cache.
  void pack_values(std::int64_t key, std::int64_t end) {
    const AttentionTag d;
    const std::int64_t count = block_.value_features;
    float* dst = values_;
    for (; key < end; ++key, dst += columns_) {
      const float* src = block_.value + key * block_.value_row;
      std::int64_t i = 0;
      for (; i + kAttentionLanes <= count; i += kAttentionLanes) {
        hn::StoreU(hn::LoadU(d, src + i), d, dst + i);
      }
      for (; i < count; ++i) dst[i] = src[i];
      for (; i < columns_; ++i) dst[i] = 0.0F;
    }
  }

  /// Whole vectors of values, the first of them those of some key.
  struct Values {
    const float* first;
    std::int64_t row;
  };

  /// kVectors vectors of features from `column` on for all queries from `row` on: adds the weighted
  /// values of the keys [key, end).
  template <int kVectors, int kRows = tile_rows(kVectors)>
  HWY_INLINE void value_tiles(const Values& values, std::int64_t column, std::int64_t row,
                              std::int64_t key, std::int64_t end) {
    const AttentionTag d;
    for (; row + kRows <= block_.queries; row += kRows) {
      float* dst = result_ + row * columns_ + column;
      AttentionVector sums[kRows][kVectors];
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] =
              key == 0 ? hn::Zero(d) : hn::LoadU(d, dst + r * columns_ + v * kAttentionLanes);
        }
      }
      add_products(sums, Neighbours(weights_ + key * width_ + row), width_, values.first + column,
                   values.row, end - key);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          hn::StoreU(sums[r][v], d, dst + r * columns_ + v * kAttentionLanes);
        }
      }
    }
    if constexpr (kRows > 1)
      value_tiles<kVectors, fewer_rows(kRows)>(values, column, row, key, end);
  }

  void add_values(std::int64_t key, std::int64_t end) {
    Values values{values_, columns_};
    // What few queries read but once or twice is not worth a copy.
    constexpr std::int64_t kDirect = 12;
    if (block_.queries <= kDirect && block_.value_features == columns_) {
      values = {block_.value + key * block_.value_row, block_.value_row};
    } else {
      pack_values(key, end);
    }
    for_groups(columns_, [&](auto count, std::int64_t column) QUANTA_ATTR {
      value_tiles<decltype(count)::value>(values, column, 0, key, end);
    });
  }

  /// Calls body(vectors, first) for groups of vectors that cover [0, width), kTileVectors of them or
  /// fewer; width is a multiple of kAttentionPad.
  template <class Body>
  static HWY_INLINE void for_groups(std::int64_t width, const Body& body) {
    std::int64_t first = 0;
    const auto groups = [&](auto count) QUANTA_ATTR {
      constexpr std::int64_t kWidth = decltype(count)::value * kAttentionLanes;
      for (; first + kWidth <= width; first += kWidth) body(count, first);
    };
    groups(std::integral_constant<int, kTileVectors>());
    if constexpr (kTileVectors * kAttentionLanes > kAttentionPad) {
      groups(std::integral_constant<int, 3>());
      groups(std::integral_constant<int, 2>());
      groups(std::integral_constant<int, 1>());
    }
  }

  const AttentionBlock& block_;
  std::int64_t width_;    ///< lanes
  std::int64_t columns_;  ///< of the result
  float* weights_;        ///< [keys][width_]
  float* turned_;         ///< [features][width_]
  float* result_;         ///< [width_][columns_]
  float* values_;         ///< [kAttentionKeys][columns_]
  float* tops_;           ///< [width_], as are
  float* totals_;
  float* few_;  ///< what FewQueries works on
};

void AttendBlock(const AttentionBlock& block, float* buffer) {
  BlockOfQueries(block, buffer).run();
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(AttendBlock);

std::size_t attention_floats(std::int64_t queries, std::int64_t keys, std::int64_t features,
                             std::int64_t value_features) {
  constexpr std::int64_t kPad = 16;
  const std::int64_t width = round_up(queries, kPad);
  const std::int64_t columns = round_up(value_features, kPad);
  // The last block of many queries may have few of them.
  const std::int64_t few = features * kFewKeys + kFewQueries * round_up(keys, kFewKeys);
  return static_cast<std::size_t>(width * (keys + features + columns + 2) +
                                  kAttentionKeys * columns + few);
}

void attend_block(const AttentionBlock& block, float* buffer) {
  HWY_DYNAMIC_DISPATCH(AttendBlock)(block, buffer);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
