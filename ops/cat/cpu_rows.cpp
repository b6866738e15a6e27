#include "quanta/ops/cat/cpu_rows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "quanta/ops/cpu/strided_loop.h"

namespace quanta::cpu {
namespace {

/// So many bytes of rows get all their parts before the next rows: a cache line that two parts share is
/// still in the nearest cache when the second one comes.
constexpr std::int64_t kTileBytes = 8192;
/// Up to this length rows are looked up many at a time, as each call of lookup loads the table first.
constexpr std::int64_t kShortRow = 512;

template <typename Word>
void copy_ends(const std::uint8_t* src, std::uint8_t* dst, std::int64_t bytes) {
  Word first;
  Word last;
  const std::int64_t at = bytes - static_cast<std::int64_t>(sizeof(Word));
  std::memcpy(&first, src, sizeof(Word));
  std::memcpy(&last, src + at, sizeof(Word));
  std::memcpy(dst, &first, sizeof(Word));
  std::memcpy(dst + at, &last, sizeof(Word));
}

/// A call of memcpy takes longer than what it does for a short row.
void copy_row(const std::uint8_t* src, std::uint8_t* dst, std::int64_t bytes) {
  constexpr std::int64_t kStep = 16;
  constexpr std::int64_t kLong = 256;
  if (bytes >= kLong) {
    std::memcpy(dst, src, static_cast<std::size_t>(bytes));
  } else if (bytes >= kStep) {
    for (std::int64_t i = 0; i + kStep < bytes; i += kStep) std::memcpy(dst + i, src + i, kStep);
    std::memcpy(dst + bytes - kStep, src + bytes - kStep, kStep);
  } else if (bytes >= 8) {
    copy_ends<std::uint64_t>(src, dst, bytes);
  } else if (bytes >= 4) {
    copy_ends<std::uint32_t>(src, dst, bytes);
  } else {
    for (std::int64_t i = 0; i < bytes; ++i) dst[i] = src[i];
  }
}

/// Copies or looks up a part of rows that together take at most kTileBytes, or of one row.
void place(const RowPart& part, std::int64_t first, std::int64_t rows, std::int64_t row_bytes,
           std::uint8_t* dst) {
  const std::uint8_t* src = part.src + first * part.bytes;
  dst += first * row_bytes + part.offset;
  std::array<std::uint8_t, kTileBytes> codes;
  if (part.table) {
    if (part.bytes > kShortRow) {
      for (std::int64_t row = 0; row < rows; ++row) {
        lookup(src + row * part.bytes, dst + row * row_bytes, part.bytes, *part.table,
               Store::Cached);
      }
      return;
    }
    lookup(src, codes.data(), rows * part.bytes, *part.table, Store::Cached);
    src = codes.data();
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    copy_row(src + row * part.bytes, dst + row * row_bytes, part.bytes);
  }
}

/// Copies or looks up a part of one row, in several threads.
void place_long_row(const RowPart& part, std::int64_t row, std::int64_t row_bytes,
                    std::uint8_t* dst) {
  const std::uint8_t* src = part.src + row * part.bytes;
  dst += row * row_bytes + part.offset;
  parallel_elements(part.bytes, [&](std::int64_t begin, std::int64_t end) {
    if (part.table) {
      lookup(src + begin, dst + begin, end - begin, *part.table, Store::Cached);
    } else {
      std::memcpy(dst + begin, src + begin, static_cast<std::size_t>(end - begin));
    }
  });
}

}  // namespace

void join_rows(std::span<const RowPart> parts, std::int64_t rows, std::int64_t row_bytes,
               std::uint8_t* dst) {
  if (rows < get_num_threads() && row_bytes > kElementGrain) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (const RowPart& part : parts) place_long_row(part, row, row_bytes, dst);
    }
    return;
  }
  const auto rows_in = [&](std::int64_t bytes) {
    return std::max<std::int64_t>(bytes / std::max<std::int64_t>(row_bytes, 1), 1);
  };
  const std::int64_t tile = rows_in(kTileBytes);
  parallel_for(rows, rows_in(kElementGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; row += tile) {
      const std::int64_t count = std::min(tile, end - row);
      for (const RowPart& part : parts) place(part, row, count, row_bytes, dst);
    }
  });
}

}  // namespace quanta::cpu
