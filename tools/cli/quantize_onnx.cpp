#include "quantize_onnx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <typeinfo>

#include "console/progress.h"
#include "quanta/fusion/graph/apply_encodings.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/fusion/qconfig_file.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/rnn.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/sqnr.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cli {
namespace {

namespace fs = std::filesystem;
using graph::NamedTensors;

/// Columns that share a scale, of weights in 4 bits; 0: all of them, for rows that nothing else fits.
constexpr std::array<std::int64_t, 3> kInt4Groups = {32, 16, 0};
/// Samples whose results in float are kept to compare with.
constexpr std::int64_t kCompared = 32;

QConfig static_qconfig(const QuantizeOptions& options) {
  // TensorRT takes no zero points: 128 of 8 unsigned bits is 0 of 8 signed ones.
  const QScheme scheme =
      options.target == "tensorrt" ? QScheme::PerTensorSymmetric : QScheme::PerTensorAffine;
  QConfig qconfig;
  qconfig.activation = options.observer == "minmax"
                           ? MinMaxObserver::with_args({.qscheme = scheme})
                           : HistogramObserver::with_args({.qscheme = scheme});
  qconfig.weight =
      options.per_tensor ? default_weight_observer() : default_per_channel_weight_observer();
  return qconfig;
}

graph::Model quantize_dynamically(const graph::Model& net, const QuantizeOptions& options) {
  DynamicSpec spec;
  if (options.per_tensor) {
    spec.add_type<nn::Linear>();
  } else {
    spec.add_type<nn::Linear>(per_channel_dynamic_qconfig());
  }
  spec.add_type<nn::LSTM>().add_type<nn::GRU>();
  for (const std::string& pattern : options.exclude) spec.add_regex(pattern, std::nullopt);
  return graph::quantize_dynamic_jit(net, spec);
}

bool matches_any(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    try {
      return std::regex_match(name, std::regex(pattern));
    } catch (const std::regex_error& error) {
      throw ArgumentError(
          fmt::format("quantize: --exclude: expected a regular expression, got '{}': {}", pattern,
                      error.what()));
    }
  });
}

/// Layers that quantize_weight_only takes, which are not excluded, by the columns that share a scale.
std::map<std::int64_t, std::vector<std::string>> linear_groups(const graph::Model& net,
                                                               const QuantizeOptions& options) {
  std::map<std::int64_t, std::vector<std::string>> groups;
  for (const nn::Module::NamedModule& entry : net.named_modules()) {
    if (typeid(*entry.module) != typeid(nn::Linear)) continue;
    if (matches_any(entry.path, options.exclude)) continue;
    const std::int64_t columns = static_cast<const nn::Linear&>(*entry.module).weight.size(1);
    std::int64_t group = 0;
    if (options.weight_only == "int4") {
      group = *std::find_if(kInt4Groups.begin(), kInt4Groups.end(), [&](std::int64_t candidate) {
        return candidate == 0 || columns % candidate == 0;
      });
    }
    groups[group].push_back(entry.path);
  }
  return groups;
}

graph::Model quantize_weights(const graph::Model& net, const QuantizeOptions& options) {
  const auto groups = linear_groups(net, options);
  if (groups.empty()) {
    throw ArgumentError(
        "quantize: --weight-only: expected a Gemm or MatMul with a constant weight that is not "
        "excluded, got none");
  }
  graph::Model result = net;
  for (const auto& [group, names] : groups) {
    const int bits = options.weight_only == "int4" ? 4 : 8;
    result = graph::quantize_weight_only_jit(result, {.bits = bits, .group_size = group},
                                             {.names = names});
  }
  return result;
}

/// How near each floating-point result is, over several runs.
class Nearness {
 public:
  void add(const NamedTensors& want, const NamedTensors& got) {
    for (const auto& [name, reference] : want) {
      if (!reference.is_floating_point()) continue;
      const Tensor& value = got.find(name)->second;
      Figures& figures = figures_[name];
      if (value.sizes() == reference.sizes()) {
        figures.sum.add(reference, value);
      } else {
        ++figures.other_sizes;  // as many as there are objects in a picture
      }
    }
  }
  void print() const {
    for (const auto& [name, figures] : figures_) {
      fmt::print("  {:<32} SQNR {:.2f} dB against float", name, figures.sum.decibels());
      if (figures.other_sizes > 0) {
        fmt::print("; {} results of other sizes left out", figures.other_sizes);
      }
      fmt::print("\n");
    }
  }

 private:
  struct Figures {
    SqnrSum sum;
    int other_sizes = 0;
  };
  std::map<std::string, Figures> figures_;
};

void compare(const graph::Model& net, const graph::Model& quantized, const Samples& samples) {
  const std::int64_t count = std::min(samples.size(), kCompared);
  Nearness nearness;
  {
    console::ProgressBar bar("comparing with float", count);
    for (std::int64_t i = 0; i < count; ++i) {
      const NamedTensors inputs = samples[i];
      nearness.add(net.run(inputs), quantized.run(inputs));
      bar.advance(1);
    }
  }
  nearness.print();
}

/// How many layers of each type there are now.
void print_layers(const graph::Model& net) {
  std::map<std::string, int> types;
  for (const auto& child : net.named_children()) ++types[child.module->type_name()];
  std::vector<std::string> texts;
  for (const auto& [type, count] : types) texts.push_back(fmt::format("{} {}", count, type));
  fmt::print("  layers: {}\n", fmt::join(texts, ", "));
}

/// The file and the weights beside it, in MB.
double megabytes(const std::string& path) {
  std::uintmax_t bytes = fs::file_size(path);
  if (fs::exists(path + ".data")) bytes += fs::file_size(path + ".data");
  return static_cast<double>(bytes) / 1e6;
}

}  // namespace

QConfigMapping static_qconfigs(const QuantizeOptions& options) {
  QConfigMapping qconfigs;
  if (options.qconfig.empty()) {
    QConfig per_tensor = static_qconfig(options);
    qconfigs.set_global(per_tensor);
    // Transposed convolutions have no weights with a scale for each channel.
    per_tensor.weight = default_weight_observer();
    qconfigs.set_object_type<nn::ConvTranspose1d>(per_tensor)
        .set_object_type<nn::ConvTranspose2d>(per_tensor)
        .set_object_type<nn::ConvTranspose3d>(per_tensor);
  } else {
    qconfigs = load_qconfig_mapping(options.qconfig);
  }
  for (const std::string& pattern : options.exclude) {
    qconfigs.set_module_name_regex(pattern, std::nullopt);
  }
  return qconfigs;
}

graph::PrepareJitOptions exact_preparation() {
  return {.fuse_add_relu = true, .fuse_relu6 = true, .observe_means = true};
}

graph::RunFunction feed(const Samples& samples, std::string label) {
  return [&samples, label = std::move(label)](const graph::Model& model) {
    console::ProgressBar bar(label, samples.size());
    for (std::int64_t i = 0; i < samples.size(); ++i) {
      static_cast<void>(model.run(samples[i]));
      bar.advance(1);
    }
  };
}

graph::Model quantize_static(const graph::Model& net, const QuantizeOptions& options,
                             const Samples& samples) {
  const QConfigMapping qconfigs = static_qconfigs(options);
  graph::Model changed = net;
  if (!options.methods.empty()) {
    changed = graph::fuse_conv_bn_jit(net);
    for (const std::string& name : options.methods) {
      const AccuracyMethod method = accuracy_method(name);
      // A method says how far it is; what it runs in between shows no bars of its own.
      std::optional<console::ProgressBar> bar;
      std::size_t shown = 0;
      CalibrationData data(net.in_order(samples[0]), [&](const nn::Module& model) {
        for (std::int64_t i = 0; i < samples.size(); ++i) {
          static_cast<void>(static_cast<const graph::Model&>(model).run(samples[i]));
        }
      });
      data.progress = [&](std::string_view what, std::size_t done, std::size_t total) {
        if (!bar) bar.emplace(name, static_cast<std::int64_t>(total));
        bar->advance(static_cast<std::int64_t>(done - std::min(done, shown)), std::string(what));
        shown = done;
      };
      changed = apply_method(changed, method, qconfigs, data);
    }
  }
  return graph::quantize_jit(changed, qconfigs, feed(samples, "calibrating"),
                             {.prepare = exact_preparation()});
}

int quantize_onnx(const QuantizeOptions& options) {
  if (options.threads > 0) set_num_threads(options.threads);
  const bool needs_data =
      !options.dynamic && options.weight_only.empty() && options.encodings.empty();
  if (needs_data && options.calib.empty()) {
    throw ArgumentError(
        "quantize: --calib: expected a folder or file with inputs of the network, got none "
        "(--dynamic, --weight-only and --encodings need none)");
  }
  for (const std::string& name : options.methods) static_cast<void>(accuracy_method(name));
  const OnnxModel file = read_onnx(options.path);
  const NamedTensors constants = read_constants(options.constants, file);
  const std::vector<OnnxValue> inputs = free_inputs(file, constants);
  const graph::Model net = graph::from_onnx(file, {.constants = constants});
  std::optional<Samples> samples;
  if (!options.calib.empty()) {
    samples = Samples::open(options.calib, inputs, read_sizes(options.sizes, inputs),
                            options.pictures, options.batch, options.samples);
  }

  const graph::Model quantized = [&] {
    if (!options.encodings.empty()) {
      const OnnxModel encoded =
          graph::apply_encodings(file, std::filesystem::path(options.encodings));
      // The nodes as they were put in, for whoever runs the file.
      write_onnx(encoded, options.out);
      return graph::from_onnx(encoded, {.constants = constants});
    }
    if (options.dynamic) return quantize_dynamically(net, options);
    if (!options.weight_only.empty()) return quantize_weights(net, options);
    return quantize_static(net, options, *samples);
  }();
  graph::ExportOptions form;
  if (options.format == "qoperator") form.format = graph::OnnxFormat::QOperator;
  if (options.target == "onnxruntime") form.target = graph::OnnxTarget::OnnxRuntime;
  if (options.target == "tensorrt") form.target = graph::OnnxTarget::TensorRT;
  if (options.encodings.empty()) graph::save_onnx(quantized, options.out, form);

  const double before = megabytes(options.path);
  const double after = megabytes(options.out);
  fmt::print("{}: {:.3f} MB -> {}: {:.3f} MB ({:.2f}x smaller)\n", options.path, before,
             options.out, after, before / after);
  print_layers(quantized);
  if (samples) compare(net, quantized, *samples);
  return 0;
}

}  // namespace quanta::cli
