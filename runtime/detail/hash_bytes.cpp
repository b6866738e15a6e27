#include "quanta/runtime/detail/hash_bytes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

// The products of 64 by 64 bits are those of wyhash (https://github.com/wangyi-fudan/wyhash), in
// four chains, so that the multiplier never waits.

namespace quanta::detail {
namespace {

constexpr std::array<std::uint64_t, 4> kSecret = {0xa0761d6478bd642fU, 0xe7037ed1a0b428dbU,
                                                  0x8ebc6af09c88c6e3U, 0x589965cc75374cc3U};
constexpr std::size_t kStep = 64;
constexpr std::size_t kPartBytes = std::size_t{256} << 10U;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

std::uint64_t load(const std::byte* from) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

void add_step(std::array<std::uint64_t, 4>& lanes, const std::byte* from) {
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    lanes[i] = mix(load(from + 16 * i) ^ lanes[i], load(from + 16 * i + 8) ^ kSecret[i]);
  }
}

std::uint64_t hash_part(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::array<std::uint64_t, 4> lanes{};
  for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = seed ^ kSecret[3 - i];
  std::size_t at = 0;
  for (; at + kStep <= bytes.size(); at += kStep) add_step(lanes, bytes.data() + at);
  if (at < bytes.size()) {
    std::array<std::byte, kStep> rest{};
    std::memcpy(rest.data(), bytes.data() + at, bytes.size() - at);
    add_step(lanes, rest.data());
  }
  const std::uint64_t pairs = mix(lanes[0] ^ kSecret[0], lanes[1]) ^ mix(lanes[2], lanes[3]);
  return mix(pairs ^ kSecret[1], bytes.size() ^ kSecret[2]);
}

}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  if (bytes.size() <= kPartBytes) return hash_part(bytes, seed);
  std::vector<std::uint64_t> parts(ceil_div(bytes.size(), kPartBytes));
  parallel_for(
      static_cast<std::int64_t>(parts.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          const std::size_t from = i * kPartBytes;
          parts[i] =
              hash_part(bytes.subspan(from, std::min(kPartBytes, bytes.size() - from)), seed);
        }
      });
  return hash_part(std::as_bytes(std::span(parts)), seed ^ bytes.size());
}

}  // namespace quanta::detail
