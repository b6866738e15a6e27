#include "quanta/observers/detail/cascade_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

namespace quanta::detail {
namespace {

constexpr std::size_t kChains = 4;
constexpr std::size_t kLevels = 4;

template <std::size_t kCount>
using Sums = std::array<float, kCount>;

template <std::size_t kCount>
void add(Sums<kCount>& sums, const float* x) {
  for (std::size_t i = 0; i < kCount; ++i) sums[i] += x[i];
}

// Each column of a matrix of kColumns, summed. Level 0 adds elements; when it has added 2^power,
// level 1 takes its sum over and it starts again; so on up to the last level, which keeps what it
// has.
template <std::size_t kColumns>
Sums<kColumns> column_sums(const float* x, std::size_t rows) {
  const auto log2 = rows == 0 ? 0 : std::bit_width(rows - 1);
  const auto power = std::max<std::size_t>(4, static_cast<std::size_t>(log2) / kLevels);
  std::array<Sums<kColumns>, kLevels> levels{};
  for (std::size_t row = 0; row < rows;) {
    add(levels[0], x + row * kColumns);
    ++row;
    for (std::size_t level = 1; level < kLevels; ++level) {
      const std::size_t full = std::size_t{1} << (level * power);
      if (row % full != 0) break;
      add(levels[level], levels[level - 1].data());
      levels[level - 1].fill(0.0F);
    }
  }
  for (std::size_t level = 1; level < kLevels; ++level) add(levels[0], levels[level].data());
  return levels[0];
}

template <std::size_t kLanes>
float sum_in_lanes(std::span<const float> x) {
  const std::size_t vectors = x.size() / kLanes;
  const std::size_t rows = vectors / kChains;
  const auto chains = column_sums<kLanes * kChains>(x.data(), rows);
  Sums<kLanes> lanes{};
  std::copy_n(chains.begin(), kLanes, lanes.begin());
  for (std::size_t i = rows * kChains; i < vectors; ++i) add(lanes, x.data() + i * kLanes);
  for (std::size_t chain = 1; chain < kChains; ++chain) add(lanes, chains.data() + chain * kLanes);

  float total = 0.0F;
  for (std::size_t i = vectors * kLanes; i < x.size(); ++i) total += x[i];
  for (const float lane : lanes) total += lane;
  return total;
}

}  // namespace

float cascade_sum(std::span<const float> x) {
  constexpr std::size_t kLanes = 8;
  return x.size() < kLanes ? sum_in_lanes<1>(x) : sum_in_lanes<kLanes>(x);
}

}  // namespace quanta::detail
