#include "quanta/ops/embedding/cpu_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/embedding/cpu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

using quanta::detail::EmbeddingRows;
using quanta::detail::RowParameters;

#if QUANTA_VECTORS

template <int kBits>
HWY_INLINE hn::Vec<FloatTag> codes_at(const std::uint8_t* row, std::int64_t column) {
  if constexpr (kBits == 8) {
    return hn::ConvertTo(FloatTag(), load_codes(row + column));
  } else {
    // Two codes a byte, the first in the low half: as 16 bits, a copy shifted by 4 puts the second
    // one into the upper byte, so that the bytes are the codes in order.
    const hn::Rebind<std::uint16_t, hn::Half<FloatTag>> pairs;
    const hn::Rebind<std::uint8_t, hn::Half<FloatTag>> bytes;
    const auto pair = hn::PromoteTo(pairs, hn::LoadU(bytes, row + column / 2));
    const auto spread =
        hn::And(hn::Or(pair, hn::ShiftLeft<4>(pair)), hn::Set(pairs, std::uint16_t{0x0F0F}));
    const auto codes = hn::BitCast(hn::Rebind<std::uint8_t, FloatTag>(), spread);
    return hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), codes));
  }
}

template <int kBits>
HWY_INLINE std::int64_t add_vectors(const std::uint8_t* row, std::int64_t columns, float scale,
                                    float bias, float* to) {
  const FloatTag d;
  const auto scales = hn::Set(d, scale);
  const auto biases = hn::Set(d, bias);
  std::int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    const auto value = hn::MulAdd(codes_at<kBits>(row, c), scales, biases);
    hn::StoreU(hn::Add(hn::LoadU(d, to + c), value), d, to + c);
  }
  return c;
}

#endif

void add_row(const EmbeddingRows& layout, const std::uint8_t* row, float factor, float* to) {
  const RowParameters values = layout.parameters(row);
  const float scale = values.scale * factor;
  const float bias = values.bias * factor;
  std::int64_t c = 0;
#if QUANTA_VECTORS
  if (layout.bits == 8) c = add_vectors<8>(row, layout.columns, scale, bias, to);
  if (layout.bits == 4) c = add_vectors<4>(row, layout.columns, scale, bias, to);
#endif
  layout.add_columns(row, c, scale, bias, to);
}

void add_rows(const EmbeddingRows& layout, const std::uint8_t* table, const std::int64_t* rows,
              const float* factors, std::int64_t count, float* to) {
  // Rows lie anywhere in memory: the one after next is asked for while this one is added.
  constexpr std::int64_t kAhead = 2;
  constexpr std::int64_t kLine = 64;
  const std::int64_t row_bytes = layout.row_bytes();
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      const std::uint8_t* next = table + rows[i + kAhead] * row_bytes;
      for (std::int64_t byte = 0; byte < row_bytes; byte += kLine) hwy::Prefetch(next + byte);
    }
    add_row(layout, table + rows[i] * row_bytes, factors == nullptr ? 1.0F : factors[i], to);
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(add_rows);

void add_embedding_rows(const quanta::detail::EmbeddingRows& layout, const std::uint8_t* table,
                        const std::int64_t* rows, const float* factors, std::int64_t count,
                        float* to) {
  HWY_DYNAMIC_DISPATCH(add_rows)(layout, table, rows, factors, count, to);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
