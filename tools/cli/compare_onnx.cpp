#include "compare_onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string_view>

#include "console/progress.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/report.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cli {
namespace {

constexpr std::array<std::string_view, 4> kEndings = {".html", ".json", ".svg", ".txt"};

void check_endings(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const std::string ending = std::filesystem::path(path).extension().string();
    if (std::find(kEndings.begin(), kEndings.end(), ending) == kEndings.end()) {
      throw ArgumentError(
          fmt::format("compare: --write: expected a file that ends in .html, .json, .svg or .txt, "
                      "got {}",
                      path));
    }
  }
}

Tensor read_labels(const std::string& path) {
  if (path.empty()) return {};
  OnnxValue one;
  one.name = "labels";
  one.type = OnnxType::Int64;
  return read_input(one, path, {}, {}).reshape({-1});
}

}  // namespace

int compare_onnx(const CompareOptions& options) {
  if (options.threads > 0) set_num_threads(options.threads);
  check_endings(options.write);
  const OnnxModel float_file = read_onnx(options.float_path);
  const OnnxModel file = read_onnx(options.path);
  const graph::NamedTensors constants = read_constants(options.constants, float_file);
  const std::vector<OnnxValue> inputs = free_inputs(float_file, constants);
  const graph::Model net = graph::from_onnx(float_file, {.constants = constants});
  const graph::Model quantized = graph::from_onnx(file, {.constants = constants});
  const Samples samples = Samples::open(options.inputs, inputs, read_sizes(options.sizes, inputs),
                                        options.pictures, options.batch, options.samples);
  ReportData data(static_cast<std::size_t>(samples.size()), [&](std::size_t call) {
    return net.in_order(samples[static_cast<std::int64_t>(call)]);
  });
  data.labels = read_labels(options.labels);
  ReportOptions settings;
  settings.title = std::filesystem::path(options.path).filename().string();
  settings.repeats = options.repeats;
  settings.aliases = value_aliases(file);
  std::unique_ptr<console::ProgressBar> bar;
  std::size_t shown = 0;
  std::string label;
  settings.progress = [&](std::string_view what, std::size_t done, std::size_t total) {
    if (label != what) {
      label = what;
      shown = 0;
      bar = std::make_unique<console::ProgressBar>(label, static_cast<std::int64_t>(total));
    }
    bar->advance(static_cast<std::int64_t>(done - shown));
    shown = done;
  };
  const Report report = make_report(net, quantized, data, settings);
  bar.reset();
  fmt::print("{}", to_string(report));
  for (const std::string& path : options.write) {
    write_report(report, path);
    fmt::print("written: {}\n", path);
  }
  return 0;
}

}  // namespace quanta::cli
