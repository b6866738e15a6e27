#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "distributed/ranks.h"

namespace quanta::cli {

struct TrainCommand {
  RanksOptions ranks;
  std::string model = "fashion_mobilenet";
  std::string weights;  ///< empty: those that come with Quanta
  std::string data;     ///< a folder with Fashion-MNIST
  bool in_float = false;
  bool zero = false;
  std::string optimizer = "sgd";
  double lr = 0.01;
  std::int64_t epochs = 1;
  std::int64_t steps = 0;   ///< 0: as many as the epochs have
  std::int64_t images = 0;  ///< 0: all
  std::int64_t batch = 128;
  std::int64_t accumulate = 1;
  std::int64_t seed = 1;
  std::string checkpoint;
  std::int64_t save_every = 100;
  std::string save;
  std::string json;
};

void add_train_command(CLI::App& app, TrainCommand& options);
/// Trains a network with quantization in the loop. Returns the exit status.
int run_train(const TrainCommand& options);

}  // namespace quanta::cli
