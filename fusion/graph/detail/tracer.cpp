#include "quanta/fusion/graph/detail/tracer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "quanta/fusion/graph/detail/view_steps.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/ops/catalogue.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

/// Give what they take, in some order in memory.
bool is_copy(std::string_view op) { return op == "clone" || op == "contiguous"; }

/// Of these a graph has nodes although they have constants alone for arguments: quantized weights.
bool is_quantizer(std::string_view op) {
  static constexpr std::array<std::string_view, 17> kNames{
      "fake_quantize_per_tensor_affine",
      "fake_quantize_per_channel_affine",
      "fake_quantize_learnable_per_tensor_affine",
      "fake_quantize_learnable_per_channel_affine",
      "fake_tensor_quant",
      "tensor_quant",
      "legacy_fake_tensor_quant",
      "fake_affine_tensor_quant",
      "scaled_e4m3",
      "dynamic_block_quant",
      "static_fp4",
      "FormatFakeQuantize",
      "float_quantize_dequantize",
      "fake_cast_to_ieee_float",
      "quantize_affine",
      "dequantize_affine",
      "quantize_dequantize_affine"};
  return std::ranges::find(kNames, op) != kNames.end();
}

std::optional<Codes> codes_of(const Tensor& x) {
  if (!x.is_quantized()) return {};
  const QTensor codes(x);
  const Quantizer& quantizer = codes.quantizer();
  if (is_per_channel(quantizer.scheme)) return {};
  return Codes{.dtype = x.dtype(), .scale = quantizer.scale, .zero_point = quantizer.zero_point};
}

Layout layout_of(const Tensor& x) {
  return {.sizes = x.sizes(), .strides = x.strides(), .offset = x.storage_offset()};
}

bool has_layout(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset();
}

std::vector<OnnxDim> declared(const Dims& sizes) {
  std::vector<OnnxDim> dims;
  for (const std::int64_t size : sizes) dims.push_back({.size = size, .name = {}});
  return dims;
}

std::string unique(std::set<std::string, std::less<>>& taken, std::string_view base) {
  std::string name(base);
  for (int i = 2; !taken.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
  return name;
}

OnnxType float_type(const Tensor& x) {
  return x.is_quantized() ? OnnxType::Float : onnx_type_of(x.dtype());
}

}  // namespace

Dims declared_dims(const Value& value) {
  Dims dims;
  if (!value.sizes) return value.constant.defined() ? value.constant.sizes() : dims;
  for (const OnnxDim& dim : *value.sizes) dims.push_back(dim.size.value_or(-1));
  return dims;
}

Tracer::Tracer(const nn::Module& model, const TraceOptions& options)
    : model_(model), options_(options) {
  graph_.name = model.type_name();
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    modules_[entry.path] = entry.module;
  }
  name_weights();
}

void Tracer::name_weights() {
  const auto note = [this](const std::vector<nn::Module::NamedTensor>& tensors) {
    for (const nn::Module::NamedTensor& entry : tensors) {
      if (!entry.tensor.defined() || !entry.tensor.device().is_cpu()) continue;
      weights_.emplace(entry.tensor.device_ptr(), std::pair(entry.path, entry.tensor));
    }
  };
  note(model_.named_parameters());
  note(model_.named_buffers());
}

std::string Tracer::unique_value(std::string_view base) { return unique(value_names_, base); }
std::string Tracer::unique_node(std::string_view base) { return unique(node_names_, base); }

std::string Tracer::base_name(const replay::Step& step) const {
  std::string op(step.operation->name());
  std::ranges::replace(op, ':', '_');
  const auto found = modules_.find(step.path);
  if (step.path.empty() || found == modules_.end()) return op;
  // A layer is one operation, as a rule.
  return steps_of_path_.at(step.path) == 1 ? step.path : fmt::format("{}.{}", step.path, op);
}

// Values -----------------------------------------------------------------------------------------

ValueId Tracer::add_value(std::string_view base, const Dims& sizes, OnnxType type,
                          const std::optional<Codes>& codes) {
  return graph_.add_value(
      {.name = unique_value(base), .type = type, .sizes = declared(sizes), .codes = codes});
}

ValueId Tracer::add_value(std::string_view base, const Tensor& like) {
  return add_value(base, like.sizes(), float_type(like), codes_of(like));
}

ValueId Tracer::add_integers(std::string_view base, std::span<const std::int64_t> numbers) {
  return graph_.add_constant(unique_value(base), Tensor::from_int64(numbers));
}

Node& Tracer::add_node(std::string_view op, std::string_view base, std::vector<ValueId> inputs,
                       std::vector<ValueId> outputs) {
  Node node{.name = unique_node(base), .op = std::string(op), .opset = kTraceOpset};
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back();
}

ValueId Tracer::add_onnx(std::string_view op, std::vector<ValueId> inputs, const Dims& sizes,
                         const std::string& base, OnnxAttributes attributes) {
  const Value& x = value(inputs[0]);
  const std::string name = fmt::format("{}_{}", base, op);
  const ValueId made = add_value(name, sizes, x.type, x.codes);
  Node& node = add_node(op, name, std::move(inputs), {made});
  node.attributes = std::move(attributes);
  node.row = op_table().find("", op, kTraceOpset);
  return made;
}

ValueId Tracer::reshaped(ValueId x, const Dims& sizes, const std::string& base) {
  if (declared_dims(value(x)) == sizes) return x;
  const ValueId shape = add_integers(base + "_sizes", sizes.to_vector());
  return add_onnx("Reshape", {x, shape}, sizes, base);
}

void Tracer::register_result(const Tensor& result, ValueId id, const replay::Step* step) {
  made_[result.storage().get()] = {.id = id, .tensor = result, .step = step};
}

ValueId Tracer::constant_of(const Tensor& x, const std::string& path) {
  const auto key = std::tuple(static_cast<const void*>(x.device_ptr()), x.sizes().to_vector(),
                              x.strides().to_vector(), x.dtype());
  if (const auto found = constants_.find(key); found != constants_.end()) return found->second;
  kept_.push_back(x);
  std::string name = path.empty() ? "constant" : path + ".constant";
  if (const auto weight = weights_.find(x.device_ptr()); weight != weights_.end()) {
    name = weight->second.first;
  }
  const bool is_plain = !x.is_quantized();
  Value made{.name = unique_value(name), .constant = is_plain ? x.contiguous() : x};
  made.type = float_type(x);
  const ValueId id = graph_.add_value(std::move(made));
  constants_[key] = id;
  return id;
}

ValueId Tracer::view_of(const Made& base, const Tensor& x, const std::string& path) {
  Made from = base;
  const std::string name = value(base.id).name;
  if (x.dtype() != from.tensor.dtype()) {
    const bool is_codes = from.tensor.is_quantized() && !x.is_quantized() &&
                          item_size(x.dtype()) == item_size(from.tensor.dtype());
    QUANTA_SUPPORTED(is_codes,
                     "trace: '{}': expected tensors that are read as what they were written as, "
                     "got the memory of {} '{}' as {}",
                     path, from.tensor.dtype(), name, x.dtype());
    Node& node = add_node("int_repr", name + "_codes", {from.id}, {});
    node.domain = "quanta";
    node.opset = 0;
    node.operation = operations().find("int_repr")->make();
    const ValueId codes =
        add_value(name + "_codes", from.tensor.sizes(), onnx_type_of(x.dtype()), std::nullopt);
    graph_.nodes.back().outputs = {codes};
    from.id = codes;
  }
  ValueId id = from.id;
  for (const ViewStep& step : view_steps(layout_of(base.tensor), layout_of(x))) {
    const auto integers = [&](const char* what, const std::vector<std::int64_t>& numbers) {
      return add_integers(fmt::format("{}_{}", name, what), numbers);
    };
    switch (step.kind) {
      case ViewStep::Kind::Transpose:
        id = add_onnx("Transpose", {id}, step.sizes, name, {{"perm", step.numbers}});
        break;
      case ViewStep::Kind::Reshape:
        id = reshaped(id, step.sizes, name);
        break;
      case ViewStep::Kind::Slice: {
        std::vector<std::int64_t> axes, begins, ends, steps;
        const Dims sizes = declared_dims(value(id));
        for (std::size_t d = 0; d < step.numbers.size(); ++d) {
          if (step.sizes[d] == sizes[d]) continue;
          axes.push_back(static_cast<std::int64_t>(d));
          begins.push_back(step.numbers[d]);
          ends.push_back(step.ends[d]);
          steps.push_back(step.steps[d]);
        }
        id = add_onnx("Slice",
                      {id, integers("starts", begins), integers("ends", ends),
                       integers("axes", axes), integers("steps", steps)},
                      step.sizes, name);
        break;
      }
      case ViewStep::Kind::Expand:
        id = add_onnx("Expand", {id, integers("sizes", step.numbers)}, step.sizes, name);
        break;
      case ViewStep::Kind::Gather: {
        const ValueId positions =
            graph_.add_constant(unique_value(name + "_positions"),
                                Tensor::from_int64(step.numbers).reshape(step.sizes));
        id = add_onnx("Gather", {id, positions}, step.sizes, name, {{"axis", std::int64_t{0}}});
        break;
      }
    }
  }
  return id;
}

ValueId Tracer::value_of(const Tensor& x, const replay::Step& step) {
  if (!x.defined()) return kNone;
  const auto found = made_.find(x.storage().get());
  if (found == made_.end() || x.numel() == 0) {
    QUANTA_SUPPORTED(!overwritten_.contains(x.storage().get()),
                     "trace: '{}': {}: expected constants that nobody writes to, got one that a "
                     "later operation changes in place",
                     step.path, step.operation->name());
    return constant_of(x, step.path);
  }
  const Made& base = found->second;
  if (has_layout(base.tensor, x)) return base.id;
  const ViewKey key{base.id, x.storage_offset(), x.sizes().to_vector(), x.strides().to_vector(),
                    x.dtype()};
  if (const auto known = views_.find(key); known != views_.end()) return known->second;
  const ValueId id = view_of(Made(base), x, step.path);
  views_[key] = id;
  return id;
}

// Steps ------------------------------------------------------------------------------------------

bool Tracer::is_node(const replay::Step& step) const {
  if (is_quantizer(step.operation->name())) return true;
  return std::ranges::any_of(step.inputs, [this](const Tensor& x) {
    return x.defined() && made_.contains(x.storage().get());
  });
}

void Tracer::add_operation(const replay::Step& step) {
  const std::string name = base_name(step);
  std::vector<ValueId> inputs;
  for (const Tensor& x : step.inputs) inputs.push_back(value_of(x, step));
  std::vector<ValueId> outputs;
  for (const Tensor& y : step.outputs) {
    const auto before = made_.find(y.storage().get());
    const bool covers = before == made_.end()
                            ? y.is_dense()
                            : y.is_dense() && y.numel() == before->second.tensor.numel();
    QUANTA_SUPPORTED(covers || y.numel() == 0,
                     "trace: '{}': {}: expected a whole tensor as result, got a part of one that "
                     "is written to in place",
                     step.path, step.operation->name());
    QUANTA_SUPPORTED(!y.is_quantized() || codes_of(y),
                     "trace: '{}': {}: expected results with one scale, got {} quantized along an "
                     "axis",
                     step.path, step.operation->name(), y.dtype());
    outputs.push_back(add_value(name, y));
  }
  Node& node = add_node(step.operation->name(), name, std::move(inputs), outputs);
  node.domain = "quanta";
  node.opset = 0;
  node.operation = step.operation;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    register_result(step.outputs[i], outputs[i], &step);
  }
}

void Tracer::add_step(const replay::Step& step) {
  const std::string_view op = step.operation->name();
  if (op == "constant") {
    overwritten_.insert(step.outputs[0].storage().get());
    return;
  }
  if (!is_node(step)) return;
  const bool is_plain = !step.inputs.empty() && step.inputs[0].defined() &&
                        (!step.inputs[0].is_quantized() || codes_of(step.inputs[0]));
  if (is_copy(op) && is_plain) {
    register_result(step.outputs[0], value_of(step.inputs[0], step), &step);
    return;
  }
  if (op == "recurrent_steps" && add_recurrent(step)) return;
  add_operation(step);
}

void Tracer::add_inputs(std::span<const Tensor> example) {
  for (std::size_t i = 0; i < example.size(); ++i) {
    std::string name = options_.input_names.empty()
                           ? (example.size() == 1 ? "input" : fmt::format("input_{}", i))
                           : options_.input_names[i];
    QUANTA_CHECK(!name.empty() && !value_names_.contains(name),
                 "trace: input_names: expected names that differ, got '{}' twice or empty", name);
    const ValueId id = add_value(name, example[i]);
    graph_.inputs.push_back(id);
    register_result(example[i], id, nullptr);
  }
}

void Tracer::add_outputs(std::span<const Tensor> results) {
  QUANTA_SUPPORTED(!results.empty(), "trace: {}: expected results, got none", model_.type_name());
  QUANTA_CHECK(options_.output_names.empty() || options_.output_names.size() == results.size(),
               "trace: output_names: expected {}, got {}", results.size(),
               options_.output_names.size());
  replay::Step whole;
  whole.operation = operations().find("relu")->make();
  whole.path = "output";
  for (std::size_t i = 0; i < results.size(); ++i) {
    QUANTA_SUPPORTED(results[i].defined(), "trace: {}: expected defined results, got none for {}",
                     model_.type_name(), i);
    ValueId id = value_of(results[i], whole);
    const std::string wanted = options_.output_names.empty()
                                   ? (results.size() == 1 ? "output" : fmt::format("output_{}", i))
                                   : options_.output_names[i];
    QUANTA_CHECK(
        !wanted.empty() && (options_.output_names.empty() || !value_names_.contains(wanted)),
        "trace: output_names: expected names that differ from each other and from other "
        "values, got '{}'",
        wanted);
    if (graph_.is_input(id) || graph_.is_output(id) || value(id).constant.defined()) {
      id = add_onnx("Identity", {id}, results[i].sizes(), wanted);
    }
    graph_.values[index_of(id)].name = unique_value(wanted);
    graph_.outputs.push_back(id);
  }
}

void Tracer::run(std::span<const Tensor> example) {
  static_cast<void>(model_(example));  // packs what is packed at the first call
  std::vector<replay::Step> steps;
  std::vector<Tensor> results;
  {
    const replay::Recording recording(example, replay::ConstantSteps::Keep);
    results = model_(example);
    for (const Tensor& y : results) {
      if (y.defined()) recording.require_known("trace", "output", y);
    }
    steps = recording.steps();
  }
  for (replay::Step& step : steps) {
    // The network itself goes by its class's name.
    if (!modules_.contains(step.path)) step.path.clear();
    ++steps_of_path_[step.path];
  }
  add_inputs(example);
  for (const replay::Step& step : steps) add_step(step);
  add_outputs(results);
  erase_dead(graph_);
  const Uses uses(graph_);
  for (Node& node : graph_.nodes) {
    for (ValueId& id : node.outputs) {
      if (id != kNone && uses.users(id).empty() && !graph_.is_output(id)) id = kNone;
    }
  }
}

Parts Tracer::take() {
  return {std::move(graph_), std::move(children_), std::make_shared<const OnnxModel>()};
}

}  // namespace quanta::graph::detail
