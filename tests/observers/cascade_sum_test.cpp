#include "quanta/observers/detail/cascade_sum.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "support/capture_binding.h"

namespace quanta::detail {
namespace {

// The definition, written recursively: a level adds up the sums of blocks of the level below, and
// what does not fill a block stays with the lower levels.

float sum_of_block(const std::vector<float>& column, std::size_t begin, int level) {
  if (level < 0) return column[begin];
  const std::size_t part = std::size_t{1} << (4 * level);
  float sum = 0.0F;
  for (std::size_t i = 0; i < 16; ++i) sum += sum_of_block(column, begin + i * part, level - 1);
  return sum;
}

float sum_of_column(const std::vector<float>& column) {
  std::vector<float> levels;  // the highest first
  std::size_t begin = 0;
  for (int level = 3; level >= 0; --level) {
    const std::size_t part = std::size_t{1} << (4 * level);
    float sum = 0.0F;
    for (; begin + part <= column.size(); begin += part) {
      sum += sum_of_block(column, begin, level - 1);
    }
    levels.push_back(sum);
  }
  return ((levels[3] + levels[2]) + levels[1]) + levels[0];
}

float sum_by_definition(const std::vector<float>& x) {
  const std::size_t lanes = x.size() < 8 ? 1 : 8;
  const std::size_t vectors = x.size() / lanes;
  const std::size_t rows = vectors / 4;
  float total = 0.0F;
  for (std::size_t i = vectors * lanes; i < x.size(); ++i) total += x[i];
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    std::vector<float> chains;
    for (std::size_t chain = 0; chain < 4; ++chain) {
      std::vector<float> column;
      for (std::size_t row = 0; row < rows; ++row) {
        column.push_back(x[(row * 4 + chain) * lanes + lane]);
      }
      chains.push_back(sum_of_column(column));
    }
    for (std::size_t i = rows * 4; i < vectors; ++i) chains[0] += x[i * lanes + lane];
    total += ((chains[0] + chains[1]) + chains[2]) + chains[3];
  }
  return total;
}

std::vector<float> random_counts(std::size_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> value(-1.0F, 1000.0F);
  std::vector<float> x(count);
  std::ranges::generate(x, [&] { return value(generator); });
  return x;
}

}  // namespace

TEST_CASE("cascade_sum: every length gives the bits of the definition") {
  std::vector<std::size_t> lengths{511,  512,  513,  1000,  2047,  2048,
                                   2049, 4097, 8192, 32768, 140000};
  for (std::size_t length = 0; length < 300; ++length) lengths.push_back(length);
  bool differs_from_double = false;
  for (const std::size_t length : lengths) {
    CAPTURE(length);
    const std::vector<float> x = random_counts(length, static_cast<std::uint32_t>(length));
    const float sum = cascade_sum(x);
    CHECK(sum == sum_by_definition(x));
    double exact = 0.0;
    for (const float value : x) exact += static_cast<double>(value);
    CHECK(static_cast<double>(sum) == doctest::Approx(exact).epsilon(1e-6));
    differs_from_double = differs_from_double || sum != static_cast<float>(exact);
  }
  CHECK(differs_from_double);
}

TEST_CASE("cascade_sum: the sums are those that torch gave") {
  // x[i] = (i * 2654435761 mod 2^32) / 2^20 in float32; torch.sum of the first n.
  const std::vector<std::pair<std::size_t, float>> sums{
      {5, 8930.671875F},     {7, 12200.8115234375F}, {8, 13537.0830078125F}, {31, 63020.25F},
      {100, 201802.703125F}, {513, 1049261.75F},     {2047, 4191146.5F},     {2048, 4191619.5F},
      {2049, 4194624.5F},    {4096, 8389067.0F},     {16391, 33565316.0F},   {32768, 67105816.0F},
  };
  for (const auto& [count, want] : sums) {
    CAPTURE_BINDING(count);
    std::vector<float> x(count);
    for (std::size_t i = 0; i < count; ++i) {
      x[i] = static_cast<float>(static_cast<std::uint32_t>(i) * 2654435761U) / 1048576.0F;
    }
    CHECK(cascade_sum(x) == want);
  }
}

}  // namespace quanta::detail
