#include "quanta/fusion/graph/symbolic.h"
#include "quanta/fusion/quantsim.h"
#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/observers/aimet/analyzer.h"
#include "quanta/observers/aimet/encoded_tensor.h"
#include "quanta/observers/aimet/encoding_json.h"
#include "quanta/observers/modelopt/calibrator.h"
#include "quanta/observers/modelopt/histogram_calibrator.h"
#include "quanta/observers/modelopt/quant_descriptor.h"
#include "quanta/observers/modelopt/tensor_quantizer.h"
#include "quanta/ops/block_quant.h"
#include "quanta/ops/quantize_affine.h"
#include "quanta/ops/quantizer_meta.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"
#include "registry.h"

namespace quanta::coverage {

namespace {
OnnxModel onnx_model;  // of the calls
}  // namespace

std::vector<Section> quantizer_sections() {
  Section functions{"Tensor quantizers (ModelOpt, pytorch-quantization)", {}};
  functions.from("ops/tensor_quant.h", "tests/ops/tensor_quant_test.cpp")
      .row("FakeAffineTensorQuant", QUANTA_CODE(fake_affine_tensor_quant(ones({2}), -1.0, 1.0)),
           "modelopt_fake")
      .row("FakeTensorQuant", QUANTA_CODE(fake_tensor_quant(ones({2}), ones({1}))), "modelopt_fake")
      .row("LegacyFakeTensorQuant", QUANTA_CODE(legacy_fake_tensor_quant(ones({2}), ones({1}))),
           "modelopt_fake")
      .row("TensorQuant", QUANTA_CODE(tensor_quant(ones({2}), ones({1}))), "modelopt_fake")
      .row("ScaledE4M3", QUANTA_CODE(scaled_e4m3(ones({2}), ones({1}))), "modelopt_fake")
      .row("gradients, clipped or straight through",
           QUANTA_CODE(legacy_fake_tensor_quant(ones({2}), ones({1}), {}, GradientRule::Clip)),
           "modelopt_fake")
      .row("tensor_quant", QUANTA_CODE(pytorch_quantization::tensor_quant(ones({2}), ones({1}))),
           "modelopt_fake")
      .row("fake_tensor_quant",
           QUANTA_CODE(pytorch_quantization::fake_tensor_quant(ones({2}), ones({1}))),
           "modelopt_fake");
  functions.from("ops/quantizer_meta.h", "tests/ops/tensor_quant_test.cpp")
      .row("scaled_e4m3_abstract", QUANTA_CODE(scaled_e4m3_abstract(ones({2}), ones({1}))));
  functions.from("runtime/error.h", "tests/ops/tensor_quant_test.cpp")
      .row("ValueError, TypeError", QUANTA_TYPE(ArgumentError), "modelopt_fake");
  functions.from("fusion/graph/symbolic.h", "tests/fusion/graph/symbolic_test.cpp")
      .row("symbolic", QUANTA_CODE(graph::symbolic::fake_tensor_quant(onnx_model, "x", ones({1}))));
  functions.from("ops/block_quant.h", "tests/ops/tensor_quant_test.cpp")
      .row("block quantization", QUANTA_CODE(dynamic_block_quant(ones({2, 16}))),
           "modelopt_blocks");
  functions
      .from("observers/modelopt/quant_descriptor.h", "tests/observers/modelopt_descriptor_test.cpp")
      .row("ScaledQuantDescriptor", QUANTA_TYPE(modelopt::ScaledQuantDescriptor), "descriptors")
      .row("QuantDescriptor", QUANTA_TYPE(modelopt::QuantDescriptor), "descriptors")
      .row("dict", QUANTA_CODE(modelopt::ScaledQuantDescriptor().dict()), "descriptors")
      .row("get_block_quant_axes_and_sizes",
           QUANTA_CODE(modelopt::ScaledQuantDescriptor::get_block_quant_axes_and_sizes(
               modelopt::ConfigValue())),
           "descriptors");
  functions.from("observers/modelopt/block_config.h", "tests/observers/modelopt_quantizer_test.cpp")
      .row("block_sizes", QUANTA_TYPE(modelopt::BlockConfig), "modelopt_blocks");
  // A library of its own, which not every build has.
  functions.from("observers/yaml/descriptor_yaml.h", "tests/observers/modelopt_descriptor_test.cpp")
      .row("to_yaml", Use{.text = "modelopt::to_yaml(descriptor)"}, "descriptors")
      .row("from_yaml", Use{.text = "modelopt::descriptor_from_yaml(text)"}, "descriptors");
  functions
      .from("observers/modelopt/tensor_quantizer.h", "tests/observers/modelopt_quantizer_test.cpp")
      .row("TensorQuantizer", QUANTA_TYPE(modelopt::TensorQuantizer), "modelopt_blocks");
  functions.from("observers/modelopt/calibrator.h", "tests/observers/modelopt_calibrator_test.cpp")
      .row("calibrators (max)", QUANTA_TYPE(modelopt::MaxCalibrator), "calibrators")
      .row("calibrators (mse)", QUANTA_TYPE(modelopt::MseCalibrator), "calibrators");
  functions
      .from("observers/modelopt/histogram_calibrator.h",
            "tests/observers/modelopt_calibrator_test.cpp")
      .row("calibrators (histogram)", QUANTA_TYPE(modelopt::HistogramCalibrator), "calibrators");

  Section aimet{"Quantizers (AIMET)", {}};
  aimet.from("nn/aimet/affine_quantizer.h", "tests/nn/aimet_quantizer_test.cpp")
      .row("Quantize", QUANTA_TYPE(aimet::Quantize), "aimet_affine")
      .row("QuantizeDequantize", QUANTA_TYPE(aimet::QuantizeDequantize), "aimet_affine")
      .row("get_scale, get_offset", QUANTA_TYPE(aimet::QuantizeDequantize), "aimet_affine");
  aimet.from("nn/aimet/quantizer.h", "tests/nn/aimet_module_test.cpp")
      .row("QuantizerBase", QUANTA_TYPE(aimet::Quantizer), "aimet_affine")
      .tested_in("tests/nn/aimet_encoding_test.cpp")
      .row("compute_encodings", QUANTA_CODE(aimet::compute_encodings(net, [] {})), "aimet_affine");
  aimet.from("nn/module.h", "tests/nn/aimet_module_test.cpp")
      .row("load_state_dict", QUANTA_CODE(nn::load_state_dict(net, StateDict(), nn::Strict::No)),
           "aimet_float");
  aimet.from("ops/quantize_affine.h", "tests/ops/quantize_affine_test.cpp")
      .row("functional quantize", QUANTA_CODE(quantize_affine(ones({2}), ones({1}), ones({1}), {})),
           "aimet_affine")
      .row("functional dequantize",
           QUANTA_CODE(dequantize_affine(ones({2}), ones({1}), ones({1}), {})), "aimet_affine")
      .row("functional quantize_dequantize",
           QUANTA_CODE(quantize_dequantize_affine(ones({2}), ones({1}), ones({1}), {})),
           "aimet_affine");
  aimet.from("nn/aimet/float_quantizer.h", "tests/nn/aimet_float_test.cpp")
      .row("FloatQuantizeDequantize", QUANTA_TYPE(aimet::FloatQuantizeDequantize), "aimet_float");
  aimet.from("observers/aimet/encoding_json.h", "tests/nn/aimet_encoding_test.cpp")
      .row("encodings", QUANTA_TYPE(aimet::EncodingFile), "aimet_encodings_json");
  aimet.from("observers/aimet/encoded_tensor.h", "tests/nn/aimet_encoding_test.cpp")
      .row("QuantizedTensorBase", QUANTA_TYPE(aimet::QuantizedTensorBase), "aimet_affine")
      .row("QuantizedTensor", QUANTA_TYPE(aimet::QuantizedTensor), "aimet_affine")
      .row("DequantizedTensor", QUANTA_TYPE(aimet::DequantizedTensor), "aimet_affine");
  aimet.from("observers/aimet/float_format.h", "tests/nn/aimet_float_test.cpp")
      .row("float formats", QUANTA_TYPE(aimet::FloatSpec), "aimet_float");
  aimet.from("observers/aimet/analyzer.h", "tests/observers/aimet_analyzer_test.cpp")
      .row("encoding analyzers", QUANTA_TYPE(aimet::SqnrAnalyzer), "aimet_analyzers");
  aimet.from("nn/aimet/affine_quantizer.h", "tests/nn/aimet_encoding_test.cpp")
      .row("from_encodings", Use{.text = "aimet::QuantizeDequantize::from_encodings(encoding)"});
  aimet.from("fusion/quantsim.h", "tests/fusion/quantsim_test.cpp")
      .row("QuantizationSimModel", QUANTA_CODE(aimet::QuantizationSimModel(net)));
  return {functions, aimet};
}

}  // namespace quanta::coverage
