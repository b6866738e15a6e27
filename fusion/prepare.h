#pragma once

#include <map>
#include <span>
#include <string>
#include <type_traits>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/module.h"
#include "quanta/nn/qat/batch_norm.h"

// What changes a model (names that end in an underscore) is for one thread at a time for each
// model, while nobody calls it; what takes a const model may run in many threads at once.

namespace quanta {

/// Gives every module below `model` its QConfig; see QConfigMapping for who wins. One that a module
/// inherits from its parent or the mapping's global one is fitted to it, so that
/// get_default_qconfig() alone serves every network: transposed convolutions get per-tensor weights,
/// embeddings float_qparams_weight_only_qconfig() (training: default_embedding_qat_qconfig(); bags
/// that have no quantized form stay in float), PReLU QUInt8 weights whose range holds 1. One that
/// was set for the module, its path or its type is taken as it is; throws ArgumentError for
/// per-channel weights of a transposed convolution then.
void propagate_qconfig_(nn::Module& model, const QConfigMapping& mapping = {});

/// Attaches an activation observer to every module that will be quantized and has a QConfig:
/// leaves whose type the mapping knows, fused modules as one, FloatFunctionals. Not observed
/// (they pass their input's parameters on): ReLU, pooling, Sigmoid, Tanh, Flatten, Identity,
/// Dropout. In train mode Sigmoid, Hardsigmoid, Softmax and Tanh get the fake quantizer of their
/// range.
void add_observer_(nn::Module& model,
                   const ModuleMapping& mapping = default_static_quant_module_mappings());

/// In place: propagate_qconfig_, then custom modules that have a QConfig (LSTM, MultiheadAttention)
/// are replaced by their observed forms, hooks included, then add_observer_. Modules that have a
/// QConfig and are not replaced observe the float operations in their own forward, and modules below
/// them that have none as if they were such operations: see nn/forward_calls.h. Warns when the model
/// is in train mode. Throws ArgumentError when the model is prepared or converted already, when no
/// module has a QConfig, as propagate_qconfig_ does, or when a
/// custom module is refused by its from_float; then nothing was changed.
void prepare_(nn::Module& model, const QConfigMapping& qconfigs = {},
              const ModuleMapping& mapping = default_static_quant_module_mappings(),
              const CustomModuleMapping& custom = default_custom_module_mapping());

namespace detail {
/// Runs `trial`, a copy of `prepared`, before and after it is converted, and leaves those calls of
/// float operations in `prepared` that the quantized part needs.
void keep_needed_calls(nn::Module& prepared, nn::Module& trial, std::span<const Tensor> example,
                       const ModuleMapping& mapping, const CustomModuleMapping& custom);
/// Lets the modules of a model that prepare_qat_ made watch the calls in their forward.
void watch_calls(nn::Module& prepared, const CustomModuleMapping& custom);
}  // namespace detail

/// A copy of `model` that observes its activations: run calibration data through it, then convert.
///   auto prepared = prepare(net, get_default_qconfig());
template <typename T>
requires std::is_base_of_v<nn::Module, T> T
prepare(const T& model, const QConfigMapping& qconfigs = {},
        const ModuleMapping& mapping = default_static_quant_module_mappings(),
        const CustomModuleMapping& custom = default_custom_module_mapping()) {
  T copy = nn::deep_copy(model);
  prepare_(copy, qconfigs, mapping, custom);
  return copy;
}

/// The same with a look at where float operations and modules stand: `example`, what one call of the
/// model takes, runs through a trial that is prepared, converted and called. So prepare warns, once
/// (see set_warning_handler), of what will run in float between quantized layers, only those places
/// are observed, and what would fail in the converted model fails here. Without an example every
/// float operation in forward is observed, and the warning comes when the converted model first runs.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T
prepare(const T& model, const QConfigMapping& qconfigs, std::span<const Tensor> example,
        const ModuleMapping& mapping = default_static_quant_module_mappings(),
        const CustomModuleMapping& custom = default_custom_module_mapping()) {
  T prepared = prepare(model, qconfigs, mapping, custom);
  T trial = nn::deep_copy(prepared);
  detail::keep_needed_calls(prepared, trial, example, mapping, custom);
  return prepared;
}
template <typename T>
requires std::is_base_of_v<nn::Module, T> T prepare(const T& model, const QConfigMapping& qconfigs,
                                                    const Tensor& example) {
  return prepare(model, qconfigs, std::span<const Tensor>(&example, 1));
}

/// In place, for training with quantization in the loop, as torch's prepare_qat: layers become qat
/// modules that share the float ones' parameters (so that an optimizer made before goes on working)
/// and fake-quantize their weights, and every module that will be quantized fake-quantizes its
/// result. Custom modules (LSTM, MultiheadAttention) become their observed forms, with copies of
/// their parameters. `model` has to be in train mode, and parameters require gradients only once
/// requires_grad_() is called. Throws ArgumentError, also for a QConfig whose weight observer is no
/// fake quantizer; then nothing was changed.
void prepare_qat_(nn::Module& model, const QConfigMapping& qconfigs = {},
                  const ModuleMapping& mapping = default_qat_module_mappings(),
                  const CustomModuleMapping& custom = default_custom_module_mapping());

/// prepare_qat_ on a copy of the same type:
///   fuse_modules_qat(net, groups);
///   net.train();
///   auto prepared = prepare_qat(net, get_default_qat_qconfig());
///   ... train ...
///   prepared.eval();
///   auto int8 = convert(prepared);
template <typename T>
requires std::is_base_of_v<nn::Module, T> T
prepare_qat(const T& model, const QConfigMapping& qconfigs = {},
            const ModuleMapping& mapping = default_qat_module_mappings(),
            const CustomModuleMapping& custom = default_custom_module_mapping()) {
  T copy = nn::deep_copy(model);
  prepare_qat_(copy, qconfigs, mapping, custom);
  return copy;
}

/// The same with a look at where float operations and modules stand, as prepare with an example has
/// it: those within the quantized part are fake-quantized too, and a warning names what will run in
/// float once the model is converted. Without an example they are trained as they are.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T
prepare_qat(const T& model, const QConfigMapping& qconfigs, std::span<const Tensor> example,
            const ModuleMapping& mapping = default_qat_module_mappings(),
            const CustomModuleMapping& custom = default_custom_module_mapping()) {
  T prepared = prepare_qat(model, qconfigs, mapping, custom);
  detail::watch_calls(prepared, custom);
  T trial = nn::deep_copy(prepared);
  detail::keep_needed_calls(prepared, trial, example, default_static_quant_module_mappings(),
                            custom);
  return prepared;
}
template <typename T>
requires std::is_base_of_v<nn::Module, T> T prepare_qat(const T& model,
                                                        const QConfigMapping& qconfigs,
                                                        const Tensor& example) {
  return prepare_qat(model, qconfigs, std::span<const Tensor>(&example, 1));
}

/// Switches of all fake quantizers below `model`, those of weights as well: torch's
/// model.apply(enable_observer) and so on.
void enable_observer(nn::Module& model);
void disable_observer(nn::Module& model);
void enable_fake_quant(nn::Module& model);
void disable_fake_quant(nn::Module& model);
/// Scales and zero points of all LearnableFakeQuantize below are parameters from now on: behind a
/// first batch, before an optimizer takes model.parameters(). Throws ArgumentError, and changes
/// nothing, where there is none, or one (named) has seen no data.
void enable_param_learning(nn::Module& model);
/// Switches of the statistics of batch norms that are trained with their layer.
using nn::intrinsic::qat::freeze_bn_stats;
using nn::intrinsic::qat::update_bn_stats;

using ObserverDict = std::map<std::string, std::shared_ptr<Observer>>;

/// Every observer of a module's output below `model` under torch's keys: the path of its module, below `prefix` and a
/// point unless that is empty, and ".activation_post_process". An observer inside of a fake
/// quantizer stands once more under the fake quantizer's key and ".activation_post_process", that
/// of a weight below "weight_fake_quant".
ObserverDict get_observer_dict(const nn::Module& model, std::string_view prefix = "");
/// The same added to `target_dict`, as torch's function does it.
void get_observer_dict(const nn::Module& model, ObserverDict& target_dict,
                       std::string_view prefix = "");

}  // namespace quanta
