#include "export_onnx.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>

#include "networks.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/simulate.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/format_qconfig.h"
#include "quanta/ops/sqnr.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cli {
namespace {

constexpr std::int64_t kCalibrationInputs = 8;

std::vector<std::string> modes() {
  std::vector<std::string> result{"float", "int8", "dynamic-int8", "qat"};
  for (const NumberFormat& format : number_formats()) {
    // int8 itself is converted.
    if (format.name != "int8") result.emplace_back(format.name);
  }
  return result;
}

bool is_simulated(const std::string& mode) {
  return mode != "float" && mode != "int8" && mode != "dynamic-int8";
}

std::shared_ptr<nn::Module> network_of(const ExportCommand& options, const NetworkKind& kind,
                                       const Tensor& calibration) {
  const NetworkForm form = options.mode == "float" || is_simulated(options.mode)
                               ? NetworkForm::Float32
                               : network_form(options.mode);
  std::shared_ptr<nn::Module> net = options.weights.empty()
                                        ? make_random_network(kind, form, calibration)
                                        : load_network(kind, form, options.weights, calibration);
  if (is_simulated(options.mode)) {
    const QConfig qconfig =
        options.mode == "qat" ? get_default_qat_qconfig("x86") : qconfig_for_format(options.mode);
    simulate_quantization_(*net, QConfigMapping(qconfig),
                           [&](const nn::Module& model) { model(calibration); });
  }
  return net;
}

}  // namespace

void add_export_command(CLI::App& app, ExportCommand& options,
                        const std::vector<std::string>& networks) {
  CLI::App* command = app.add_subcommand(
      "export", "Write a built-in network as an ONNX file: float, fake-quantized or int8");
  command->add_option("--model", options.model, "The network")
      ->check(CLI::IsMember(networks))
      ->capture_default_str();
  command
      ->add_option("--mode", options.mode,
                   "float; int8 and dynamic-int8: converted; qat: with the fake quantizers of QAT, "
                   "or of a number format")
      ->check(CLI::IsMember(modes()))
      ->capture_default_str();
  command->add_option("-o,--out", options.out, "Where to write the file")->required();
  CLI::Option* weights =
      command
          ->add_option("--weights", options.weights,
                       "Float weights under torch's names (default: random ones)")
          ->check(CLI::ExistingFile);
  command
      ->add_option("--calib", options.calib,
                   "Calibration inputs: x [count, ...] (default: random ones)")
      ->check(CLI::ExistingFile)
      ->needs(weights);
  command->add_option("--batch", options.batch, "Inputs at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_flag("--dynamic-batch", options.dynamic_batch,
                    "Any number of inputs at a time instead");
  command->add_option("--opset", options.opset, "Of ai.onnx (default: the lowest that will do)")
      ->check(CLI::Range(6, 27));
  command->add_option("--target", options.target, "Who will run the file")
      ->check(CLI::IsMember({"any", "onnxruntime", "tensorrt"}))
      ->capture_default_str();
  command->add_option("--threads", options.threads, "Threads (default: all)")
      ->check(CLI::Range(1, 1024));
  command->footer(
      "Examples:\n"
      "  quanta export --model mobilenet_v2 --weights mobilenet_v2.safetensors -o net.onnx\n"
      "  quanta export --model resnet18 --mode int8 --dynamic-batch -o resnet18_int8.onnx\n"
      "  quanta export --model bert4 --mode fp8 --target tensorrt -o bert4_fp8.onnx");
}

int export_network(const ExportCommand& options) {
  if (options.threads > 0) set_num_threads(options.threads);
  const NetworkKind& kind = network_kind(options.model);
  const Tensor calibration = options.calib.empty() ? random_inputs(kind, kCalibrationInputs)
                                                   : read_inputs(kind, options.calib);
  const std::shared_ptr<nn::Module> net = network_of(options, kind, calibration);
  const Tensor x = random_inputs(kind, options.batch);
  graph::ExportOptions form{.trace = {.dynamic_batch = options.dynamic_batch}};
  if (options.opset > 0) form.opset = options.opset;
  if (options.target == "onnxruntime") form.target = graph::OnnxTarget::OnnxRuntime;
  if (options.target == "tensorrt") form.target = graph::OnnxTarget::TensorRT;
  const OnnxModel file = graph::to_onnx(*net, x, form);
  write_onnx(file, options.out);

  fmt::print("{} ({}) -> {}: {} nodes, opset {}, {:.3f} MB\n", options.model, options.mode,
             options.out, file.graph.nodes.size(), file.opsets.at(""),
             static_cast<double>(std::filesystem::file_size(options.out)) / 1e6);
  std::map<std::string, int> counts;
  for (const OnnxNode& node : file.graph.nodes) {
    ++counts[node.domain.empty() ? node.op_type : node.domain + "::" + node.op_type];
  }
  for (const auto& [op, count] : counts) fmt::print("  {:5}  {}\n", count, op);
  try {
    // Codes are those of torch's rounding, which the file's metadata tells.
    const bool is_converted = options.mode == "int8" || options.mode == "dynamic-int8";
    const graph::Model read = graph::from_onnx(file, {.literal = !is_converted});
    const double decibels = sqnr((*net)(x), read(x));
    fmt::print("the file read again, against the network: {:.1f} dB\n", decibels);
  } catch (const UnsupportedError& error) {
    fmt::print("not read again here: {}\n", std::string(error.what()).substr(0, 200));
  }
  return 0;
}

}  // namespace quanta::cli
