#include "quanta/ops/cuda/range.h"

#include <limits>

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SIMT_DEVICE bool counts(RangeOver over, float x) {
  if (over == RangeOver::All) return true;
  if (x != x) return over == RangeOver::Finite;
  return x > -kInfinity && x < kInfinity;
}

// A NaN on either side stays.
SIMT_DEVICE float lesser(float a, float b) { return b < a || b != b ? b : a; }
SIMT_DEVICE float greater(float a, float b) { return b > a || b != b ? b : a; }

struct FindRanges {
  static constexpr const char* kName = "find_ranges";
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kShared = kWarps * static_cast<int>(sizeof(RangeOfFloats));
  static constexpr bool kTogether = true;
  using Params = FindRangeParams;

  static SIMT_DEVICE RangeOfFloats element(const Params& p, std::int64_t i) {
    if (p.ranges != nullptr) return p.ranges[i];
    const float x = p.floats[i];
    return counts(p.over, x) ? RangeOfFloats{x, x} : RangeOfFloats{kInfinity, -kInfinity};
  }
  static SIMT_DEVICE void join(RangeOfFloats& all, const RangeOfFloats& other) {
    all.min = lesser(all.min, other.min);
    all.max = greater(all.max, other.max);
  }
  static SIMT_DEVICE void join_warp(RangeOfFloats& range) {
    for (int mask = 16; mask > 0; mask /= 2) {
      join(range, {simt::shuffle_xor(range.min, mask), simt::shuffle_xor(range.max, mask)});
    }
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const int t = simt::thread();
    // Threads behind the end look at the last element once more.
    const std::int64_t first = simt::global_thread();
    RangeOfFloats range = element(p, first < p.count ? first : p.count - 1);
    const std::int64_t step = static_cast<std::int64_t>(p.blocks) * kThreads;
    for (std::int64_t i = first + step; i < p.count; i += step) join(range, element(p, i));
    join_warp(range);
    auto* const of_warps = reinterpret_cast<RangeOfFloats*>(shared);
    if (t % 32 == 0) of_warps[t / 32] = range;
    simt::sync();
    if (t >= 32) return;
    range = of_warps[t % kWarps];
    join_warp(range);
    if (t == 0) p.out[simt::block_x()] = range;
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void find_ranges(Device device, const FindRangeParams& params) {
  simt::launch<FindRanges>(device, simt::Grid{params.blocks, 1, 1}, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
