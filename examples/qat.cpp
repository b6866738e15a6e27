// Training with quantization in the loop: where quantizing a trained network hurts (one scale for
// each weight tensor of 4 bits), a network that is trained on for an epoch while it feels the
// rounding keeps most of its accuracy. Weights of 8 and of 4 bits, each beside what quantizing
// without training gives; --report writes the run's curves, --lsq yes trains the scales too (learned
// step size quantization). Needs the package dataset-fashion-mnist.

#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "console/measure.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/quanta.h"
#include "support/help.h"
#include "support/train.h"

namespace {

using namespace quanta;
using console::top1;
using data::FashionMnist;
using examples::option, examples::number_option;
using nn::models::FashionMobileNet;

// One scale for a whole weight tensor, 2^bits codes.
template <typename Observer>
ObserverFactory weight_observer(int bits) {
  const std::int64_t half = std::int64_t{1} << (bits - 1);
  return Observer::with_args({.dtype = DType::QInt8,
                              .qscheme = QScheme::PerTensorSymmetric,
                              .quant_min = -half,
                              .quant_max = half - 1});
}

FashionMobileNet load(const std::string& weights) {
  FashionMobileNet net;
  load_state_dict(net, read_safetensors(weights));
  net.eval();
  return net;
}

// Quantized after training, as in static_quantization.cpp.
FashionMobileNet quantize_trained(const std::string& weights, int bits, const FashionMnist& train) {
  FashionMobileNet net = load(weights);
  fuse_modules(net, fusion_groups(net));
  const QConfig qconfig{get_default_qconfig().activation, weight_observer<MinMaxObserver>(bits)};
  const FashionMobileNet prepared = prepare(net, qconfig);
  for (std::int64_t begin = 0; begin < 1024; begin += 64) prepared(train.images(begin, 64));
  return convert(prepared);
}

// Trained on with fake quantizers in all places where convert will quantize. With a batch for LSQ,
// their scales are trained too.
FashionMobileNet train_quantized(const std::string& weights, int bits, data::DataLoader& loader,
                                 std::int64_t epochs, const Tensor& lsq_batch,
                                 TrainingReport& report) {
  FashionMobileNet net = load(weights);
  net.train();
  fuse_modules_qat(net, fusion_groups(net));
  const QConfig qconfig{
      get_default_qat_qconfig().activation,
      FakeQuantize::with_args(weight_observer<MovingAverageMinMaxObserver>(bits))};
  QConfigMapping qconfigs(lsq_batch.defined() ? lsq_qconfig({.weight_bits = bits}) : qconfig);
  // ReLU6 clamps the codes of what comes in. A fake quantizer behind it would train the network on
  // values that the int8 network does not have.
  qconfigs.set_object_type<nn::ReLU6>(std::nullopt);
  FashionMobileNet prepared = prepare_qat(net, qconfigs);
  prepared.requires_grad_();
  if (lsq_batch.defined()) {
    prepared(lsq_batch);  // where scales begin
    enable_param_learning(prepared);
  }

  const std::int64_t steps = epochs * loader.size();
  optim::SGD optimizer(prepared.parameters(), {.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4});
  optim::OneCycleLR scheduler(optimizer, {.max_lr = 0.01, .total_steps = steps, .pct_start = 0.1});
  // Rounding to few codes makes the first losses large.
  optim::TrainingLoop loop({.model = prepared, .optimizer = optimizer, .scheduler = &scheduler},
                           {.max_grad_norm = 2.0});
  examples::train_epochs(
      prepared, loop, loader, epochs, std::to_string(bits) + "-bit weights",
      [&](std::int64_t step) {
        // Towards the end ranges and statistics stand still, so that weights settle on them.
        if (step != steps * 3 / 4) return;
        disable_observer(prepared);
        freeze_bn_stats(prepared);
        report.event("observers and statistics stand still");
      },
      [&](double loss) { report.step(prepared, loss); });
  disable_observer(prepared);
  prepared.requires_grad_(false).eval();
  return prepared;
}

int run(int argc, char** argv) {
  const std::int64_t epochs = number_option(argc, argv, "--epochs", 1);
  const std::string weights = option(argc, argv, "--weights")
                                  .value_or(QUANTA_DEMO_DATA_DIR "/fashion_mobilenet.safetensors");
  const bool lsq = examples::yes_option(argc, argv, "--lsq");
  const std::string out = option(argc, argv, "--out").value_or("fashion_mobilenet_qat.safetensors");
  const std::optional<std::string> page = option(argc, argv, "--report");
  const std::string folder = option(argc, argv, "--data").value_or(FashionMnist::kDebianFolder);
  const FashionMnist train(folder, FashionMnist::Split::Train);
  const FashionMnist test(folder, FashionMnist::Split::Test);
  const std::int64_t images = number_option(argc, argv, "--images", train.size());
  const auto used = std::make_shared<data::Subset>(train.dataset(), 0, images);

  const double float_top1 = top1(load(weights), test, test.size(), "float");
  std::printf("top-1 in %% %15s %12s %18s %12s\n", "float", "PTQ", "QAT, fake", "QAT, int8");
  bool as_promised = true;
  for (const int bits : {8, 4}) {
    data::DataLoader loader(used, {.batch_size = 128,
                                   .shuffle = true,
                                   .drop_last = true,
                                   .transform = FashionMnist::normalization(),
                                   .seed = 1});
    const std::string label = std::to_string(bits) + "-bit weights, ";
    const double ptq =
        top1(quantize_trained(weights, bits, train), test, test.size(), label + "PTQ");
    TrainingReport report(std::to_string(bits) + "-bit weights");
    const FashionMobileNet prepared = train_quantized(
        weights, bits, loader, epochs, lsq ? train.images(0, 128) : Tensor(), report);
    const double fake = top1(prepared, test, test.size(), label + "fake");
    report.metric("top-1 in %", fake);
    if (page && bits == 4) write_report(report, *page);
    const FashionMobileNet int8 = convert(prepared);
    const double converted = top1(int8, test, test.size(), label + "int8");
    if (bits == 8) save_model(int8, out);
    std::printf("%d-bit weights %10.2f %12.2f %18.2f %12.2f\n", bits, float_top1, ptq, fake,
                converted);
    as_promised = as_promised && std::abs(converted - fake) <= 0.1 + 1e-9 &&
                  (bits == 8 ? converted >= float_top1 - 0.1 - 1e-9 : converted >= ptq + 3.0);
  }
  if (!as_promised) throw Error("less than a full epoch on all images gives");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "qat [--epochs N] [--lsq yes|no] [--weights FLOAT-FILE] [--out INT8-FILE] [--data FOLDER]\n"
      "    [--images N] [--report HTML-FILE]\n"
      "Trains with quantization in the loop, with --lsq yes the scales too; writes\n"
      "fashion_mobilenet_qat.safetensors without --out.";
  return examples::run_main(argc, argv, kUsage, [&] { return run(argc, argv); });
}
