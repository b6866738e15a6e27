#include "inspect.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <hwy/targets.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/pt_file.h"
#include "quanta/runtime/safetensors.h"
#include "saved_model.h"
#include "version.h"

namespace quanta::cli {
namespace {

/// By domain, in order.
void print_onnx_operators() {
  std::map<std::string, std::set<std::string>> domains;
  for (const graph::OpRow& row : graph::op_table().rows()) {
    if (row.domain == "quanta") continue;  // what passes write
    domains[row.domain.empty() ? "ai.onnx" : std::string(row.domain)].emplace(row.name);
  }
  for (const auto& [domain, names] : domains) {
    fmt::print("{} ({}): {}\n", domain, names.size(), fmt::join(names, ", "));
  }
}

}  // namespace

int run_inspect(const InspectOptions& options) {
  const std::filesystem::path path(options.path);
  if (path.extension() == ".onnx") return inspect_onnx(options);
  const bool is_safetensors = path.extension() == ".safetensors" || path.extension() == ".json";
  StateDict tensors;
  if (is_safetensors) {
    SafetensorsFile file = load_safetensors(path, FileAccess::Map);
    if (is_saved_model_file(file)) {
      print_saved_model(file, options.path);
      return 0;
    }
    for (const auto& [key, value] : file.metadata) {
      fmt::print("# {}: {}\n", key, value.size() > 100 ? value.substr(0, 97) + "..." : value);
    }
    tensors = std::move(file.tensors);
  } else {
    const PickleValue value = read_pt(path);
    for (const OpaqueValue& opaque : opaque_values(value)) {
      fmt::print("# {}: {} (not read)\n", opaque.path, opaque.type);
    }
    tensors = flatten_tensors(value);
  }
  print_tensors(tensors);
  return 0;
}

int run_info(const InfoOptions& options) {
  if (options.onnx) {
    print_onnx_operators();
    return 0;
  }
  fmt::print("threads: {}\n", get_num_threads());
  fmt::print("instructions: {}\n", instruction_set());
  fmt::print("vector targets:");
  const std::int64_t targets = hwy::SupportedTargets();
  for (std::int64_t rest = targets; rest != 0; rest &= rest - 1) {
    fmt::print(" {}", hwy::TargetName(rest & -rest));
  }
  fmt::print("\n");
  return 0;
}

}  // namespace quanta::cli
