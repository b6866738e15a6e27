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
#include "quanta/ops/tensor_quant.h"
#include "registry.h"

namespace quanta::coverage {

std::vector<Section> quantizer_sections() {
  Section functions{"Tensor quantizers (ModelOpt, pytorch-quantization)", {}};
  functions.from("ops/tensor_quant.h", "tests/ops/tensor_quant_test.cpp")
      .row("FakeAffineTensorQuant",
           QUANTA_CODE(fake_affine_tensor_quant(ones({2}), ones({1}), ones({1}))), "modelopt_fake")
      .row("FakeTensorQuant", QUANTA_CODE(fake_tensor_quant(ones({2}), ones({1}))), "modelopt_fake")
      .row("LegacyFakeTensorQuant", QUANTA_CODE(legacy_fake_tensor_quant(ones({2}), ones({1}))),
           "modelopt_fake")
      .row("TensorQuant", QUANTA_CODE(tensor_quant(ones({2}), ones({1}))), "modelopt_fake")
      .row("ScaledE4M3", QUANTA_CODE(scaled_e4m3(ones({2}), ones({1}))), "modelopt_fake");
  functions.from("ops/block_quant.h", "tests/ops/tensor_quant_test.cpp")
      .row("block quantization", QUANTA_CODE(dynamic_block_quant(ones({2, 16}))),
           "modelopt_blocks");
  functions
      .from("observers/modelopt/quant_descriptor.h", "tests/observers/modelopt_descriptor_test.cpp")
      .row("ScaledQuantDescriptor", QUANTA_TYPE(modelopt::ScaledQuantDescriptor), "descriptors");
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
      .row("QuantizeDequantize", QUANTA_TYPE(aimet::QuantizeDequantize), "aimet_affine");
  aimet.from("nn/aimet/float_quantizer.h", "tests/nn/aimet_float_test.cpp")
      .row("FloatQuantizeDequantize", QUANTA_TYPE(aimet::FloatQuantizeDequantize), "aimet_float");
  aimet.from("observers/aimet/encoding_json.h", "tests/nn/aimet_encoding_test.cpp")
      .row("encodings", QUANTA_TYPE(aimet::EncodingFile), "aimet_encodings_json");
  aimet.from("observers/aimet/encoded_tensor.h", "tests/nn/aimet_encoding_test.cpp")
      .row("QuantizedTensor, DequantizedTensor", QUANTA_TYPE(aimet::EncodedTensor), "aimet_affine");
  aimet.from("observers/aimet/analyzer.h", "tests/observers/aimet_analyzer_test.cpp")
      .row("encoding analyzers", QUANTA_TYPE(aimet::SqnrAnalyzer), "aimet_analyzers");
  return {functions, aimet};
}

}  // namespace quanta::coverage
