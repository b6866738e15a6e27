#pragma once

#include <cstdint>

// Private: sums of float activations times weights of 8 or 4 bits, which become floats in
// registers.
//
// Weights lie in blocks of kWeightOnlyBlock output channels, whose values for one k stand next to
// each other, so that one activation multiplies whole vectors and a block is read from its first to
// its last byte. All codes are signed (unsigned ones have 2^(bits-1) taken off):
//
//   8 bits:  byte k * 32 + c is the code of channel c at k
//   4 bits:  the 32-bit word (k / 8) * 32 + c holds k, k + 1, .. k + 7 of channel c, lowest bits
//            first
//
// The depth is padded to a multiple of kWeightOnlyStep with codes 0. Nothing here checks arguments.

namespace quanta::cpu {

inline constexpr std::int64_t kWeightOnlyBlock = 32;
inline constexpr std::int64_t kWeightOnlyStep = 8;

/// One block. Each group of `group` steps of k (a multiple of kWeightOnlyStep; `depth` for one
/// group) has a scale for each channel: scales[g * 32 + c], and so has zero_points, if not null.
struct WeightOnlyBlock {
  int bits;
  const std::uint8_t* codes;
  const float* scales;
  const std::int8_t* zero_points;
  std::int64_t depth;
  std::int64_t group;
};

/// The (signed) code of one channel of the block at one k, for whoever does not need speed.
inline std::int32_t weight_only_code(const WeightOnlyBlock& block, std::int64_t k, std::int64_t c) {
  if (block.bits == 8) return static_cast<std::int8_t>(block.codes[k * kWeightOnlyBlock + c]);
  const std::int64_t word = k / kWeightOnlyStep * kWeightOnlyBlock + c;
  const int nibble = block.codes[word * 4 + k % kWeightOnlyStep / 2] >> (k % 2 * 4) & 15;
  return (nibble ^ 8) - 8;
}

/// Some rows of activations, the rows of one k next to each other: x[k * rows + r]. x_sums[g * rows
/// + r] are their sums over the groups, for weights with zero points.
struct WeightOnlyRows {
  const float* x;
  const float* x_sums;
  std::int64_t rows;
};

/// How many rows a kernel takes at once when `left` are to be done: at most twelve; fewer than the
/// answer are padded.
std::int64_t weight_only_tile_rows(std::int64_t left);

/// sums[r * 32 + c] = sum over groups of scale * (sum of x * code - zero_point * sum of x), for a
/// number of rows that weight_only_tile_rows gives.
void weight_only_sums(const WeightOnlyBlock& block, const WeightOnlyRows& rows, float* sums);

/// panel[(k - begin) * 32 + c] = (code - zero_point) * scale for k in [begin, end), both multiples
/// of kWeightOnlyStep.
void weight_only_panel(const WeightOnlyBlock& block, std::int64_t begin, std::int64_t end,
                       float* panel);

enum class Sums : bool { Set, Add };

/// sums[r * 32 + c] = (or +=) sum of x * panel; x_sums is not used.
void panel_sums(const float* panel, std::int64_t depth, const WeightOnlyRows& rows, Sums mode,
                float* sums);

}  // namespace quanta::cpu
