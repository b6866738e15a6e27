// A rank that fails in one way or another, for faults_test.py.
//
//   quanta_distributed_faults WAY RANK [RANKS [TIME_LIMIT]]
//     WAY: throw, kill, hang, leave, other, more; of much: stop; in a training: nan-gradient, nan-loss
//     TIME_LIMIT: seconds, 2 unless given

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/fusion/distributed/data_parallel.h"
#include "quanta/nn/linear.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/reduce.h"

using quanta::Tensor;
using quanta::distributed::Communicator;

namespace {

constexpr int kFaultyStep = 20;

int work(const Communicator& comm, const std::string& way, int rank) {
  std::vector<float> values(1000, 1.0F);
  for (int step = 0; step < 50; ++step) {
    if (step == kFaultyStep && comm.rank() == rank) {
      if (way == "throw") throw quanta::ArgumentError("step 20: expected luck, got none");
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

// A rank stops in the middle of large messages, as where a machine or a network dies.
int stop(const Communicator& comm, int rank) {
  std::vector<float> values(10'000'000, 1.0F);
  comm.barrier("begin");
  if (comm.rank() == rank) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      std::raise(SIGSTOP);
    }).detach();
  }
  for (int step = 0; step < 200; ++step) comm.sum(std::span(values), "large");
  return 0;
}

// The length of a layer's output as the loss: of an input of zeros it is 0, and its gradient is 0
// times infinity.
int train(const Communicator& comm, const std::string& way, int rank) {
  quanta::nn::Linear layer(
      quanta::nn::LinearOptions{.in_features = 3, .out_features = 2, .bias = false});
  layer.requires_grad_();
  quanta::distributed::DataParallel parallel(layer, comm);
  for (int step = 0; step < 50; ++step) {
    double value = 1.0;
    if (step == kFaultyStep && comm.rank() == rank) {
      value = way == "nan-loss" ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    }
    const Tensor y = layer.forward(Tensor::full({1, 3}, value));
    parallel.backward(sqrt(sum(mul(y, y))), 1);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: quanta_distributed_faults WAY RANK [RANKS [TIME_LIMIT]]\n", stderr);
    return 2;
  }
  const std::string way = argv[1];
  const int rank = std::atoi(argv[2]);
  return quanta::distributed::run(
      [&](const Communicator& comm) {
        if (way == "stop") return stop(comm, rank);
        return way.starts_with("nan-") ? train(comm, way, rank) : work(comm, way, rank);
      },
      {.ranks = argc > 3 ? std::atoi(argv[3]) : 0,
       .time_limit = std::chrono::seconds(argc > 4 ? std::atoi(argv[4]) : 2)});
}
