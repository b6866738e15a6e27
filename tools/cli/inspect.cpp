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

namespace quanta::cli {
namespace {

std::string qparams_text(const Tensor& tensor) {
  if (!tensor.is_quantized()) return {};
  const Quantizer& quantizer = tensor.impl()->quantizer;
  if (!is_per_channel(quantizer.scheme)) {
    return fmt::format("scale {:.6g}, zero point {}", quantizer.scale, quantizer.zero_point);
  }
  return fmt::format("{} scales along axis {}", quantizer.channel->scales.size(), quantizer.axis);
}

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
    SafetensorsFile file = load_safetensors(path);
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
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    bytes += tensor.nbytes();
    fmt::print("{:<48} {:<10} {:<22} {}\n", name, torch_name(tensor.dtype()),
               to_string(tensor.sizes()), qparams_text(tensor));
  }
  fmt::print("{} tensors, {} bytes of elements\n", tensors.size(), bytes);
  return 0;
}

int run_info(const InfoOptions& options) {
  if (options.onnx) {
    print_onnx_operators();
    return 0;
  }
  fmt::print("threads: {}\n", get_num_threads());
  fmt::print("vector targets:");
  const std::int64_t targets = hwy::SupportedTargets();
  for (std::int64_t rest = targets; rest != 0; rest &= rest - 1) {
    fmt::print(" {}", hwy::TargetName(rest & -rest));
  }
  fmt::print("\n");
  return 0;
}

}  // namespace quanta::cli
