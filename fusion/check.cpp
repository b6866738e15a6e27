#include "quanta/fusion/check.h"

#include <algorithm>
#include <exception>
#include <set>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/detail/uncalibrated.h"
#include "quanta/fusion/detail/whole_modules.h"
#include "quanta/fusion/float_islands.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/mapping.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/module_forms.h"
#include "quanta/nn/qat/module.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/warning_capture.h"

namespace quanta {
namespace {

using nn::Module;
using Severity = Problem::Severity;

template <typename... Types>
bool is_any(const Module& module) {
  return ((dynamic_cast<const Types*>(&module) != nullptr) || ...);
}

// A batch norm that was not folded because it is to be trained with its layer.
bool needs_prepare_qat(const Module& module) {
  return is_fused(module) && default_qat_module_mappings().find(module) != nullptr &&
         default_static_quant_module_mappings().find(module) == nullptr;
}

bool gives_quantized(const nn::FloatKind& kind) {
  return kind.observe != nn::Observe::Nothing && !kind.float_result;
}

// The modules below and `root`, without the parts of those that are taken as one.
std::vector<Module::NamedModule> checked_modules(const Module& root) {
  std::set<const Module*> parts;
  std::vector<Module::NamedModule> result;
  for (const Module::NamedModule& entry : root.named_modules()) {
    if (!parts.contains(entry.module)) result.push_back(entry);
    if (!is_whole(*entry.module) && !parts.contains(entry.module)) continue;
    for (const Module::NamedChild& child : entry.module->named_children()) {
      parts.insert(child.module.get());
    }
  }
  return result;
}

// Why the module's QConfig cannot make its quantized form, or "".
std::string misfit(const Module::NamedModule& entry) {
  const Module& module = *entry.module;
  const QConfig* qconfig = module.qconfig();
  const FromFloat* from_float = default_static_quant_module_mappings().find(module);
  if (qconfig == nullptr || from_float == nullptr || !qconfig->activation || !qconfig->weight) {
    return {};
  }
  try {
    const std::shared_ptr<Observer> activation = qconfig->activation();
    static_cast<void>(
        from_uncalibrated(module.clone(), *from_float, activation->dtype(), qconfig->weight));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

std::vector<Problem> check(const Module& model, Device device) {
  std::vector<Problem> problems;
  if (device.is_cuda()) {
    try {
      device_name(device);
    } catch (const BackendError& error) {
      problems.push_back({"", error.what()});
    }
  }
  const auto modules = checked_modules(model);
  const ModuleMapping& mapping = default_static_quant_module_mappings();
  const nn::ModuleForms& forms = nn::module_forms();
  bool has_quant = false;
  bool has_dequant = false;
  bool has_layers = false;
  bool any_qconfig = false;
  bool is_dynamic = false;
  bool is_for_qat = false;
  for (const Module::NamedModule& entry : modules) {
    const Module& module = *entry.module;
    has_quant = has_quant || is_any<nn::QuantStub, nn::quantized::Quantize>(module);
    has_dequant = has_dequant || is_any<nn::DeQuantStub, nn::quantized::DeQuantize>(module);
    has_layers = has_layers || needs_prepare_qat(module) ||
                 (mapping.find(module) != nullptr && !is_any<nn::QuantStub>(module) &&
                  gives_quantized(forms.kind(module)));
    any_qconfig = any_qconfig || module.qconfig() != nullptr;
    is_for_qat = is_for_qat || is_any<nn::qat::QatModule>(module) || needs_prepare_qat(module);
    is_dynamic = is_dynamic || forms.form(module) == nn::Form::Dynamic;
  }
  // One from quantize_dynamic takes and gives floats: nothing is missing.
  if (is_dynamic && !any_qconfig && !has_quant && !has_dequant) return problems;
  // prepare_jit puts stubs around what has an int8 form, and leaves the rest in float.
  const bool places_stubs = is_any<graph::Model>(model);
  if (has_layers && !has_quant && !places_stubs) {
    problems.push_back({"",
                        "no QuantStub: the float input would reach quantized layers (add a "
                        "QuantStub before the first one, or wrap the model in QuantWrapper)"});
  }
  if (has_layers && !has_dequant && !places_stubs) {
    problems.push_back({"",
                        "no DeQuantStub: the output would stay quantized (add a DeQuantStub "
                        "after the last layer, or wrap the model in QuantWrapper)"});
  }
  for (const Module::NamedModule& entry : modules) {
    const Module& module = *entry.module;
    const bool wanted = !any_qconfig || module.qconfig() != nullptr;
    if (!wanted) continue;
    const bool quantizable = mapping.find(module) != nullptr ||
                             default_custom_module_mapping().find_observed(module) != nullptr;
    if (needs_prepare_qat(module) && !module.is_training()) {
      problems.push_back({entry.path, module.type_name() +
                                          " is in eval mode: it is to be trained (call train() and "
                                          "prepare_qat; fuse_modules folds the batch norm)"});
    }
    if (quantizable && module.is_training() && !is_for_qat) {
      problems.push_back({entry.path, module.type_name() + " is in train mode (call eval())"});
    }
    const auto* fake =
        dynamic_cast<const FakeQuantizeBase*>(module.activation_post_process().get());
    if (fake != nullptr && !model.is_training() && fake->is_observer_enabled()) {
      problems.push_back(
          {entry.path,
           module.type_name() +
               ": its observer still runs, so that evaluating changes the scale (call "
               "disable_observer(model) once training is over)",
           Severity::Note});
    }
    const nn::FloatKind& kind = forms.kind(module);
    if (quantizable || places_stubs) {
      // Nothing stands in the wrong place.
    } else if (!kind.advice.empty()) {
      problems.push_back({entry.path, kind.advice, Severity::Note});
    } else if (module.named_children().empty() && !module.parameters().empty()) {
      problems.push_back({entry.path,
                          module.type_name() +
                              " has parameters but no quantized form: within the quantized part it "
                              "runs in float, between dequantize and quantize",
                          Severity::Note});
    }
    if (const std::string text = misfit(entry); !text.empty()) {
      problems.push_back({entry.path, fmt::format("its QConfig does not fit: {}", text)});
    }
    // What embeddings give out stays float.
    if (kind.float_result) continue;
    const std::shared_ptr<Observer>& observer = module.activation_post_process();
    if (observer != nullptr && !observer->has_data()) {
      problems.push_back({entry.path, module.type_name() + ": its observer saw no data"});
    }
  }
  return problems;
}

std::vector<Problem> detail::check_by_running(Module& copy, std::span<const Tensor> example,
                                              const QConfigMapping& qconfigs) {
  std::vector<Problem> problems;
  const autograd::NoGradGuard no_grad;
  const WarningCapture warnings;
  try {
    copy.eval();
    prepare_(copy, qconfigs);
    copy(example);
    convert_(copy, {.uncalibrated = Uncalibrated::Allow});
    const WarningCapture islands;  // listed below
    copy(example);
    for (const FloatIsland& island : float_islands(copy)) {
      if (!island.is_int8) problems.push_back({island.path, island.to_string(), Severity::Note});
    }
  } catch (const std::exception& error) {
    problems.push_back({"", error.what()});
  }
  for (const std::string& text : warnings.texts()) problems.push_back({"", text});
  return problems;
}

std::string to_string(std::span<const Problem> problems) {
  std::string text;
  for (const Problem& problem : problems) {
    text +=
        fmt::format("{}{}: {}{}", text.empty() ? "" : "\n",
                    problem.severity == Severity::Error ? "error" : "note",
                    problem.path.empty() ? "" : fmt::format("'{}': ", problem.path), problem.text);
  }
  return text;
}

}  // namespace quanta
