#include "quanta/fusion/graph/apply_encodings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/added_nodes.h"
#include "quanta/fusion/graph/detail/onnx_metadata.h"
#include "quanta/fusion/graph/detail/qdq_nodes.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/observers/aimet/float_encoding.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/reading.h"
#include "quanta/runtime/detail/text_file.h"
#include "quanta/runtime/error.h"

namespace quanta::graph {
namespace {

using aimet::AffineEncoding;
using aimet::Encoding;
using aimet::FloatEncoding;
using aimet::FloatSpec;
using detail::FloatGrid;
using detail::IntegerGrid;
using detail::QdqValue;

constexpr std::string_view kOp = "apply_encodings";
constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kOutput = ".output";
// QuantizeLinear has no more; their steps are finer than what float32 loses in a layer.
constexpr std::int64_t kMostActivationBits = 16;

/// Which tensors of a graph go by which names.
class Names {
 public:
  explicit Names(const OnnxGraph& graph) : graph_(graph) {
    std::map<std::string, int> times;
    for (const OnnxTensor& weight : graph.initializers) weights_[weight.name] = &weight;
    for (const OnnxTensor& weight : graph.initializers) {
      if (!weight.name.ends_with(kWeight)) continue;
      std::string path = weight.name.substr(0, weight.name.size() - kWeight.size());
      for (std::size_t dot = path.rfind('.'); dot != std::string::npos; dot = path.rfind('.')) {
        path.resize(dot);
        const std::string alias = path + std::string(kWeight);
        ++times[alias];
        aliases_.emplace(alias, &weight);
      }
    }
    for (const auto& [alias, count] : times) {
      if (count > 1 || weights_.contains(alias)) aliases_.erase(alias);
    }
    for (const OnnxValue& input : graph.inputs) {
      if (!weights_.contains(input.name)) inputs_.push_back(input.name);
    }
    values_.insert(inputs_.begin(), inputs_.end());
    for (const OnnxNode& node : graph.nodes) {
      for (const std::string& y : node.outputs) values_.insert(y);
    }
  }

  const OnnxTensor* weight(const std::string& name) const {
    const auto own = weights_.find(name);
    if (own != weights_.end()) return own->second;
    const auto alias = aliases_.find(name);
    return alias == aliases_.end() ? nullptr : alias->second;
  }
  /// "" for a name that no value goes by.
  std::string value(const std::string& name) const {
    if (values_.contains(name)) return name;
    if (!name.ends_with(kOutput)) return "";
    const std::string path = name.substr(0, name.size() - kOutput.size());
    std::string found;
    for (const OnnxNode& node : graph_.nodes) {
      const bool is_within = node.name == path || node.name.starts_with(path + ".");
      if (is_within && !node.outputs.empty()) found = node.outputs[0];
    }
    if (!found.empty()) return found;
    return inputs_.size() == 1 ? inputs_[0] : "";
  }
  /// Sizes of weights by all their names.
  std::map<std::string, Dims> sizes() const {
    std::map<std::string, Dims> result;
    for (const auto* weights : {&weights_, &aliases_}) {
      for (const auto& [name, weight] : *weights) {
        if (weight->value.defined()) result.emplace(name, weight->value.sizes());
      }
    }
    return result;
  }

 private:
  const OnnxGraph& graph_;
  std::map<std::string, const OnnxTensor*> weights_, aliases_;
  std::vector<std::string> inputs_;
  std::set<std::string> values_;
};

/// The axis of a weight's output channels, by the node that takes it.
std::optional<std::int64_t> channel_axis(const OnnxGraph& graph, const OnnxTensor& weight) {
  for (const OnnxNode& node : graph.nodes) {
    if (!node.domain.empty() || node.inputs.size() < 2 || node.inputs[1] != weight.name) continue;
    if (node.op_type == "Conv") return 0;
    if (node.op_type == "ConvTranspose") return 1;
    if (node.op_type == "MatMul") return weight.value.dim() - 1;
    if (node.op_type == "Gemm") {
      const auto found = node.attributes.find("transB");
      const auto* turned =
          found == node.attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
      return turned != nullptr && *turned != 0 ? 0 : 1;
    }
  }
  return std::nullopt;
}

/// Whether scales of these sizes belong to a tensor of sizes x.
bool fits(const Dims& x, const Dims& scale) {
  if (scale.size() > x.size()) return false;
  for (std::size_t d = 0; d < scale.size(); ++d) {
    const std::int64_t size = x[x.size() - scale.size() + d];
    if (scale[d] < 1 || size % scale[d] != 0) return false;
  }
  return true;
}

/// Scales (or what has their sizes) of a weight's channels, along the axis that they belong to.
Tensor placed(const Tensor& scale, const Dims& sizes, std::optional<std::int64_t> axis,
              bool in_blocks) {
  if (in_blocks || scale.numel() == 1 || !axis) return scale;
  const auto along = static_cast<std::size_t>(*axis);
  if (sizes[along] != scale.numel()) return scale;
  Dims placed = Dims::filled(sizes.size(), 1);
  placed[along] = scale.numel();
  return scale.contiguous().reshape(placed);
}

Tensor zero_points(const Tensor& offset) {
  std::vector<float> values = offset.contiguous().to(DType::Float32).to_float_vector();
  for (float& value : values) value = value == 0.0F ? 0.0F : -value;
  return Tensor::from_values(values, offset.sizes());
}

std::optional<OnnxType> float_type(const FloatSpec& spec) {
  if (spec == FloatSpec::from_name("float8_e4m3fn")) return OnnxType::Float8E4M3FN;
  if (spec == FloatSpec::from_name("float8_e5m2")) return OnnxType::Float8E5M2;
  if (spec == FloatSpec::from_name("float4_e2m1fn")) return OnnxType::Float4E2M1;
  if (spec == FloatSpec::from_name("float16")) return OnnxType::Float16;
  if (spec == FloatSpec::from_name("bfloat16")) return OnnxType::BFloat16;
  return std::nullopt;
}

/// What an encoding asks for, checked against its tensor.
struct Plan {
  std::string name;  ///< in the encodings
  std::string tensor;
  OnnxType type = OnnxType::Float;  ///< of a value
  const OnnxTensor* weight = nullptr;
  std::optional<IntegerGrid> integers{};
  std::optional<FloatGrid> floats{};
  double largest = 0.0;  ///< of 16-bit floats
  /// Ends of values that are not rounded.
  std::optional<std::pair<float, float>> ends{};
};

/// What the graph declares; Float where it does not.
OnnxType type_of(const OnnxGraph& graph, const std::string& name) {
  const OnnxValue* found = detail::find_declared(graph, name);
  return found == nullptr || found->type == OnnxType::Undefined ? OnnxType::Float : found->type;
}

/// A graph that grows in front of and behind its own nodes.
class Rewriter {
 public:
  explicit Rewriter(OnnxModel& model) : graph_(model.graph), added_(model.graph) {}

  std::int64_t needed() const { return added_.needed_opset(); }

  /// The nodes of codes stand before all others, and the weight's name is that of its floats.
  void quantize_weight(const Plan& plan) {
    const Tensor floats = plan.weight->value.to(DType::Float32);
    const std::string tensor = plan.tensor;
    const OnnxType type = onnx_type_of(plan.weight->value.dtype());
    QdqValue x{.sizes = floats.sizes(), .type = type, .base = tensor, .y = tensor};
    if (plan.integers) {
      x.result = detail::on_grid(floats, *plan.integers);
      append_qdq(added_, x, *plan.integers);
    } else if (plan.largest > 0.0) {
      return;  // casts below
    } else {
      x.result = floats;
      append_qdq(added_, x, *plan.floats);
    }
    std::erase_if(graph_.initializers,
                  [&](const OnnxTensor& weight) { return weight.name == tensor; });
    std::erase_if(graph_.inputs, [&](const OnnxValue& input) { return input.name == tensor; });
    std::ranges::move(added_.take_nodes(), std::back_inserter(first_));
  }

  /// Whoever took the value takes what comes out of Q and DQ; an output of the graph keeps its name.
  void quantize_value(const Plan& plan) {
    const std::string name = plan.tensor;
    const bool is_output = std::ranges::any_of(
        graph_.outputs, [&](const OnnxValue& output) { return output.name == name; });
    const auto producer = std::ranges::find_if(graph_.nodes, [&](const OnnxNode& node) {
      return std::ranges::find(node.outputs, name) != node.outputs.end();
    });
    const bool renames = is_output && producer != graph_.nodes.end();
    const std::string raw = renames ? added_.unique_value(name + "_raw") : name;
    const std::string y = renames ? name : added_.unique_value(name + "_dequantized");
    QdqValue x{.name = raw, .type = plan.type, .base = name, .y = y};
    if (plan.integers) {
      append_qdq(added_, x, *plan.integers);
    } else if (plan.ends) {
      append_clip(x, plan.ends->first, plan.ends->second, x.y);
    } else if (plan.largest > 0.0) {
      append_casts(x, plan);
    } else {
      append_qdq(added_, x, *plan.floats);
    }
    if (renames) {
      std::ranges::replace(producer->outputs, name, raw);
    } else {
      for (OnnxNode& node : graph_.nodes) std::ranges::replace(node.inputs, name, y);
    }
    const auto at = producer == graph_.nodes.end() ? graph_.nodes.begin() : producer + 1;
    insert(at, added_.take_nodes());
  }

  void finish() {
    insert(graph_.nodes.begin(), std::move(first_));
    std::ranges::move(added_.take_weights(), std::back_inserter(graph_.initializers));
  }

 private:
  void insert(std::vector<OnnxNode>::iterator at, std::vector<OnnxNode> nodes) {
    graph_.nodes.insert(at, std::make_move_iterator(nodes.begin()),
                        std::make_move_iterator(nodes.end()));
  }
  void append_clip(const QdqValue& x, double least, double most, const std::string& y) {
    added_.need(11, "Clip");
    const auto end = [&](const char* suffix, double value) {
      const DType dtype = dtype_of(x.type).value_or(DType::Float32);
      return added_.weight(x.base + suffix, Tensor::scalar(value, DType::Float32).to(dtype),
                           x.type);
    };
    added_.emit(x.base + "_Clip", "Clip", {x.name, end("_low", least), end("_high", most)}, {y}, {},
                "");
  }
  /// Beyond the largest number a Cast would give infinity.
  void append_casts(const QdqValue& x, const Plan& plan) {
    const std::string clipped = added_.unique_value(x.base + "_clipped");
    append_clip(x, -plan.largest, plan.largest, clipped);
    const std::string cast = added_.unique_value(x.base + "_cast");
    added_.emit(x.base + "_Cast", "Cast", {clipped}, {cast},
                {{"to", static_cast<std::int64_t>(plan.floats->type)}}, "");
    added_.emit(x.base + "_Cast_back", "Cast", {cast}, {x.y},
                {{"to", static_cast<std::int64_t>(x.type)}}, "");
  }

  OnnxGraph& graph_;
  detail::AddedNodes added_;
  std::vector<OnnxNode> first_;
};

/// The encoding of one tensor, or what is wrong with it in `problem`.
std::optional<Plan> plan_of(const OnnxGraph& graph, const Names& names,
                            const aimet::NamedEncoding& entry, std::string& problem) {
  const Encoding& encoding = *entry.encoding;
  Plan plan{.name = entry.name, .tensor = {}};
  plan.weight = names.weight(entry.name);
  plan.tensor = plan.weight != nullptr ? plan.weight->name : names.value(entry.name);
  if (plan.tensor.empty()) {
    problem = "no tensor of this name";
    return {};
  }
  const bool in_blocks = !encoding.block_size().empty();
  if (plan.weight == nullptr && (encoding.scale().numel() != 1 || in_blocks)) {
    problem = fmt::format("expected one scale for an activation, got {}", encoding.scale().sizes());
    return {};
  }
  plan.type = type_of(graph, plan.tensor);
  if (plan.weight == nullptr && !detail::is_quantizable(plan.type)) {
    problem = fmt::format("expected a value of floats, got {}", to_string(plan.type));
    return {};
  }
  Tensor scale = encoding.scale().to(DType::Float32);
  std::optional<std::int64_t> axis;
  if (plan.weight != nullptr) {
    if (!plan.weight->value.defined() || !plan.weight->value.is_floating_point()) {
      problem = "expected a weight of floats";
      return {};
    }
    axis = channel_axis(graph, *plan.weight);
    const Dims& sizes = plan.weight->value.sizes();
    scale = placed(scale, sizes, axis, in_blocks);
    if (!fits(sizes, scale.sizes())) {
      problem = fmt::format("scales of {} do not fit a weight of {}", scale.sizes(), sizes);
      return {};
    }
  }
  QdqValue x{.name = plan.tensor};
  if (plan.weight != nullptr) {
    x.result = plan.weight->value;
    x.sizes = x.result.sizes();
  }
  if (const auto* affine = dynamic_cast<const AffineEncoding*>(&encoding)) {
    if (affine->zero_point_shift() != 0.0) {
      problem = "a zero_point_shift: ONNX has whole zero points alone";
      return {};
    }
    IntegerGrid grid{.scale = scale,
                     .zero_point = zero_points(encoding.offset()).reshape(scale.sizes()),
                     .low = affine->grid().qmin(),
                     .high = affine->grid().qmax()};
    const bool is_wide = affine->num_steps() >= (std::int64_t{1} << kMostActivationBits);
    if (plan.weight == nullptr && is_wide) {
      plan.ends.emplace(affine->min().to(DType::Float32).to_float_vector()[0],
                        affine->max().to(DType::Float32).to_float_vector()[0]);
      return plan;
    }
    problem = refusal(x, grid);
    plan.integers = std::move(grid);
  } else if (const auto* floating = dynamic_cast<const FloatEncoding*>(&encoding)) {
    const std::optional<OnnxType> type = float_type(floating->spec());
    if (!type) {
      problem = fmt::format("the format {}, which ONNX has not", floating->spec().name());
      return {};
    }
    const std::vector<float> scales = scale.contiguous().to_float_vector();
    if (!std::ranges::all_of(scales, [](float s) { return std::isfinite(s) && s > 0.0F; })) {
      problem = "expected scales that are finite and above 0";
      return {};
    }
    if (*type == OnnxType::Float16 || *type == OnnxType::BFloat16) {
      if (!std::ranges::all_of(scales, [](float s) { return s == 1.0F; })) {
        problem = "a scale of floats of 16 bits, for which Cast has no place";
        return {};
      }
      plan.largest = floating->spec().max();
    }
    plan.floats = FloatGrid{*type, scale};
  } else {
    problem = "an encoding of another kind";
  }
  if (!problem.empty()) return {};
  return plan;
}

/// Weights in 16-bit floats: rounded, in the type that they have.
void round_weight(OnnxGraph& graph, const Plan& plan) {
  const auto found = std::ranges::find(graph.initializers, plan.tensor, &OnnxTensor::name);
  const DType half = plan.floats->type == OnnxType::Float16 ? DType::Float16 : DType::BFloat16;
  std::vector<float> values = found->value.contiguous().to(DType::Float32).to_float_vector();
  for (float& value : values) {
    value = std::clamp(value, static_cast<float>(-plan.largest), static_cast<float>(plan.largest));
  }
  found->value =
      Tensor::from_values(values, found->value.sizes()).to(half).to(found->value.dtype());
}

std::vector<Plan> plans_of(const OnnxGraph& graph, const aimet::EncodingFile& encodings) {
  const Names names(graph);
  std::vector<Plan> plans;
  std::vector<std::string> problems;
  std::set<std::string> taken;
  for (const auto* entries : {&encodings.activations, &encodings.params}) {
    for (const aimet::NamedEncoding& entry : *entries) {
      QUANTA_CHECK(entry.encoding != nullptr, "{}: {}: expected an encoding, got none", kOp,
                   entry.name);
      std::string problem;
      std::optional<Plan> plan = plan_of(graph, names, entry, problem);
      if (plan && !taken.insert(plan->tensor).second) {
        problem = fmt::format("'{}' has an encoding already", plan->tensor);
      }
      if (!problem.empty()) {
        problems.push_back(fmt::format("{}: {}", entry.name, problem));
      } else if (plan) {
        plans.push_back(std::move(*plan));
      }
    }
  }
  QUANTA_CHECK(problems.empty(), "{}: encodings that do not belong to this model:\n  {}", kOp,
               fmt::join(problems, "\n  "));
  return plans;
}

/// Whether AIMET makes the codes by multiplication with 1 / scale, as torch does.
bool has_torch_rounding(const std::vector<Plan>& plans) {
  return std::ranges::all_of(plans, [](const Plan& plan) {
    return plan.weight != nullptr || plan.integers.has_value() || !plan.floats.has_value();
  });
}

std::int64_t opset_of(const OnnxModel& model) {
  const std::optional<std::int64_t> opset = detail::find_opset(model);
  QUANTA_CHECK(opset.has_value(), "{}: model: expected an opset of ai.onnx, got none", kOp);
  return *opset;
}

/// The rewritten model and the opset that it needs.
std::pair<OnnxModel, std::int64_t> rewritten(const OnnxModel& model,
                                             const aimet::EncodingFile& encodings) {
  OnnxModel result = model;
  std::vector<Plan> plans = plans_of(model.graph, encodings);
  Rewriter rewriter(result);
  for (const Plan& plan : plans) {
    if (plan.weight == nullptr) {
      rewriter.quantize_value(plan);
    } else if (plan.largest > 0.0) {
      round_weight(result.graph, plan);
    } else {
      rewriter.quantize_weight(plan);
    }
  }
  rewriter.finish();
  detail::erase_notes(result.metadata);
  if (has_torch_rounding(plans)) {
    result.metadata[detail::kArithmeticKey] = detail::kTorchArithmetic;
  }
  return {std::move(result), rewriter.needed()};
}

}  // namespace

OnnxModel apply_encodings(const OnnxModel& model, const aimet::EncodingFile& encodings) {
  const std::int64_t own = opset_of(model);
  auto [result, needed] = rewritten(model, encodings);
  if (needed <= own) return std::move(result);
  const OnnxModel newer = to_onnx(from_onnx(model, {.literal = true}), {.opset = needed});
  return rewritten(newer, encodings).first;
}

OnnxModel apply_encodings(const OnnxModel& model, std::string_view encodings) {
  const std::size_t begin = encodings.find_first_not_of(" \t\r\n");
  return quanta::detail::reading(kOp, [&] {
    std::string text(encodings);
    if (begin == std::string_view::npos || encodings[begin] != '{') {
      text = quanta::detail::read_text_file(std::filesystem::path(encodings),
                                            fmt::format("{}: encodings", kOp));
    }
    return apply_encodings(model, aimet::encoding_file_from_json(text, Names(model.graph).sizes()));
  });
}

}  // namespace quanta::graph
