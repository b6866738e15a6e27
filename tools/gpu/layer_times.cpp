// quanta-layers: int8 layers of known networks on a device, one by one: the time of each by the
// device's own events, whether the codes are the CPU's, and what copies reach; and each operation of
// the catalogue once. JSON for tools/gpu/first_run; what a choice of tiles is made from.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "operation_check.h"
#include "quanta/quanta.h"

namespace quanta {
namespace {

using nlohmann::json;

struct Layer {
  const char* network;
  std::int64_t in, out, side, kernel, stride, groups;  ///< kernel 0: a linear layer of `side` rows
};

// Each shape once.
constexpr Layer kLayers[] = {
    {"resnet50", 3, 64, 224, 7, 2, 1},         {"resnet50", 64, 64, 56, 1, 1, 1},
    {"resnet50", 64, 64, 56, 3, 1, 1},         {"resnet50", 64, 256, 56, 1, 1, 1},
    {"resnet50", 256, 64, 56, 1, 1, 1},        {"resnet50", 256, 128, 56, 1, 1, 1},
    {"resnet50", 128, 128, 56, 3, 2, 1},       {"resnet50", 256, 512, 56, 1, 2, 1},
    {"resnet50", 128, 512, 28, 1, 1, 1},       {"resnet50", 512, 128, 28, 1, 1, 1},
    {"resnet50", 128, 128, 28, 3, 1, 1},       {"resnet50", 512, 256, 28, 1, 1, 1},
    {"resnet50", 256, 256, 28, 3, 2, 1},       {"resnet50", 512, 1024, 28, 1, 2, 1},
    {"resnet50", 256, 1024, 14, 1, 1, 1},      {"resnet50", 1024, 256, 14, 1, 1, 1},
    {"resnet50", 256, 256, 14, 3, 1, 1},       {"resnet50", 1024, 512, 14, 1, 1, 1},
    {"resnet50", 512, 512, 14, 3, 2, 1},       {"resnet50", 1024, 2048, 14, 1, 2, 1},
    {"resnet50", 512, 2048, 7, 1, 1, 1},       {"resnet50", 2048, 512, 7, 1, 1, 1},
    {"resnet50", 512, 512, 7, 3, 1, 1},        {"resnet50", 2048, 1000, 1, 0, 1, 1},
    {"mobilenet_v2", 3, 32, 224, 3, 2, 1},     {"mobilenet_v2", 32, 32, 112, 3, 1, 32},
    {"mobilenet_v2", 32, 16, 112, 1, 1, 1},    {"mobilenet_v2", 16, 96, 112, 1, 1, 1},
    {"mobilenet_v2", 96, 96, 112, 3, 2, 96},   {"mobilenet_v2", 96, 24, 56, 1, 1, 1},
    {"mobilenet_v2", 24, 144, 56, 1, 1, 1},    {"mobilenet_v2", 144, 144, 56, 3, 1, 144},
    {"mobilenet_v2", 144, 24, 56, 1, 1, 1},    {"mobilenet_v2", 144, 144, 56, 3, 2, 144},
    {"mobilenet_v2", 144, 32, 28, 1, 1, 1},    {"mobilenet_v2", 32, 192, 28, 1, 1, 1},
    {"mobilenet_v2", 192, 192, 28, 3, 1, 192}, {"mobilenet_v2", 192, 64, 14, 1, 1, 1},
    {"mobilenet_v2", 64, 384, 14, 1, 1, 1},    {"mobilenet_v2", 384, 384, 14, 3, 1, 384},
    {"mobilenet_v2", 384, 96, 14, 1, 1, 1},    {"mobilenet_v2", 96, 576, 14, 1, 1, 1},
    {"mobilenet_v2", 576, 576, 14, 3, 2, 576}, {"mobilenet_v2", 576, 160, 7, 1, 1, 1},
    {"mobilenet_v2", 160, 960, 7, 1, 1, 1},    {"mobilenet_v2", 960, 960, 7, 3, 1, 960},
    {"mobilenet_v2", 960, 320, 7, 1, 1, 1},    {"mobilenet_v2", 320, 1280, 7, 1, 1, 1},
    {"mobilenet_v3", 40, 120, 28, 1, 1, 1},    {"mobilenet_v3", 120, 120, 28, 5, 1, 120},
    {"mobilenet_v3", 80, 200, 14, 1, 1, 1},    {"mobilenet_v3", 672, 672, 14, 5, 2, 672},
    {"mobilenet_v3", 112, 672, 14, 1, 1, 1},   {"mobilenet_v3", 960, 1280, 1, 0, 1, 1},
    {"bert", 768, 768, 128, 0, 1, 1},          {"bert", 768, 2304, 128, 0, 1, 1},
    {"bert", 768, 3072, 128, 0, 1, 1},         {"bert", 3072, 768, 128, 0, 1, 1},
    {"bert", 768, 768, 16, 0, 1, 1},           {"bert", 768, 3072, 16, 0, 1, 1},
};

struct Options {
  std::string device = "cuda";
  std::string json;
  std::vector<std::int64_t> batches{1, 32, 256};
  std::size_t layers = std::size(kLayers);
  std::int64_t shrink = 1;
  double seconds = 0.02;
  std::int64_t megabytes = 256;
  bool operations = false;
};

// Microseconds of a call on the device: the median of as many as fit into the time.
double median_us(Device device, const std::function<void()>& call, double seconds) {
  const auto time_once = [&] {
    DeviceSpan span(device);
    call();
    span.end();
    return span;
  };
  call();
  const double once = std::max(time_once().microseconds(), 1.0);
  const auto count = static_cast<std::size_t>(std::clamp(1e6 * seconds / once, 1.0, 200.0));
  std::vector<DeviceSpan> spans;  // nothing waits between two
  for (std::size_t i = 0; i < count; ++i) spans.push_back(time_once());
  std::vector<double> us;
  for (const DeviceSpan& span : spans) us.push_back(span.microseconds());
  std::ranges::nth_element(us, us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2));
  return us[us.size() / 2];
}

QTensor random_codes(const Dims& sizes, Generator& generator) {
  const Tensor x = randn(sizes, generator);
  return quantize_per_tensor(x.dim() == 4 ? x.contiguous(MemoryFormat::ChannelsLast) : x, 0.04, 121,
                             DType::QUInt8);
}

QTensor random_weight(const Dims& sizes, Generator& generator) {
  const Tensor scales = Tensor::full({sizes[0]}, 0.02).to(DType::Float64);
  return quantize_per_channel(randn(sizes, generator), scales,
                              Tensor::zeros({sizes[0]}, DType::Int64), 0, DType::QInt8);
}

// A layer as a call, with what it takes for a batch.
struct Call {
  std::string name;
  std::function<QTensor(const QTensor&)> run;
  Dims input;
  double multiply_adds;
};

Call make_call(const Layer& layer, const Options& options, std::int64_t batch,
               Generator& generator) {
  const auto fewer = [&](std::int64_t size, std::int64_t least) {
    return size < least ? size : std::max(size / options.shrink, least);
  };
  const std::int64_t side = fewer(layer.side, 5);
  const std::int64_t in = fewer(layer.in, 8);
  const std::int64_t out = layer.groups > 1 ? in : fewer(layer.out, 8);
  const std::int64_t groups = layer.groups > 1 ? in : 1;
  if (layer.kernel == 0) {
    const quantized::LinearPackedParams packed(random_weight({out, in}, generator),
                                               randn({out}, generator));
    return {fmt::format("linear {} -> {}, {} rows", in, out, side),
            [packed](const QTensor& x) { return quantized::linear(x, packed, 0.1, 60); },
            {batch * side, in},
            static_cast<double>(batch * side * in * out)};
  }
  const quantized::ConvPackedParams packed(
      random_weight({out, in / groups, layer.kernel, layer.kernel}, generator),
      randn({out}, generator),
      ConvOptions{.stride = {layer.stride}, .padding = {layer.kernel / 2}, .groups = groups}, 2);
  const std::int64_t out_side = (side + 2 * (layer.kernel / 2) - layer.kernel) / layer.stride + 1;
  const std::int64_t taps = in / groups * layer.kernel * layer.kernel;
  return {
      fmt::format("conv {}x{}x{} -> {}, {}x{}{}{}", in, side, side, out, layer.kernel, layer.kernel,
                  layer.stride > 1 ? ", stride 2" : "", groups > 1 ? ", depthwise" : ""),
      [packed](const QTensor& x) { return quantized::conv_relu(x, packed, 0.1, 0); },
      {batch, in, side, side},
      static_cast<double>(batch * out * out_side * out_side * taps)};
}

json time_layers(const Options& options, Device device) {
  json rows = json::array();
  for (std::size_t i = 0; i < std::min(options.layers, std::size(kLayers)); ++i) {
    for (const std::int64_t batch : options.batches) {
      Generator generator(i);
      const Call call = make_call(kLayers[i], options, batch, generator);
      const QTensor x = random_codes(call.input, generator);
      const QTensor there(x.to(device));
      QTensor y = call.run(there);
      json row{{"network", kLayers[i].network}, {"layer", call.name}, {"batch", batch}};
      // The CPU is not asked for the large ones.
      if (batch == options.batches.front()) row["equal"] = y.cpu().equal(call.run(x));
      const double us = median_us(
          device, [&] { y = call.run(there); }, options.seconds);
      row["us"] = us;
      row["tera_operations"] = 2.0 * call.multiply_adds / us / 1e6;
      row["gbytes_per_second"] = static_cast<double>(x.nbytes() + y.nbytes()) / us / 1e3;
      fmt::print("{:<14} {:<40} {:>4} {:>11.1f} us {:>9.3f} TOP/s {}\n", kLayers[i].network,
                 call.name, batch, us, row["tera_operations"].get<double>(),
                 row.value("equal", true) ? "" : "DIFFERS FROM THE CPU");
      std::fflush(stdout);
      rows.push_back(row);
    }
  }
  return rows;
}

// GB/s, each way.
json time_copies(const Options& options, Device device) {
  const std::int64_t count = options.megabytes * 1'000'000 / 4;
  const Tensor host = Tensor::zeros({count});
  const Tensor x = host.to(device);
  const Tensor y = host.to(device);
  const double bytes = static_cast<double>(host.nbytes());
  const auto rate = [&](const std::function<void()>& call) {
    return bytes / median_us(device, call, options.seconds) / 1e3;
  };
  json copies{{"megabytes", options.megabytes},
              {"on_device_gbytes_per_second", rate([&] { y.copy_(x); })},
              {"to_device_gbytes_per_second", rate([&] { static_cast<void>(host.to(device)); })},
              {"to_host_gbytes_per_second", rate([&] { static_cast<void>(x.cpu()); })}};
  fmt::print("copies of {} MB: {:.1f} GB/s on the device, {:.1f} to it, {:.1f} back\n",
             options.megabytes, copies["on_device_gbytes_per_second"].get<double>(),
             copies["to_device_gbytes_per_second"].get<double>(),
             copies["to_host_gbytes_per_second"].get<double>());
  return copies;
}

int time_all(const Options& options) {
  const Device device = Device::parse(options.device);
  if (device.is_cpu()) throw ArgumentError("--device: expected one of CUDA, got cpu");
  json figures{{"device", to_string(device)}, {"name", device_name(device)}};
  if (options.operations) figures["operations"] = check_operations(device);
  if (options.megabytes > 0) figures["copies"] = time_copies(options, device);
  figures["layers"] = time_layers(options, device);
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << figures.dump(1) << '\n';
    if (!file) throw FileError("--json: cannot write " + options.json);
  }
  const auto& rows = figures["layers"];
  const bool all_equal =
      std::ranges::all_of(rows, [](const json& row) { return row.value("equal", true); });
  const bool all_ran = std::ranges::none_of(figures["operations"],
                                            [](const json& row) { return row.contains("error"); });
  return all_equal && all_ran ? 0 : 1;
}

}  // namespace
}  // namespace quanta

int main(int argc, char** argv) {
  try {
    CLI::App app{"Times int8 layers of known networks on a device, and compares their codes"};
    quanta::Options options;
    app.add_option("--device", options.device, "cuda, cuda:1, cuda:emulated")
        ->capture_default_str();
    app.add_option("--json", options.json, "Where to write the figures");
    app.add_option("--batch", options.batches, "Inputs at a time")->capture_default_str();
    app.add_option("--layers", options.layers, "Only so many")->check(CLI::Range(0, 1000));
    app.add_option("--shrink", options.shrink, "Divides channels and sides, for a test device")
        ->check(CLI::Range(1, 64));
    app.add_option("--seconds", options.seconds, "For each layer and batch")->capture_default_str();
    app.add_option("--megabytes", options.megabytes, "Of the copies; 0: none")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
    app.add_flag("--operations", options.operations,
                 "Each operation of the catalogue on the device and on the CPU");
    CLI11_PARSE(app, argc, argv);
    return quanta::time_all(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quanta-layers: %s\n", error.what());
    return 1;
  }
}
