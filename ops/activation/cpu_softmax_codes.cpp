#include "quanta/ops/activation/cpu_softmax_codes.h"

#include <algorithm>
#include <optional>

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/activation/cpu_softmax_codes.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/simd/lookup_simd.h"
#include "quanta/ops/cpu/simd/simd.h"
#include "quanta/ops/cpu/simd/softmax_simd.h"
#include "quanta/ops/cpu/softmax.h"
#include "quanta/runtime/quant_math.h"

// A row's codes share their largest one, so that its exponentials are one of 256 tables with 256
// entries. Only the sum is taken over the elements, because its order counts; a long row then needs
// 256 quotients, and each element looks its code up.

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if !QUANTA_VECTORS

void FillExponentials(const SoftmaxSource&, std::uint8_t, float*) {}

void Row(SoftmaxCodes& softmax, const std::uint8_t* src, std::int64_t count,
         const QuantizeArgs& out, std::uint8_t* dst) {
  const SoftmaxSource& source = softmax.source();
  float* row = softmax.floats(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t code = source.is_signed ? static_cast<std::int8_t>(src[i]) : src[i];
    row[i] = math::dequantize(code, source.scale, source.zero_point);
  }
  softmax_row(row, count, row);
  for (std::int64_t i = 0; i < count; ++i) {
    dst[i] = static_cast<std::uint8_t>(
        math::quantize(row[i], out.inv_scale, out.zero_point, out.min, out.max, out.nan_code));
  }
}

#else

using CodeTag = hn::Rebind<std::uint8_t, SoftmaxTag>;
using IndexTag = hn::RebindToSigned<SoftmaxTag>;
constexpr auto kStep = static_cast<std::int64_t>(kSoftmaxStep);

/// A bit that turns signed codes into unsigned ones of the same order, or none.
HWY_INLINE std::uint8_t order_bit(const SoftmaxSource& source) {
  return source.is_signed ? 0x80 : 0;
}

HWY_INLINE hn::Vec128<std::uint8_t> fold_to_128(hn::Vec256<std::uint8_t> x) {
  const hn::Full128<std::uint8_t> half;
  return hn::Max(hn::LowerHalf(half, x), hn::UpperHalf(half, x));
}
#if QUANTA_AVX512
HWY_INLINE hn::Vec128<std::uint8_t> fold_to_128(hn::Vec512<std::uint8_t> x) {
  const hn::Full256<std::uint8_t> half;
  return fold_to_128(hn::Max(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
}
#endif

HWY_INLINE std::uint8_t largest_code(const std::uint8_t* src, std::int64_t count,
                                     std::uint8_t order) {
  const ByteTag d;
  constexpr auto kBytes = static_cast<std::int64_t>(hn::MaxLanes(ByteTag()));
  std::uint8_t largest = 0;
  std::int64_t i = 0;
  if (count >= kBytes) {
    const auto bits = hn::Set(d, order);
    auto best = hn::Zero(d);
    for (; i + kBytes <= count; i += kBytes) {
      best = hn::Max(best, hn::Xor(hn::LoadU(d, src + i), bits));
    }
    largest = hn::GetLane(hn::MaxOfLanes(hn::Full128<std::uint8_t>(), fold_to_128(best)));
  }
  for (; i < count; ++i) {
    largest = std::max(largest, static_cast<std::uint8_t>(src[i] ^ order));
  }
  return static_cast<std::uint8_t>(largest ^ order);
}

/// The same operations as dequantize and softmax_row have.
class Calculated {
 public:
  Calculated(const SoftmaxSource& source, std::uint8_t largest)
      : scale_(hn::Set(SoftmaxTag(), source.scale)),
        // Unsigned codes that stand for signed ones have a zero point that is as much higher.
        zero_point_(hn::Set(IndexTag(), source.zero_point + order_bit(source))),
        order_(hn::Set(IndexTag(), order_bit(source))),
        largest_(dequantized(hn::Set(IndexTag(), largest))) {}

  HWY_INLINE SoftmaxVector operator()(hn::Vec<IndexTag> codes) const {
    return exp_of_negative(SoftmaxTag(), hn::Sub(dequantized(codes), largest_));
  }

 private:
  HWY_INLINE SoftmaxVector dequantized(hn::Vec<IndexTag> codes) const {
    const auto difference = hn::Sub(hn::Xor(codes, order_), zero_point_);
    return hn::Mul(hn::ConvertTo(SoftmaxTag(), difference), scale_);
  }

  SoftmaxVector scale_;
  hn::Vec<IndexTag> zero_point_, order_;
  SoftmaxVector largest_;
};

struct LookedUp {
  const float* table;
  HWY_INLINE SoftmaxVector operator()(hn::Vec<IndexTag> codes) const {
    return hn::GatherIndex(SoftmaxTag(), table, codes);
  }
};

void FillExponentials(const SoftmaxSource& source, std::uint8_t largest, float* table) {
  const Calculated exponential(source, largest);
  for (std::int32_t code = 0; code < 256; code += static_cast<std::int32_t>(kStep)) {
    hn::StoreU(exponential(hn::Iota(IndexTag(), code)), SoftmaxTag(), table + code);
  }
}

HWY_INLINE hn::Vec<IndexTag> load_indices(const std::uint8_t* src) {
  return hn::PromoteTo(IndexTag(), hn::LoadU(CodeTag(), src));
}

/// The sum of the row's exponentials, in softmax_row's order. They are kept as well where `kept` is
/// not null.
template <class Exponential>
HWY_INLINE float sum_row(const Exponential& exponential, const std::uint8_t* src,
                         std::int64_t count, float* kept) {
  SoftmaxSums sums;
  std::int64_t i = 0;
  for (; i + kSoftmaxBlock <= count; i += kSoftmaxBlock) {
    for (std::size_t k = 0; k < kSoftmaxVectors; ++k) {
      const std::int64_t at = i + static_cast<std::int64_t>(k) * kStep;
      const auto y = exponential(load_indices(src + at));
      sums.part[k] = hn::Add(sums.part[k], y);
      if (kept != nullptr) hn::StoreU(y, SoftmaxTag(), kept + at);
    }
  }
  if (i == count) return sums.total();
  // The others add zeros, as they do in softmax_row.
  const std::int64_t rest = count - i;
  std::uint8_t codes[kSoftmaxBlock] = {};
  std::copy_n(src + i, rest, codes);
  float last[kSoftmaxBlock];
  for (std::size_t k = 0; k < kSoftmaxVectors; ++k) {
    const std::int64_t at = static_cast<std::int64_t>(k) * kStep;
    const auto left = static_cast<std::size_t>(std::clamp<std::int64_t>(rest - at, 0, kStep));
    const auto y =
        hn::IfThenElseZero(hn::FirstN(SoftmaxTag(), left), exponential(load_indices(codes + at)));
    sums.part[k] = hn::Add(sums.part[k], y);
    hn::StoreU(y, SoftmaxTag(), last + at);
  }
  if (kept != nullptr) std::copy_n(last, rest, kept + i);
  return sums.total();
}

struct Quotients {
  const float* src;
  SoftmaxDivisor divide;
  HWY_INLINE SoftmaxVector at(std::int64_t i) const {
    return divide(hn::LoadU(SoftmaxTag(), src + i));
  }
};

/// quantize(src / sum).
HWY_INLINE void quantize_quotients(const float* src, float sum, std::int64_t count,
                                   const QuantizeArgs& args, std::uint8_t* dst) {
  const Quotients quotients{src, SoftmaxDivisor(sum)};
  std::int64_t i = args.nan_code == args.max
                       ? quantize_all<NanCode::Max, false>(quotients, args, dst, count)
                       : quantize_all<NanCode::Any, false>(quotients, args, dst, count);
  std::transform(src + i, src + count, dst + i, [&](float x) {
    return static_cast<std::uint8_t>(math::quantize(x / sum, args.inv_scale, args.zero_point,
                                                    args.min, args.max, args.nan_code));
  });
}

void Row(SoftmaxCodes& softmax, const std::uint8_t* src, std::int64_t count,
         const QuantizeArgs& out, std::uint8_t* dst) {
  const SoftmaxSource& source = softmax.source();
  const std::uint8_t largest = largest_code(src, count, order_bit(source));
  const float* table = softmax.exponentials(largest, count);
  constexpr auto kEntries = static_cast<std::int64_t>(CodeTable().size());
  // A quotient costs about as much as four elements that look their code up.
  if (table != nullptr && count >= kEntries / 4 * 5) {
    const float sum = sum_row(LookedUp{table}, src, count, nullptr);
    CodeTable codes;
    quantize_quotients(table, sum, kEntries, out, codes.data());
    const TableVectors look_up(codes);
    constexpr auto kBytes = static_cast<std::int64_t>(hn::MaxLanes(ByteTag()));
    std::int64_t i = 0;
    for (; i + kBytes <= count; i += kBytes) {
      hn::StoreU(look_up(hn::LoadU(ByteTag(), src + i)), ByteTag(), dst + i);
    }
    for (; i < count; ++i) dst[i] = codes[src[i]];
    return;
  }
  float* row = softmax.floats(count);
  const float sum = table != nullptr ? sum_row(LookedUp{table}, src, count, row)
                                     : sum_row(Calculated(source, largest), src, count, row);
  quantize_quotients(row, sum, count, out, dst);
}

#endif  // !QUANTA_VECTORS

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(FillExponentials);
HWY_EXPORT(Row);

SoftmaxCodes::SoftmaxCodes(const SoftmaxSource& source)
    : source_(source), tables_(CodeTable().size()), asked_(CodeTable().size(), 0) {}

SoftmaxCodes& SoftmaxCodes::of_thread(const SoftmaxSource& source) {
  thread_local std::optional<SoftmaxCodes> last;
  if (!last || last->source() != source) last.emplace(source);
  return *last;
}

void SoftmaxCodes::row(const std::uint8_t* src, std::int64_t count, const QuantizeArgs& out,
                       std::uint8_t* dst) {
  HWY_DYNAMIC_DISPATCH(Row)(*this, src, count, out, dst);
}

float* SoftmaxCodes::floats(std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  if (floats_.size() < size) floats_.resize(size);
  return floats_.data();
}

const float* SoftmaxCodes::exponentials(std::uint8_t largest, std::int64_t count) {
  std::vector<float>& table = tables_[largest];
  if (!table.empty()) return table.data();
  // As many elements as a table has entries pay for it, at most twice.
  asked_[largest] += count;
  if (asked_[largest] < static_cast<std::int64_t>(CodeTable().size())) return nullptr;
  table.resize(CodeTable().size());
  HWY_DYNAMIC_DISPATCH(FillExponentials)(source_, largest, table.data());
  return table.data();
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
