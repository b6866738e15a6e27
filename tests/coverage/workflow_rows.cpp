#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/fusion/mapping.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/fused_fake_quantize.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/other_observers.h"
#include "quanta/observers/qconfig.h"
#include "registry.h"

namespace quanta::coverage {
namespace {

constexpr std::string_view kQatTest = "tests/fusion/qat_workflow_test.cpp";
constexpr std::string_view kWorkflowTest = "tests/fusion/workflow_test.cpp";
constexpr std::string_view kStepsTest = "tests/fusion/steps_test.cpp";
constexpr std::string_view kNamedTest = "tests/observers/named_qconfigs_test.cpp";
constexpr std::string_view kFakeQuantizeTest = "tests/observers/fake_quantize_test.cpp";
constexpr std::string_view kQConfigTest = "tests/observers/qconfig_test.cpp";

Section workflow() {
  Section s{"Workflow functions", {}};
  s.from("fusion/prepare.h", kWorkflowTest);
  s.row("add_observer_", QUANTA_CODE(add_observer_(net)), "pipeline/static_pipeline")
      .tested_in(kStepsTest);
  s.row("prepare", QUANTA_CODE(prepare(net, default_qconfig())), "pipeline/static_pipeline");
  s.row("propagate_qconfig_", QUANTA_CODE(propagate_qconfig_(net, default_qconfig())),
        "pipeline/static_pipeline");
  s.row("get_observer_dict", QUANTA_CODE(get_observer_dict(net)), "pipeline/static_pipeline");
  s.from("fusion/quantize.h", kWorkflowTest);
  s.row("add_quant_dequant", QUANTA_CODE(add_quant_dequant(net)));
  s.row("default_eval_fn", QUANTA_CODE(default_eval_fn(net, {})));
  s.row("quantize", QUANTA_CODE(quantize(net, default_qconfig(), {})));
  s.from("fusion/convert.h", kWorkflowTest);
  s.row("convert", QUANTA_CODE(convert(net)), "pipeline/static_pipeline");
  s.row("swap_module", QUANTA_CODE(swap_module(nullptr, default_static_quant_module_mappings())),
        "pipeline/static_pipeline")
      .tested_in(kStepsTest);
  s.from("fusion/fuse_modules.h", kWorkflowTest);
  s.row("fuse_modules", QUANTA_CODE(fuse_modules(net, {{"conv1", "bn1", "relu"}})),
        "pipeline/static_pipeline");
  s.from("fusion/quantize_dynamic.h", "tests/fusion/quantize_dynamic_test.cpp");
  s.row("quantize_dynamic", QUANTA_CODE(quantize_dynamic(net)), "pipeline/dynamic_pipeline");
  s.from("fusion/fuse_modules.h", kQatTest);
  s.row("fuse_modules_qat", QUANTA_CODE(fuse_modules_qat(net, {{"conv1", "bn1", "relu"}})),
        "pipeline/qat_pipeline");
  s.from("fusion/prepare.h", kQatTest);
  s.row("prepare_qat", QUANTA_CODE(prepare_qat(net, get_default_qat_qconfig())),
        "pipeline/qat_pipeline");
  s.row("enable_observer", QUANTA_CODE(enable_observer(net)));
  s.row("disable_observer", QUANTA_CODE(disable_observer(net)));
  s.row("enable_fake_quant", QUANTA_CODE(enable_fake_quant(net)));
  s.row("disable_fake_quant", QUANTA_CODE(disable_fake_quant(net)));
  s.row("freeze_bn_stats", QUANTA_CODE(freeze_bn_stats(net)));
  s.row("update_bn_stats", QUANTA_CODE(update_bn_stats(net)));
  s.from("fusion/quantize.h", kQatTest);
  s.row("quantize_qat", QUANTA_CODE(quantize_qat(net, get_default_qat_qconfig(), {})));
  s.from("fusion/graph/quantize_jit.h", "tests/fusion/graph/quantize_jit_test.cpp");
  s.row("quantize_jit",
        QUANTA_CODE(graph::quantize_jit(graph::load_onnx("net.onnx"), default_qconfig(), {})));
  s.row("quantize_dynamic_jit",
        QUANTA_CODE(graph::quantize_dynamic_jit(graph::load_onnx("net.onnx"))));
  return s;
}

Section configurations() {
  Section s{"Configurations", {}};
  s.from("observers/qconfig.h", kQConfigTest);
  s.row("QConfig", QUANTA_TYPE(QConfig), "pipeline");
  s.row("QConfigDynamic", QUANTA_TYPE(QConfigDynamic), "dynamic")
      .tested_in("tests/fusion/quantize_dynamic_test.cpp");
  s.row("default_qconfig", QUANTA_CODE(default_qconfig()), "pipeline/static_pipeline");
  s.row("default_per_channel_qconfig", QUANTA_CODE(default_per_channel_qconfig()))
      .tested_in(kNamedTest);
  s.row("default_dynamic_qconfig", QUANTA_CODE(default_dynamic_qconfig())).tested_in(kNamedTest);
  s.row("per_channel_dynamic_qconfig", QUANTA_CODE(per_channel_dynamic_qconfig()))
      .tested_in(kNamedTest);
  s.row("float16_dynamic_qconfig", QUANTA_CODE(float16_dynamic_qconfig())).tested_in(kNamedTest);
  s.row("float16_static_qconfig", QUANTA_CODE(float16_static_qconfig())).tested_in(kNamedTest);
  s.row("float_qparams_weight_only_qconfig", QUANTA_CODE(float_qparams_weight_only_qconfig()))
      .tested_in(kNamedTest);
  s.row("float_qparams_weight_only_qconfig_4bit",
        QUANTA_CODE(float_qparams_weight_only_qconfig_4bit()))
      .tested_in(kNamedTest);
  s.row("default_debug_qconfig", QUANTA_CODE(default_debug_qconfig())).tested_in(kNamedTest);
  s.row("default_reuse_input_qconfig", QUANTA_CODE(default_reuse_input_qconfig()));
  s.row("get_default_qconfig", QUANTA_CODE(get_default_qconfig("x86")), "pipeline/static_pipeline");
  s.from("observers/qconfig.h", kFakeQuantizeTest);
  s.row("default_qat_qconfig", QUANTA_CODE(default_qat_qconfig()), "qat_modules");
  s.row("default_weight_only_qconfig", QUANTA_CODE(default_weight_only_qconfig()));
  s.row("default_activation_only_qconfig", QUANTA_CODE(default_activation_only_qconfig()));
  s.row("get_default_qat_qconfig", QUANTA_CODE(get_default_qat_qconfig("x86")), "qat_modules");
  return s;
}

Section observers() {
  Section s{"Observers and fake quantizers", {}};
  s.from("observers/observer.h", "tests/observers/min_max_observer_test.cpp");
  s.row("ObserverBase", QUANTA_TYPE(Observer), "observers/observer");
  s.from("observers/min_max_observer.h", "tests/observers/min_max_observer_test.cpp");
  s.row("MinMaxObserver", QUANTA_CODE(MinMaxObserver()), "observers/observer");
  s.row("MovingAverageMinMaxObserver", QUANTA_CODE(MovingAverageMinMaxObserver()),
        "observers/observer");
  s.row("PerChannelMinMaxObserver", QUANTA_CODE(PerChannelMinMaxObserver()), "observers/observer");
  s.row("MovingAveragePerChannelMinMaxObserver",
        QUANTA_CODE(MovingAveragePerChannelMinMaxObserver()), "observers/observer");
  s.from("observers/histogram_observer.h", "tests/observers/histogram_observer_test.cpp");
  s.row("HistogramObserver", QUANTA_CODE(HistogramObserver()), "observers/observer");
  s.from("observers/other_observers.h", kQConfigTest);
  s.row("RecordingObserver", QUANTA_CODE(RecordingObserver()));
  s.row("NoopObserver", QUANTA_CODE(NoopObserver()));
  s.row("PlaceholderObserver", QUANTA_CODE(PlaceholderObserver()));
  s.row("FixedQParamsObserver", QUANTA_CODE(FixedQParamsObserver({.scale = 1.0 / 256})));
  s.row("ReuseInputObserver", QUANTA_CODE(ReuseInputObserver()));
  s.from("observers/defaults.h", kQConfigTest);
  s.row("default_observer", QUANTA_CODE(default_observer()));
  s.row("default_weight_observer", QUANTA_CODE(default_weight_observer()));
  s.row("default_histogram_observer", QUANTA_CODE(default_histogram_observer()));
  s.row("default_per_channel_weight_observer", QUANTA_CODE(default_per_channel_weight_observer()));
  s.row("weight_observer_range_neg_127_to_127",
        QUANTA_CODE(weight_observer_range_neg_127_to_127()));
  s.row("per_channel_weight_observer_range_neg_127_to_127",
        QUANTA_CODE(per_channel_weight_observer_range_neg_127_to_127()));
  s.row("default_dynamic_quant_observer", QUANTA_CODE(default_dynamic_quant_observer()));
  s.row("default_float_qparams_observer", QUANTA_CODE(default_float_qparams_observer()));
  s.row("default_float_qparams_observer_4bit", QUANTA_CODE(default_float_qparams_observer_4bit()));
  s.row("default_fixed_qparams_range_neg1to1_observer",
        QUANTA_CODE(default_fixed_qparams_range_neg1to1_observer()));
  s.row("default_fixed_qparams_range_0to1_observer",
        QUANTA_CODE(default_fixed_qparams_range_0to1_observer()));
  s.row("default_debug_observer", QUANTA_CODE(default_debug_observer()));
  s.row("default_placeholder_observer", QUANTA_CODE(default_placeholder_observer()));
  s.row("default_reuse_input_observer", QUANTA_CODE(default_reuse_input_observer()));
  s.from("observers/fake_quantize.h", kFakeQuantizeTest);
  s.row("FakeQuantize", QUANTA_TYPE(FakeQuantize), "fake_quantize/fake_quantize_module");
  s.row("FixedQParamsFakeQuantize", QUANTA_TYPE(FixedQParamsFakeQuantize),
        "fake_quantize/fake_quantize_module");
  s.from("observers/fused_fake_quantize.h", kFakeQuantizeTest);
  s.row("FusedMovingAvgObsFakeQuantize", QUANTA_TYPE(FusedMovingAvgObsFakeQuantize),
        "fake_quantize/fake_quantize_module");
  s.from("observers/learnable_fake_quantize.h", kFakeQuantizeTest);
  s.row("learnable fake quantize", QUANTA_TYPE(LearnableFakeQuantize));
  return s;
}

Section types() {
  Section s{"Types", {}};
  s.from("runtime/dtype.h", "tests/ops/quantize_test.cpp");
  s.row("quint8", QUANTA_CODE(DType::QUInt8), "tensor_quantize");
  s.row("qint8", QUANTA_CODE(DType::QInt8), "tensor_quantize");
  s.row("qint32", QUANTA_CODE(DType::QInt32), "tensor_quantize");
  s.row("quint4x2", QUANTA_CODE(DType::QUInt4x2), "tensor_quantize");
  s.row("quint2x4", QUANTA_CODE(DType::QUInt2x4), "tensor_quantize");
  s.from("runtime/quantizer.h", "tests/observers/min_max_observer_test.cpp");
  s.row("per_tensor_affine", QUANTA_CODE(QScheme::PerTensorAffine), "tensor_quantize observers");
  s.row("per_tensor_symmetric", QUANTA_CODE(QScheme::PerTensorSymmetric), "observers");
  s.row("per_channel_affine", QUANTA_CODE(QScheme::PerChannelAffine), "tensor_quantize observers");
  s.row("per_channel_symmetric", QUANTA_CODE(QScheme::PerChannelSymmetric), "observers");
  s.row("per_channel_affine_float_qparams", QUANTA_CODE(QScheme::PerChannelAffineFloatQParams),
        "tensor_quantize observers");
  s.from("runtime/operation.h", "examples/custom_op.cpp");
  s.row("operations of one's own", Use{.text = "run(SquaredReLU{}, x)"});
  return s;
}

}  // namespace

std::vector<Section> workflow_sections() {
  return {workflow(), configurations(), observers(), types()};
}

}  // namespace quanta::coverage
