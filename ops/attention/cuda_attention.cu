#include "quanta/ops/attention/cuda_attention.h"

#include <cmath>

#include "quanta/ops/cuda/float_elements.h"
#include "quanta/ops/cuda/four_floats.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/exp_math.h"

namespace quanta::cuda {
namespace {

using cpu::AttentionStrides;

SIMT_DEVICE float larger(float a, float b) { return a > b ? a : b; }

// Eight threads share each of sixteen groups of kRows queries. A tile of products has kKeys keys, as
// many as the CPU adds up before it goes on to the next sum; a thread has every eighth of them.
template <int kRows, int kSlices>
struct AttendQueries {
  static constexpr const char* kName = "attend_queries";
  static constexpr int kThreads = 128;
  static constexpr int kBlocks = kRows == 4 && kSlices == 2 ? 2 : 3;
  static constexpr bool kTogether = true;
  using Params = AttentionParams;

  static constexpr int kLanes = 8;
  static constexpr int kGroups = kThreads / kLanes;
  static constexpr int kQueries = kGroups * kRows;
  static constexpr int kKeys = 72;
  static constexpr int kOwnKeys = kKeys / kLanes;
  static constexpr int kSlice = 64;  // features of values that are there at once
  static constexpr int kColumns = kSlice * kSlices;
  static constexpr int kDepth = 32;  // features of queries and keys that are there at once
  // Neighbouring rows then lie in different banks, four floats at a time.
  static constexpr int kRow = kDepth + 4;

  // Shared memory, in floats: queries and keys, or values in their place; weights; factors.
  static constexpr int kProducts = (kQueries + kKeys) * kRow;
  static constexpr int kValues = kKeys * kSlice;
  static constexpr int kFirst = kProducts > kValues ? kProducts : kValues;
  static constexpr int kWeights = kQueries * kKeys;
  static constexpr int kShared = (kFirst + kWeights + kQueries) * static_cast<int>(sizeof(float));

  /// What a block of threads works on.
  struct Work {
    FloatSource query;  // from the first query on, and so on
    FloatSource key;
    FloatSource value;
    FloatSource mask;
    std::int64_t first;  // query
    int queries;         // that there are
    std::int64_t end;    // of the keys
    int column;          // of the values, the block's first one
    int columns;         // from there on
    float* tile;         // shared
    float* weights;      // [kQueries][kKeys]
    float* factors;      // [kQueries]
  };

  static SIMT_DEVICE std::int64_t place(const AttentionStrides& strides, std::int64_t batch,
                                        std::int64_t head, std::int64_t row) {
    return batch * strides.batch + head * strides.head + row * strides.row;
  }

  /// Where the block's queries lie: of which sample, head, and from which one on.
  struct Block {
    std::int64_t batch, head, first;
  };
  static SIMT_DEVICE Block block_of(const cpu::AttentionShape& p) {
    const std::int64_t blocks = (p.queries + kQueries - 1) / kQueries;
    const std::int64_t block = simt::block_x();
    return {block / blocks / p.heads, block / blocks % p.heads, block % blocks * kQueries};
  }

  static SIMT_DEVICE Work work_of(const Params& params, unsigned char* shared) {
    const cpu::AttentionShape& p = params.shape;
    const AttentionOperands& of = params.operands;
    const auto [batch, head, first] = block_of(p);
    Work work;
    work.column = simt::block_y() * kColumns;
    work.first = first;
    work.queries =
        static_cast<int>(p.queries - work.first < kQueries ? p.queries - work.first : kQueries);
    work.end = p.keys;
    if (p.causal) {
      const std::int64_t last = work.first / params.span * params.span + params.span;
      const std::int64_t visible = last < p.queries ? last : p.queries;
      work.end = visible < p.keys ? visible : p.keys;
    }
    work.columns = static_cast<int>(p.value_features) - work.column;
    work.query = {of.dtype, of.query, place(p.query_strides, batch, head, work.first)};
    work.key = {of.dtype, of.key, place(p.key_strides, batch, head, 0)};
    work.value = {of.dtype, of.value, place(p.value_strides, batch, head, 0) + work.column};
    work.mask = {of.dtype, of.mask, place(p.mask_strides, batch, head, work.first)};
    work.tile = reinterpret_cast<float*>(shared);
    work.weights = work.tile + kFirst;
    work.factors = work.weights + kWeights;
    return work;
  }

  /// to[row][i] = factor * from[row][i] for kDepth features; zeros where there are no rows or
  /// features.
  static SIMT_DEVICE void load_rows(const FloatSource& from, std::int64_t stride, int rows,
                                    std::int64_t features, float factor, float* to, int count) {
    constexpr int kAtOnce = kThreads / kDepth;
    const int feature = simt::thread() % kDepth;
    const bool has_feature = feature < features;
    int row = simt::thread() / kDepth;
    FloatSource at = from + (row * stride + feature);
    for (; row < count; row += kAtOnce, at += kAtOnce * stride) {
      to[row * kRow + feature] = has_feature && row < rows ? *at * factor : 0.0F;
    }
  }

  /// The products of the thread's queries with its keys of the tile that starts at `key`.
  static SIMT_DEVICE void multiply(const cpu::AttentionShape& p, const Work& work, std::int64_t key,
                                   float (&sums)[kRows][kOwnKeys]) {
    const int lane = simt::thread() % kLanes;
    const int group = simt::thread() / kLanes;
    float* const queries = work.tile;
    float* const keys = work.tile + kQueries * kRow;
    const std::int64_t left = work.end - key;
    const int rows = static_cast<int>(left < kKeys ? left : kKeys);
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      SIMT_UNROLL
      for (int j = 0; j < kOwnKeys; ++j) sums[r][j] = 0.0F;
    }
    for (std::int64_t from = 0; from < p.features; from += kDepth) {
      simt::sync();  // others may still read what was there
      load_rows(work.query + from, p.query_strides.row, work.queries, p.features - from, p.scale,
                queries, kQueries);
      load_rows(work.key + (key * p.key_strides.row + from), p.key_strides.row, rows,
                p.features - from, 1.0F, keys, kKeys);
      simt::sync();
      const std::int64_t features = p.features - from;
      const int depth = static_cast<int>(features < kDepth ? features : kDepth);
      for (int i = 0; i < depth; i += 4) {
        FourFloats q[kRows];
        SIMT_UNROLL
        for (int r = 0; r < kRows; ++r) {
          q[r] = simt::load<FourFloats>(queries + (group + kGroups * r) * kRow + i);
        }
        SIMT_UNROLL
        for (int j = 0; j < kOwnKeys; ++j) {
          const auto k = simt::load<FourFloats>(keys + (lane + kLanes * j) * kRow + i);
          SIMT_UNROLL
          for (int r = 0; r < kRows; ++r) {
            SIMT_UNROLL
            for (int e = 0; e < 4; ++e) sums[r][j] = fmaf(q[r].of[e], k.of[e], sums[r][j]);
          }
        }
      }
    }
  }

  /// Adds the mask to products of query `row` with the thread's keys of a tile; minus infinity for
  /// keys that do not take part.
  static SIMT_DEVICE void mask_row(const cpu::AttentionShape& p, const Work& work, int row,
                                   std::int64_t key, float (&scores)[kOwnKeys]) {
    key += simt::thread() % kLanes;
    const FloatSource mask = work.mask + (row * p.mask_strides.row + key);
    std::int64_t end = row < work.queries ? work.end : 0;
    if (p.causal && work.first + row + 1 < end) end = work.first + row + 1;
    SIMT_UNROLL
    for (int j = 0; j < kOwnKeys; ++j) {
      if (key + kLanes * j >= end) {
        scores[j] = -HUGE_VALF;
      } else if (mask.data != nullptr) {
        scores[j] += mask[kLanes * j];
      }
    }
  }

  /// sum + the weights of the thread's query, in the CPU's order.
  static SIMT_DEVICE float add_weights(const Work& work, int count, float total) {
    const float* const own = work.weights + simt::thread() * kKeys;
    float sum = 0.0F;
    for (int k = 0; k < count; ++k) sum += own[k];
    return total + sum;
  }

  /// The values of `count` keys, kSlice features from `column` on; zeros behind the last one.
  static SIMT_DEVICE void load_values(const cpu::AttentionShape& p, const Work& work,
                                      std::int64_t key, int count, int column) {
    constexpr int kAtOnce = kThreads / kSlice;
    const int feature = simt::thread() % kSlice;
    const bool has_feature = column + feature < work.columns;
    int row = simt::thread() / kSlice;
    FloatSource at = work.value + ((key + row) * p.value_strides.row + column + feature);
    for (; row < count; row += kAtOnce, at += kAtOnce * p.value_strides.row) {
      work.tile[row * kSlice + feature] = has_feature ? *at : 0.0F;
    }
  }

  /// The thread has features 4 * lane to 4 * lane + 3 of a slice, and those half a slice further on.
  static SIMT_DEVICE void add_values(const Work& work, int k, const float (&weights)[kRows],
                                     float (&results)[kRows][8]) {
    const float* const values = work.tile + k * kSlice + simt::thread() % kLanes * 4;
    const auto low = simt::load<FourFloats>(values);
    const auto high = simt::load<FourFloats>(values + kSlice / 2);
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      SIMT_UNROLL
      for (int e = 0; e < 4; ++e) {
        results[r][e] = fmaf(weights[r], low.of[e], results[r][e]);
        results[r][e + 4] = fmaf(weights[r], high.of[e], results[r][e + 4]);
      }
    }
  }

  static SIMT_DEVICE void add_weighted(const Work& work, int count, float (&results)[kRows][8]) {
    const float* const own = work.weights + simt::thread() / kLanes * kKeys;
    int k = 0;
    for (; k + 4 <= count; k += 4) {
      FourFloats four[kRows];
      SIMT_UNROLL
      for (int r = 0; r < kRows; ++r) {
        four[r] = simt::load<FourFloats>(own + r * kGroups * kKeys + k);
      }
      SIMT_UNROLL
      for (int e = 0; e < 4; ++e) {
        float weights[kRows];
        SIMT_UNROLL
        for (int r = 0; r < kRows; ++r) weights[r] = four[r].of[e];
        add_values(work, k + e, weights, results);
      }
    }
    for (; k < count; ++k) {
      float weights[kRows];
      SIMT_UNROLL
      for (int r = 0; r < kRows; ++r) weights[r] = own[r * kGroups * kKeys + k];
      add_values(work, k, weights, results);
    }
  }

  static SIMT_DEVICE void store(const Params& params, const Work& work,
                                const float (&results)[kRows][8], int slice) {
    const cpu::AttentionShape& p = params.shape;
    const auto [batch, head, first] = block_of(p);
    const std::int64_t out = place(p.out_strides, batch, head, first) + work.column;
    SIMT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int row = simt::thread() / kLanes + kGroups * r;
      if (row >= work.queries) continue;
      SIMT_UNROLL
      for (int e = 0; e < 8; ++e) {
        const int column = slice + e / 4 * (kSlice / 2) + simt::thread() % kLanes * 4 + e % 4;
        if (column >= work.columns) continue;
        put_float(params.operands.dtype, params.operands.out,
                  out + row * p.out_strides.row + column, results[r][e] * work.factors[row]);
      }
    }
  }

  static SIMT_DEVICE void run(const Params& params, unsigned char* shared) {
    const cpu::AttentionShape& p = params.shape;
    const Work work = work_of(params, shared);
    const int t = simt::thread();
    const int lane = t % kLanes;
    const int group = t / kLanes;

    float sums[kRows][kOwnKeys];
    float tops[kRows];
    for (float& top : tops) top = -HUGE_VALF;
    for (std::int64_t key = 0; key < work.end; key += kKeys) {
      multiply(p, work, key, sums);
      SIMT_UNROLL
      for (int r = 0; r < kRows; ++r) {
        float scores[kOwnKeys];
        SIMT_UNROLL
        for (int j = 0; j < kOwnKeys; ++j) scores[j] = sums[r][j];
        mask_row(p, work, group + kGroups * r, key, scores);
        for (const float score : scores) tops[r] = larger(tops[r], score);
      }
    }
    SIMT_UNROLL
    for (float& top : tops) {
      for (int mask = kLanes / 2; mask > 0; mask /= 2) {
        top = larger(top, simt::shuffle_xor(top, mask));
      }
      // A query without any key subtracts 0 from minus infinity, which leaves zeros.
      if (top == -HUGE_VALF) top = 0.0F;
    }

    float results[kRows][8] = {};
    float further[kRows][8] = {};  // of the second slice
    float total = 0.0F;
    for (std::int64_t key = 0; key < work.end; key += kKeys) {
      // The products of the only tile are still there.
      if (work.end > kKeys) multiply(p, work, key, sums);
      const std::int64_t left = work.end - key;
      const int count = static_cast<int>(left < kKeys ? left : kKeys);
      SIMT_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const int row = group + kGroups * r;
        mask_row(p, work, row, key, sums[r]);
        float* const weights = work.weights + row * kKeys + lane;
        SIMT_UNROLL
        for (int j = 0; j < kOwnKeys; ++j) {
          weights[kLanes * j] = math::exp_normal(sums[r][j] - tops[r]);
        }
      }
      simt::sync();  // weights are there, and nobody reads keys any more
      load_values(p, work, key, count, 0);
      if (t < kQueries) total = add_weights(work, count, total);
      simt::sync();
      add_weighted(work, count, results);
      if constexpr (kSlices == 2) {
        simt::sync();
        load_values(p, work, key, count, kSlice);
        simt::sync();
        add_weighted(work, count, further);
      }
      // With one tile nothing else comes; with more the next products begin with a barrier, and
      // the next weights stand behind it.
    }
    if (t < kQueries) work.factors[t] = total == 0.0F ? 0.0F : 1.0F / total;
    simt::sync();
    store(params, work, results, 0);
    if constexpr (kSlices == 2) store(params, work, further, kSlice);
  }
};

struct MakeAdditiveMask {
  static constexpr const char* kName = "make_additive_mask";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AdditiveMaskParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    put_float(p.dtype, p.out, i, p.mask[i] == p.left_out ? -HUGE_VALF : 0.0F);
  }
};

template <int kRows, int kSlices>
void launch_queries(Device device, const AttentionParams& params) {
  using Kernel = AttendQueries<kRows, kSlices>;
  const cpu::AttentionShape& p = params.shape;
  const std::int64_t blocks = (p.queries + Kernel::kQueries - 1) / Kernel::kQueries;
  const std::int64_t parts = (p.value_features + Kernel::kColumns - 1) / Kernel::kColumns;
  simt::launch<Kernel>(device, {p.batch * p.heads * blocks, static_cast<int>(parts), 1}, params);
}

template <int kRows>
void launch_rows(Device device, const AttentionParams& params) {
  if (params.shape.value_features <= 64) {
    launch_queries<kRows, 1>(device, params);
  } else {
    launch_queries<kRows, 2>(device, params);
  }
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void attend_queries(Device device, const AttentionParams& params) {
  if (params.block == 16) {
    launch_rows<1>(device, params);
  } else if (params.block == 32) {
    launch_rows<2>(device, params);
  } else {
    launch_rows<4>(device, params);
  }
}
void make_additive_mask(Device device, const AdditiveMaskParams& params) {
  simt::launch<MakeAdditiveMask>(device, simt::grid_for(params.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
