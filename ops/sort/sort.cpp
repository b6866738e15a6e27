#include "quanta/ops/sort.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/reduce/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

enum class Order : std::uint8_t { Ascending, Descending };

// Bytes in the order of their values: one pass counts, one places. Writes the first `k` positions.
template <typename T>
void order_bytes(const T* row, std::int64_t count, std::int64_t k, Order order,
                 std::int64_t* indices) {
  constexpr std::size_t kCodes = 256;
  const auto rank = [order](T value) {
    const int from_low = static_cast<int>(value) - static_cast<int>(std::numeric_limits<T>::min());
    return static_cast<std::size_t>(order == Order::Ascending ? from_low : 255 - from_low);
  };
  std::array<std::int64_t, kCodes + 1> start{};
  for (std::int64_t i = 0; i < count; ++i) ++start[rank(row[i]) + 1];
  for (std::size_t code = 0; code < kCodes; ++code) start[code + 1] += start[code];
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = start[rank(row[i])]++;
    if (at < k) indices[at] = i;
  }
}

// An unsigned number that orders like the value: of floats the bits with the sign turned over, one
// number for both zeros, the largest for every NaN.
template <typename T>
std::uint32_t key_of(T value) {
  constexpr std::uint32_t kSign = 0x80000000U;
  if constexpr (std::is_floating_point_v<T>) {
    if (value != value) return ~0U;
    const auto bits = std::bit_cast<std::uint32_t>(value == 0.0F ? 0.0F : value);
    return (bits & kSign) != 0 ? ~bits : bits | kSign;
  } else {
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(value)) ^ kSign;
  }
}

// The first `k` of `items` in order.
template <typename Items, typename... Before>
void sort_first(Items& items, std::int64_t k, const Before&... before) {
  if (k < static_cast<std::int64_t>(items.size())) {
    std::partial_sort(items.begin(), items.begin() + k, items.end(), before...);
  } else {
    std::sort(items.begin(), items.end(), before...);
  }
}

struct Scratch {
  std::vector<std::uint64_t> keys;
  std::vector<std::int64_t> positions;
};

// Positions of the first `k` elements in order; equal elements by position.
template <typename T>
void order_row(const T* row, std::int64_t count, std::int64_t k, Order order, Scratch& scratch,
               std::int64_t* indices) {
  if constexpr (sizeof(T) == 1) {
    // A short row is sorted faster than 256 counts are cleared.
    if (count > 32) return order_bytes(row, count, k, order, indices);
  }
  if constexpr (sizeof(T) <= 4) {
    // Key and position in one number, which sorts without looking elements up.
    constexpr std::int64_t kPositions = std::int64_t{1} << 32;
    if (count <= kPositions) {
      scratch.keys.resize(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t key = key_of(row[i]);
        scratch.keys[static_cast<std::size_t>(i)] =
            std::uint64_t{order == Order::Ascending ? key : ~key} << 32 |
            static_cast<std::uint64_t>(i);
      }
      sort_first(scratch.keys, k);
      for (std::int64_t i = 0; i < k; ++i) {
        indices[i] =
            static_cast<std::int64_t>(scratch.keys[static_cast<std::size_t>(i)] & 0xFFFFFFFFU);
      }
      return;
    }
  }
  const auto before = [row, order](std::int64_t a, std::int64_t b) {
    const T left = order == Order::Ascending ? row[a] : row[b];
    const T right = order == Order::Ascending ? row[b] : row[a];
    if (detail::is_less(left, right)) return true;
    return !detail::is_less(right, left) && a < b;
  };
  scratch.positions.resize(static_cast<std::size_t>(count));
  std::iota(scratch.positions.begin(), scratch.positions.end(), std::int64_t{0});
  sort_first(scratch.positions, k, before);
  std::copy_n(scratch.positions.begin(), k, indices);
}

template <typename T>
void order_rows(const Tensor& rows, const Tensor& values, const Tensor& indices, Order order) {
  const std::int64_t count = rows.sizes().back();
  const std::int64_t k = values.sizes().back();
  if (k == 0 || rows.numel() == 0) return;
  const auto* from = static_cast<const T*>(rows.data_ptr());
  auto* to = static_cast<T*>(values.data_ptr());
  auto* at = static_cast<std::int64_t*>(indices.data_ptr());
  parallel_for(rows.numel() / count, std::max<std::int64_t>(1, 4096 / count),
               [&](std::int64_t begin, std::int64_t end) {
                 Scratch scratch;
                 for (std::int64_t row = begin; row < end; ++row) {
                   const T* row_from = from + row * count;
                   std::int64_t* row_at = at + row * k;
                   order_row(row_from, count, k, order, scratch, row_at);
                   for (std::int64_t i = 0; i < k; ++i) to[row * k + i] = row_from[row_at[i]];
                 }
               });
}

// The first `k` (all: -1) along `dim`.
ValuesIndices ordered(std::string_view op, const Tensor& x, std::int64_t dim, std::int64_t k,
                      Order order) {
  const std::int64_t d = wrap_dim(dim, x.dim(), op);
  const Tensor source = detail::off_tape(x);
  const Tensor whole = x.dim() == 0 ? source.reshape({1}) : source;
  const Tensor rows = whole.transpose(d, -1).contiguous();
  Dims sizes = rows.sizes();
  if (k >= 0) sizes[sizes.size() - 1] = k;
  const Tensor values = detail::empty_with_parameters_of(x, sizes, MemoryFormat::Contiguous);
  const Tensor indices = Tensor::empty(sizes, DType::Int64);
  detail::visit_ordered(op, x.dtype(), [&](auto element) {
    order_rows<decltype(element)>(rows, values, indices, order);
  });
  const bool flat = x.dim() == 0 && k < 0;
  const ValuesIndices result{flat ? values.reshape({}) : values.transpose(d, -1).contiguous(),
                             flat ? indices.reshape({}) : indices.transpose(d, -1).contiguous()};
  if (autograd::needs_grad(x)) {
    gradients::record_picked(op, x, d, result.values, result.indices);
  }
  return result;
}

}  // namespace

ValuesIndices sort(const Tensor& x, const SortOptions& options) {
  constexpr std::string_view kOp = "sort";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const Tensor& t) { return sort(t, options); }, x);
  }
  OpScope scope(kOp);
  detail::check_uniform(kOp, "x", x);
  return ordered(kOp, x, options.dim, -1,
                 options.descending ? Order::Descending : Order::Ascending);
}

Tensor argsort(const Tensor& x, const SortOptions& options) { return sort(x, options).indices; }

Tensor msort(const Tensor& x) { return sort(x, {.dim = 0}).values; }

ValuesIndices topk(const Tensor& x, std::int64_t k, const TopkOptions& options) {
  constexpr std::string_view kOp = "topk";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const Tensor& t) { return topk(t, k, options); }, x);
  }
  OpScope scope(kOp);
  detail::check_uniform(kOp, "x", x);
  const std::int64_t d = wrap_dim(options.dim, x.dim(), kOp);
  const std::int64_t length = x.dim() == 0 ? 1 : x.size(d);
  QUANTA_CHECK(k >= 0 && k <= length, "{}: k: expected 0..{} along dim {} of {}, got {}", kOp,
               length, d, x.sizes(), k);
  if (x.dim() == 0 && k == 1) return sort(x);
  return ordered(kOp, x, d, k, options.largest ? Order::Descending : Order::Ascending);
}

}  // namespace quanta
