#include <quanta/fusion/distributed/communicator.h>

#include <cstdio>
#include <vector>

int main() {
  return quanta::distributed::run(
      [](const quanta::distributed::Communicator& comm) {
        std::vector<float> ones(3, 1.0F);
        comm.sum(ones, "ones");
        std::printf("rank %d of %d: %g\n", comm.rank(), comm.size(), static_cast<double>(ones[0]));
        return ones[0] == 2.0F ? 0 : 1;
      },
      {.ranks = 2});
}
