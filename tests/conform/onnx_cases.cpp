#include "onnx_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "onnx_compare.h"
#include "onnx_wheel.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/onnx_file.h"
#include "suite.h"

namespace quanta::conform {
namespace {

namespace fs = std::filesystem;

/// Where a case's files are.
struct OnnxCase {
  std::string name;
  fs::path model{};
  std::vector<fs::path> sets{};  ///< folders with input_*.pb and output_*.pb
  fs::path light_output{};       ///< of a case without inputs
  fs::path expect{};
};

bool is_case(const fs::path& folder) {
  return fs::exists(folder / "model.onnx") || fs::exists(folder / "model.txt");
}

OnnxCase case_in(const fs::path& folder) {
  OnnxCase found{.name = folder.filename().string()};
  found.model = fs::exists(folder / "model.onnx") ? folder / "model.onnx" : folder / "model.txt";
  if (fs::exists(folder / "expect.json")) found.expect = folder / "expect.json";
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && entry.path().filename().string().starts_with("test_data_set_")) {
      found.sets.push_back(entry.path());
    }
  }
  std::sort(found.sets.begin(), found.sets.end());
  return found;
}

std::vector<OnnxCase> find_cases(const fs::path& folder) {
  std::vector<OnnxCase> cases;
  if (!fs::is_directory(folder)) {
    throw FormatError(fmt::format("{}: expected a folder", folder.string()));
  }
  if (is_case(folder)) cases.push_back(case_in(folder));
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory() && is_case(entry.path())) cases.push_back(case_in(entry.path()));
    const std::string name = entry.path().stem().string();
    const fs::path output = entry.path().parent_path() / (name + "_output_0.pb");
    if (entry.path().extension() == ".onnx" && name.starts_with("light_") && fs::exists(output)) {
      cases.push_back({.name = name, .model = entry.path(), .light_output = output});
    }
  }
  std::sort(cases.begin(), cases.end(),
            [](const OnnxCase& a, const OnnxCase& b) { return a.name < b.name; });
  if (cases.empty()) {
    throw FormatError(fmt::format("{}: no case (model.onnx beside test_data_set_*) at or below",
                                  folder.string()));
  }
  return cases;
}

/// 0/n, 1/n, ...: what the light networks are given.
Tensor counted_input(const OnnxValue& input) {
  Dims sizes;
  for (const OnnxDim& dim : input.sizes.value_or(std::vector<OnnxDim>())) {
    sizes.push_back(dim.size.value_or(1));
  }
  std::int64_t numel = 1;
  for (const std::int64_t size : sizes) numel *= size;
  Tensor x = Tensor::empty(sizes);
  auto* values = x.mutable_data<float>();
  for (std::int64_t i = 0; i < numel; ++i) {
    values[i] = static_cast<float>(i) / static_cast<float>(numel);
  }
  return x;
}

std::vector<Tensor> read_tensors(const fs::path& set, std::string_view kind) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0;; ++i) {
    const fs::path path = set / fmt::format("{}_{}.pb", kind, i);
    if (!fs::exists(path)) return tensors;
    const OnnxTensor tensor = read_onnx_tensor(path);
    if (!tensor.value.defined()) {
      throw UnsupportedError(fmt::format("{}: Quanta has no tensors of {}",
                                         path.filename().string(), to_string(tensor.type)));
    }
    tensors.push_back(tensor.value);
  }
}

std::vector<const OnnxValue*> given_inputs(const OnnxModel& model) {
  std::vector<const OnnxValue*> inputs;
  for (const OnnxValue& input : model.graph.inputs) {
    const auto& weights = model.graph.initializers;
    const bool is_weight =
        std::any_of(weights.begin(), weights.end(),
                    [&](const OnnxTensor& weight) { return weight.name == input.name; });
    if (!is_weight) inputs.push_back(&input);
  }
  return inputs;
}

/// Sequences, optionals and maps are no tensors.
void require_tensors(const OnnxModel& model) {
  for (const auto* list : {&model.graph.inputs, &model.graph.outputs}) {
    for (const OnnxValue& value : *list) {
      if (value.type == OnnxType::Undefined) {
        throw UnsupportedError(fmt::format("'{}' is no tensor", value.name));
      }
      if (!dtype_of(value.type)) {
        throw UnsupportedError(
            fmt::format("'{}': Quanta has no tensors of {}", value.name, to_string(value.type)));
      }
    }
  }
}

/// The operator of a case with one node, or what else it is.
std::string op_of(const OnnxModel& model, const std::string& name) {
  if (name.find("_expanded") != std::string::npos) return "(expanded)";
  std::string op;
  for (const OnnxNode& node : model.graph.nodes) {
    if (node.op_type == "Constant") continue;
    if (!op.empty()) return "(network)";
    op = node.op_type;
  }
  return op;
}

struct CaseResult {
  std::string op = "(unread)";
  Outcome outcome = Outcome::Failed;
  std::string text;
};

std::string run_case(const OnnxCase& test, const OnnxModel& model, const graph::Model& net) {
  const OnnxTolerance tolerance = read_onnx_tolerance(test.expect);
  if (!test.light_output.empty()) {
    const Tensor x = counted_input(*given_inputs(model).at(0));
    const std::vector<Tensor> got = net.run(std::span<const Tensor>(&x, 1));
    return onnx_mismatch(got.at(0), read_onnx_tensor(test.light_output).value, tolerance);
  }
  if (test.sets.empty()) return "no test_data_set_*";
  for (const fs::path& set : test.sets) {
    const std::vector<Tensor> inputs = read_tensors(set, "input");
    const std::vector<Tensor> expected = read_tensors(set, "output");
    const std::vector<Tensor> got = net.run(inputs);
    if (expected.size() > got.size()) {
      return fmt::format("{}: expected {} outputs, got {}", set.filename().string(),
                         expected.size(), got.size());
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::string text = onnx_mismatch(got[i], expected[i], tolerance);
      if (!text.empty()) {
        return fmt::format("{}: output {}: {}", set.filename().string(), i, text);
      }
    }
  }
  return "";
}

CaseResult run(const OnnxCase& test, const OnnxOptions& options) {
  CaseResult result;
  try {
    const fs::path path = test.model.extension() == ".txt" ? file_in_wheel(test.model) : test.model;
    const OnnxModel model = read_onnx(path);
    result.op = op_of(model, test.name);
    const auto left_out = options.left_out.find(test.name);
    if (left_out != options.left_out.end()) {
      result.outcome = Outcome::Unsupported;
      result.text = "left out: " + left_out->second;
      return result;
    }
    require_tensors(model);
    const graph::Model net = graph::from_onnx(model, {.literal = options.literal});
    result.text = run_case(test, model, net);
    result.outcome = result.text.empty() ? Outcome::Passed : Outcome::Failed;
  } catch (const UnsupportedError& error) {
    result.outcome = Outcome::Unsupported;
    result.text = error.what();
  } catch (const std::exception& error) {
    result.text = error.what();
  }
  return result;
}

}  // namespace

std::map<std::string, std::string> read_left_out(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw FormatError(fmt::format("{}: cannot be opened", path.string()));
  std::map<std::string, std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) {
      throw FormatError(fmt::format("{}: expected 'name: reason', got '{}'", path.string(), line));
    }
    names[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return names;
}

SuiteReport run_onnx_cases(const fs::path& folder, const OnnxOptions& options) {
  SuiteReport report;
  const fs::path whole = fs::absolute(folder).lexically_normal();
  report.name =
      whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
  for (const OnnxCase& test : find_cases(folder)) {
    if (!options.only.empty() && test.name.find(options.only) == std::string::npos) continue;
    const CaseResult result = run(test, options);
    report.add(result.op, result.outcome, {});
    const bool failed = result.outcome == Outcome::Failed;
    if (!failed && !options.verbose) continue;
    const char* word = failed ? "FAILED" : "passed";
    if (result.outcome == Outcome::Unsupported) word = "unsupported";
    fmt::print("{} {}/{} ({}){}{}\n", word, report.name, test.name, result.op,
               result.text.empty() ? "" : ": ", result.text);
    std::fflush(stdout);
  }
  std::sort(report.ops.begin(), report.ops.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return report;
}

}  // namespace quanta::conform
