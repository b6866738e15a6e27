#include "quanta/runtime/detail/team.h"

#include <doctest/doctest.h>

#include <vector>

#include "quanta/runtime/parallel.h"
#include "support/threads.h"

namespace quanta {
namespace {

// Each thread adds up what all wrote in the round before.
void check_rounds(int threads) {
  constexpr int kRounds = 300;
  std::vector<std::vector<int>> written(2, std::vector<int>(static_cast<std::size_t>(threads)));
  std::vector<int> wrong(static_cast<std::size_t>(threads), 0);
  int size = 0;
  detail::run_team(threads, [&](const detail::Team& team) {
    if (team.rank() == 0) size = team.size();
    for (int round = 0; round < kRounds; ++round) {
      std::vector<int>& row = written[static_cast<std::size_t>(round % 2)];
      row[static_cast<std::size_t>(team.rank())] = round + team.rank();
      team.barrier();
      for (int rank = 0; rank < team.size(); ++rank) {
        if (row[static_cast<std::size_t>(rank)] != round + rank) {
          ++wrong[static_cast<std::size_t>(team.rank())];
        }
      }
    }
  });
  CHECK(size >= 1);
  CHECK(size <= threads);
  for (const int count : wrong) CHECK(count == 0);
}

TEST_CASE("run_team: what a thread wrote before a barrier is seen by all after it") {
  for (const int threads : {1, 2, 3, 8}) {
    const test::Threads guard(threads);
    check_rounds(threads);
  }
}

TEST_CASE("run_team: no more threads than are set and one inside a parallel loop") {
  const test::Threads guard(2);
  check_rounds(5);
  parallel_for(2, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      int size = 0;
      detail::run_team(4, [&](const detail::Team& team) { size = team.size(); });
      if (get_num_threads() == 1) CHECK(size == 1);
    }
  });
}

}  // namespace
}  // namespace quanta
