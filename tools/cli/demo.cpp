#include "demo.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <vector>

#include "console/measure.h"
#include "console/progress.h"
#include "observer_option.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/quanta.h"

namespace quanta::cli {
namespace {

using console::ProgressBar;
using console::top1;
using console::weight_bytes;
using data::FashionMnist;

constexpr std::int64_t kBatch = 64;
constexpr std::int64_t kCalibrationImages = 1024;

/// Recurrent networks are quantized dynamically: nothing is observed.
template <typename Net>
concept Recurrent =
    std::same_as<Net, nn::models::FashionLstm> || std::same_as<Net, nn::models::FashionGru>;

struct Timings {
  double float_ms = 0.0;
  double int8_ms = 0.0;
};

Timings time_models(const nn::Module& float_model, const nn::Module& int8_model, const Tensor& x,
                    int rounds) {
  const std::vector<double> ms =
      console::median_ms({[&] { float_model(x); }, [&] { int8_model(x); }}, rounds);
  return {ms[0], ms[1]};
}

// Told before the work begins, not minutes later.
void check_saved(const std::filesystem::path& saved) {
  namespace fs = std::filesystem;
  const fs::path folder = saved.has_parent_path() ? saved.parent_path() : fs::path(".");
  if (!fs::is_directory(folder) || ::access(folder.c_str(), W_OK) != 0) {
    throw FileError(
        fmt::format("demo: --save: expected a path in a folder that exists and can be written, got "
                    "{}",
                    saved.string()));
  }
  if (fs::is_directory(saved)) {
    throw FileError(fmt::format("demo: --save: expected the path of a file, got the folder {}",
                                saved.string()));
  }
}

void check_inputs(const DemoOptions& options, const std::filesystem::path& weights) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(options.data_folder)) {
    throw FileError(fmt::format(
        "demo: --data: expected a folder with Fashion-MNIST's four .gz files, got {} (Debian's "
        "package dataset-fashion-mnist puts them into /usr/share/datasets/fashion-mnist)",
        options.data_folder));
  }
  if (!fs::is_regular_file(weights)) {
    throw FileError(fmt::format(
        "demo: --weights: expected a folder with {}, got {} (Quanta's package has it in "
        "share/quanta, the source tree in examples/data)",
        weights.filename().string(), options.weights_folder));
  }
}

std::filesystem::path weights_path(const DemoOptions& options) {
  return std::filesystem::path(options.weights_folder) / (options.model + ".safetensors");
}

void calibrate(const nn::Module& model, const FashionMnist& train) {
  ProgressBar bar("calibrating", kCalibrationImages);
  for (std::int64_t begin = 0; begin < kCalibrationImages; begin += kBatch) {
    model(train.images(begin, kBatch));
    bar.advance(kBatch);
  }
}

// Another number format in the float network.
template <typename Net>
int run_format(const DemoOptions& options) {
  const NumberFormat& format = number_format(options.format);
  const std::filesystem::path weights = weights_path(options);
  check_inputs(options, weights);
  const FashionMnist train(options.data_folder, FashionMnist::Split::Train);
  const FashionMnist test(options.data_folder, FashionMnist::Split::Test);
  const std::int64_t images = std::min<std::int64_t>(options.images, test.size());

  Net net;
  load_state_dict(net, read_safetensors(weights));
  net.eval();
  fuse_modules(net, fusion_groups(net));
  const double float_top1 = top1(net, test, images, "float accuracy");
  // Pixels have 8 bits; whatever follows is in the format.
  const QConfigMapping qconfigs = QConfigMapping(qconfig_for_format(format.name))
                                      .set_object_type<nn::QuantStub>(qconfig_for_format("int8"));
  const auto simulated = simulate_quantization(
      net, qconfigs, [&](const nn::Module& model) { calibrate(model, train); });
  const double format_top1 = top1(simulated, test, images, "format accuracy");

  const Tensor probe = test.images(0, std::min<std::int64_t>(images, 256));
  fmt::print("\n{}: {} test images, {} calibration images, {}: weights {}, activations {}\n\n",
             options.model, images, kCalibrationImages, format.name, format.weights,
             format.activations);
  fmt::print("{:<26} {:>12} {:>12}\n", "", "float32", format.name);
  fmt::print("{:<26} {:>12} {:>12.2f}\n", "bits per weight", 32, format.weight_bits);
  fmt::print("{:<26} {:>11.2f}% {:>11.2f}% {:>+11.2f} points\n", "top-1", float_top1, format_top1,
             format_top1 - float_top1);
  fmt::print("{:<26} {:>12} {:>9.1f} dB\n", "SQNR of the output", "",
             sqnr(net(probe), simulated(probe)));
  fmt::print("\n{}", to_string(compare_layers(net, simulated, {probe})));
  return 0;
}

// Whether the model gives the same when it is saved and loaded into a network built afresh.
template <typename Net>
bool save_and_compare(const Net& int8, const std::filesystem::path& saved,
                      const std::filesystem::path& weights, const Tensor& probe) {
  save_model(int8, saved);
  Net loaded;
  loaded.eval();
  load_model(loaded, saved);
  const bool identical = loaded(probe).equal(int8(probe));
  const auto float_bytes = std::filesystem::file_size(weights);
  const auto int8_bytes = std::filesystem::file_size(saved);
  fmt::print("\nsaved to {}: {} bytes, {:.1f}% of the float file; loaded again: outputs {}\n",
             saved.string(), int8_bytes,
             100.0 * static_cast<double>(int8_bytes) / static_cast<double>(float_bytes),
             identical ? "identical" : "DIFFER");
  return identical;
}

// Whether the int8 network gives on the device what it gives on the CPU: to the last bit, for each
// of the images.
template <typename Net>
bool run_on_device(const Net& int8, Device device, const FashionMnist& test, std::int64_t images) {
  const std::int64_t batch = device.is_emulated() ? 4 : kBatch;  // it is slow: the bar shall move
  Net there = deep_copy(int8);
  there.to(device);
  ProgressBar bar(fmt::format("int8 on {}", to_string(device)), images);
  std::int64_t equal = 0;
  for (std::int64_t begin = 0; begin < images; begin += batch) {
    const std::int64_t count = std::min(batch, images - begin);
    const Tensor x = test.images(begin, count);
    const Tensor expected = int8(x);
    const Tensor given = there(x.to(device)).cpu();
    for (std::int64_t i = 0; i < count; ++i) {
      equal += given.select(0, i).equal(expected.select(0, i)) ? 1 : 0;
    }
    bar.advance(count);
  }
  fmt::print("\non {} ({}): the outputs of {} of {} images are the CPU's\n", to_string(device),
             device_name(device), equal, images);
  // A test device's time says nothing.
  if (!device.is_emulated()) {
    const Tensor one = test.images(0, 1).to(device);
    const Tensor many = test.images(0, kBatch).to(device);
    const double one_ms = console::median_ms({[&] { there(one).cpu(); }}, 200)[0];
    const double many_ms = console::median_ms({[&] { there(many).cpu(); }}, 50)[0];
    fmt::print("latency, batch 1: {:.3f} ms; batch {}: {:.0f} images/s\n", one_ms, kBatch,
               1000.0 * static_cast<double>(kBatch) / many_ms);
  }
  return equal == images;
}

// The int8 network; convolutions of the float one are fused on the way.
template <typename Net>
Net quantize_demo(Net& net, const DemoOptions& options) {
  const FashionMnist train(options.data_folder, FashionMnist::Split::Train);
  fuse_modules(net, fusion_groups(net));
  const auto prepared = prepare(net, qconfig_of_observer(options.observer, options.per_tensor));
  calibrate(prepared, train);
  return convert(prepared);
}
template <Recurrent Net>
Net quantize_demo(Net& net, const DemoOptions& /*options*/) {
  return quantize_dynamic(net);
}

template <typename Net>
std::string how_quantized(const DemoOptions& options) {
  return fmt::format("{} calibration images, {} observer, {} weights", kCalibrationImages,
                     options.observer, options.per_tensor ? "per-tensor" : "per-channel");
}
template <Recurrent Net>
std::string how_quantized(const DemoOptions& /*options*/) {
  return "quantized dynamically";
}

template <typename Net>
int run(const DemoOptions& options) {
  if constexpr (!Recurrent<Net>) {
    if (!options.format.empty()) return run_format<Net>(options);
  }
  const std::filesystem::path weights = weights_path(options);
  const std::filesystem::path saved = options.save_path;
  if (!saved.empty()) check_saved(saved);
  check_inputs(options, weights);
  const Device device = options.device.empty() ? Device::cpu() : Device::parse(options.device);
  device_name(device);  // throws now where there is none, not after minutes
  const FashionMnist test(options.data_folder, FashionMnist::Split::Test);
  const std::int64_t images = std::min<std::int64_t>(options.images, test.size());

  Net net;
  load_state_dict(net, read_safetensors(weights));
  net.eval();
  const double float_top1 = top1(net, test, images, "float accuracy");

  const Net int8 = quantize_demo(net, options);
  const double int8_top1 = top1(int8, test, images, "int8 accuracy");

  const Tensor probe = test.images(0, std::min<std::int64_t>(images, 256));
  const Timings one = time_models(net, int8, test.images(0, 1), 200);
  const Timings many = time_models(net, int8, test.images(0, kBatch), 20);
  const auto images_per_second = [](double ms) {
    return 1000.0 * static_cast<double>(kBatch) / ms;
  };
  fmt::print("\n{}: {} test images, {}, {} threads\n\n", options.model, images,
             how_quantized<Net>(options), get_num_threads());
  fmt::print("{:<26} {:>12} {:>12} {:>12}\n", "", "float32", "int8", "");
  fmt::print("{:<26} {:>11.2f}% {:>11.2f}% {:>+11.2f} points\n", "top-1", float_top1, int8_top1,
             int8_top1 - float_top1);
  fmt::print("{:<26} {:>9.3f} ms {:>9.3f} ms {:>11.2f}x faster\n", "latency, batch 1", one.float_ms,
             one.int8_ms, one.float_ms / one.int8_ms);
  fmt::print("{:<26} {:>12.0f} {:>12.0f} {:>11.2f}x faster\n", "images/s, batch 64",
             images_per_second(many.float_ms), images_per_second(many.int8_ms),
             many.float_ms / many.int8_ms);
  fmt::print(
      "{:<26} {:>12} {:>12} {:>11.1f}%\n", "weight bytes", weight_bytes(net), weight_bytes(int8),
      100.0 * static_cast<double>(weight_bytes(int8)) / static_cast<double>(weight_bytes(net)));
  if constexpr (!Recurrent<Net>) {
    fmt::print("\n{}", to_string(compare_layers(net, int8, {probe})));
  }
  if (!options.report.empty()) {
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < probe.size(0); ++i) labels.push_back(test.label(i));
    const ReportData data({probe}, Tensor::from_int64(labels));
    write_report(make_report(net, int8, data, {.title = options.model}), options.report);
    fmt::print("written: {}\n", options.report);
  }
  const bool same = device.is_cpu() || run_on_device(int8, device, test, images);
  const bool kept = saved.empty() || save_and_compare(int8, saved, weights, probe);
  return same && kept ? 0 : 1;
}

}  // namespace

int run_demo(const DemoOptions& options) {
  if (options.threads > 0) set_num_threads(options.threads);
  if (options.model == "fashion_lstm" || options.model == "fashion_gru") {
    if (!options.format.empty() || options.observer != DemoOptions().observer ||
        options.per_tensor) {
      throw ArgumentError(
          fmt::format("demo: --model: expected fashion_resnet or fashion_mobilenet with --format, "
                      "--observer and "
                      "--per-tensor, got {}, which is quantized dynamically",
                      options.model));
    }
    if (options.model == "fashion_gru") return run<nn::models::FashionGru>(options);
    return run<nn::models::FashionLstm>(options);
  }
  if (options.model == "fashion_mobilenet") return run<nn::models::FashionMobileNet>(options);
  return run<nn::models::FashionResNet>(options);
}

}  // namespace quanta::cli
