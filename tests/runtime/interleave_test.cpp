#include "quanta/runtime/detail/interleave.h"

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <vector>

namespace quanta {
namespace {

template <typename T>
void check_interleaved(std::int64_t channels, std::int64_t count) {
  const std::int64_t plane = count + 5;
  std::vector<T> src(static_cast<std::size_t>(channels * plane));
  for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<T>(i * 7 + i / 251);
  std::vector<T> got(static_cast<std::size_t>(channels * count) + 1, T{77});
  detail::interleave_planes(src.data(), plane, channels, count, got.data());
  bool same = got.back() == T{77};  // nothing behind the end
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) {
      same = same && got[static_cast<std::size_t>(i * channels + c)] ==
                         src[static_cast<std::size_t>(c * plane + i)];
    }
  }
  CHECK(same);
}

TEST_CASE("interleave: planes of every number of channels and length become pixels") {
  for (const std::int64_t target : {std::int64_t{HWY_AVX3_DL}, std::int64_t{HWY_AVX3},
                                    std::int64_t{HWY_AVX2}, std::int64_t{HWY_SCALAR}}) {
    if (target != HWY_SCALAR && (hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    for (std::int64_t channels = 1; channels <= 18; ++channels) {
      for (std::int64_t count = 0; count <= 140; ++count) {
        CAPTURE(channels);
        CAPTURE(count);
        check_interleaved<std::uint8_t>(channels, count);
        check_interleaved<std::uint32_t>(channels, count);
      }
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

}  // namespace
}  // namespace quanta
