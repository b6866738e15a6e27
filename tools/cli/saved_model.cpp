#include "saved_model.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "quanta/runtime/error.h"

namespace quanta::cli {
namespace {

using nlohmann::ordered_json;

std::string qparams_text(const Tensor& tensor) {
  if (!tensor.is_quantized()) return {};
  const Quantizer& quantizer = tensor.impl()->quantizer;
  if (!is_per_channel(quantizer.scheme)) {
    return fmt::format("scale {:.6g}, zero point {}", quantizer.scale, quantizer.zero_point);
  }
  const auto& scales = quantizer.channel->scales;
  const auto [least, most] = std::minmax_element(scales.begin(), scales.end());
  if (least == scales.end()) return fmt::format("no scales along axis {}", quantizer.axis);
  return fmt::format("{} scales along axis {}: {:.3g} .. {:.3g}", scales.size(), quantizer.axis,
                     static_cast<double>(*least), static_cast<double>(*most));
}

/// The module's first quantized tensor (a convolution's weight, a linear layer's packed one), and
/// how many more there are.
std::string weight_text(const StateDict& tensors, const std::string& module) {
  std::string text = "-";
  std::size_t count = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!name.starts_with(module + ".") || !tensor.is_quantized()) continue;
    if (count++ == 0)
      text = fmt::format("{}, {}", torch_name(tensor.dtype()), qparams_text(tensor));
  }
  return count > 1 ? fmt::format("{}; {} more", text, count - 1) : text;
}

[[noreturn]] void refuse(const std::string& path, const std::string& key, std::string_view what) {
  throw FileError(fmt::format("inspect: {}: {}: expected {}", path, key, what));
}

ordered_json parsed(const SafetensorsFile& file, const std::string& key, const std::string& path) {
  const auto text = file.metadata.find(key);
  if (text == file.metadata.end()) return ordered_json::object();
  ordered_json value = ordered_json::parse(text->second, nullptr, false);
  if (!value.is_object()) refuse(path, key, "a JSON object");
  return value;
}

struct Row {
  std::string module, form, scale = "-", zero_point = "-", weight;
};

Row row_of(const std::string& module, const ordered_json& values, const StateDict& tensors,
           const std::string& path) {
  if (!values.is_array() || values.empty() || !values[0].is_string()) {
    refuse(path, "quanta.modules", "an array that begins with a name for " + module);
  }
  Row row{.module = module,
          .form = values[0].get<std::string>(),
          .weight = weight_text(tensors, module)};
  if (values.size() > 2 && values[1].is_number() && values[2].is_number_integer()) {
    row.scale = fmt::format("{:.6g}", values[1].get<double>());
    row.zero_point = std::to_string(values[2].get<std::int64_t>());
  }
  return row;
}

void print_rows(const std::vector<Row>& rows) {
  std::size_t module = 6, form = 4;
  for (const Row& row : rows) {
    module = std::max(module, row.module.size());
    form = std::max(form, row.form.size());
  }
  const auto print = [&](const Row& row) {
    fmt::print("{:<{}}  {:<{}}  {:>11}  {:>10}  {}\n", row.module, module, row.form, form,
               row.scale, row.zero_point, row.weight);
  };
  print({"module", "form", "scale", "zero point", "weight"});
  for (const Row& row : rows) print(row);
}

}  // namespace

bool is_saved_model_file(const SafetensorsFile& file) {
  return file.metadata.contains("quanta.format") && file.metadata.contains("quanta.modules");
}

void print_saved_model(const SafetensorsFile& file, const std::string& path) {
  std::vector<Row> rows;
  std::vector<std::string> fused_away;
  const ordered_json modules = parsed(file, "quanta.modules", path);
  for (const auto& [module, values] : modules.items()) {
    if (!module.empty()) {
      rows.push_back(row_of(module, values, file.tensors, path));
      continue;
    }
    for (const ordered_json& place : values) {
      if (!place.is_string()) refuse(path, "quanta.modules", "paths under ''");
      fused_away.push_back(place.get<std::string>());
    }
  }
  fmt::print("a saved model: {} modules differ from the float network\n", rows.size());
  if (!rows.empty()) print_rows(rows);
  if (!fused_away.empty()) {
    fmt::print("fused into others: {}\n", fmt::join(fused_away, ", "));
  }
  for (const char* key : {"quanta.observers", "quanta.graphs"}) {
    const ordered_json names = parsed(file, key, path);
    for (const auto& [module, name] : names.items()) {
      fmt::print("{} {}: {}\n", std::string_view(key) == "quanta.graphs" ? "graph" : "observer",
                 module.empty() ? "(network)" : module,
                 name.is_string() ? name.get<std::string>() : name.dump());
    }
  }
  for (const auto& [key, value] : file.metadata) {
    if (!key.starts_with("quanta.")) fmt::print("# {}: {}\n", key, value);
  }
  fmt::print("\n");
  print_tensors(file.tensors);
}

void print_tensors(const StateDict& tensors) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    bytes += tensor.nbytes();
    fmt::print("{:<48} {:<10} {:<22} {}\n", name, torch_name(tensor.dtype()),
               to_string(tensor.sizes()), qparams_text(tensor));
  }
  fmt::print("{} tensors, {} bytes of elements\n", tensors.size(), bytes);
}

}  // namespace quanta::cli
