#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "distributed/run_ranks.h"
#include "quanta/fusion/distributed/detail/processes.h"
#include "quanta/fusion/distributed/detail/rank_group.h"
#include "quanta/runtime/parallel.h"

namespace quanta::test {
namespace {

distributed::detail::Processes* all = nullptr;

}  // namespace

int processes() { return all->size(); }
int process() { return all->rank(); }

void run_ranks(int ranks, const std::function<void(const distributed::Communicator&)>& body) {
  const auto group = std::make_shared<distributed::detail::RankGroup>(*all, ranks);
  const auto count = static_cast<std::size_t>(group->count());
  std::exception_ptr error;
  const auto run_one = [&](std::size_t i) {
    try {
      set_num_threads(1);
      body(group->communicator(static_cast<int>(i)));
    } catch (...) {
      if (group->fail(static_cast<int>(i))) error = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < count; ++i) others.emplace_back(run_one, i);
  run_one(0);
  for (std::thread& other : others) other.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace quanta::test

int main(int argc, char** argv) {
  quanta::distributed::detail::Processes processes;
  quanta::test::all = &processes;
  processes.set_time_limit(std::chrono::seconds(60));
  const int status = doctest::Context(argc, argv).run();
  if (status != 0) {
    // The others may wait for a call that this process will never make.
    std::fflush(nullptr);
    if (processes.size() > 1) processes.abort();
  }
  return status;
}
