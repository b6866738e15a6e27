#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "quanta/fusion/accuracy/detail/gptq_columns.h"
#include "quanta/fusion/accuracy/detail/layer_data.h"
#include "quanta/fusion/accuracy/detail/layer_matrix.h"
#include "quanta/fusion/accuracy/gptq.h"
#include "quanta/fusion/detail/weight_only_filter.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using accuracy::GptqColumns;
using accuracy::GptqSettings;
using accuracy::LayerMatrix;
using accuracy::WeightedLayer;

std::size_t as_size(std::int64_t value) { return static_cast<std::size_t>(value); }

// Scales and zero points of groups of columns, as quantize_weight_only finds them.
class GroupGrids {
 public:
  GroupGrids(std::size_t rows, std::size_t columns, const WeightOnlyOptions& options)
      : options_(options),
        rows_(rows),
        columns_(columns),
        width_(options.group_size == 0 ? columns : as_size(options.group_size)),
        scales_(rows * count()),
        zero_points_(rows * count()) {}

  std::size_t width() const { return width_; }
  std::size_t count() const { return columns_ / width_; }

  void find(std::size_t group, std::span<const double> weight) {
    std::vector<float> part;
    part.reserve(rows_ * width_);
    for (std::size_t r = 0; r < rows_; ++r) {
      const auto from = weight.subspan(r * columns_ + group * width_, width_);
      for (const double value : from) part.push_back(static_cast<float>(value));
    }
    WeightOnlyOptions whole = options_;
    whole.group_size = 0;
    const WeightOnlyPackedParams packed = quantize_weight_only(
        Tensor::from_values(part,
                            {static_cast<std::int64_t>(rows_), static_cast<std::int64_t>(width_)}),
        Tensor(), whole);
    const std::vector<float> scales = packed.scales().to_float_vector();
    std::vector<float> zero_points(rows_);
    if (!options_.symmetric) {
      zero_points = packed.zero_points().to(DType::Float32).to_float_vector();
    }
    for (std::size_t r = 0; r < rows_; ++r) {
      scales_[r * count() + group] = scales[r];
      zero_points_[r * count() + group] = zero_points[r];
    }
  }

  double code(std::size_t row, std::size_t column, double value) const {
    const std::size_t at = row * count() + column / width_;
    const double low = options_.symmetric ? -std::ldexp(1.0, options_.bits - 1) : 0.0;
    const double high = low + std::ldexp(1.0, options_.bits) - 1.0;
    return accuracy::code_of(value, scales_[at], static_cast<double>(zero_points_[at]), low, high);
  }
  double value(std::size_t row, std::size_t column, double code) const {
    const std::size_t at = row * count() + column / width_;
    return accuracy::value_of(code, scales_[at], static_cast<double>(zero_points_[at]));
  }
  WeightOnlyPackedParams pack(const std::vector<float>& codes, const Tensor& bias) const {
    const auto rows = static_cast<std::int64_t>(rows_);
    const Dims sizes{rows, static_cast<std::int64_t>(count())};
    Tensor zero_points;
    if (!options_.symmetric)
      zero_points = Tensor::from_values(zero_points_, sizes).to(DType::UInt8);
    return {Tensor::from_values(codes, {rows, static_cast<std::int64_t>(columns_)})
                .to(options_.symmetric ? DType::Int8 : DType::UInt8),
            Tensor::from_values(scales_, sizes), zero_points, bias, options_};
  }

 private:
  WeightOnlyOptions options_;
  std::size_t rows_, columns_, width_;
  std::vector<float> scales_, zero_points_;
};

// All groups of channels below one another.
WeightOnlyPackedParams round_groups(nn::Module& model, const WeightedLayer& layer,
                                    const WeightOnlyOptions& options, const Calibrate& run,
                                    const GptqSettings& settings, bool static_groups) {
  const LayerMatrix matrix(layer);
  const std::vector<float> floats = matrix.as_matrix(layer.weight->detach()).to_float_vector();
  std::vector<double> weight(floats.begin(), floats.end());
  const std::size_t n = as_size(matrix.columns());
  const std::size_t rows = as_size(matrix.rows());
  const std::vector<std::vector<double>> hessians = accuracy::input_hessians(model, layer, run);
  const auto rows_of = [&](std::size_t g) {
    return std::span(weight).subspan(g * rows * n, rows * n);
  };
  std::vector<GptqColumns> columns;
  columns.reserve(hessians.size());
  for (std::size_t g = 0; g < hessians.size(); ++g) {
    columns.emplace_back(hessians[g], rows_of(g), settings, layer.path);
  }
  GroupGrids grids(rows * hessians.size(), n, options);
  std::vector<float> codes(weight.size());
  const auto round = [&](std::size_t begin, std::size_t end) {
    for (std::size_t g = 0; g < hessians.size(); ++g) {
      columns[g].round(begin, end, rows_of(g), [&](std::size_t r, std::size_t c, double value) {
        const std::size_t row = g * rows + r;
        const double code = grids.code(row, c, value);
        codes[row * n + c] = static_cast<float>(code);
        return grids.value(row, c, code);
      });
    }
  };
  for (std::size_t i = 0; i < grids.count(); ++i) {
    grids.find(i, weight);
    if (!static_groups) round(i * grids.width(), (i + 1) * grids.width());
  }
  if (static_groups) round(0, n);
  return grids.pack(codes, layer.bias->defined() ? layer.bias->detach() : Tensor());
}

using Replacements = std::map<const nn::Module*, std::shared_ptr<nn::Module>>;

void replace_below(nn::Module& parent, const Replacements& made) {
  for (const nn::Module::NamedChild& child : parent.named_children()) {
    const auto found = made.find(child.module.get());
    if (found != made.end()) {
      parent.replace_child(child.name, found->second);
    } else {
      replace_below(*child.module, made);
    }
  }
}

std::shared_ptr<nn::Module> replacement(const nn::Module& layer, WeightOnlyPackedParams packed) {
  auto made = nn::make_module<nn::weight_only::Linear>(std::move(packed));
  made->take_pre_hooks_from(layer);
  made->take_forward_hooks_from(layer);
  made->train(layer.is_training());
  return made;
}

bool is_plain_linear(const WeightedLayer& layer) {
  const nn::Module& module = *layer.layer;
  return typeid(module) == typeid(nn::Linear) && layer.unit == layer.layer && !layer.path.empty();
}

// Those that the filter takes. Refuses, as quantize_weight_only does, what cannot be quantized so.
std::vector<WeightedLayer> layers_to_round(nn::Module& model, nn::Module& scratch,
                                           const WeightOnlyOptions& weight,
                                           const GptqWeightOnlyOptions& options,
                                           const WeightOnlyFilter& filter) {
  check_names(model, filter);
  QUANTA_CHECK(weight.bits == 8 || weight.bits == 4,
               "gptq_weight_only: bits: expected 8 or 4, got {}", weight.bits);
  QUANTA_CHECK(weight.group_size >= 0, "gptq_weight_only: group_size: expected at least 0, got {}",
               weight.group_size);
  std::vector<WeightedLayer> layers = accuracy::weighted_layers(model);
  std::erase_if(layers, [&](const WeightedLayer& layer) {
    const bool is_of_interest = is_plain_linear(layer) ||
                                (options.convolutions && layer.kind != WeightedLayer::Kind::Linear);
    return !is_of_interest || !takes(filter, layer.path, *layer.layer);
  });
  const bool has_linear = std::ranges::any_of(layers, is_plain_linear);
  if (has_linear || layers.empty()) {
    WeightOnlyFilter linear = filter;
    linear.accept = [&](const std::string& path, const nn::Module&) {
      return std::ranges::find(layers, path, &WeightedLayer::path) != layers.end();
    };
    quantize_weight_only_(scratch, weight, linear);
  }
  return layers;
}

WeightOnlyOptions options_for(const WeightedLayer& layer, WeightOnlyOptions options) {
  const std::int64_t columns = LayerMatrix(layer).columns();
  const bool divides = options.group_size == 0 || columns % options.group_size == 0;
  if (layer.kind != WeightedLayer::Kind::Linear && !divides) options.group_size = 0;
  return options;
}

}  // namespace

namespace detail {

void gptq_weight_only(nn::Module& model, nn::Module& scratch, const WeightOnlyOptions& weight,
                      const CalibrationData& data, const GptqWeightOnlyOptions& options,
                      const WeightOnlyFilter& filter) {
  const autograd::NoGradGuard no_grad;
  const GptqSettings settings{options.percdamp, options.act_order, options.block_size};
  accuracy::check(settings);
  QUANTA_SUPPORTED(!options.act_order || options.static_groups || weight.group_size == 0,
                   "gptq: static_groups: expected true with act_order and groups of {} columns "
                   "(a weight-only layer's groups are of neighbours), got false",
                   weight.group_size);
  QUANTA_CHECK(data.run, "gptq: data.run: expected a function that feeds data, got none");
  const std::vector<WeightedLayer> layers =
      layers_to_round(model, scratch, weight, options, filter);
  const std::vector<std::string> order = accuracy::order_of_calls(model, layers, data.run);
  for (const WeightedLayer& layer : layers) {
    QUANTA_CHECK(std::ranges::find(order, layer.path) != order.end(),
                 "gptq: data.run: expected data that reaches every layer (filter.skip leaves out "
                 "what is not used), got none at '{}'",
                 layer.path);
  }
  Replacements made;
  std::size_t done = 0;
  for (const std::string& path : order) {
    const WeightedLayer& layer = *std::ranges::find(layers, path, &WeightedLayer::path);
    WeightOnlyPackedParams packed =
        round_groups(model, layer, options_for(layer, weight), data.run, settings,
                     options.static_groups || options.act_order);
    const LayerMatrix matrix(layer);
    *layer.weight = matrix.as_weight(
        packed.dequantize().reshape({matrix.groups(), matrix.rows(), matrix.columns()}));
    if (is_plain_linear(layer)) made[layer.layer] = replacement(*layer.layer, std::move(packed));
    data.report("gptq: " + path, ++done, layers.size());
  }
  replace_below(model, made);
}

}  // namespace detail
}  // namespace quanta
