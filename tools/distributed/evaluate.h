#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/ranks.h"

namespace quanta::cli {

struct EvaluateCommand {
  RanksOptions ranks;
  std::string model = "fashion_resnet";
  std::string weights;  ///< empty: those that come with Quanta
  std::string onnx;     ///< instead of model and weights
  std::string data;     ///< a folder with Fashion-MNIST
  std::string split = "test";
  std::string pictures;  ///< a folder of pictures, one folder a class, instead of Fashion-MNIST
  std::vector<float> mean{0.485F, 0.456F, 0.406F};
  std::vector<float> std{0.229F, 0.224F, 0.225F};
  std::int64_t size = 224;
  std::int64_t images = 0;  ///< 0: all
  std::int64_t batch = 64;
  std::string json;
};

void add_evaluate_command(CLI::App& app, EvaluateCommand& options);
/// Prints what the network makes of a data set. Returns the exit status.
int run_evaluate(const EvaluateCommand& options);

}  // namespace quanta::cli
