#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "instructions.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/half.h"
#include "quanta/runtime/random.h"
#include "support/test_device.h"

// The instructions that kernels are made of, one by one, against tables of the PTX manual that are
// written out here: on the emulated device a test of the emulation, on a GPU one of the idea of it.

namespace quanta {
namespace {

const Device kDevice = test::test_device();

template <typename T>
cuda::Buffer there(const std::vector<T>& values) {
  return {kDevice, values.data(), values.size() * sizeof(T)};
}

template <typename T>
std::vector<T> back(const cuda::Buffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  cuda::driver(kDevice).copy_to_host(values.data(), buffer.as<void>(), buffer.bytes());
  return values;
}

template <typename T>
std::vector<T> random_values(std::size_t count, std::int64_t low, std::int64_t high,
                             std::uint64_t seed) {
  Generator generator(seed);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(generator.integer(low, high));
  return values;
}

std::uint32_t word(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  return static_cast<std::uint32_t>(bytes[at]) | static_cast<std::uint32_t>(bytes[at + 1]) << 8 |
         static_cast<std::uint32_t>(bytes[at + 2]) << 16 |
         static_cast<std::uint32_t>(bytes[at + 3]) << 24;
}

}  // namespace

TEST_CASE("cuda instructions: ldmatrix gives each lane a word of four rows") {
  const std::vector<std::uint8_t> matrices = random_values<std::uint8_t>(512, 0, 255, 1);
  const cuda::Buffer from = there(matrices);
  const cuda::Buffer to(kDevice, 32 * 4 * 4);
  test::load_matrices(kDevice, {from.as<unsigned char>(), to.as<std::uint32_t>()});
  const auto got = back<std::uint32_t>(to);
  for (std::size_t lane = 0; lane < 32; ++lane) {
    for (std::size_t m = 0; m < 4; ++m) {
      CHECK(got[lane * 4 + m] == word(matrices, m * 128 + lane / 4 * 16 + lane % 4 * 4));
    }
  }
}

TEST_CASE("cuda instructions: mma multiplies unsigned by signed bytes, exactly") {
  for (const bool extreme : {false, true}) {
    CAPTURE(extreme);
    // 32 x 32 and 32 x 16, row by row.
    const auto left = extreme ? std::vector<std::uint8_t>(1024, 255)
                              : random_values<std::uint8_t>(1024, 0, 255, 2);
    const auto right = extreme ? std::vector<std::int8_t>(512, -128)
                               : random_values<std::int8_t>(512, -128, 127, 3);
    std::vector<std::uint32_t> a(32 * 8);
    std::vector<std::uint32_t> b(32 * 4);
    for (std::size_t lane = 0; lane < 32; ++lane) {
      const std::size_t group = lane / 4;
      const std::size_t first = lane % 4 * 4;
      for (std::size_t i = 0; i < 2; ++i) {
        // a0 and a2 are of row group, a1 and a3 of row group + 8; a2 and a3 16 columns further on.
        a[lane * 8 + i * 4 + 0] = word(left, (i * 16 + group) * 32 + first);
        a[lane * 8 + i * 4 + 1] = word(left, (i * 16 + group + 8) * 32 + first);
        a[lane * 8 + i * 4 + 2] = word(left, (i * 16 + group) * 32 + first + 16);
        a[lane * 8 + i * 4 + 3] = word(left, (i * 16 + group + 8) * 32 + first + 16);
        for (std::size_t e = 0; e < 2; ++e) {
          std::uint32_t column = 0;
          for (std::size_t k = 0; k < 4; ++k) {
            const auto byte =
                static_cast<std::uint8_t>(right[(first + e * 16 + k) * 16 + i * 8 + group]);
            column |= static_cast<std::uint32_t>(byte) << (8 * k);
          }
          b[lane * 4 + i * 2 + e] = column;
        }
      }
    }
    const cuda::Buffer a_there = there(a);
    const cuda::Buffer b_there = there(b);
    const cuda::Buffer sums(kDevice, 32 * 16 * 4);
    test::multiply_fragments(kDevice, {a_there.as<std::uint32_t>(), b_there.as<std::uint32_t>(),
                                       sums.as<std::int32_t>()});
    const auto got = back<std::int32_t>(sums);
    for (std::size_t lane = 0; lane < 32; ++lane) {
      for (std::size_t i = 0; i < 2; ++i) {
        for (std::size_t j = 0; j < 2; ++j) {
          // c0 and c1 are neighbours of row group, c2 and c3 of row group + 8.
          for (std::size_t e = 0; e < 4; ++e) {
            const std::size_t row = i * 16 + lane / 4 + (e < 2 ? 0 : 8);
            const std::size_t column = j * 8 + lane % 4 * 2 + e % 2;
            std::int32_t sum = 0;
            for (std::size_t k = 0; k < 32; ++k) sum += left[row * 32 + k] * right[k * 16 + column];
            CHECK(got[lane * 16 + (i * 2 + j) * 4 + e] == sum);
          }
        }
      }
    }
  }
}

TEST_CASE("cuda instructions: cp.async has copied what was waited for") {
  for (const int piece : {4, 8, 16}) {
    CAPTURE(piece);
    const auto size = static_cast<std::size_t>(32 * piece);
    const auto bytes = random_values<std::uint8_t>(2 * size, 0, 255, 4);
    const cuda::Buffer from = there(bytes);
    const cuda::Buffer first(kDevice, size);
    const cuda::Buffer both(kDevice, 2 * size);
    test::copy_groups(kDevice, {from.as<unsigned char>(), first.as<unsigned char>(),
                                both.as<unsigned char>(), piece});
    CHECK(back<std::uint8_t>(first) ==
          std::vector<std::uint8_t>(bytes.begin(), bytes.begin() + 32 * piece));
    CHECK(back<std::uint8_t>(both) == bytes);
  }
}

TEST_CASE("cuda instructions: dp4a adds four products of unsigned and signed bytes") {
  auto a = random_values<std::uint32_t>(32, 0, 0xFFFFFFFF, 5);
  auto b = random_values<std::uint32_t>(32, 0, 0xFFFFFFFF, 6);
  auto sums = random_values<std::int32_t>(32, -1'000'000, 1'000'000, 7);
  a[0] = 0xFFFFFFFFU;
  b[0] = 0x80808080U;
  b[1] = 0x7F7F7F7FU;
  std::vector<std::int32_t> expected = sums;
  for (std::size_t i = 0; i < 32; ++i) {
    for (int k = 0; k < 4; ++k) {
      const auto left = static_cast<std::int32_t>(a[i] >> (8 * k) & 0xFFU);
      const auto right = std::bit_cast<std::int8_t>(static_cast<std::uint8_t>(b[i] >> (8 * k)));
      expected[i] += left * right;
    }
  }
  const cuda::Buffer a_there = there(a);
  const cuda::Buffer b_there = there(b);
  const cuda::Buffer sums_there = there(sums);
  test::dot_bytes(kDevice, {a_there.as<std::uint32_t>(), b_there.as<std::uint32_t>(),
                            sums_there.as<std::int32_t>()});
  CHECK(back<std::int32_t>(sums_there) == expected);
}

TEST_CASE("cuda instructions: every Float16 number as a float and back from any") {
  const cuda::Buffer floats(kDevice, 65536 * sizeof(float));
  // Bits of floats of all sizes, many of which lie between two halves or on one.
  std::vector<float> numbers;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const std::uint32_t low = i % 4 == 0 ? 0x1000U : i % 4 == 1 ? 0U : i * 2654435761U & 0x3FFFU;
    numbers.push_back(std::bit_cast<float>((i >> 2U) * 2654435761U << 18U >> 2U | low));
  }
  const cuda::Buffer others = there(numbers);
  const cuda::Buffer halves(kDevice, 65536 * sizeof(std::uint16_t));
  test::convert_halves(kDevice,
                       {floats.as<float>(), others.as<float>(), halves.as<std::uint16_t>()});
  const auto rounded = back<std::uint16_t>(halves);
  const auto got = back<float>(floats);
  int wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float expected = math::float16_to_float(static_cast<std::uint16_t>(i));
    const bool same = std::isnan(expected) ? std::isnan(got[i])
                                           : std::bit_cast<std::uint32_t>(expected) ==
                                                 std::bit_cast<std::uint32_t>(got[i]);
    wrong += same ? 0 : 1;
    const std::uint16_t half = math::float_to_float16(numbers[i]);
    const bool is_nan = std::isnan(numbers[i]) && std::isnan(math::float16_to_float(rounded[i]));
    wrong += is_nan || rounded[i] == half ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("cuda instructions: lanes give each other numbers, and sum in the order of a tree") {
  Generator generator(8);
  const std::vector<float> x = randn({32}, generator).to_float_vector();
  const cuda::Buffer from = there(x);
  const cuda::Buffer shuffled(kDevice, 32 * 32 * sizeof(float));
  const cuda::Buffer sum(kDevice, 32 * sizeof(float));
  test::shuffle_lanes(kDevice, {from.as<float>(), shuffled.as<float>(), sum.as<float>()});
  const auto got = back<float>(shuffled);
  for (std::size_t mask = 0; mask < 32; ++mask) {
    for (std::size_t lane = 0; lane < 32; ++lane) CHECK(got[mask * 32 + lane] == x[lane ^ mask]);
  }
  std::vector<float> tree = x;
  for (std::size_t apart = 16; apart > 0; apart /= 2) {
    std::vector<float> next(32);
    for (std::size_t lane = 0; lane < 32; ++lane) next[lane] = tree[lane] + tree[lane ^ apart];
    tree = next;
  }
  CHECK(back<float>(sum) == tree);
}

TEST_CASE("cuda instructions: threads of all blocks meet in memory") {
  const cuda::Buffer count = there(std::vector<std::int32_t>{5});
  const cuda::Buffer wide = there(std::vector<unsigned long long>{7});
  const cuda::Buffer least = there(std::vector<std::int32_t>{0});
  const cuda::Buffer most = there(std::vector<std::int32_t>{0});
  test::meet_in_memory(kDevice, {count.as<std::int32_t>(), wide.as<unsigned long long>(),
                                 least.as<std::int32_t>(), most.as<std::int32_t>()});
  constexpr std::int32_t kSum = 2048 * 2047 / 2;
  CHECK(back<std::int32_t>(count)[0] == 5 + kSum);
  CHECK(back<unsigned long long>(wide)[0] == 7 + (static_cast<unsigned long long>(kSum) << 20));
  CHECK(back<std::int32_t>(least)[0] == -1000);
  CHECK(back<std::int32_t>(most)[0] == 1047);
}

}  // namespace quanta
