#include "onnx_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <string>
#include <vector>

#include "quanta/fusion/accuracy/method.h"

namespace quanta::cli {
namespace {

/// An option that may be given several times, one value each time: what follows it is not swallowed.
CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                      const std::string& text) {
  return command.add_option(name, values, text)->allow_extra_args(false);
}

void add_constants(CLI::App& command, std::vector<std::string>& constants) {
  add_list(command, "--set", constants,
           "An input that is the same in every run, as sr=16000: what depends on it alone is "
           "calculated once")
      ->type_name("NAME=VALUE");
}

void add_sizes(CLI::App& command, std::vector<std::string>& sizes, const std::string& text) {
  add_list(command, "--sizes", sizes, text)->type_name("SIZES");
}

void add_picture_options(CLI::App& command, PictureOptions& pictures) {
  command
      .add_option("--size", pictures.size,
                  "That pictures are resized to (default: what the file declares)")
      ->type_name("HEIGHTxWIDTH");
  command.add_option("--mean", pictures.mean, "Of pictures: (pixel / 255 - mean) / std")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->expected(1, 3);
  command.add_option("--std", pictures.std, "Of pictures: one number, or one for each channel")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->expected(1, 3)
      ->check(CLI::PositiveNumber);
}

void add_threads(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "Threads (default: all)")->check(CLI::Range(1, 1024));
}

}  // namespace

void add_inspect_command(CLI::App& app, InspectOptions& options) {
  CLI::App* command = app.add_subcommand(
      "inspect",
      "Tell what is in an ONNX file or a saved model, or list the tensors of a .safetensors or .pt "
      "file");
  command->add_option("file", options.path, "The file")->required()->check(CLI::ExistingFile);
  add_sizes(*command, options.sizes,
            "Of an ONNX file's inputs: run it on zeros and print the sizes of all results");
  add_constants(*command, options.constants);
  command->footer(
      "Examples:\n"
      "  quanta inspect resnet50.onnx\n"
      "  quanta inspect det.onnx --sizes x=1,3,640,640\n"
      "  quanta inspect silero_vad.onnx --set sr=16000 --sizes input=1,576 --sizes state=2,1,128\n"
      "  quanta inspect int8.safetensors");
}

void add_run_command(CLI::App& app, RunOptions& options) {
  CLI::App* command = app.add_subcommand("run", "Run an ONNX file, and time it");
  command->add_option("file", options.path, "The ONNX file")->required()->check(CLI::ExistingFile);
  add_list(*command, "--input", options.inputs,
           "NAME=random, or a .npy, .npz, .pb, .safetensors, .png or .jpg file, or a folder of "
           "pictures; NAME= may be left out for an only input (default: random)");
  add_constants(*command, options.constants);
  add_sizes(*command, options.sizes, "Of random inputs and pictures, as x=1,3,224,224");
  add_picture_options(*command, options.pictures);
  command->add_option("--output", options.output,
                      "Where to write the results: .npz, .safetensors, or .npy for an only one");
  command
      ->add_option("--golden", options.golden,
                   "A folder with input_*.pb and output_*.pb: run these, and compare")
      ->check(CLI::ExistingDirectory);
  command->add_option("--rtol", options.rtol, "Of --golden: |got - want| <= atol + rtol |want|")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--atol", options.atol, "The same")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--repeat", options.repeats, "Runs to time")
      ->check(CLI::Range(1, 10000000))
      ->capture_default_str();
  add_threads(*command, options.threads);
  command->add_option("--plan", options.plan, "Off: node by node instead of a recorded plan")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  command->add_flag("--literal", options.literal,
                    "QuantizeLinear and DequantizeLinear as they stand, in float arithmetic");
  command->footer(
      "Examples:\n"
      "  quanta run resnet50.onnx --input photo.jpg --mean 0.485,0.456,0.406 --std "
      "0.229,0.224,0.225\n"
      "  quanta run bert.onnx --input ids=ids.npy --input mask=mask.npy --output out.npz\n"
      "  quanta run silero_vad.onnx --set sr=16000 --sizes input=1,576 --sizes state=2,1,128 "
      "--repeat 100 --threads 1\n"
      "  quanta run test_relu/model.onnx --golden test_relu/test_data_set_0\n"
      "Exit status: 0; 1 when results differ from --golden or something fails.");
}

void add_quantize_command(CLI::App& app, QuantizeOptions& options) {
  CLI::App* command =
      app.add_subcommand("quantize", "Quantize an ONNX file, and write an int8 one");
  command->add_option("file", options.path, "The float ONNX file")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("-o,--out", options.out, "Where to write the int8 file")->required();
  command->add_option(
      "--calib", options.calib,
      "Inputs to calibrate with: a folder of pictures, of .npz, .npy or .safetensors files (a "
      "sample each) or of test_data_set_*; a .npz, .npy or .safetensors file whose arrays have the "
      "inputs' names and hold samples along their first dimension; or random, to try");
  command->add_option("--batch", options.batch, "Samples at a time, of such a file")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--samples", options.samples, "At most so many calls")
      ->check(CLI::Range(std::int64_t{1}, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  CLI::Option* dynamic = command->add_flag(
      "--dynamic", options.dynamic,
      "Weights of Gemm, MatMul, LSTM and GRU in int8, activations quantized in each run");
  command
      ->add_option(
          "--weight-only", options.weight_only,
          "Weights of Gemm and MatMul in int8, or int4 in blocks of 32 (16, or whole rows, where "
          "that does not divide); float arithmetic")
      ->check(CLI::IsMember({"int4", "int8"}))
      ->excludes(dynamic);
  command->add_option("--observer", options.observer, "How activations are observed")
      ->check(CLI::IsMember({"histogram", "minmax"}))
      ->capture_default_str();
  command->add_flag("--per-tensor", options.per_tensor,
                    "One scale for each weight instead of one for each output channel");
  add_list(*command, "--exclude", options.exclude,
           "A regular expression: layers whose whole name it matches stay in float")
      ->type_name("REGEX");
  command
      ->add_option(
          "--qconfig", options.qconfig,
          "Which layers are quantized how, as `quanta sensitivity --out` writes it; instead "
          "of --observer and --per-tensor")
      ->check(CLI::ExistingFile)
      ->excludes(dynamic)
      ->excludes("--weight-only");
  command
      ->add_option(
          "--method", options.methods,
          "What is done to the float network first, to keep accuracy, one after the other: " +
              fmt::format("{}", fmt::join(accuracy_method_names(), ", ")))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(dynamic)
      ->excludes("--weight-only");
  command->add_option("--format", options.format, "How int8 layers are written")
      ->check(CLI::IsMember({"qdq", "qoperator"}))
      ->capture_default_str();
  command->add_option("--target", options.target, "Who will run the file")
      ->check(CLI::IsMember({"any", "onnxruntime", "tensorrt"}))
      ->capture_default_str();
  CLI::Option* encodings =
      command
          ->add_option("--encodings", options.encodings,
                       "AIMET's encodings of this file: QuantizeLinear and DequantizeLinear where "
                       "they say so; no calibration")
          ->check(CLI::ExistingFile)
          ->excludes(dynamic);
  for (const char* other : {"--weight-only", "--observer", "--per-tensor", "--exclude", "--qconfig",
                            "--method", "--format", "--target"}) {
    encodings->excludes(other);
  }
  add_constants(*command, options.constants);
  add_sizes(*command, options.sizes, "Of random inputs and pictures, as x=1,3,224,224");
  add_picture_options(*command, options.pictures);
  add_threads(*command, options.threads);
  command->footer(
      "Examples:\n"
      "  quanta quantize resnet50.onnx --calib photos/ --size 224x224 --mean 0.485,0.456,0.406 "
      "--std 0.229,0.224,0.225 --out resnet50_int8.onnx\n"
      "  quanta quantize det.onnx --calib x.npz --observer minmax --exclude '.*Sigmoid.*' --out "
      "det_int8.onnx\n"
      "  quanta quantize net.onnx --calib x.npz --method cle,bias-correction,adaround --out "
      "net_int8.onnx\n"
      "  quanta quantize net.onnx --encodings net.encodings -o net_qdq.onnx\n"
      "  quanta quantize bert.onnx --dynamic --out bert_int8.onnx\n"
      "  quanta quantize llm.onnx --weight-only int4 --target onnxruntime --out llm_int4.onnx");
}

void add_sensitivity_command(CLI::App& app, SensitivityCommand& options) {
  CLI::App* command = app.add_subcommand(
      "sensitivity",
      "Tell which layers of an ONNX network lose most in int8, and choose a precision for each");
  QuantizeOptions& quantize = options.quantize;
  command->add_option("file", quantize.path, "The float ONNX file")
      ->required()
      ->check(CLI::ExistingFile);
  command
      ->add_option("--calib", quantize.calib,
                   "Calibration inputs, as `quanta quantize` takes them; the results on the first "
                   "--compared of them are compared with float")
      ->required();
  command->add_option("--compared", options.compared, "Samples that each network is tried on")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--batch", quantize.batch, "Samples that are run at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--samples", quantize.samples, "At most so many calls")
      ->check(CLI::Range(std::int64_t{1}, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  command->add_option("--observer", quantize.observer, "How activations are observed")
      ->check(CLI::IsMember({"histogram", "minmax"}))
      ->capture_default_str();
  command->add_flag("--per-tensor", quantize.per_tensor,
                    "One scale for each weight instead of one for each output channel");
  add_list(*command, "--exclude", quantize.exclude,
           "A regular expression: layers whose whole name it matches stay in float")
      ->type_name("REGEX");
  command->add_option("--resume", options.resume,
                      "A file for what was measured so far, so that a search that was cut off goes "
                      "on");
  command->add_option(
      "--min-sqnr", options.min_sqnr,
      "Choose precisions: the results' SQNR against float, in dB, is at least this");
  command
      ->add_option("--max-ms", options.max_ms,
                   "Choose precisions: all layers together take at most so many milliseconds")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--max-mb", options.max_mb,
                   "Choose precisions: weights take at most so many megabytes")
      ->check(CLI::PositiveNumber);
  command->add_flag("--int4", options.int4, "Layers may get weights of 4 bits too");
  command->add_option("--out", options.out,
                      "Where to write what was chosen, for `quanta quantize --qconfig`");
  add_constants(*command, quantize.constants);
  add_sizes(*command, quantize.sizes, "Of random inputs and pictures, as x=1,3,224,224");
  add_picture_options(*command, quantize.pictures);
  add_threads(*command, quantize.threads);
  command->footer(
      "Examples:\n"
      "  quanta sensitivity det.onnx --calib photos/ --size 640x640\n"
      "  quanta sensitivity det.onnx --calib photos/ --min-sqnr 30 --out mixed.json --resume "
      "det.metrics.json");
}

void add_compare_command(CLI::App& app, CompareOptions& options) {
  CLI::App* command = app.add_subcommand(
      "compare",
      "Tell what quantization did to each layer of an ONNX network, as a table or a page");
  command->add_option("float", options.float_path, "The float ONNX file")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("quantized", options.path, "The same network in int8")
      ->required()
      ->check(CLI::ExistingFile);
  command
      ->add_option(
          "--inputs", options.inputs,
          "What both are fed with, as --calib of `quanta quantize`; other inputs than those "
          "that it was calibrated with tell more")
      ->required();
  command
      ->add_option("--labels", options.labels,
                   "Int64 .npy: the right class of each row of the first result, for top-1")
      ->check(CLI::ExistingFile);
  add_list(*command, "--write,--html", options.write,
           "Where to write the report: .html (one page, nothing is loaded from elsewhere), .json, "
           ".svg or .txt");
  command->add_option("--batch", options.batch, "Samples that are run at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--samples", options.samples, "At most so many calls")
      ->check(CLI::Range(std::int64_t{1}, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  command->add_option("--repeat", options.repeats, "Timed runs of each network; 0: no times")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  add_constants(*command, options.constants);
  add_sizes(*command, options.sizes, "Of random inputs and pictures, as x=1,3,224,224");
  add_picture_options(*command, options.pictures);
  add_threads(*command, options.threads);
  command->footer(
      "Examples:\n"
      "  quanta compare det.onnx det_int8.onnx --inputs photos/ --size 640x640 --write "
      "report.html\n"
      "  quanta compare net.onnx net_int8.onnx --inputs test.npz --labels labels.npy");
}

void add_bench_onnx_options(CLI::App& command, BenchOptions& options) {
  command
      .add_option("--onnx", options.onnx,
                  "An ONNX file instead of --model; --input has arrays by its inputs' names")
      ->check(CLI::ExistingFile);
  add_constants(command, options.constants);
  add_sizes(command, options.sizes, "Of the ONNX file's inputs, as x=1,3,224,224");
  command.footer(
      "Examples:\n"
      "  quanta bench --model resnet18 --dtype int8 --threads 1\n"
      "  quanta bench --onnx det_int8.onnx --sizes x=1,3,640,640 --seconds 5\n"
      "  peers.py ... --extra 'quanta=quanta bench --worker --onnx model.onnx --input "
      "test.safetensors'");
}

}  // namespace quanta::cli
