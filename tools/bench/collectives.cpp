// How long sums over all ranks take here: quanta-collectives [JSON], to be started by mpirun. For
// tools/bench/scaling.py.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "cli/json_file.h"
#include "quanta/fusion/distributed/communicator.h"

namespace {

using quanta::distributed::Communicator;

// The median seconds of a sum of `count` floats, the slowest rank's.
double seconds_of_sum(const Communicator& comm, std::size_t count, int rounds) {
  std::vector<float> values(count, 0.0F);
  std::vector<float> seconds;
  for (int i = 0; i < rounds + 2; ++i) {
    comm.barrier("ready");
    const auto begin = std::chrono::steady_clock::now();
    comm.sum(std::span(values), "sum");
    float one = std::chrono::duration<float>(std::chrono::steady_clock::now() - begin).count();
    comm.max(std::span(&one, 1), "slowest");
    if (i >= 2) seconds.push_back(one);
  }
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return static_cast<double>(seconds[static_cast<std::size_t>(rounds / 2)]);
}

int measure(const Communicator& comm, const char* path) {
  nlohmann::json sums = nlohmann::json::array();
  for (std::size_t count = 1; count <= (std::size_t{1} << 22U); count *= 8) {
    const double seconds = seconds_of_sum(comm, count, count > 100'000 ? 15 : 101);
    sums.push_back({{"bytes", count * sizeof(float)}, {"seconds", seconds}});
    if (comm.is_first()) {
      fmt::print("{:>10} bytes {:>10.1f} us\n", count * sizeof(float), seconds * 1e6);
    }
  }
  if (comm.is_first() && path != nullptr) {
    quanta::cli::write_json(path, {{"ranks", comm.size()}, {"sums", sums}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return quanta::distributed::run(
        [&](const Communicator& comm) { return measure(comm, argc > 1 ? argv[1] : nullptr); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quanta-collectives: %s\n", error.what());
    return 1;
  }
}
