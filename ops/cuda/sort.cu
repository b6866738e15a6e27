#include "quanta/ops/cuda/sort.h"

#include "quanta/runtime/cuda/elements.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/order_math.h"

namespace quanta::cuda {
namespace {

constexpr int kTile = static_cast<int>(kSortTile);

// The key of an element of x, turned over where the largest come first.
SIMT_DEVICE std::uint64_t key_at(const SortParams& p, std::int64_t at) {
  std::uint64_t key = 0;
  visit_ordered(p.dtype, [&](auto zero) {
    key = math::order_key(static_cast<const decltype(zero)*>(p.x)[at]);
  });
  if (p.descending) key = ~key;
  return p.key_bits < 64 ? key & ((std::uint64_t{1} << p.key_bits) - 1) : key;
}

struct PackedOrder {
  using Item = std::uint64_t;
  static constexpr int kBlocks = 6;
  static SIMT_DEVICE Item last() { return ~std::uint64_t{0}; }
  static SIMT_DEVICE Item make(const SortParams& p, std::int64_t row, std::int64_t at) {
    return key_at(p, row * p.x_length + at) << p.position_bits | static_cast<std::uint64_t>(at);
  }
  static SIMT_DEVICE std::int64_t position(const SortParams& p, Item item) {
    return static_cast<std::int64_t>(item & ((std::uint64_t{1} << p.position_bits) - 1));
  }
  static SIMT_DEVICE bool is_before(const SortParams&, Item a, Item b) { return a < b; }
};

struct PairOrder {
  struct alignas(16) Item {
    std::uint64_t key;
    std::uint64_t position;
  };
  static constexpr int kBlocks = 4;
  static SIMT_DEVICE Item last() { return {~std::uint64_t{0}, ~std::uint64_t{0}}; }
  static SIMT_DEVICE Item make(const SortParams& p, std::int64_t row, std::int64_t at) {
    return {key_at(p, row * p.x_length + at), static_cast<std::uint64_t>(at)};
  }
  static SIMT_DEVICE std::int64_t position(const SortParams&, const Item& item) {
    return static_cast<std::int64_t>(item.position);
  }
  static SIMT_DEVICE bool is_before(const SortParams&, const Item& a, const Item& b) {
    return a.key != b.key ? a.key < b.key : a.position < b.position;
  }
};

struct SliceOrder {
  using Item = std::uint64_t;
  static constexpr int kBlocks = 4;
  static SIMT_DEVICE Item last() { return ~std::uint64_t{0}; }
  static SIMT_DEVICE Item make(const SortParams&, std::int64_t, std::int64_t at) {
    return static_cast<std::uint64_t>(at);
  }
  static SIMT_DEVICE std::int64_t position(const SortParams&, Item item) {
    return static_cast<std::int64_t>(item);
  }
  static SIMT_DEVICE bool is_before(const SortParams& p, Item a, Item b) {
    if (a == last() || b == last()) return a < b;
    bool is_less = a < b;
    visit_ordered(p.dtype, [&](auto zero) {
      const auto* const x = static_cast<const decltype(zero)*>(p.x);
      const auto* const left = x + static_cast<std::int64_t>(a) * p.slice;
      const auto* const right = x + static_cast<std::int64_t>(b) * p.slice;
      for (std::int64_t i = 0; i < p.slice; ++i) {
        const auto one = math::order_key(left[i]);
        const auto other = math::order_key(right[i]);
        if (one == other) continue;
        is_less = one < other;
        return;
      }
    });
    return is_less;
  }
};

// Item `at` of a row of the result.
template <typename Order>
SIMT_DEVICE void put(const SortParams& p, std::int64_t row, std::int64_t at,
                     const typename Order::Item& item) {
  const std::int64_t to = row * p.to_length + at;
  if (p.to != nullptr) {
    static_cast<typename Order::Item*>(p.to)[to] = item;
    return;
  }
  const std::int64_t position = Order::position(p, item);
  if (p.positions != nullptr) p.positions[to] = position;
  if (p.values == nullptr) return;
  visit_ordered(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    static_cast<T*>(p.values)[to] = static_cast<const T*>(p.x)[row * p.x_length + position];
  });
}

template <typename Order>
struct SortTiles {
  using Item = typename Order::Item;
  static constexpr const char* kName = "sort_tiles";
  static constexpr int kThreads = 256;
  static constexpr int kShared = kTile * static_cast<int>(sizeof(Item));
  static constexpr bool kTogether = true;
  static constexpr int kBlocks = Order::kBlocks;
  using Params = SortParams;

  static SIMT_DEVICE void order(const Params& p, Item& a, Item& b) {
    const Item one = a;
    const Item other = b;
    if (!Order::is_before(p, other, one)) return;
    a = other;
    b = one;
  }

  // Groups of 2 << shift items whose halves are in order: the first step of a merge meets each item
  // of one half with its mirror image in the other, so that all go upwards; then halves of halves.
  static SIMT_DEVICE void merge(const Params& p, Item* tile, int shift) {
    for (int pair = simt::thread(); pair < kTile / 2; pair += kThreads) {
      const int within = pair & ((1 << shift) - 1);
      const int first = (pair - within) * 2;
      order(p, tile[first + within], tile[first + (2 << shift) - 1 - within]);
    }
    simt::sync();
    while (--shift >= 0) {
      for (int pair = simt::thread(); pair < kTile / 2; pair += kThreads) {
        const int within = pair & ((1 << shift) - 1);
        const int first = (pair - within) * 2 + within;
        order(p, tile[first], tile[first + (1 << shift)]);
      }
      simt::sync();
    }
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    Item* const tile = reinterpret_cast<Item*>(shared);
    const std::int64_t tiles = (p.length + p.span - 1) / p.span;  // of a row
    const auto span = static_cast<int>(p.span);
    // Short rows share a block.
    const std::int64_t first = static_cast<std::int64_t>(simt::block_x()) * (kTile / span);
    for (int i = simt::thread(); i < kTile; i += kThreads) {
      const std::int64_t number = first + i / span;
      const std::int64_t row = number / tiles;
      const std::int64_t at = number % tiles * p.span + i % span;
      if (row >= p.rows || at >= p.length) {
        tile[i] = Order::last();
      } else if (p.from != nullptr) {
        tile[i] = static_cast<const Item*>(p.from)[row * p.length + at];
      } else {
        tile[i] = Order::make(p, row, at);
      }
    }
    simt::sync();
    for (int shift = 0; 1 << shift < span; ++shift) merge(p, tile, shift);
    for (int i = simt::thread(); i < kTile; i += kThreads) {
      const std::int64_t number = first + i / span;
      const std::int64_t row = number / tiles;
      if (row >= p.rows) return;
      const std::int64_t within = i % span;
      const std::int64_t begin = number % tiles;
      if (within >= p.keep || begin * p.span + within >= p.length) continue;
      put<Order>(p, row, begin * p.keep + within, tile[i]);
    }
  }
};

// A block makes kTile items of the result of two neighbouring runs: it looks for what it takes of
// each, and then each item for its place among those of the other run.
template <typename Order>
struct MergeRuns {
  using Item = typename Order::Item;
  static constexpr const char* kName = "merge_runs";
  static constexpr int kThreads = 256;
  static constexpr int kItems = kTile * static_cast<int>(sizeof(Item));
  static constexpr int kShared = kItems + 2 * static_cast<int>(sizeof(std::int64_t));
  static constexpr bool kTogether = true;
  static constexpr int kBlocks = Order::kBlocks;
  using Params = SortParams;

  // How many of the first `count` items of both together come from the left.
  static SIMT_DEVICE std::int64_t split(const Params& p, const Item* left, std::int64_t left_size,
                                        const Item* right, std::int64_t right_size,
                                        std::int64_t count) {
    std::int64_t low = count > right_size ? count - right_size : 0;
    std::int64_t high = count < left_size ? count : left_size;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (Order::is_before(p, left[middle], right[count - 1 - middle])) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  static SIMT_DEVICE int count_before(const Params& p, const Item* items, int size,
                                      const Item& item) {
    int low = 0;
    int high = size;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (Order::is_before(p, items[middle], item)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  static SIMT_DEVICE std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    Item* const tile = reinterpret_cast<Item*>(shared);
    auto* const splits = reinterpret_cast<std::int64_t*>(shared + kItems);
    const std::int64_t tiles = (p.length + kTile - 1) / kTile;
    const std::int64_t row = simt::block_x() / tiles;
    const std::int64_t begin = simt::block_x() % tiles * kTile;
    if (begin >= p.keep) return;
    const std::int64_t base = begin / (2 * p.span) * (2 * p.span);
    const Item* const left = static_cast<const Item*>(p.from) + row * p.length + base;
    const std::int64_t left_size = least(p.span, p.length - base);
    const Item* const right = left + left_size;
    const std::int64_t right_size = least(p.span, p.length - base - left_size);
    const std::int64_t from = begin - base;
    const std::int64_t to = least(from + kTile, left_size + right_size);
    if (simt::thread() < 2) {
      splits[simt::thread()] =
          split(p, left, left_size, right, right_size, simt::thread() == 0 ? from : to);
    }
    simt::sync();
    const std::int64_t left_begin = splits[0];
    const std::int64_t right_begin = from - left_begin;
    const auto of_left = static_cast<int>(splits[1] - left_begin);
    const auto count = static_cast<int>(to - from);
    for (int i = simt::thread(); i < count; i += kThreads) {
      tile[i] = i < of_left ? left[left_begin + i] : right[right_begin + i - of_left];
    }
    simt::sync();
    for (int i = simt::thread(); i < count; i += kThreads) {
      const Item item = tile[i];
      const int place = i < of_left ? i + count_before(p, tile + of_left, count - of_left, item)
                                    : i - of_left + count_before(p, tile, of_left, item);
      if (begin + place < p.keep) put<Order>(p, row, begin + place, item);
    }
  }
};

template <template <typename> typename Kernel>
void launch_for(Device device, const simt::Grid& grid, const SortParams& params) {
  switch (params.kind) {
    case SortItems::Packed:
      return simt::launch<Kernel<PackedOrder>>(device, grid, params);
    case SortItems::Pairs:
      return simt::launch<Kernel<PairOrder>>(device, grid, params);
    case SortItems::Slices:
      return simt::launch<Kernel<SliceOrder>>(device, grid, params);
  }
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void sort_tiles(Device device, const SortParams& params) {
  const std::int64_t tiles = (params.length + params.span - 1) / params.span;
  const std::int64_t in_block = kSortTile / params.span;
  launch_for<SortTiles>(device, {(params.rows * tiles + in_block - 1) / in_block, 1, 1}, params);
}
void merge_runs(Device device, const SortParams& params) {
  const std::int64_t tiles = (params.length + kSortTile - 1) / kSortTile;
  launch_for<MergeRuns>(device, {params.rows * tiles, 1, 1}, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
