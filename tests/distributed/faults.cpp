// A rank that fails in one way or another, for faults_test.py.
//
//   quanta_distributed_faults WAY RANK [RANKS]   WAY: throw, kill, hang, leave, nan, other, more

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"

using quanta::distributed::Communicator;

namespace {

int work(const Communicator& comm, const std::string& way, int rank) {
  std::vector<float> values(1000, 1.0F);
  for (int step = 0; step < 50; ++step) {
    if (step == 20 && comm.rank() == rank) {
      if (way == "throw") throw quanta::ArgumentError("step 20: expected luck, got none");
      if (way == "nan") throw quanta::NumericError("step 20: gradient of conv1.weight: NaN");
      if (way == "kill") std::raise(SIGKILL);
      if (way == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
      if (way == "leave") return 0;
      if (way == "other") comm.barrier("another place");
      if (way == "more") values.resize(1010);
    }
    comm.sum(std::span(values), "step " + std::to_string(step));
    for (float& value : values) value = 1.0F;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: quanta_distributed_faults WAY RANK [RANKS]\n", stderr);
    return 2;
  }
  const std::string way = argv[1];
  const int rank = std::atoi(argv[2]);
  return quanta::distributed::run(
      [&](const Communicator& comm) { return work(comm, way, rank); },
      {.ranks = argc > 3 ? std::atoi(argv[3]) : 0, .time_limit = std::chrono::seconds(2)});
}
