// Private: softmax of a few queries' products with the keys in the lanes, for the kernels of attention
// inside Highway's foreach_target (hence the guard that toggles). The floats are those of queries in
// the lanes.

#if defined(QUANTA_OPS_ATTENTION_FEW_QUERIES_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_ATTENTION_FEW_QUERIES_SIMD_H_
#undef QUANTA_OPS_ATTENTION_FEW_QUERIES_SIMD_H_
#else
#define QUANTA_OPS_ATTENTION_FEW_QUERIES_SIMD_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "quanta/ops/attention/cpu_kernels.h"
#include "quanta/ops/attention/cpu_products_simd.h"
#include "quanta/ops/attention/cpu_softmax_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

/// scores[query][key] = query * key for kFewKeys keys whose features are turned
/// [features][kFewKeys]; a query's scores lie `row` floats apart.
template <int kQueries>
HWY_INLINE void score_few(const float* queries, const float* turned, std::int64_t features,
                          float* scores, std::int64_t row) {
  constexpr int kVectors = kTileVectors * kAttentionLanes > kFewKeys
                               ? static_cast<int>(kFewKeys / kAttentionLanes)
                               : kTileVectors;
  for (std::int64_t lane = 0; lane < kFewKeys; lane += kVectors * kAttentionLanes) {
    AttentionVector sums[kQueries][kVectors];
#pragma GCC unroll 12
    for (int r = 0; r < kQueries; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(AttentionTag());
    }
    add_products(sums, Broadcasts<kQueries>(queries, features), 1, turned + lane, kFewKeys,
                 features);
#pragma GCC unroll 12
    for (int r = 0; r < kQueries; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(sums[r][v], AttentionTag(), scores + r * row + lane + v * kAttentionLanes);
      }
    }
  }
}

/// One query's scores with the mask, in place, as exponentials of their differences to the largest.
/// Keys from `visible` on do not take part; there is room for whole vectors.
HWY_INLINE void exponentials_of(float* scores, std::int64_t keys, std::int64_t visible,
                                const float* mask) {
  const AttentionTag d;
  const AttentionInts di;
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  const auto nothing = hn::Set(d, kNothing);
  auto best = nothing;
  for (std::int64_t key = 0; key < keys; key += kAttentionLanes) {
    auto x = hn::LoadU(d, scores + key);
    const std::int64_t left = keys - key;
    if (mask != nullptr && left >= kAttentionLanes) {
      x = hn::Add(x, hn::LoadU(d, mask + key));
    } else if (mask != nullptr) {
      const auto first = hn::FirstN(d, static_cast<std::size_t>(left));
      x = hn::Add(x, hn::MaskedLoad(first, d, mask + key));
    }
    if (key + kAttentionLanes > visible) {
      const auto taking_part = hn::Lt(hn::Iota(di, static_cast<std::int32_t>(key)),
                                      hn::Set(di, static_cast<std::int32_t>(visible)));
      x = hn::IfThenElse(hn::RebindMask(d, taking_part), x, nothing);
    }
    hn::StoreU(x, d, scores + key);
    best = hn::Max(best, x);
  }
  const float top = hn::GetLane(hn::MaxOfLanes(d, best));
  const auto tops = hn::Set(d, top == kNothing ? 0.0F : top);
  for (std::int64_t key = 0; key < keys; key += kAttentionLanes) {
    hn::StoreU(exp_normal(hn::Sub(hn::LoadU(d, scores + key), tops)), d, scores + key);
  }
}

/// What BlockOfQueries makes of at most kFewQueries queries: weights[key * width + query] and their
/// sums. `turned` and `scores` have room as attention_floats says.
class FewQueries {
 public:
  FewQueries(const AttentionBlock& block, float* queries, float* turned, float* scores)
      : block_(block),
        queries_(queries),
        turned_(turned),
        scores_(scores),
        row_(round_up(block.keys, kFewKeys)) {}

  void run(std::int64_t width, float* weights, float* totals) {
    for (std::int64_t i = 0; i < block_.queries; ++i) {
      scale_row(block_.query + i * block_.query_row, block_.features, block_.scale,
                queries_ + i * block_.features);
    }
    for (std::int64_t key = 0; key < block_.keys; key += kFewKeys) {
      turn_rows(block_.key + key * block_.key_row, block_.key_row,
                std::min(kFewKeys, block_.keys - key), block_.features, 1.0F, kFewKeys, turned_);
      score<kFewQueries>(scores_ + key);
    }
    for (std::int64_t i = 0; i < block_.queries; ++i) {
      const float* mask = block_.mask == nullptr ? nullptr : block_.mask + i * block_.mask_row;
      exponentials_of(scores_ + i * row_, block_.keys,
                      std::min(block_.keys, block_.visible + i + 1), mask);
      totals[i] = spread(scores_ + i * row_, width, weights + i);
    }
  }

 private:
  template <int kQueries>
  HWY_INLINE void score(float* scores) const {
    if (block_.queries == kQueries) {
      return score_few<kQueries>(queries_, turned_, block_.features, scores, row_);
    }
    if constexpr (kQueries > 1) score<kQueries - 1>(scores);
  }

  /// Copies a query's weights; gives their sum in to_weights' order.
  float spread(const float* weights, std::int64_t width, float* to) const {
    float total = 0.0F;
    for (std::int64_t key = 0; key < block_.keys;) {
      float sum = 0.0F;
      for (const std::int64_t end = std::min(key + kAttentionKeys, block_.keys); key < end; ++key) {
        to[key * width] = weights[key];
        sum += weights[key];
      }
      total += sum;
    }
    return total;
  }

  const AttentionBlock& block_;
  float* queries_;
  float* turned_;
  float* scores_;
  std::int64_t row_;
};

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
