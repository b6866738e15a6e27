#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <typeindex>
#include <utility>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/observers/qconfig.h"
#include "quanta/ops/linear_weight_only.h"
#include "quanta/runtime/dtype.h"
#include "quanta/runtime/state_dict.h"

namespace quanta {

/// Makes a module of one form from a module of another, as the from_float functions do.
using FromFloat = std::function<std::shared_ptr<nn::Module>(const nn::Module&)>;

/// Makes one module of several. `modules` are the occupants of the named places, in order.
using Fuser = std::function<std::shared_ptr<nn::Module>(
    const std::vector<std::shared_ptr<nn::Module>>& modules)>;

/// Whether prepare observes what an observed custom module gives out.
enum class OutputObserver : bool {
  Attach,
  None,  ///< its own parts are observed, the last of them gives the output
};

/// What convert does with the parts of an observed custom module.
enum class CustomParts : bool {
  Keep,     ///< from_observed gets the module as prepare left it
  Convert,  ///< from_observed gets a copy whose parts are converted already
};

}  // namespace quanta

/// The table of module forms: what each kind of module becomes in the workflow, what it is called
/// in files and how it comes back from them. fuse_modules, prepare, prepare_qat, convert,
/// quantize_dynamic, quantize_weight_only, check, save_model and load_model read it. To use modules
/// of your own in the workflow, add their rows at the start of the program:
///
///   nn::register_module_form(
///       nn::form_of<QuantizedScale, Scale>(nn::Form::Quantized, "mylib.Scale"));
///
/// From then on convert replaces a Scale by what QuantizedScale::from_float makes of it, save_model
/// writes "mylib.Scale" and the module's state, and load_model puts a QuantizedScale in the place
/// of a Scale and loads its state. Numbers that are not in the state (a slope, an axis) need
/// `ModuleForm::settings` only where the float module in the same place does not know them.
namespace quanta::nn {

/// What a module is in the workflow.
enum class Form : std::uint8_t {
  Float,       ///< as it is built, before anything is quantized
  Fused,       ///< float modules that fuse_modules joined
  Observed,    ///< float, taken apart so that prepare can observe what happens inside (LSTM)
  Qat,         ///< float with a fake-quantized weight, made by prepare_qat
  Quantized,   ///< made by convert
  Dynamic,     ///< quantized weights between float tensors, made by quantize_dynamic
  WeightOnly,  ///< quantized weights in float arithmetic, made by quantize_weight_only
  Reference,   ///< float with the weight as quantizing leaves it, made by a reference mapping
};

/// "Quantized" and so on.
std::string_view to_string(Form form);

/// What a module has besides its state and cannot take from the float module in its place. Saved
/// with the module's name.
struct FormSettings {
  std::map<std::string, double> numbers{};
  std::map<std::string, std::string> words{};

  /// Throws ArgumentError naming the setting that is missing.
  double number(const std::string& name) const;
  const std::string& word(const std::string& name) const;
};

/// What a file holds of one module.
class SavedForm {
 public:
  /// `prefix` is the module's path and a dot.
  SavedForm(StateDict& state, std::string prefix, FormSettings settings)
      : state_(&state), prefix_(std::move(prefix)), settings_(std::move(settings)) {}

  /// The tensor of that name in the module's state, or null.
  const Tensor* find(std::string_view name) const;
  /// The tensor of that name, or an undefined one.
  Tensor get(std::string_view name) const;
  /// Puts what the module made of a tensor in that tensor's place, so that loading the state finds
  /// nothing left to do. Undefined tensors change nothing.
  void taken(std::string_view name, const Tensor& tensor) const;
  const FormSettings& settings() const noexcept { return settings_; }
  /// The dtype of the module's result: the setting `dtype`, or QUInt8 without one.
  DType dtype() const;

 private:
  StateDict* state_;
  std::string prefix_;
  FormSettings settings_;
};

/// How prepare observes modules of a kind.
enum class Observe : std::uint8_t {
  Result,   ///< the result of forward
  Calls,    ///< the module shows its results to the observer itself (FloatFunctional)
  Nothing,  ///< what it gives has the parameters of what it takes, or is float (DeQuantStub)
};

/// How the workflow treats a float kind of module.
struct FloatKind {
  Observe observe = Observe::Result;
  /// Results stay float when the module is quantized (embeddings): convert needs no observer.
  bool float_result = false;
  /// Weights are quantized per tensor only; prepare refuses per-channel observers.
  bool per_tensor_weight = false;
  /// For results of a fixed range: the fake quantizer that prepare_qat attaches. Empty: none.
  ObserverFactory fixed_fake_quantizer{};
  /// The dtypes for which quantize_dynamic takes the kind without being told.
  std::vector<DType> dynamic_dtypes{};
  /// What check says of one that will stay in float. Empty: a general text.
  std::string advice{};
};

/// One row: a class of modules and how its modules are made.
struct ModuleForm {
  /// In files and messages. No two rows have the same.
  std::string name;
  Form form = Form::Float;
  /// The exact class of the modules.
  std::type_index type = typeid(void);
  /// The exact classes of the modules that one can be made of. Fused rows name their first part.
  std::vector<std::type_index> sources{};
  /// Makes one of a module of `sources`. Fused rows are made by fusion rules instead.
  FromFloat make{};
  /// Whether the default mappings use `make`; otherwise mappings of your own do.
  bool by_default = true;

  /// Tells the rows of one type apart. Empty: all modules of the type.
  std::function<bool(const Module& module)> matches{};
  /// The name of the row whose module `make` takes, where the type in `sources` has several rows.
  std::string source_row{};

  // Files.

  /// What is saved with the module besides its state. Empty: nothing.
  std::function<FormSettings(const Module& module)> settings{};
  /// Undoes `settings` on a module that was made again. Empty: there is nothing to do.
  std::function<void(Module& module, const FormSettings& settings)> configure{};
  /// Makes a module of what stands in its place in the float network; its state is loaded
  /// afterwards. Null, or an empty function: load_model makes the source first and calls `make`.
  std::function<std::shared_ptr<Module>(const Module& occupant, const SavedForm& saved)> restore{};
  /// The weight observer with which load_model calls `make`. Empty: the default one.
  ObserverFactory weight_observer{};

  // What single forms need.

  FloatKind kind{};                                ///< Float
  OutputObserver output = OutputObserver::Attach;  ///< Observed
  CustomParts parts = CustomParts::Keep;           ///< Quantized, of an observed module
  /// WeightOnly: `make` with the options of quantize_weight_only.
  std::function<std::shared_ptr<Module>(const Module&, const WeightOnlyOptions&)>
      make_weight_only{};
};

/// A row whose modules `T::from_float` makes of modules of the class `Source` or one of `More`.
template <typename T, typename Source, typename... More>
ModuleForm form_of(Form form, std::string name) {
  ModuleForm row;
  row.name = std::move(name);
  row.form = form;
  row.type = typeid(T);
  row.sources = {typeid(Source), typeid(More)...};
  row.make = [](const Module& module) -> std::shared_ptr<Module> { return T::from_float(module); };
  return row;
}

/// The row of a float kind.
template <typename T>
ModuleForm float_form(std::string name, FloatKind kind = {}) {
  ModuleForm row;
  row.name = std::move(name);
  row.type = typeid(T);
  row.kind = std::move(kind);
  return row;
}

/// For which workflow a fusion rule is.
enum class FuseFor : std::uint8_t {
  Inference,  ///< fuse_modules
  Training,   ///< fuse_modules_qat
};

/// A sequence of exact classes that can be fused.
struct FusionRule {
  FuseFor use = FuseFor::Inference;
  std::vector<std::type_index> sequence;
  Fuser fuse;
};

/// Rows and fusion rules. A plain value; safe to read from many threads at once.
class ModuleForms {
 public:
  /// Throws ArgumentError for a row without name or type, or with another row's name, and for one
  /// that is neither Float nor Fused and has nothing to make it of.
  ModuleForms& add(ModuleForm row);
  /// Rules that were added later win. Throws ArgumentError for fewer than two classes.
  ModuleForms& add_fusion(FusionRule rule);

  /// The row of the module's exact class, or null. Rows that were added later win.
  const ModuleForm* find(const Module& module) const;
  const ModuleForm* find(std::string_view name) const;
  /// What form the module has; Float when it has no row.
  Form form(const Module& module) const;
  /// How the workflow treats the module: what the row of its class says, of qat modules that of
  /// their source, and the defaults for classes without a row.
  const FloatKind& kind(const Module& module) const;

  const std::vector<ModuleForm>& rows() const noexcept { return rows_; }
  const std::vector<FusionRule>& fusions() const noexcept { return fusions_; }

 private:
  std::vector<ModuleForm> rows_;
  std::vector<FusionRule> fusions_;
};

/// The table that the workflow reads: Quanta's rows and those that were registered. What it gives
/// stays valid and as it is for good; rows that are registered later are in the next answer.
const ModuleForms& module_forms();

/// Adds a row, or a rule, to the table, for the whole process. Safe from many threads at once; a
/// workflow function that runs meanwhile uses either table. Throws ArgumentError as
/// ModuleForms::add does.
void register_module_form(ModuleForm row);
void register_fusion(FusionRule rule);

}  // namespace quanta::nn
