#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bench.h"
#include "completion.h"
#include "data_folder.h"
#include "demo.h"
#include "distributed.h"
#include "export_onnx.h"
#include "inspect.h"
#include "network_suite.h"
#include "networks.h"
#include "observer_option.h"
#include "onnx_commands.h"
#include "profile.h"
#include "quanta/observers/format_qconfig.h"
#include "quanta/runtime/error.h"
#include "usage.h"
#include "version.h"

namespace {

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device,
                     "Where it runs: cuda, cuda:1, cuda:emulated (a test device) (default: cpu)");
}

void add_profile_command(CLI::App& app, quanta::cli::ProfileOptions& profile,
                         const std::vector<std::string>& networks) {
  CLI::App* command = app.add_subcommand(
      "profile", "Tell where a quantized network spends its time, layer by layer beside float");
  command->add_option("--model", profile.model, "The network")
      ->check(CLI::IsMember(networks))
      ->capture_default_str();
  CLI::Option* weights =
      command
          ->add_option("--weights", profile.weights,
                       "Float weights under torch's names (default: random ones)")
          ->check(CLI::ExistingFile);
  command->add_option("--calib", profile.calib, "Calibration inputs: x [count, ...] (int8)")
      ->check(CLI::ExistingFile)
      ->needs(weights);
  command->add_option("--input", profile.input, "Inputs: x [count, ...] (default: random ones)")
      ->check(CLI::ExistingFile);
  command->add_option("--dtype", profile.dtype, "The arithmetic (default: what the network has)")
      ->check(CLI::IsMember({"int8", "dynamic-int8", "dynamic-int8-attention"}));
  add_device_option(*command, profile.device);
  command->add_option("--batch", profile.batch, "Inputs at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--threads", profile.threads, "Threads (default: all)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--repeats", profile.repeats, "Runs of each network, in turns")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_flag("--wide", profile.wide,
                    "All columns, however long the lines get (default: 100 columns)");
  command->add_option("--trace", profile.trace, "Where to write a Chrome trace");
  command->add_option("--json", profile.json, "Where to write the figures");
}

void add_networks_command(CLI::App& app, quanta::cli::NetworkSuiteOptions& suite,
                          const std::vector<std::string>& networks) {
  CLI::App* command = app.add_subcommand(
      "networks", "Time the benchmark networks with random weights, float and int8 in turns");
  command->add_option("--model", suite.models, "These networks (default: all)")
      ->check(CLI::IsMember(networks));
  command->add_option("--onnx", suite.onnx,
                      "ONNX files as well: for each a name, the file and sizes as x=1,3,640,640");
  add_device_option(*command, suite.device);
  command->add_option("--batch", suite.batches, "Inputs at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--threads", suite.threads, "Threads (default: all)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--seconds", suite.seconds, "For each network and batch")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command->add_option("--json", suite.json, "Where to write the figures");
}

void add_demo_command(CLI::App& app, quanta::cli::DemoOptions& demo) {
  CLI::App* command = app.add_subcommand(
      "demo", "Quantize a trained network and compare float with int8 on Fashion-MNIST");
  command
      ->add_option("--model", demo.model,
                   "The network; recurrent ones are quantized dynamically, without calibration")
      ->check(CLI::IsMember({"fashion_resnet", "fashion_mobilenet", "fashion_lstm", "fashion_gru"}))
      ->capture_default_str();
  std::vector<std::string> formats;
  for (const quanta::NumberFormat& format : quanta::number_formats()) {
    formats.emplace_back(format.name);
  }
  CLI::Option* format =
      command
          ->add_option("--format", demo.format,
                       "Simulate a number format in the float network instead of converting it")
          ->check(CLI::IsMember(formats));
  command->add_option("--observer", demo.observer, "How activations are observed")
      ->check(CLI::IsMember(quanta::cli::observer_names()))
      ->capture_default_str();
  command
      ->add_flag("--per-tensor", demo.per_tensor,
                 "One scale for each weight instead of one for each output channel")
      ->excludes(format);
  command->add_option("--images", demo.images, "Test images to evaluate")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--threads", demo.threads, "Threads (default: all)")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--save", demo.save_path,
                   "Where to write the int8 model, and load it again (default: nowhere)")
      ->excludes(format);
  command
      ->add_option("--report", demo.report,
                   "Where to write what quantization did to each layer: .html, .json, .svg or .txt")
      ->excludes(format);
  command
      ->add_option("--device", demo.device,
                   "Run the int8 network there as well, and compare: cuda, cuda:1, cuda:emulated "
                   "(a test device: take few --images)")
      ->excludes(format);
  command->add_option("--data", demo.data_folder, "Folder with the Fashion-MNIST .gz files")
      ->capture_default_str();
  command->add_option("--weights", demo.weights_folder, "Folder with the float weights")
      ->capture_default_str();
}

void add_bench_command(CLI::App& app, quanta::cli::BenchOptions& bench,
                       const std::vector<std::string>& networks) {
  CLI::App* command = app.add_subcommand(
      "bench", "Time a network of the side-by-side benchmarks, or take part in them");
  command->add_option("--model", bench.model, "The network")
      ->check(CLI::IsMember(networks))
      ->capture_default_str();
  quanta::cli::add_bench_onnx_options(*command, bench);
  command
      ->add_option("--weights", bench.weights,
                   "Float weights under torch's names, or a model saved by --save (.safetensors; "
                   "default: random ones)")
      ->check(CLI::ExistingFile);
  command->add_option("--calib", bench.calib, "Calibration inputs: x [count, ...] (int8)")
      ->check(CLI::ExistingFile);
  command
      ->add_option("--input", bench.input,
                   "Inputs: x [count, ...]; float_out, if there, is compared with (default: "
                   "random ones)")
      ->check(CLI::ExistingFile);
  command
      ->add_option("--dtype", bench.dtype,
                   "The arithmetic; dynamic-int8-attention: attention's products in int8 too")
      ->check(CLI::IsMember({"float32", "int8", "dynamic-int8", "dynamic-int8-attention"}))
      ->capture_default_str();
  add_device_option(*command, bench.device);
  command->add_option("--batch", bench.batch, "Inputs at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--threads", bench.threads, "Threads (default: all; of each stream: 1)")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--streams", bench.streams,
                   "Requests side by side, by so many callers that share the weights: requests a "
                   "second beside those of one stream")
      ->check(CLI::Range(1, 1024));
  command->add_option("--seconds", bench.seconds, "How long to time it")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  command->add_option("--json", bench.json, "Where to write the figures");
  command->add_option("--output", bench.output,
                      "Where to write the outputs for all inputs (.safetensors)");
  CLI::Option* save =
      command->add_option("--save", bench.save, "Where to write the quantized model");
  command
      ->add_flag("--packed", bench.packed,
                 "With --save: with the weights as this machine's kernels want them")
      ->needs(save);
  command->add_flag("--eager", bench.eager, "Call the modules instead of the frozen plan");
  CLI::Option* worker = command->add_flag("--worker", bench.worker,
                                          "Speak the harness's line protocol on stdin and stdout");
  CLI::Option* first =
      command
          ->add_flag("--first", bench.first,
                     "Load the model of --weights, that --save wrote, run it once, and print as "
                     "JSON when what was there")
          ->excludes(worker, save);
  command->add_flag("--map", bench.map, "With --first: map the file instead of reading it")
      ->needs(first);
}

/// A mistake in the arguments that a command found itself: its text names the option.
bool is_about_option(const std::string& text) { return text.find("--") != std::string::npos; }

int run(int argc, char** argv) {
  CLI::App app{"quanta: quantized networks in C++", "quanta"};
  app.require_subcommand(1);
  app.set_version_flag("--version", quanta::cli::version_text, "Print the versions");
  app.footer("quanta COMMAND --help tells the options of a command.");

  quanta::cli::DemoOptions demo;
  demo.weights_folder = quanta::cli::demo_data_folder().string();
  add_demo_command(app, demo);

  quanta::cli::InspectOptions inspect;
  quanta::cli::add_inspect_command(app, inspect);
  quanta::cli::RunOptions run_options;
  quanta::cli::add_run_command(app, run_options);
  quanta::cli::QuantizeOptions quantize;
  quanta::cli::add_quantize_command(app, quantize);
  quanta::cli::CompareOptions compare;
  quanta::cli::add_compare_command(app, compare);
  quanta::cli::SensitivityCommand sensitivity;
  quanta::cli::add_sensitivity_command(app, sensitivity);

  std::vector<std::string> networks;
  for (const quanta::cli::NetworkKind& kind : quanta::cli::network_kinds()) {
    networks.emplace_back(kind.name);
  }
  quanta::cli::ExportCommand export_options;
  quanta::cli::add_export_command(app, export_options, networks);
  quanta::cli::BenchOptions bench;
  add_bench_command(app, bench, networks);

  quanta::cli::ProfileOptions profile;
  add_profile_command(app, profile, networks);

  quanta::cli::NetworkSuiteOptions suite;
  add_networks_command(app, suite, networks);

  quanta::cli::add_distributed_commands(app);

  quanta::cli::InfoOptions info;
  app.add_subcommand("info", "Tell what this machine offers: threads, instruction sets")
      ->add_flag("--onnx", info.onnx, "List the ONNX operators that Quanta has instead");

  std::string shell;
  app.add_subcommand("completion", "Print a script that completes these commands in a shell")
      ->add_option("shell", shell, "The shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));

  if (const auto status = quanta::cli::parse_command_line(app, argc, argv)) return *status;
  if (quanta::cli::is_distributed_command(app)) quanta::cli::run_distributed(argv);
  if (app.got_subcommand("demo")) return quanta::cli::run_demo(demo);
  if (app.got_subcommand("inspect")) return quanta::cli::run_inspect(inspect);
  if (app.got_subcommand("run")) return quanta::cli::run_onnx(run_options);
  if (app.got_subcommand("quantize")) return quanta::cli::quantize_onnx(quantize);
  if (app.got_subcommand("compare")) return quanta::cli::compare_onnx(compare);
  if (app.got_subcommand("sensitivity")) return quanta::cli::run_sensitivity(sensitivity);
  if (app.got_subcommand("export")) return quanta::cli::export_network(export_options);
  if (app.got_subcommand("bench")) return quanta::cli::run_bench(bench);
  if (app.got_subcommand("networks")) return quanta::cli::run_network_suite(suite);
  if (app.got_subcommand("profile")) return quanta::cli::run_profile(profile);
  if (app.got_subcommand("completion")) {
    quanta::cli::DistributedCommands distributed;
    quanta::cli::describe_distributed_commands(app, distributed);
    std::fputs(quanta::cli::completion_script(app, shell).c_str(), stdout);
    return 0;
  }
  return quanta::cli::run_info(info);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quanta: %s\n", error.what());
    if (argc > 1 && is_about_option(error.what())) {
      std::fprintf(stderr, "see: quanta %s --help\n", argv[1]);
    }
    return 1;
  }
}
