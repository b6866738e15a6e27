#include "quanta/observers/cuda/observer_kernels.h"

#include <limits>

#include "quanta/ops/cuda/affine_walk.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

// A NaN on either side stays.
SIMT_DEVICE void join(RangeOfFloats& all, const RangeOfFloats& other) {
  if (other.min < all.min || other.min != other.min) all.min = other.min;
  if (other.max > all.max || other.max != other.max) all.max = other.max;
}

SIMT_DEVICE RangeOfFloats nothing() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return {kInfinity, -kInfinity};
}

// What an element does to its entry's range.
SIMT_DEVICE RangeOfFloats range_of_one(const EntryRangesParams& p, float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool is_finite = x > -kInfinity && x < kInfinity;
  if (p.over == RangeOver::FiniteNumbers && !is_finite) return nothing();
  return {x, x};
}

struct Chunk {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
SIMT_DEVICE Chunk chunk_of(const EntryRangesParams& p, std::int64_t chunk) {
  const std::int64_t count = p.places.count / p.places.parameters;
  return {count * chunk / p.chunks, count * (chunk + 1) / p.chunks};
}

// Entries whose elements are neighbours: a warp for each chunk.
struct FindRangesOfRows {
  static constexpr const char* kName = "find_ranges_of_rows";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = true;
  using Params = EntryRangesParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t items = p.chunks * p.places.parameters;
    const std::int64_t wanted = simt::global_thread() / 32;
    // Warps behind the last item look at it once more.
    const std::int64_t item = wanted < items ? wanted : items - 1;
    const std::int64_t chunk = item / p.places.parameters;
    const ElementsOf elements(p.places, item - chunk * p.places.parameters);
    const Chunk part = chunk_of(p, chunk);
    RangeOfFloats range = nothing();
    for (std::int64_t i = part.begin + simt::thread() % 32; i < part.end; i += 32) {
      join(range, range_of_one(p, p.floats[elements[i]]));
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      join(range, {simt::shuffle_xor(range.min, mask), simt::shuffle_xor(range.max, mask)});
    }
    if (wanted < items && simt::thread() % 32 == 0) p.parts[item] = range;
  }
};

// Neighbouring elements that belong to neighbouring entries: a thread for each chunk.
struct FindRangesOfColumns {
  static constexpr const char* kName = "find_ranges_of_columns";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = EntryRangesParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t item = simt::global_thread();
    if (item >= p.chunks * p.places.parameters) return;
    const std::int64_t chunk = item / p.places.parameters;
    const ElementsOf elements(p.places, item - chunk * p.places.parameters);
    const Chunk part = chunk_of(p, chunk);
    RangeOfFloats range = nothing();
    for (std::int64_t i = part.begin; i < part.end; ++i) {
      join(range, range_of_one(p, p.floats[elements[i]]));
    }
    p.parts[item] = range;
  }
};

struct JoinEntryRanges {
  static constexpr const char* kName = "join_entry_ranges";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = EntryRangesParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t entry = simt::global_thread();
    if (entry >= p.places.parameters) return;
    RangeOfFloats range = nothing();
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      join(range, p.parts[chunk * p.places.parameters + entry]);
    }
    p.ranges[entry] = range;
  }
};

// The bin of a value, or -1 where it does not count.
SIMT_DEVICE std::int64_t counted_bin(const detail::BinScale& scale, bool counts_ends, float x) {
  if (x >= scale.low && x <= scale.high) return detail::bin_of(x, scale);
  if (!counts_ends || x != x) return -1;
  return x < scale.low ? 0 : scale.bins - 1;
}
SIMT_DEVICE std::int64_t counted_bin(const CountBinsParams& p, float x) {
  if (p.edges != nullptr) return detail::bin_between(x, p.edges, p.scale.bins);
  return counted_bin(p.scale, p.counts_ends, x);
}

// Counters in shared memory: four tables for the warps in turn, so that runs of one value do not
// all wait for one counter, or a long one for all.
struct CountInShared {
  static constexpr const char* kName = "count_bins_in_shared";
  static constexpr int kThreads = 256;
  static constexpr int kCounters = 8192;
  static constexpr int kTables = 4;
  static constexpr int kShared = kCounters * static_cast<int>(sizeof(std::int32_t));
  static constexpr bool kTogether = true;
  using Params = CountBinsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* const counters = reinterpret_cast<std::int32_t*>(shared);
    const int bins = static_cast<int>(p.scale.bins);
    const int tables = bins * kTables <= kCounters ? kTables : 1;
    const int t = simt::thread();
    for (int i = t; i < bins * tables; i += kThreads) counters[i] = 0;
    simt::sync();
    std::int32_t* const mine = counters + t / 32 % tables * bins;
    const std::int64_t step = static_cast<std::int64_t>(p.blocks) * kThreads;
    for (std::int64_t i = simt::global_thread(); i < p.count; i += step) {
      const std::int64_t bin = counted_bin(p, p.floats[i]);
      if (bin >= 0) simt::atomic_add(mine + bin, 1);
    }
    simt::sync();
    for (int i = t; i < bins; i += kThreads) {
      unsigned long long sum = 0;
      for (int table = 0; table < tables; ++table) {
        sum += static_cast<unsigned long long>(counters[table * bins + i]);
      }
      if (sum != 0) simt::atomic_add(p.counts + i, sum);
    }
  }
};

struct CountInGlobal {
  static constexpr const char* kName = "count_bins_in_global";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = CountBinsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t step = static_cast<std::int64_t>(p.blocks) * kThreads;
    for (std::int64_t i = simt::global_thread(); i < p.count; i += step) {
      const std::int64_t bin = counted_bin(p, p.floats[i]);
      if (bin >= 0) simt::atomic_add(p.counts + bin, 1ULL);
    }
  }
};

struct CountEntryBins {
  static constexpr const char* kName = "count_entry_bins";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = CountEntryBinsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.places.count) return;
    const std::int64_t entry = parameter_of(p.places, i);
    const std::int64_t bin = counted_bin(p.scales[entry], true, p.floats[i]);
    if (bin >= 0) simt::atomic_add(p.counts + entry * p.bins + bin, 1ULL);
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void find_entry_ranges(Device device, const EntryRangesParams& params) {
  const AffinePlaces& places = params.places;
  const std::int64_t items = params.chunks * places.parameters;
  constexpr int kThreads = FindRangesOfRows::kThreads;
  const bool in_columns = places.rank > 0 && places.strides[places.rank - 1] != 0;
  if (in_columns) {
    simt::launch<FindRangesOfColumns>(device, simt::grid_for(items, kThreads), params);
  } else {
    simt::launch<FindRangesOfRows>(device, simt::grid_for(items, kThreads / 32), params);
  }
}
void join_entry_ranges(Device device, const EntryRangesParams& params) {
  simt::launch<JoinEntryRanges>(device, simt::grid_for(params.places.parameters, 128), params);
}
void count_bins(Device device, const CountBinsParams& params) {
  const simt::Grid grid{params.blocks, 1, 1};
  params.scale.bins <= CountInShared::kCounters ? simt::launch<CountInShared>(device, grid, params)
                                                : simt::launch<CountInGlobal>(device, grid, params);
}
void count_entry_bins(Device device, const CountEntryBinsParams& params) {
  simt::launch<CountEntryBins>(device, simt::grid_for(params.places.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
