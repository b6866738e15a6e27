#include "quanta/ops/cuda/nonzero.h"

#include "quanta/runtime/cuda/elements.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kEach = static_cast<int>(kNonzeroTile) / kThreads;  // elements of a thread
static_assert(kEach == 8, "their flags are the bytes of a number of 64 bits");

// Element `chunk` of the thread: a warp has neighbours, chunk after chunk.
SIMT_DEVICE std::int64_t element(int chunk) {
  const int warp = simt::thread() / 32;
  return simt::block_x() * kNonzeroTile + (warp * kEach + chunk) * 32 + simt::thread() % 32;
}

// A byte for each chunk: 1 where the thread's element is not 0.
SIMT_DEVICE std::uint64_t flags_of(const NonzeroParams& p) {
  std::uint64_t flags = 0;
  visit_ordered(p.dtype, [&](auto zero) {
    for (int chunk = 0; chunk < kEach; ++chunk) {
      const std::int64_t i = element(chunk);
      if (i < p.count && static_cast<const decltype(zero)*>(p.x)[i] != zero) {
        flags |= std::uint64_t{1} << (8 * chunk);
      }
    }
  });
  return flags;
}

// The sum of the lanes before this one; `total` becomes that of all lanes.
template <typename T>
SIMT_DEVICE T sum_before(T& total) {
  const int lane = simt::thread() % 32;
  T before = 0;
  for (int mask = 1; mask < 32; mask *= 2) {
    const T other = simt::shuffle_xor(total, mask);
    if ((lane & mask) != 0) before += other;
    total += other;
  }
  return before;
}

SIMT_DEVICE int byte_of(std::uint64_t bytes, int i) {
  return static_cast<int>(bytes >> (8 * i) & 0xFFU);
}

struct CountNonzeroTiles {
  static constexpr const char* kName = "count_nonzero_tiles";
  static constexpr int kThreads = cuda::kThreads;
  static constexpr int kShared = kWarps * static_cast<int>(sizeof(std::int32_t));
  static constexpr bool kTogether = true;
  using Params = NonzeroParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* const warps = reinterpret_cast<std::int32_t*>(shared);
    const std::uint64_t flags = flags_of(p);
    std::int32_t count = 0;
    for (int chunk = 0; chunk < kEach; ++chunk) count += byte_of(flags, chunk);
    count = simt::warp_sum(count);
    if (simt::thread() % 32 == 0) warps[simt::thread() / 32] = count;
    simt::sync();
    if (simt::thread() != 0) return;
    std::int64_t total = 0;
    for (int warp = 0; warp < kWarps; ++warp) total += warps[warp];
    p.starts[simt::block_x()] = total;
  }
};

// One block.
struct AddUpTiles {
  static constexpr const char* kName = "add_up_tiles";
  static constexpr int kThreads = cuda::kThreads;
  static constexpr int kShared = kWarps * static_cast<int>(sizeof(std::int64_t));
  static constexpr bool kTogether = true;
  using Params = NonzeroParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* const warps = reinterpret_cast<std::int64_t*>(shared);
    std::int64_t start = 0;
    for (std::int64_t begin = 0; begin < p.tiles; begin += kThreads * kEach) {
      const std::int64_t first = begin + simt::thread() * kEach;
      std::int64_t counts[kEach];
      std::int64_t total = 0;
      for (int k = 0; k < kEach; ++k) {
        counts[k] = first + k < p.tiles ? p.starts[first + k] : 0;
        total += counts[k];
      }
      std::int64_t before = sum_before(total);
      if (simt::thread() % 32 == 0) warps[simt::thread() / 32] = total;
      simt::sync();
      for (int warp = 0; warp < kWarps; ++warp) {
        if (warp < simt::thread() / 32) before += warps[warp];
      }
      before += start;
      for (int k = 0; k < kEach; ++k) {
        if (first + k < p.tiles) p.starts[first + k] = before;
        before += counts[k];
      }
      for (int warp = 0; warp < kWarps; ++warp) start += warps[warp];
      simt::sync();
    }
    if (simt::thread() == 0) p.starts[p.tiles] = start;
  }
};

struct PlaceNonzero {
  static constexpr const char* kName = "place_nonzero";
  static constexpr int kThreads = cuda::kThreads;
  static constexpr int kShared = kWarps * static_cast<int>(sizeof(std::int32_t));
  static constexpr bool kTogether = true;
  using Params = NonzeroParams;

  static SIMT_DEVICE void write_place(const Params& p, std::int64_t number, std::int64_t i) {
    std::int64_t* const to = p.places + number * p.rank;
    for (int d = p.rank - 1; d > 0; --d) {
      to[d] = i % p.sizes[d];
      i /= p.sizes[d];
    }
    if (p.rank > 0) to[0] = i;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* const warps = reinterpret_cast<std::int32_t*>(shared);
    const std::uint64_t flags = flags_of(p);
    std::uint64_t totals = flags;  // of each chunk; 32 at most
    const std::uint64_t before = sum_before(totals);
    if (simt::thread() % 32 == 0) {
      std::int32_t total = 0;
      for (int chunk = 0; chunk < kEach; ++chunk) total += byte_of(totals, chunk);
      warps[simt::thread() / 32] = total;
    }
    simt::sync();
    std::int64_t start = p.starts[simt::block_x()];
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp < simt::thread() / 32) start += warps[warp];
    }
    for (int chunk = 0; chunk < kEach; ++chunk) {
      const std::int64_t i = element(chunk);
      const std::int64_t number = start + byte_of(before, chunk);
      const int flag = byte_of(flags, chunk);
      if (flag != 0 && p.places != nullptr) write_place(p, number, i);
      if (i < p.count && p.numbers != nullptr) p.numbers[i] = number + flag - 1;
      start += byte_of(totals, chunk);
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void count_nonzero_tiles(Device device, const NonzeroParams& params) {
  simt::launch<CountNonzeroTiles>(device, {params.tiles, 1, 1}, params);
}
void add_up_tiles(Device device, const NonzeroParams& params) {
  simt::launch<AddUpTiles>(device, {1, 1, 1}, params);
}
void place_nonzero(Device device, const NonzeroParams& params) {
  simt::launch<PlaceNonzero>(device, {params.tiles, 1, 1}, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
