// Private: rows of 8-bit codes computed from floats, whole vectors of bytes at a time, inside
// Highway's foreach_target (hence the guard that toggles).

#if defined(QUANTA_OPS_CPU_CODE_BLOCKS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_CODE_BLOCKS_H_
#undef QUANTA_OPS_CPU_CODE_BLOCKS_H_
#else
#define QUANTA_OPS_CPU_CODE_BLOCKS_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/simd/requantize_simd.h"
#include "quanta/runtime/detail/ceil_div.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
#if QUANTA_VECTORS

/// What the values before rounding may be: known to fit into an int32, or anything.
enum class Reach : bool { Int32, Any };

/// A quarter of a block: codes from `src` on as floats.
template <std::size_t kBytes, typename T>
HWY_INLINE hn::Vec<Floats<kBytes>> load_code_floats(const T* src) {
  const hn::Rebind<T, Ints<kBytes>> d8;
  return hn::ConvertTo(Floats<kBytes>(), hn::PromoteTo(Ints<kBytes>(), hn::LoadU(d8, src)));
}

/// math::quantize after its multiplication, for kBytes neighbours; args.max is the largest T.
/// NaN gives the largest code.
template <typename T, std::size_t kBytes>
class CodePacker {
 public:
  using FloatVector = hn::Vec<Floats<kBytes>>;
  using IntVector = hn::Vec<Ints<kBytes>>;

  explicit CodePacker(const QuantizeArgs& args)
      : high_(hn::Set(Floats<kBytes>(), static_cast<float>(args.max - args.zero_point))),
        zero_point_(hn::Set(Words<kBytes>(), static_cast<std::int16_t>(args.zero_point - kLowest))),
        min_(hn::Set(Bytes<kBytes>(), static_cast<std::uint8_t>(args.min - kLowest))) {}

  template <Reach kReach>
  HWY_INLINE IntVector rounded(FloatVector scaled) const {
    // What is too low, or too high by no more than an int32 holds, saturates when it is packed.
    // x86's minimum answers its second operand when the first is NaN.
    if constexpr (kReach == Reach::Any) scaled = hn::Min(scaled, high_);
    return round_to_int(scaled);
  }

  HWY_INLINE hn::Vec<Bytes<kBytes>> codes(IntVector a, IntVector b, IntVector c,
                                          IntVector d) const {
    const auto low = hn::SaturatedAdd(pack_words(a, b), zero_point_);
    const auto high = hn::SaturatedAdd(pack_words(c, d), zero_point_);
    const auto packed = in_order<kBytes>(hn::Max(pack_bytes(low, high), min_));
    if constexpr (kLowest == 0) return packed;
    return hn::Xor(packed, hn::Set(Bytes<kBytes>(), std::uint8_t{0x80}));
  }

 private:
  static constexpr std::int32_t kLowest = std::numeric_limits<T>::lowest();

  FloatVector high_;
  hn::Vec<Words<kBytes>> zero_point_;
  hn::Vec<Bytes<kBytes>> min_;
};

/// source.at<kBytes>(i): the kBytes / 4 values from element i on, scaled; before the four calls of
/// a block comes source.move_to(first element).
template <std::size_t kBytes, Reach kReach, class Source, typename T>
HWY_INLINE void write_blocks(Source& source, const QuantizeArgs& args, T* dst, std::int64_t count) {
  constexpr auto kStep = static_cast<std::int64_t>(kBytes);
  const CodePacker<T, kBytes> packer(args);
  const auto block = [&](std::int64_t i) QUANTA_INLINED {
    source.move_to(i);
    hn::Vec<Ints<kBytes>> part[4];
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < 4; ++v) {
      part[v] = packer.template rounded<kReach>(source.template at<kBytes>(i + v * (kStep / 4)));
    }
    hn::StoreU(packer.codes(part[0], part[1], part[2], part[3]), Bytes<kBytes>(),
               reinterpret_cast<std::uint8_t*>(dst) + i);
  };
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) block(i);
  if (i < count) block(count - kStep);
}

/// All codes when there are enough for a vector; answers how many it wrote. The last block may
/// overlap the one before it, so `dst` is no operand.
template <Reach kReach, class Source, typename T>
HWY_INLINE std::int64_t write_codes(Source source, const QuantizeArgs& args, T* dst,
                                    std::int64_t count) {
  if (count >= static_cast<std::int64_t>(kVectorBytes)) {
    write_blocks<kVectorBytes, kReach>(source, args, dst, count);
    return count;
  }
  if (count >= 16) {
    write_blocks<16, kReach>(source, args, dst, count);
    return count;
  }
  return 0;
}

/// The most channels of one ChannelTerms.
inline constexpr std::int64_t kMaxTermChannels = 1024;

/// Numbers that repeat with the channels of channels-last memory, so that a block may begin at any
/// channel: kTerms arrays, each of them a whole number of periods and a vector more.
template <std::size_t kTerms>
class ChannelTerms {
 public:
  explicit ChannelTerms(std::int64_t channels)
      : channels_(static_cast<std::size_t>(channels)), period_(round_up(kVectorBytes, channels_)) {}

  /// The array to be filled for each channel; whole vectors may be stored.
  float* term(std::size_t k) { return terms_[k]; }
  const float* term(std::size_t k) const { return terms_[k]; }
  /// Once all are filled.
  void repeat() {
    for (auto& term : terms_) {
      const std::size_t end = period_ + kVectorBytes;
      for (std::size_t filled = channels_; filled < end;) {
        const std::size_t count = std::min(filled, end - filled);
        std::memcpy(term + filled, term, count * sizeof(float));
        filled += count;
      }
    }
  }

  std::int64_t period() const { return static_cast<std::int64_t>(period_); }

 private:
  std::size_t channels_;
  std::size_t period_;
  alignas(64) float terms_[kTerms][kMaxTermChannels + 2 * kVectorBytes];
};

/// Where a source stands within its channel terms.
template <std::size_t kTerms>
class ChannelPosition {
 public:
  explicit ChannelPosition(const ChannelTerms<kTerms>& terms) : terms_(terms) {}

  /// Never by more than a vector.
  HWY_INLINE void move_to(std::int64_t i) {
    offset_ += i - element_;
    if (offset_ >= terms_.period()) offset_ -= terms_.period();
    element_ = i;
  }
  template <std::size_t kBytes>
  HWY_INLINE hn::Vec<Floats<kBytes>> at(std::size_t k, std::int64_t i) const {
    return hn::LoadU(Floats<kBytes>(), terms_.term(k) + offset_ + (i - element_));
  }

 private:
  const ChannelTerms<kTerms>& terms_;
  std::int64_t element_ = 0;
  std::int64_t offset_ = 0;
};

#endif  // QUANTA_VECTORS
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
