#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aimet_values.h"
#include "expected_error.h"
#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/observers/aimet/encoded_tensor.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize_affine.h"
#include "quanta/runtime/error.h"
#include "registry.h"

namespace quanta::conform {
namespace {

using aimet::AffineQuantizer;
using aimet::EncodedTensor;

// Functions --------------------------------------------------------------------------------------

using AffineFunction = Tensor (*)(const Tensor&, const Tensor&, const Tensor&,
                                  const AffineOptions&);

AffineKernel kernel_of(const Case& test) {
  if (!test.has_attr("kernel")) return AffineKernel::Automatic;
  return test.text("kernel") == "divide" ? AffineKernel::Divide : AffineKernel::Automatic;
}

AffineOptions function_options(const Case& test) {
  AffineOptions options;
  if (test.has_attr("qmin")) {
    // The functions allow one code, which no grid does, and check the order themselves.
    options.qmin = test.integer("qmin");
    options.qmax = test.integer("qmax");
  } else if (test.has_attr("bitwidth")) {
    const aimet::Grid grid = grid_of(test);
    options.qmin = grid.qmin();
    options.qmax = grid.qmax();
  }
  options.block_size = test.dims("block_size", {});
  options.kernel = kernel_of(test);
  return options;
}

Runner run_function(AffineFunction function) {
  return expecting_errors([function](const Case& test) {
    const bool backward = test.flag("backward", false);
    const Tensor x = leaf_of(test, "x");
    const Tensor scale = leaf_of(test, "scale");
    const Tensor offset = leaf_of(test, "offset");
    const Tensor y = function(x, scale, offset, function_options(test));
    Outputs outputs;
    outputs.set("y", y.detach());
    if (!backward) return outputs;
    y.backward(test.tensor("grad"));
    outputs.set("grad_x", x.grad());
    outputs.set("grad_scale", scale.grad());
    outputs.set("grad_offset", offset.grad());
    return outputs;
  });
}

Outputs run_grid(const Case& test) {
  const aimet::Grid grid = grid_of(test);
  Outputs outputs;
  if (test.has_attr("get")) {
    outputs.set("bitwidth", grid.bitwidth());
    return outputs;
  }
  const aimet::AffineEncoding encoding(Tensor::scalar(1.0), Tensor::scalar(0.0), grid);
  outputs.set("dtype", std::string(torch_name(encoding.integer_dtype())));
  outputs.set("num_steps", encoding.num_steps());
  outputs.set("mapping", std::string(encoding.mapping()));
  outputs.set("bitwidth", grid.has_bitwidth() ? Value(grid.bitwidth()) : Value());
  outputs.set("signed", grid.has_sign() ? Value(grid.is_signed()) : Value());
  return outputs;
}

// Quantizers -------------------------------------------------------------------------------------

std::shared_ptr<AffineQuantizer> make_quantizer(const Case& test) {
  const aimet::AffineQuantizerOptions options = affine_options_of(test);
  const std::string kind = test.has_attr("kind") ? test.text("kind") : "QuantizeDequantize";
  if (kind == "Quantize") return std::make_shared<aimet::Quantize>(options);
  if (kind == "GroupedBlockQuantizeDequantize") {
    return std::make_shared<aimet::GroupedBlockQuantizeDequantize>(aimet::GroupedBlockOptions{
        options, test.integer("decompressed_bw"), test.dims("block_grouping", {})});
  }
  if (kind != "QuantizeDequantize") throw FormatError("kind: unknown quantizer " + kind);
  return std::make_shared<aimet::QuantizeDequantize>(options);
}

// The kernel of AIMET depends on whether parameters ask for gradients.
void follow_kernel(const Case& test, AffineQuantizer& quantizer) {
  if (test.has_attr("kernel") && test.text("kernel") == "divide") quantizer.requires_grad_();
}

EncodedTensor calibrate(const Case& test, AffineQuantizer& quantizer) {
  EncodedTensor last;
  aimet::CalibrationScope scope = quantizer.compute_encodings();
  for (const Tensor& batch : test.tensors("calib")) last = quantizer(batch);
  scope.finish();
  return last;
}

void set_parameters(Outputs& outputs, const AffineQuantizer& quantizer) {
  outputs.set("scale", quantizer.get_scale()->detach());
  outputs.set("offset", quantizer.get_offset()->detach());
  outputs.set("min", quantizer.get_min()->detach());
  outputs.set("max", quantizer.get_max()->detach());
}

Outputs run_quantizer(const Case& test) {
  const std::shared_ptr<AffineQuantizer> quantizer = make_quantizer(test);
  follow_kernel(test, *quantizer);
  Outputs outputs;
  if (test.has_input("calib")) {
    outputs.set("y_calib_last", calibrate(test, *quantizer).tensor().detach());
  }
  const Tensor x = leaf_of(test, "x");
  const EncodedTensor y = (*quantizer)(x);
  set_parameters(outputs, *quantizer);
  for (const auto& [name, parameter] : quantizer->named_parameters()) {
    outputs.set("param_" + name, parameter.detach());
  }
  outputs.set("y", y.tensor().detach());
  outputs.set("q", y.quantize().tensor().detach());
  outputs.set("q_int", y.quantized_repr());
  outputs.set("dq", y.dequantize().tensor().detach());
  outputs.set("qmin", quantizer->grid().qmin());
  outputs.set("qmax", quantizer->grid().qmax());
  if (quantizer->grid().has_bitwidth()) {
    outputs.set("bitwidth", quantizer->bitwidth());
    outputs.set("signed", quantizer->is_signed());
  }
  outputs.set("granularity", std::string(y.encoding()->granularity()));
  outputs.set("repr", quantizer->to_string());
  if (!test.flag("backward", false)) return outputs;
  y.tensor().backward(test.tensor("grad"));
  outputs.set("grad_x", x.grad());
  for (const auto& [name, parameter] : quantizer->named_parameters()) {
    outputs.set("grad_" + name, parameter.grad());
  }
  return outputs;
}

std::optional<Tensor> optional_input(const Case& test, const char* name) {
  const Tensor tensor = test.optional_tensor(name);
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

Outputs run_set_range(const Case& test) {
  const std::shared_ptr<AffineQuantizer> quantizer = make_quantizer(test);
  if (test.has_attr("parametrization")) quantizer->use_scale_offset();
  follow_kernel(test, *quantizer);
  quantizer->set_range(optional_input(test, "range_min"), optional_input(test, "range_max"));
  Outputs outputs;
  // Throws while only one end is there.
  outputs.set("y", (*quantizer)(test.tensor("x")).tensor().detach());
  set_parameters(outputs, *quantizer);
  return outputs;
}

Outputs run_scale_offset(const Case& test) {
  const std::shared_ptr<AffineQuantizer> quantizer = make_quantizer(test);
  quantizer->set_range(test.number("range_min"), test.number("range_max"));
  quantizer->use_scale_offset();
  follow_kernel(test, *quantizer);
  const Tensor x = leaf_of(test, "x");
  const Tensor y = (*quantizer)(x).tensor();
  y.backward(test.tensor("grad"));
  Outputs outputs;
  set_parameters(outputs, *quantizer);
  outputs.set("y", y.detach());
  outputs.set("grad_x", x.grad());
  for (const auto& [name, parameter] : quantizer->named_parameters()) {
    outputs.set("grad_" + name, parameter.grad());
  }
  return outputs;
}

Outputs run_new(const Case& test) {
  make_quantizer(test);
  return {};
}

Outputs run_grouped_block(const Case& test) {
  aimet::GroupedBlockQuantizeDequantize quantizer(
      {affine_options_of(test), test.integer("decompressed_bw"), test.dims("block_grouping", {})});
  calibrate(test, quantizer);
  Outputs outputs;
  outputs.set("scale", quantizer.get_scale()->detach());
  outputs.set("per_channel_scale", *quantizer.per_channel_scale());
  outputs.set("per_block_int_scale", *quantizer.per_block_int_scale());
  outputs.set("y", quantizer(test.tensor("x")).tensor().detach());
  return outputs;
}

// Tensors with encodings -------------------------------------------------------------------------

struct NamedFunction {
  std::string_view name;
  std::function<EncodedTensor(const EncodedTensor&)> apply;
};

const NamedFunction kFunctions[] = {
    {"mul_2", [](const EncodedTensor& x) { return x.mul(2.0); }},
    {"mul_neg3", [](const EncodedTensor& x) { return x.mul(-3.0); }},
    {"rmul_half", [](const EncodedTensor& x) { return x.mul(0.5); }},
    {"div_4", [](const EncodedTensor& x) { return x.div(4.0); }},
    {"div_neg2", [](const EncodedTensor& x) { return x.div(-2.0); }},
    {"reshape", [](const EncodedTensor& x) { return x.reshape({-1}); }},
    {"reshape_then_quantize", [](const EncodedTensor& x) { return x.reshape({-1}).quantize(); }},
    {"transpose", [](const EncodedTensor& x) { return x.transpose(0, 1); }},
    {"slice", [](const EncodedTensor& x) { return x.slice(0, 1, x.tensor().size(0)); }},
    {"clone", [](const EncodedTensor& x) { return x.clone(); }},
    {"detach", [](const EncodedTensor& x) { return x.detach(); }},
    {"contiguous", [](const EncodedTensor& x) { return x.contiguous(); }},
    {"half", [](const EncodedTensor& x) { return x.to(DType::Float16); }},
    {"int", [](const EncodedTensor& x) { return x.to(DType::Int32); }},
    {"add_inplace",
     [](const EncodedTensor& x) {
       EncodedTensor changed = x.detach().clone();
       return changed.add_(1.0);
     }},
    // What is not listed takes a Tensor and gives one.
    {"add_1", [](const EncodedTensor& x) { return add_scalar(x, 1.0); }},
    {"neg", [](const EncodedTensor& x) { return mul_scalar(x, -1.0); }},
    {"relu", [](const EncodedTensor& x) { return relu(x); }},
    {"mul_tensor", [](const EncodedTensor& x) { return mul(x, Tensor::ones(x.tensor().sizes())); }},
};

EncodedTensor apply_function(const std::string& name, const EncodedTensor& x) {
  for (const NamedFunction& function : kFunctions) {
    if (function.name == name) return function.apply(x);
  }
  throw FormatError("fn: unknown function " + name);
}

Tensor range_input(const Case& test, const char* name, const Dims& shape) {
  std::vector<float> values;
  for (const Json& value : test.attr(name)) values.push_back(value.get<float>());
  return Tensor::from_values(values, shape);
}

Outputs run_qtensor_fn(const Case& test) {
  const std::shared_ptr<AffineQuantizer> quantizer = make_quantizer(test);
  follow_kernel(test, *quantizer);
  quantizer->set_range(range_input(test, "range_min", quantizer->shape()),
                       range_input(test, "range_max", quantizer->shape()));
  const EncodedTensor y = apply_function(test.text("fn"), (*quantizer)(test.tensor("x")));
  Outputs outputs;
  outputs.set("type", std::string(y.type_name()));
  outputs.set("has_encoding", y.has_encoding());
  outputs.set("y", y.tensor().detach());
  const auto* encoding = dynamic_cast<const aimet::AffineEncoding*>(y.encoding().get());
  if (encoding == nullptr) return outputs;
  outputs.set("scale", encoding->scale().detach());
  outputs.set("offset", encoding->offset().detach());
  return outputs;
}

const Registration kOps{
    {"aimet.quantize", run_function(quantize_affine)},
    {"aimet.dequantize", run_function(dequantize_affine)},
    {"aimet.quantize_dequantize", run_function(quantize_dequantize_affine)},
    {"aimet.grid", expecting_errors(run_grid)},
    {"aimet.quantizer", expecting_errors(run_quantizer)},
    {"aimet.quantizer.set_range", expecting_errors(run_set_range)},
    {"aimet.quantizer.scale_offset", run_scale_offset},
    {"aimet.quantizer.new", expecting_errors(run_new)},
    {"aimet.grouped_block", run_grouped_block},
    {"aimet.qtensor_fn", expecting_errors(run_qtensor_fn)},
};

}  // namespace
}  // namespace quanta::conform
