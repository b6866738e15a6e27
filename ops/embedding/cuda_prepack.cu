#include "quanta/ops/embedding/cuda_prepack.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

using detail::RowRange;

/// The range of some numbers, and where its ends stand: zeros of both signs are equal, and the CPU
/// takes the first one for the smallest, the last one for the largest.
struct FoundRange {
  float min = HUGE_VALF;
  float max = -HUGE_VALF;
  std::int64_t min_at = 0;
  std::int64_t max_at = 0;
  bool is_finite = true;

  SIMT_DEVICE void join(const FoundRange& other) {
    if (other.min < min || (other.min == min && other.min_at < min_at)) {
      min = other.min;
      min_at = other.min_at;
    }
    if (other.max > max || (other.max == max && other.max_at > max_at)) {
      max = other.max;
      max_at = other.max_at;
    }
    is_finite = is_finite && other.is_finite;
  }
};

/// A block packs a row: two warps, one for each of the two ranges that are tried at a time.
struct PrepackRows {
  static constexpr const char* kName = "prepack_rows";
  static constexpr int kThreads = 64;
  static constexpr int kTile = 512;  // numbers whose losses a warp keeps
  static constexpr int kShared = 2 * kTile * static_cast<int>(sizeof(float));
  static constexpr bool kTogether = true;
  using Params = PrepackParams;

  static SIMT_DEVICE FoundRange range_of(const float* row, std::int64_t columns,
                                         unsigned char* shared) {
    auto* const parts = reinterpret_cast<FoundRange*>(shared);
    FoundRange range;
    for (std::int64_t c = simt::thread(); c < columns; c += kThreads) {
      const float x = row[c];
      const bool is_finite = x > -HUGE_VALF && x < HUGE_VALF;
      range.join({x, x, c, c, is_finite});
    }
    parts[simt::thread()] = range;
    simt::sync();
    for (int i = 0; i < kThreads; ++i) range.join(parts[i]);
    simt::sync();
    return range;
  }

  /// The L2 norm of what a row loses with the warp's range. The squares are made by all lanes, and
  /// added by one in the order of the row, as the CPU adds them; the result is the first lane's.
  static SIMT_DEVICE float loss_of(const Params& p, const float* row, const RowRange& range,
                                   float* tile) {
    const int lane = simt::thread() % 32;
    const detail::NBitLoss loss(range, p.layout.bits);
    float sum = 0.0F;
    for (std::int64_t begin = 0; begin < p.layout.columns; begin += kTile) {
      const std::int64_t left = p.layout.columns - begin;
      const int count = left < kTile ? static_cast<int>(left) : kTile;
      for (int i = lane; i < count; i += 32) tile[i] = loss(row[begin + i]);
      simt::sync();
      if (lane == 0) {
        for (int i = 0; i < count; ++i) sum += tile[i];
      }
      simt::sync();
    }
    return sqrtf(sum);
  }

  static SIMT_DEVICE RowRange narrowed(const Params& p, const float* row, const RowRange& range,
                                       unsigned char* shared) {
    auto* const losses = reinterpret_cast<float*>(shared);
    const int warp = simt::thread() / 32;
    float* const tile = losses + warp * kTile;
    // Both warps' losses, to all threads.
    const auto share = [&](float loss, float& first, float& second) {
      if (simt::thread() % 32 == 0) tile[0] = loss;
      simt::sync();
      first = losses[0];
      second = losses[kTile];
      simt::sync();
    };
    float below = 0.0F;
    float above = 0.0F;
    share(loss_of(p, row, range, tile), below, above);
    detail::RangeSearch search(range, below, p.nbins, p.ratio);
    while (search.goes_on()) {
      const RowRange tried = warp == 0 ? search.from_below() : search.from_above();
      share(loss_of(p, row, tried, tile), below, above);
      search.take(below, above);
    }
    return search.best();
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const detail::EmbeddingRows& layout = p.layout;
    const std::int64_t number = simt::block_x();
    const float* const row = p.weight + number * layout.columns;
    std::uint8_t* const packed = p.packed + number * layout.row_bytes();
    const FoundRange found = range_of(row, layout.columns, shared);
    if (!found.is_finite) {
      if (simt::thread() == 0) simt::atomic_max(p.fault, 1);
      return;
    }
    RowRange range{found.min, found.max};
    if (p.narrows) range = narrowed(p, row, range, shared);

    float inverse = 0.0F;
    detail::RowParameters parameters;
    if (layout.bits == 8) {
      inverse = detail::byte_inverse(range);
      parameters = detail::byte_parameters(range);
    } else {
      range.min = detail::round_to_half(range.min);
      const detail::NBitScale scale = detail::nbit_scale(range, layout.bits);
      inverse = scale.inverse;
      parameters = {scale.scale, range.min};
    }
    // The columns fill their bytes.
    const auto codes = static_cast<int>(layout.per_byte());
    for (std::int64_t b = simt::thread(); b < layout.code_bytes(); b += kThreads) {
      int byte = 0;
      for (int k = 0; k < codes; ++k) {
        const int code = detail::nbit_code(row[b * codes + k], range.min, inverse, layout.bits);
        byte |= code << (k * layout.bits);
      }
      packed[b] = static_cast<std::uint8_t>(byte);
    }
    if (simt::thread() == 0) layout.set_parameters(packed, parameters);
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void prepack_rows(Device device, const PrepackParams& params) {
  simt::launch<PrepackRows>(device, simt::Grid{params.rows, 1, 1}, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
