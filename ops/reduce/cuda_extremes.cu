#include <limits>
#include <type_traits>

#include "quanta/ops/reduce/cuda_kernels.h"
#include "quanta/runtime/cuda/elements.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

// What elements of type T are compared as.
template <typename T>
using Compared = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;

template <typename V>
struct Found {
  V value;
  std::int64_t index;
};

// What every element takes the place of.
template <typename T>
SIMT_DEVICE Found<Compared<T>> nothing(const ExtremeParams& p) {
  using V = Compared<T>;
  const std::int64_t index = p.last ? -1 : std::numeric_limits<std::int64_t>::max();
  if constexpr (std::is_floating_point_v<T>) {
    const V infinity = std::numeric_limits<V>::infinity();
    return {p.smallest ? infinity : -infinity, index};
  } else {
    if (p.block.dtype == DType::Bool) return {p.smallest ? V{1} : V{0}, index};
    return {static_cast<V>(p.smallest ? std::numeric_limits<T>::max()
                                      : std::numeric_limits<T>::lowest()),
            index};
  }
}

// In any order the same one is left: the more extreme, among equals the first or the last, of NaN
// always the first.
template <typename V>
SIMT_DEVICE void join(const ExtremeParams& p, Found<V>& best, const Found<V>& other) {
  const bool is_nan = other.value != other.value;
  const bool best_is_nan = best.value != best.value;
  const bool earlier = other.index < best.index;
  bool wins = p.smallest ? other.value < best.value : other.value > best.value;
  if (other.value == best.value) wins = p.last ? other.index > best.index : earlier;
  if (is_nan || best_is_nan) wins = is_nan && (!best_is_nan || earlier);
  if (wins) best = other;
}

template <typename V>
SIMT_DEVICE void join_warp(const ExtremeParams& p, Found<V>& best) {
  for (int mask = 16; mask > 0; mask /= 2) {
    join(p, best, {simt::shuffle_xor(best.value, mask), simt::shuffle_xor(best.index, mask)});
  }
}

template <typename T>
SIMT_DEVICE void write(const ExtremeParams& p, std::int64_t at, const Found<Compared<T>>& best) {
  if (p.values != nullptr) static_cast<T*>(p.values)[at] = static_cast<T>(best.value);
  if (p.indices != nullptr) p.indices[at] = best.index;
}

struct FindRowExtremes {
  static constexpr const char* kName = "find_row_extremes";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = true;
  using Params = ExtremeParams;

  template <typename T>
  static SIMT_DEVICE void part_of_row(const Params& p) {
    using V = Compared<T>;
    const std::int64_t all = p.block.outer * p.parts;
    const std::int64_t wanted = simt::global_thread() / 32;
    const std::int64_t item = wanted < all ? wanted : all - 1;
    const std::int64_t row = item / p.parts;
    const std::int64_t length = (p.block.count + p.parts - 1) / p.parts;
    const std::int64_t begin = item % p.parts * length;
    const std::int64_t end = begin + length < p.block.count ? begin + length : p.block.count;
    const T* const x = static_cast<const T*>(p.block.x) + row * p.block.count;
    Found<V> best = nothing<T>(p);
    for (std::int64_t i = begin + simt::thread() % 32; i < end; i += 32) {
      join(p, best, {static_cast<V>(x[i]), i});
    }
    join_warp(p, best);
    if (wanted >= all || simt::thread() % 32 != 0) return;
    if (p.parts == 1) return write<T>(p, row, best);
    FoundExtreme& found = p.partial[item];
    found.index = best.index;
    simt::store(&found.bits, best.value);
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    visit_ordered(p.block.dtype, [&](auto zero) { part_of_row<decltype(zero)>(p); });
  }
};

struct JoinRowExtremes {
  static constexpr const char* kName = "join_row_extremes";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = true;
  using Params = ExtremeParams;

  template <typename T>
  static SIMT_DEVICE void row(const Params& p) {
    using V = Compared<T>;
    const std::int64_t wanted = simt::global_thread() / 32;
    const std::int64_t row = wanted < p.block.outer ? wanted : p.block.outer - 1;
    Found<V> best = nothing<T>(p);
    for (std::int64_t i = simt::thread() % 32; i < p.parts; i += 32) {
      const FoundExtreme& found = p.partial[row * p.parts + i];
      join(p, best, {simt::load<V>(&found.bits), found.index});
    }
    join_warp(p, best);
    if (wanted < p.block.outer && simt::thread() % 32 == 0) write<T>(p, row, best);
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    visit_ordered(p.block.dtype, [&](auto zero) { row<decltype(zero)>(p); });
  }
};

struct FindColumnExtremes {
  static constexpr const char* kName = "find_column_extremes";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ExtremeParams;

  template <typename T>
  static SIMT_DEVICE void column(const Params& p, std::int64_t at) {
    using V = Compared<T>;
    const std::int64_t inner = p.block.inner;
    const T* const x =
        static_cast<const T*>(p.block.x) + at / inner * p.block.count * inner + at % inner;
    Found<V> best = nothing<T>(p);
    for (std::int64_t i = 0; i < p.block.count; ++i) {
      join(p, best, {static_cast<V>(x[i * inner]), i});
    }
    write<T>(p, at, best);
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t at = simt::global_thread();
    if (at >= p.block.outer * p.block.inner) return;
    visit_ordered(p.block.dtype, [&](auto zero) { column<decltype(zero)>(p, at); });
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void find_row_extremes(Device device, const ExtremeParams& params) {
  simt::launch<FindRowExtremes>(
      device, simt::grid_for(params.block.outer * params.parts * 32, FindRowExtremes::kThreads),
      params);
}
void join_row_extremes(Device device, const ExtremeParams& params) {
  simt::launch<JoinRowExtremes>(
      device, simt::grid_for(params.block.outer * 32, JoinRowExtremes::kThreads), params);
}
void find_column_extremes(Device device, const ExtremeParams& params) {
  simt::launch<FindColumnExtremes>(device, simt::grid_for(params.block.outer * params.block.inner),
                                   params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
