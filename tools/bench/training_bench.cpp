// One step of training (forward, backward, update) of fashion_resnet at batch 128: in float, and
// with fake quantizers on every weight and activation.

#include <benchmark/benchmark.h>

#include "bench_support.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/nn/optim/training.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/random.h"

namespace quanta::bench {
namespace {

constexpr std::int64_t kBatch = 128;

/// Floating point operations of one forward pass of the network's convolutions and linear layer,
/// a multiplication and an addition each; going back takes twice as many.
double forward_flops(std::int64_t batch) {
  struct Layer {
    std::int64_t count, in, out, kernel, side;  // side of the output
  };
  constexpr Layer kLayers[] = {{1, 1, 16, 3, 28},  {4, 16, 16, 3, 28}, {1, 16, 32, 3, 14},
                               {3, 32, 32, 3, 14}, {1, 16, 32, 1, 14}, {1, 32, 64, 3, 7},
                               {3, 64, 64, 3, 7},  {1, 32, 64, 1, 7},  {1, 64, 10, 1, 1}};
  std::int64_t products = 0;
  for (const Layer& layer : kLayers) {
    products +=
        layer.count * layer.in * layer.out * layer.kernel * layer.kernel * layer.side * layer.side;
  }
  return 2.0 * static_cast<double>(batch * products);
}

/// A network in training with its optimizer and one batch.
class Step {
 public:
  explicit Step(bool fake_quantized) : net_(make_net(fake_quantized)) {
    net_.requires_grad_();
    optimizer_ = std::make_unique<optim::SGD>(
        net_.parameters(), optim::SGDOptions{.lr = 1e-3, .momentum = 0.9, .weight_decay = 5e-4});
    loop_ = std::make_unique<optim::TrainingLoop>(
        optim::TrainingParts{.model = net_, .optimizer = *optimizer_});
    Generator generator(3);
    images_ = randn({kBatch, 1, 28, 28}, generator);
    labels_ = randint(0, 10, {kBatch}, DType::Int64, generator);
  }
  void operator()() {
    loop_->step([&] { return cross_entropy(net_(images_), labels_); });
  }

 private:
  static nn::models::FashionResNet make_net(bool fake_quantized) {
    nn::models::FashionResNet net;
    if (!fake_quantized) return net;
    fuse_modules_qat(net, fusion_groups(net));
    return prepare_qat(net, get_default_qat_qconfig());
  }

  nn::models::FashionResNet net_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::TrainingLoop> loop_;
  Tensor images_;
  Tensor labels_;
};

void fashion_resnet_step(benchmark::State& state) {
  Step float_step(false);
  Step fake_step(true);
  for (auto _ : state) float_step();
  // In turn, so that a busy machine slows both.
  std::vector<double> ratios;
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) {
    const double float_seconds = median_seconds(float_step, 0.5);
    const double fake_seconds = median_seconds(fake_step, 0.5);
    ratios.push_back(fake_seconds / float_seconds);
    times.push_back(float_seconds);
  }
  std::sort(ratios.begin(), ratios.end());
  std::sort(times.begin(), times.end());
  state.counters["float_ms"] = 1e3 * times[2];
  state.counters["fake/float"] = ratios[2];
  state.counters["float_GFLOP/s"] = 1e-9 * 3.0 * forward_flops(kBatch) / times[2];
}
BENCHMARK(fashion_resnet_step)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace quanta::bench
