// The functions of pytorch-quantization and ModelOpt that quantize a tensor.

#include <functional>

#include "expected_error.h"
#include "modelopt_values.h"
#include "quanta/ops/block_quant.h"
#include "quanta/ops/tensor_quant.h"
#include "registry.h"

namespace quanta::conform {
namespace {

TensorQuantOptions codes_of(const Case& test) {
  TensorQuantOptions options;
  options.num_bits = test.integer("num_bits");
  options.is_unsigned = test.flag("unsigned", false);
  options.narrow_range = test.flag("narrow_range", true);
  return options;
}

/// y, and grad_x for cases with a backward pass.
Outputs forward_and_backward(const Case& test,
                             const std::function<Tensor(const Tensor&)>& function) {
  const Tensor x = test.tensor("x");
  const bool backward = test.flag("backward", false);
  if (backward) x.set_requires_grad();
  const Tensor y = function(x);
  Outputs outputs;
  outputs.set("y", y.detach());
  if (backward) {
    y.backward(test.tensor("grad"));
    outputs.set("grad_x", x.grad());
  }
  return outputs;
}

Outputs run_tensor_quant(const Case& test) {
  Tensor scale;
  Outputs outputs = forward_and_backward(test, [&](const Tensor& x) {
    TensorQuantResult result = tensor_quant(x, test.tensor("amax"), codes_of(test));
    scale = result.scale;
    return result.values;
  });
  outputs.set("scale", scale);
  return outputs;
}

Outputs run_legacy(const Case& test) {
  return forward_and_backward(test, [&](const Tensor& x) {
    return legacy_fake_tensor_quant(x, test.tensor("amax"), codes_of(test));
  });
}

Outputs run_fake(const Case& test) {
  return forward_and_backward(test, [&](const Tensor& x) {
    return fake_tensor_quant(x, test.tensor("amax"),
                             {codes_of(test), gradient_rule(test), test.optional_tensor("bias")});
  });
}

Outputs run_affine(const Case& test) {
  return forward_and_backward(test, [&](const Tensor& x) {
    return fake_affine_tensor_quant(x, test.tensor("min_range"), test.tensor("max_range"),
                                    test.integer("num_bits"));
  });
}

Outputs run_scaled_e4m3(const Case& test) {
  return forward_and_backward(test, [&](const Tensor& x) {
    return scaled_e4m3(
        x, test.optional_tensor("amax"),
        {gradient_rule(test), test.optional_tensor("bias"), test.integer("E"), test.integer("M")});
  });
}

Outputs run_int_cast(const Case& test) {
  return forward_and_backward(test,
                              [&](const Tensor& x) { return int_cast_ste(x, codes_of(test)); });
}

Outputs run_clip(const Case& test) {
  const Tensor low = test.tensor("min");
  const Tensor high = test.tensor("max");
  low.set_requires_grad();
  high.set_requires_grad();
  Outputs outputs = forward_and_backward(test, [&](const Tensor& x) { return clip(x, low, high); });
  outputs.set("grad_min", low.grad());
  outputs.set("grad_max", high.grad());
  return outputs;
}

Outputs run_dynamic_block(const Case& test) {
  const DynamicBlockOptions options{num_bits_of(test.attr("num_bits")),
                                    num_bits_of(test.attr("scale_bits")),
                                    test.integer("block_size")};
  const Tensor amax = test.optional_tensor("amax");
  BlockQuantized result = dynamic_block_quant_with_scales(test.tensor("x"), amax, options);
  Outputs outputs;
  outputs.set("y", dynamic_block_quant(test.tensor("x"), amax, options));
  outputs.set("scale", result.scales);
  return outputs;
}

Fp4ScaleOptions fp4_scale_options(const Case& test) {
  return {test.flag("quantize_block_scales", true), test.number("fp8_max")};
}

Outputs run_fp4_scales(const Case& test) {
  Outputs outputs;
  outputs.set("scale", compute_fp4_scales(test.tensor("amax"), test.tensor("global_amax"),
                                          fp4_scale_options(test)));
  return outputs;
}

Outputs run_static_fp4(const Case& test) {
  return forward_and_backward(test, [&](const Tensor& x) {
    return static_fp4(x, test.tensor("amax"),
                      {fp4_scale_options(test), test.tensor("global_amax"), gradient_rule(test)});
  });
}

const Registration kOps{
    {"pytq.tensor_quant", expecting_errors(run_tensor_quant)},
    {"pytq.fake_tensor_quant", expecting_errors(run_legacy)},
    {"pytq.legacy_fake_tensor_quant", expecting_errors(run_legacy)},
    {"modelopt.fake_tensor_quant", expecting_errors(run_fake)},
    {"pytq.fake_affine_tensor_quant", expecting_errors(run_affine)},
    {"modelopt.scaled_e4m3", expecting_errors(run_scaled_e4m3)},
    {"modelopt.int_cast_ste", expecting_errors(run_int_cast)},
    {"modelopt.clip", expecting_errors(run_clip)},
    {"modelopt.dynamic_block_quant", expecting_errors(run_dynamic_block)},
    {"modelopt.compute_fp4_scales", expecting_errors(run_fp4_scales)},
    {"modelopt.static_fp4", expecting_errors(run_static_fp4)},
};

}  // namespace
}  // namespace quanta::conform
