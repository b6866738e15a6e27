// ModelOpt's TensorQuantizer.

#include "expected_error.h"
#include "modelopt_values.h"
#include "quanta/observers/modelopt/tensor_quantizer.h"
#include "registry.h"

namespace quanta::conform {
namespace {

using modelopt::QuantizerConfig;
using modelopt::TensorQuantizer;

QuantizerConfig config_of(const Case& test) {
  QuantizerConfig config;
  config.num_bits = num_bits_of(test.attr("num_bits"));
  config.pass_through_bwd = test.flag("pass_through_bwd", true);
  config.narrow_range = test.flag("narrow_range", false);
  if (test.has_attr("axis")) {
    config.axis = modelopt::Axis{test.dims("axis"), !test.attr("axis").is_array()};
  }
  if (test.has_attr("block_sizes")) {
    config.block_sizes = modelopt::BlockConfig{block_sizes_of(test.attr("block_sizes"))};
  }
  if (test.has_attr("type") && test.text("type") == "dynamic") {
    config.type = modelopt::QuantType::Dynamic;
  }
  return config;
}

void calibrate(TensorQuantizer& quantizer, const Case& test) {
  quantizer.enable_calib();
  quantizer.disable_quant();
  for (const Tensor& x : test.tensors("calib")) quantizer.forward(x);
  quantizer.load_calib_amax();
  quantizer.enable_quant();
  quantizer.disable_calib();
}

Outputs run_quantizer(const Case& test) {
  TensorQuantizer quantizer(config_of(test));
  if (test.has_attr("second_shape")) {
    // The originals would take the amax of the tensor itself.
    quantizer.update(Tensor::ones({4, 16}));
    quantizer.forward(Tensor::ones({4, 16}));
    quantizer.forward(Tensor::ones(test.dims("second_shape")));
    return {};
  }
  Outputs outputs;
  if (test.has_input("calib")) calibrate(quantizer, test);
  if (test.has_input("amax")) quantizer.set_amax(test.tensor("amax"));
  if (test.has_input("pre_quant_scale")) {
    quantizer.set_pre_quant_scale(test.tensor("pre_quant_scale"));
    outputs.set("step_size", quantizer.step_size());
  }
  const Tensor x = test.tensor("x");
  const bool backward = test.flag("backward", false);
  if (backward) x.set_requires_grad();
  const Tensor y = quantizer.forward(x);
  outputs.set("y", y.detach());
  if (backward) {
    y.backward(test.tensor("grad"));
    outputs.set("grad_x", x.grad());
  }
  if (quantizer.amax().defined()) {
    outputs.set("amax", quantizer.amax());
    outputs.set("export_amax", quantizer.export_amax());
  }
  outputs.set("maxbound", quantizer.maxbound());
  return outputs;
}

Outputs run_load_calib_amax(const Case& test) {
  TensorQuantizer(config_of(test)).load_calib_amax();
  return {};
}

Outputs run_set_amax(const Case& test) {
  TensorQuantizer quantizer(config_of(test));
  quantizer.set_amax(test.tensor("first"));
  quantizer.set_amax(test.tensor("second"));
  return {};
}

const Registration kOps{
    {"modelopt.tensor_quantizer", expecting_errors(run_quantizer)},
    {"modelopt.tensor_quantizer.load_calib_amax", expecting_errors(run_load_calib_amax)},
    {"modelopt.tensor_quantizer.set_amax", expecting_errors(run_set_amax)},
};

}  // namespace
}  // namespace quanta::conform
