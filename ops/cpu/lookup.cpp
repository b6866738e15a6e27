#include "quanta/ops/cpu/lookup.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/lookup.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/simd/lookup_simd.h"
#include "quanta/ops/cpu/simd/simd.h"
#include "quanta/ops/cpu/strided_loop.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS
template <bool kStreaming>
std::int64_t lookup_vectors(const std::uint8_t* src, std::uint8_t* dst, std::int64_t count,
                            const CodeTable& table) {
  const ByteTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (count < lanes) return 0;
  const TableVectors vectors(table);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    put<kStreaming>(d, vectors(hn::LoadU(d, src + i)), dst + i);
  }
  if constexpr (kStreaming) hwy::FlushStream();
  return i;
}
#endif

void lookup_row(const std::uint8_t* src, std::uint8_t* dst, std::int64_t count,
                const CodeTable& table, Store store) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = store == Store::Streaming ? lookup_vectors<true>(src, dst, count, table)
                                : lookup_vectors<false>(src, dst, count, table);
#else
  static_cast<void>(store);
#endif
  for (; i < count; ++i) dst[i] = table[src[i]];
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(lookup_row);

void lookup(const std::uint8_t* src, std::uint8_t* dst, std::int64_t count, const CodeTable& table,
            Store store) {
  HWY_DYNAMIC_DISPATCH(lookup_row)(src, dst, count, table, store);
}

void parallel_lookup(const std::uint8_t* src, std::uint8_t* dst, std::int64_t count,
                     const CodeTable& table) {
  const Store store = store_for(static_cast<std::size_t>(count), dst);
  parallel_elements(count, [&](std::int64_t begin, std::int64_t end) {
    lookup(src + begin, dst + begin, end - begin, table, store);
  });
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
