#include "quanta/runtime/random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "quanta/runtime/error.h"

namespace quanta::test {

TEST_CASE("Generator: a row of numbers is what as many single calls give") {
  Generator one(5);
  Generator other(5);
  std::array<float, 7> uniform{};
  std::array<float, 5> normal{};  // odd: half of a pair is left
  std::array<std::int64_t, 6> integer{};
  one.uniform(uniform);
  one.normal(normal);
  one.integer(-3, 9, integer);
  for (const float value : uniform) CHECK(value == other.uniform());
  for (const float value : normal) CHECK(value == other.normal());
  for (const std::int64_t value : integer) CHECK(value == other.integer(-3, 9));
  CHECK(one.normal() == other.normal());
  CHECK(one.state() == other.state());
  CHECK_THROWS_AS(one.integer(3, 2, integer), ArgumentError);
  CHECK(one.state() == other.state());
}

TEST_CASE("Generator: a copy goes on by itself from the same place") {
  Generator generator(7);
  generator.normal();
  Generator copy = generator;
  CHECK(copy.normal() == generator.normal());
  generator.manual_seed(7);
  CHECK(generator.state() == Generator(7).state());
  copy = generator;
  CHECK(copy.next() == generator.next());
}

TEST_CASE("rand: threads that share a generator get the rows of one sequence") {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kRows = 150;
  const Dims sizes{301};
  std::array<std::vector<std::vector<float>>, kThreads> drawn;
  Generator shared(11);
  {
    std::vector<std::thread> threads;
    for (auto& rows : drawn) {
      threads.emplace_back([&] {
        for (std::size_t i = 0; i < kRows; ++i) {
          rows.push_back(rand(sizes, shared).to_float_vector());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<std::vector<float>> got;
  std::vector<std::vector<float>> want;
  for (const auto& rows : drawn) got.insert(got.end(), rows.begin(), rows.end());
  Generator alone(11);
  for (std::size_t i = 0; i < kThreads * kRows; ++i) {
    want.push_back(rand(sizes, alone).to_float_vector());
  }
  std::sort(got.begin(), got.end());
  std::sort(want.begin(), want.end());
  CHECK(got == want);
  CHECK(shared.state() == alone.state());
}

}  // namespace quanta::test
