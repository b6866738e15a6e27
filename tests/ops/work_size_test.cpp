// How many threads a product is worth.

#include "quanta/ops/cpu/work_size.h"

#include <doctest/doctest.h>

#include "support/threads.h"

namespace quanta::cpu {
namespace {

constexpr std::int64_t kMega = std::int64_t{1} << 20;

TEST_CASE("threads_for_product: a few rows have a thread for each 256 KB of their weight") {
  const test::Threads guard(16);
  CHECK(threads_for_product(1, kMega / 4) == 1);
  CHECK(threads_for_product(1, kMega) == 4);
  CHECK(threads_for_product(3, kMega) == 4);
  CHECK(threads_for_product(1, 16 * kMega) == 16);
  CHECK(threads_for_product(4, kMega) == 16);
  CHECK(threads_for_product(8, kMega / 16) == 1);
}

TEST_CASE("threads_for: a million multiply-adds are for one thread") {
  const test::Threads guard(16);
  CHECK(threads_for(0) == 1);
  CHECK(threads_for(1'000'000) == 1);
  CHECK(threads_for(1'000'001) == 16);
}

TEST_CASE("product_channel_grain: no thread has fewer than 64 channels") {
  const test::Threads guard(16);
  CHECK(product_channel_grain(1, 1024, 1024) == 256);
  CHECK(product_channel_grain(1, 65536, 128) == 64);
  CHECK(product_channel_grain(1, 100, 1000) == 1000);
}

}  // namespace
}  // namespace quanta::cpu
