#include "quanta/fusion/compare_layers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "quanta/fusion/detail/layers_to_compare.h"
#include "quanta/fusion/detail/report/capture.h"
#include "quanta/ops/sqnr.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

void note_qparams(LayerComparison& layer, const Tensor& output) {
  if (!output.is_quantized() || layer.scale) return;
  const Quantizer& quantizer = output.impl()->quantizer;
  if (is_per_channel(quantizer.scheme)) return;
  layer.scale = quantizer.scale;
  layer.zero_point = quantizer.zero_point;
}

}  // namespace

namespace detail {

std::vector<LayerComparison> compare_layers_of(nn::Module& float_model, nn::Module& quantized_model,
                                               const std::vector<RunModel>& runs) {
  QUANTA_CHECK(!runs.empty(), "compare_layers: inputs: expected at least one tensor, got none");
  const autograd::NoGradGuard no_grad;
  float_model.eval();
  quantized_model.eval();
  std::map<std::string, LayerComparison> layers;
  for (const auto& [path, types] :
       layers_to_compare("compare_layers", float_model, quantized_model)) {
    layers[path] = {.path = path,
                    .float_type = types.in_float,
                    .type = types.quantized,
                    .scale = {},
                    .zero_point = {}};
  }
  reporting::Capture want, got;
  reporting::capture_calls(float_model, want, false);
  reporting::capture_calls(quantized_model, got, false);
  std::map<std::string, SqnrSum> sums;
  std::vector<std::string> order;
  for (const RunModel& run : runs) {
    want.clear();
    got.clear();
    run(float_model);
    run(quantized_model);
    for (const std::string& path : got.order) {
      const auto layer = layers.find(path);
      const auto reference = want.calls.find(path);
      if (layer == layers.end() || reference == want.calls.end()) continue;
      const std::vector<reporting::CapturedCall>& calls = got.calls.at(path);
      check_calls("compare_layers", path, reference->second.size(), calls.size());
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const std::vector<Tensor>& before = reference->second[i].outputs;
        const std::vector<Tensor>& after = calls[i].outputs;
        for (std::size_t o = 0; o < std::min(before.size(), after.size()); ++o) {
          if (!before[o].defined() || !after[o].defined()) continue;
          check_result_sizes("compare_layers", path, before[o].sizes(), after[o].sizes());
          sums[path].add(before[o], after[o]);
          note_qparams(layer->second, after[o]);
        }
      }
      if (std::find(order.begin(), order.end(), path) == order.end()) order.push_back(path);
    }
  }
  std::vector<LayerComparison> result;
  for (const std::string& path : order) {
    result.push_back(std::move(layers.at(path)));
    result.back().sqnr = sums[path].decibels();
  }
  return result;
}

}  // namespace detail

std::string to_string(const std::vector<LayerComparison>& layers) {
  std::size_t path_width = 5, type_width = 4;
  for (const LayerComparison& layer : layers) {
    path_width = std::max(path_width, layer.path.size());
    type_width = std::max(type_width, layer.type.size());
  }
  std::string text = fmt::format("{:<{}}  {:<{}}  {:>12}  {:>10}  {:>7}\n", "layer", path_width,
                                 "type", type_width, "scale", "zero point", "SQNR dB");
  for (const LayerComparison& layer : layers) {
    text +=
        fmt::format("{:<{}}  {:<{}}  {:>12}  {:>10}  {:>7.1f}\n", layer.path, path_width,
                    layer.type, type_width, layer.scale ? fmt::format("{:.6g}", *layer.scale) : "-",
                    layer.zero_point ? std::to_string(*layer.zero_point) : "-", layer.sqnr);
  }
  return text;
}

}  // namespace quanta
