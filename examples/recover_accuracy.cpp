// Getting back accuracy that quantization cost, without training and without labels: weights of 4 bits
// take the MobileNet's answers away, and methods that look at a few pictures bring most of them back.
// Each list of methods is one int8 network: names joined by "+" (accuracy_method_names() lists them).
// With --scales group 32 weights of an output channel share a scale, activations stay in float, and
// the one method is gptq. Needs Debian's package dataset-fashion-mnist.
//
//   recover_accuracy [--network fashion_mobilenet|fashion_resnet] [--bits N]
//                    [--scales tensor|channel|group] [--methods LIST,LIST] [--iterations N] [--calibration N] [--test N]
//                    [--data FOLDER] [--weights FLOAT-FILE]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "console/measure.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/quanta.h"
#include "support/help.h"
#include "support/train.h"

namespace {

using quanta::Tensor;
using quanta::console::top1;
using quanta::data::FashionMnist;
using quanta::examples::number_option;
using quanta::examples::option;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

quanta::AccuracyMethod method_of(const std::string& name, std::int64_t iterations) {
  if (name == "adaround") return quanta::adaround_method({.iterations = iterations});
  if (name == "brecq") {
    return quanta::brecq_method({.iterations = iterations, .learning_rate = 1e-2});
  }
  return quanta::accuracy_method(name);
}

// Weights alone, in groups of 32. With that much damping no column hears of another one's error, which
// is rounding to nearest.
template <typename Net>
Net in_groups(const Net& net, const std::vector<Tensor>& batches, int bits,
              const std::string& method) {
  if (method != "none" && method != "gptq") {
    throw quanta::ArgumentError("--methods: expected gptq with groups, got " + method);
  }
  Net fused = quanta::nn::deep_copy(net);
  quanta::fuse_modules(fused, fusion_groups(fused));
  return quanta::gptq_weight_only(
      fused, quanta::CalibrationData(batches), {.bits = bits, .group_size = 32},
      {.percdamp = method == "gptq" ? 0.01 : 1e12, .convolutions = true});
}

template <typename Net>
int run(const std::string& name, int argc, char** argv) {
  const int bits = static_cast<int>(number_option(argc, argv, "--bits", 4));
  const std::string scales = option(argc, argv, "--scales").value_or("tensor");
  if (scales != "tensor" && scales != "channel" && scales != "group") {
    throw quanta::ArgumentError("--scales: expected tensor, channel or group, got " + scales);
  }
  const bool per_channel = scales == "channel";
  const std::int64_t iterations = number_option(argc, argv, "--iterations", 1500);
  const std::int64_t calibration = number_option(argc, argv, "--calibration", 1024);
  const std::string folder = option(argc, argv, "--data").value_or(FashionMnist::kDebianFolder);
  const FashionMnist train(folder, FashionMnist::Split::Train);
  const FashionMnist test(folder, FashionMnist::Split::Test);
  const std::int64_t tested = number_option(argc, argv, "--test", test.size());

  Net net;
  load_state_dict(net, quanta::read_safetensors(
                           option(argc, argv, "--weights")
                               .value_or(QUANTA_DEMO_DATA_DIR "/" + name + ".safetensors")));
  net.eval();
  std::vector<Tensor> batches;
  for (std::int64_t begin = 0; begin < calibration; begin += 64) {
    batches.push_back(train.images(begin, 64));
  }
  // One scale for a whole weight, or one for each channel.
  const quanta::QConfig eight = per_channel
                                    ? quanta::get_default_qconfig()
                                    : quanta::QConfig{quanta::get_default_qconfig().activation,
                                                      quanta::default_weight_observer()};
  const quanta::QConfigMapping qconfigs(quanta::with_weight_bits(eight, bits));
  const double float_top1 = top1(net, test, tested, "float");
  std::printf("%s, weights of %d bits, a scale for %s, top-1 of %lld images in %%\n%-40s %.2f\n",
              name.c_str(), bits,
              scales == "tensor" ? "the whole tensor" : ("each " + scales).c_str(),
              static_cast<long long>(tested), "float", float_top1);

  double plain = 0.0, best = 0.0;
  const std::string lists =
      option(argc, argv, "--methods")
          .value_or(scales == "group" ? "gptq" : "cle,cle+bias-correction,cle+adaround");
  for (const std::string& list : split("none," + lists, ',')) {
    quanta::QuantizeOptions options{.qconfigs = qconfigs};
    const auto begin = std::chrono::steady_clock::now();
    const Net int8 = [&] {
      if (scales == "group") return in_groups(net, batches, bits, list);
      for (const std::string& method : split(list == "none" ? "" : list, '+')) {
        options.methods.push_back(method_of(method, iterations));
      }
      return quanta::quantize(net, batches[0], batches, options);
    }();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const double accuracy = top1(int8, test, tested, list);
    std::printf("%-40s %.2f   (%.1f s)\n", list.c_str(), accuracy, seconds.count());
    std::fflush(stdout);
    if (list == "none") plain = accuracy;
    best = std::max(best, accuracy);
  }
  return best >= plain ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "recover_accuracy [--network fashion_mobilenet|fashion_resnet] [--bits N]\n"
      "                        [--scales tensor|channel|group]\n"
      "                        [--methods LIST,LIST] [--iterations N] [--calibration N] [--test "
      "N]\n"
      "                        [--data FOLDER] [--weights FLOAT-FILE]\n"
      "Brings back accuracy that weights of few bits cost, by methods that need no labels. A LIST "
      "is\n"
      "names joined by +: cle, bias-correction, adaround, gptq, brecq, ...";
  return quanta::examples::run_main(argc, argv, kUsage, [&] {
    const std::string name = option(argc, argv, "--network").value_or("fashion_mobilenet");
    if (name == "fashion_resnet") return run<quanta::nn::models::FashionResNet>(name, argc, argv);
    if (name == "fashion_mobilenet") {
      return run<quanta::nn::models::FashionMobileNet>(name, argc, argv);
    }
    throw quanta::ArgumentError("--network: expected fashion_mobilenet or fashion_resnet, got " +
                                name);
  });
}
