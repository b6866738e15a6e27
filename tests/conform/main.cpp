// quanta-conform: holds Quanta against golden cases recorded from PyTorch and others.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare.h"
#include "integer_hash.h"
#include "isa.h"
#include "onnx_cases.h"
#include "quanta/runtime/error.h"
#include "registry.h"
#include "report.h"
#include "suite.h"
#include "support/device_guide.h"

namespace quanta::conform {
namespace {

constexpr int kSomeFailed = 1;
constexpr int kBadUsage = 2;

struct Options {
  std::vector<std::string> suites;
  std::vector<std::string> onnx;
  std::string left_out;
  std::string json;
  std::string only;
  std::string device = "cpu";
  std::string isa = "native";
  std::int64_t max_unsupported = 0;
  std::int64_t least_on_device = 0;
  bool allow_unsupported = false;
  bool forward_only = false;
  bool verbose = false;
  bool dump_hash = false;
  bool summary = false;
  bool list_isa = false;
  bool literal = false;
};

/// A line that counts up on a terminal; nothing elsewhere.
class Progress {
 public:
  Progress(std::string name, std::size_t total)
      : name_(std::move(name)), total_(total), shown_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step() {
    ++done_;
    if (!shown_) return;
    fmt::print(stderr, "\r{}: {} of {}", name_, done_, total_);
    std::fflush(stderr);
  }
  void clear() const {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  std::string name_;
  std::size_t total_;
  std::size_t done_ = 0;
  bool shown_;
};

struct CaseResult {
  Outcome outcome = Outcome::Failed;
  Comparison comparison;
  std::string text;  ///< the mismatch, or what is not supported
};

/// Of a case with gradients, the results of forward alone.
void drop_gradients(Case& test) {
  const auto starts_with = [](std::string_view start) {
    return [start](const auto& item) { return item.first.starts_with(start); };
  };
  Object expected = *test.expected.get_if<Object>();
  if (std::none_of(expected.items.begin(), expected.items.end(), starts_with("grad"))) return;
  std::erase_if(expected.items, std::not_fn(starts_with("out")));
  test.expected = std::move(expected);
}

CaseResult run_case(const Suite& suite, std::size_t index, const Options& options,
                    IntegerHash& hash) {
  CaseResult result;
  const Runner* runner = find_runner(suite.op(index));
  if (runner == nullptr) return {Outcome::Unsupported, {}, "no runner for this op"};
  try {
    Case test = suite.load(index);
    if (options.forward_only) drop_gradients(test);
    const Outputs got = (*runner)(test);
    hash.add(test.id);
    hash.add(Value(got));
    const Object& expected = *test.expected.get_if<Object>();
    result.comparison = compare(got, expected, test.tolerance, rules_for(test.op, test.tolerance));
    result.outcome = result.comparison.passed ? Outcome::Passed : Outcome::Failed;
    result.text = result.comparison.mismatch;
  } catch (const UnsupportedError& error) {
    return {Outcome::Unsupported, {}, error.what()};
  } catch (const std::exception& error) {
    return {Outcome::Failed, {}, error.what()};
  }
  return result;
}

/// What became of the cases where operations run on a device.
struct DeviceUse {
  explicit DeviceUse(Device device) : guide(device) {}

  test::DeviceGuide guide;
  std::int64_t cases = 0;  ///< that ran an operation there
  // Others, by the op of the case.
  std::map<std::string, std::int64_t> gradients_left;  ///< of those: there is no way back
  std::map<std::string, std::int64_t> left_out;
};

CaseResult run_case_on(const Suite& suite, std::size_t index, const Options& options,
                       IntegerHash& hash, DeviceUse& use) {
  using GradientCalls = test::DeviceGuide::GradientCalls;
  CaseResult result = run_case(suite, index, options, hash);
  bool is_there = use.guide.take_count() > 0;
  if (result.outcome == Outcome::Unsupported && is_there) {
    // The way back has no kernel. What no gradient is asked of is run all the same.
    use.guide.set_gradient_calls(GradientCalls::Left);
    result = run_case(suite, index, options, hash);
    use.guide.set_gradient_calls(GradientCalls::Guided);
    is_there = use.guide.take_count() > 0;
    if (result.outcome != Outcome::Unsupported) ++use.gradients_left[suite.op(index)];
  }
  if (is_there) {
    ++use.cases;
  } else {
    ++use.left_out[suite.op(index)];
  }
  return result;
}

SuiteReport run_suite(const Suite& suite, const Options& options, DeviceUse& use) {
  SuiteReport report;
  report.name = suite.name();
  IntegerHash hash;
  Progress progress(suite.name(), suite.size());
  for (std::size_t i = 0; i < suite.size(); ++i) {
    progress.step();
    const std::string op = suite.op(i);
    if (!options.only.empty() && op != options.only) continue;
    const CaseResult result = run_case_on(suite, i, options, hash, use);
    report.add(op, result.outcome, result.comparison);
    const bool failed = result.outcome == Outcome::Failed;
    if (failed || options.verbose) {
      const char* word = failed ? "FAILED" : "passed";
      if (result.outcome == Outcome::Unsupported) word = "unsupported";
      progress.clear();
      fmt::print("{} {}/{} ({}){}{}\n", word, suite.name(), suite.id(i), op,
                 result.text.empty() ? "" : ": ", result.text);
    }
  }
  if (options.dump_hash) report.hash = hash.hex();
  return report;
}

void print_device_use(Device device, const DeviceUse& use) {
  const auto print = [](const char* title, const std::map<std::string, std::int64_t>& counts) {
    if (counts.empty()) return;
    fmt::print("{}:\n", title);
    for (const auto& [name, count] : counts) fmt::print("  {} {}\n", count, name);
  };
  fmt::print("\n{} cases ran operations on {} ({})\n", use.cases, to_string(device),
             device_name(device));
  print("calls there", use.guide.on_device());
  print("calls that stayed on the CPU", use.guide.left());
  print("cases whose gradients stayed on the CPU, by op", use.gradients_left);
  print("cases with nothing to run there, by op", use.left_out);
}

int run(const Options& options) {
  if (options.list_isa) {
    for (const std::string& name : usable_isa_names()) fmt::print("{}\n", name);
    return 0;
  }
  hold_isa_down(options.isa);
  const Device device = Device::parse(options.device);
  device_name(device);  // throws where there is none
  DeviceUse use(device);
  const GuideScope scope(device.is_cpu() ? nullptr : &use.guide);
  std::vector<SuiteReport> reports;
  for (const std::string& path : options.suites) {
    const SuiteReport report = run_suite(Suite::read(path), options, use);
    if (!options.summary) print_table(report);
    if (options.dump_hash) fmt::print("hash {} {}\n\n", report.name, report.hash);
    std::fflush(stdout);
    reports.push_back(report);
  }
  OnnxOptions onnx{.literal = options.literal, .verbose = options.verbose, .only = options.only};
  if (!options.left_out.empty()) onnx.left_out = read_left_out(options.left_out);
  for (const std::string& folder : options.onnx) {
    const SuiteReport report = run_onnx_cases(folder, onnx);
    if (!options.summary) print_table(report);
    reports.push_back(report);
  }
  if (options.summary || reports.size() > 1) print_summary(reports);
  const Counts total = total_of(reports);
  if (device.is_cuda()) print_device_use(device, use);
  if (!options.only.empty() && total.cases == 0) {
    fmt::print(stderr, "quanta-conform: --only: no case with op '{}' in these suites\n",
               options.only);
    return kBadUsage;
  }
  if (!options.json.empty()) write_json(options.json, reports);
  const bool accepted = total.failed == 0 &&
                        (options.allow_unsupported || total.unsupported <= options.max_unsupported);
  if (use.cases < options.least_on_device) {
    fmt::print(stderr, "quanta-conform: --least-on-device: expected {} cases on {}, got {}\n",
               options.least_on_device, to_string(device), use.cases);
    return kSomeFailed;
  }
  return accepted ? 0 : kSomeFailed;
}

}  // namespace
}  // namespace quanta::conform

int main(int argc, char** argv) {
  using quanta::conform::kBadUsage;
  quanta::conform::Options options;
  CLI::App app{"Runs golden cases through Quanta and compares what comes out"};
  auto* list_isa = app.add_flag("--list-isa", options.list_isa,
                                "Print what --isa takes on this machine, and nothing else");
  app.add_option("SUITE", options.suites, "Suites: <name>.json beside <name>.safetensors");
  app.add_option("--onnx", options.onnx,
                 "Folders with cases in ONNX's own layout: model.onnx, test_data_set_*/*.pb")
      ->check(CLI::ExistingDirectory);
  app.add_flag("--literal", options.literal,
               "Of --onnx: QuantizeLinear and DequantizeLinear in float arithmetic");
  app.add_option("--left-out", options.left_out,
                 "Of --onnx: a file of 'name: reason' lines, cases that are not run");
  app.add_option("--json", options.json, "Write the counts to this file");
  app.add_flag("--allow-unsupported", options.allow_unsupported,
               "Exit 0 although cases are unsupported, if none failed");
  app.add_option("--max-unsupported", options.max_unsupported,
                 "Exit 0 although this many cases are unsupported, if none failed");
  app.add_flag("--forward-only", options.forward_only,
               "Of cases with gradients, compare what forward gives and nothing else");
  app.add_option("--only", options.only,
                 "Only cases of this op; of --onnx, with this in their name");
  app.add_option("--device", options.device,
                 "Where to run what has a kernel there: cpu, cuda, cuda:1, cuda:emulated");
  app.add_option("--least-on-device", options.least_on_device,
                 "Exit 1 if fewer cases ran an operation on --device");
  app.add_option("--isa", options.isa, "Use no instructions beyond these")
      ->check(CLI::IsMember(quanta::conform::isa_names()));
  app.add_flag("--dump-hash", options.dump_hash,
               "Print a hash of all integers of each suite's outputs");
  app.add_flag("--summary", options.summary, "Only a line for every suite");
  app.add_flag("--verbose", options.verbose, "A line for every case");
  try {
    app.parse(argc, argv);
    if (options.suites.empty() && options.onnx.empty() && list_isa->count() == 0)
      throw CLI::RequiredError("SUITE");
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kBadUsage;
  }
  try {
    return quanta::conform::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "quanta-conform: {}\n", error.what());
    return kBadUsage;
  }
}
