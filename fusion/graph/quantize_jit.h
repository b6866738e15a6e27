#pragma once

#include <functional>
#include <string>
#include <vector>

#include "quanta/fusion/accuracy/method.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/mapping.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/observers/qconfig.h"

/// Quantizing networks that came as files: PyTorch's graph mode (torch.ao.quantization.quantize_jit)
/// under its names. The functions take a model, leave it as it is, and give another; nobody has to
/// write stubs or FloatFunctionals. QConfigs by module name, regular expression and type, as in eager
/// mode; names are those of the nodes as `quanta inspect` and to_string(model) show them. Where the
/// same network exists as an eager module, with the same layers fused and stubs around the same part,
/// both ways give the same bits. Throws ArgumentError for what eager mode throws. Safe from many
/// threads on models that nobody changes.
namespace quanta::graph {

/// What is decided before anything is observed.
struct PrepareJitOptions {
  /// An addition with a ReLU behind it becomes one operation whose result is observed, as torch's
  /// graph mode does: a bit more resolution than eager mode, which observes the sum.
  bool fuse_add_relu = false;
  /// A convolution or linear layer with a ReLU6 behind it is observed behind that, and gives codes of
  /// 0..6 at most: eager mode observes the layer alone, whose codes reach below 0 and beyond 6.
  bool fuse_relu6 = false;
  /// The results of GlobalAveragePool are observed: in eager mode they have the codes of what they are
  /// the means of, whose range is several times theirs.
  bool observe_means = false;
};

struct ConvertJitOptions {
  /// Quantize and dequantize stay as nodes of their own, around layers in float arithmetic whose
  /// weights are as quantizing leaves them: to look at, and to compare with.
  bool debug = false;
};

/// Batch norms, and multiplications and additions of constants, behind a convolution or a linear
/// layer go into its weight. torch's fuse_conv_bn_jit.
Model fuse_conv_bn_jit(const Model& model);

/// A model that observes its activations: layers that belong together are fused, quantization begins
/// and ends (stubs `NAME_quant`, `NAME_dequant`) where layers without an int8 form stand; run
/// calibration data through it, then convert_jit. Throws ArgumentError when nothing is to be
/// quantized.
Model prepare_jit(const Model& model, const QConfigMapping& qconfigs,
                  const PrepareJitOptions& options = {});

/// The int8 model. Throws ArgumentError that lists modules whose observers saw no data.
Model convert_jit(const Model& prepared, const ConvertJitOptions& options = {});

/// Runs calibration data through the prepared model.
using RunFunction = std::function<void(const Model& prepared)>;

struct QuantizeJitOptions {
  PrepareJitOptions prepare{};
  ConvertJitOptions convert{};
  /// What is done to the network first, once its batch norms are folded, to keep accuracy: see
  /// fusion/accuracy/method.h. They run `run` several times.
  std::vector<AccuracyMethod> methods{};
  /// What one call takes, for methods that have to know which layer follows which.
  std::vector<Tensor> example{};
};

/// prepare_jit, `run`, convert_jit:
///   Model int8 = quantize_jit(net, get_default_qconfig(), [&](const Model& m) {
///     for (const Tensor& batch : data) m(batch);
///   });
Model quantize_jit(const Model& model, const QConfigMapping& qconfigs, const RunFunction& run,
                   const QuantizeJitOptions& options = {});

/// In the dynamic workflow there is nothing to observe: the layers that will be quantized are named.
Model prepare_dynamic_jit(const Model& model, const DynamicSpec& spec = {});
/// Weights of linear and recurrent layers as int8 codes (or Float16), activations quantized in each
/// call. Throws as quantize_dynamic.
Model convert_dynamic_jit(const Model& prepared, const DynamicSpec& spec = {},
                          DType dtype = DType::QInt8);
/// Both: quantize_dynamic_jit(net). Throws ArgumentError when no layer is taken.
Model quantize_dynamic_jit(const Model& model, const DynamicSpec& spec = {},
                           DType dtype = DType::QInt8);

/// Weights of linear layers in 8 or 4 bits, float arithmetic: quantize_weight_only of a graph.
Model quantize_weight_only_jit(const Model& model, const WeightOnlyOptions& options = {},
                               const WeightOnlyFilter& filter = {});

}  // namespace quanta::graph
