#include "quanta/runtime/detail/interleave.h"

#include <algorithm>
#include <cstring>

// Before any header of Highway.
#include "quanta/runtime/detail/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/runtime/detail/interleave.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace quanta::detail::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// kChannels planes to pixels that lie next to each other, in whole vectors of pixels; answers how
// many pixels that were.
template <int kChannels, typename T>
HWY_INLINE std::int64_t interleave_vectors(const T* HWY_RESTRICT src, std::int64_t plane,
                                           std::int64_t count, T* HWY_RESTRICT dst) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto at = [&](std::int64_t c, std::int64_t i)
                      QUANTA_INLINED { return hn::LoadU(d, src + c * plane + i); };
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    T* to = dst + i * kChannels;
    if constexpr (kChannels == 2) hn::StoreInterleaved2(at(0, i), at(1, i), d, to);
    if constexpr (kChannels == 3) hn::StoreInterleaved3(at(0, i), at(1, i), at(2, i), d, to);
    if constexpr (kChannels == 4) {
      hn::StoreInterleaved4(at(0, i), at(1, i), at(2, i), at(3, i), d, to);
    }
  }
  return i;
}

template <typename T>
HWY_INLINE void interleave_few(const T* src, std::int64_t plane, std::int64_t channels,
                               std::int64_t count, T* dst) {
  std::int64_t i = 0;
  if (channels == 2) i = interleave_vectors<2>(src, plane, count, dst);
  if (channels == 3) i = interleave_vectors<3>(src, plane, count, dst);
  if (channels == 4) i = interleave_vectors<4>(src, plane, count, dst);
  for (; i < count; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) dst[i * channels + c] = src[c * plane + i];
  }
}

// Few channels at a time, through a buffer, and from there to their place in the pixels.
template <typename T>
void interleave(const T* src, std::int64_t plane, std::int64_t channels, std::int64_t count,
                T* dst) {
  constexpr std::int64_t kFew = 4;
  constexpr std::int64_t kPixels = 64;
  if (channels <= kFew) {
    interleave_few(src, plane, channels, count, dst);
    return;
  }
  T pixels[kFew * kPixels];
  for (std::int64_t i = 0; i < count; i += kPixels) {
    const std::int64_t length = std::min(kPixels, count - i);
    for (std::int64_t c = 0; c < channels; c += kFew) {
      const std::int64_t few = std::min(kFew, channels - c);
      interleave_few(src + c * plane + i, plane, few, length, pixels);
      T* to = dst + i * channels + c;
      if (few == kFew) {
        for (std::int64_t k = 0; k < length; ++k) {
          std::memcpy(to + k * channels, pixels + k * kFew, kFew * sizeof(T));
        }
      } else {
        for (std::int64_t k = 0; k < length; ++k) {
          for (std::int64_t f = 0; f < few; ++f) to[k * channels + f] = pixels[k * few + f];
        }
      }
    }
  }
}

void InterleaveBytes(const std::uint8_t* src, std::int64_t plane, std::int64_t channels,
                     std::int64_t count, std::uint8_t* dst) {
  interleave(src, plane, channels, count, dst);
}
void InterleaveWords(const std::uint32_t* src, std::int64_t plane, std::int64_t channels,
                     std::int64_t count, std::uint32_t* dst) {
  interleave(src, plane, channels, count, dst);
}

}  // namespace
}  // namespace quanta::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::detail {

HWY_EXPORT(InterleaveBytes);
HWY_EXPORT(InterleaveWords);

void interleave_planes(const std::uint8_t* src, std::int64_t plane, std::int64_t channels,
                       std::int64_t count, std::uint8_t* dst) {
  HWY_DYNAMIC_DISPATCH(InterleaveBytes)(src, plane, channels, count, dst);
}
void interleave_planes(const std::uint32_t* src, std::int64_t plane, std::int64_t channels,
                       std::int64_t count, std::uint32_t* dst) {
  HWY_DYNAMIC_DISPATCH(InterleaveWords)(src, plane, channels, count, dst);
}

}  // namespace quanta::detail
#endif  // HWY_ONCE
