#include "quanta/fusion/detail/restore_form.h"

#include <algorithm>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/detail/observe.h"
#include "quanta/fusion/detail/uncalibrated.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/detail/class_name.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/other_observers.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Form;
using nn::Module;
using nn::ModuleForm;
using nn::SavedForm;
using ModulePtr = std::shared_ptr<Module>;

bool is_source(const ModuleForm& row, std::type_index type) {
  return std::find(row.sources.begin(), row.sources.end(), type) != row.sources.end();
}

// The row of the modules of which `row` makes its own, with the given form; null when there is
// none.
const ModuleForm* source_row(const ModuleForm& row, Form form) {
  for (const ModuleForm& other : nn::module_forms().rows()) {
    const bool fits = row.source_row.empty() || other.name == row.source_row;
    if (other.form == form && fits && is_source(row, other.type)) return &other;
  }
  return nullptr;
}

// A copy of the float module, as a file may have changed it (see layer rows in nn/forms.cpp).
ModulePtr float_source(const ModulePtr& occupant, const SavedForm& saved) {
  const ModuleForm* row = nn::module_forms().find(*occupant);
  if (row != nullptr && row->form == Form::Float && row->restore) {
    if (ModulePtr changed = row->restore(*occupant, saved)) return changed;
  }
  return occupant->clone();
}

[[noreturn]] void throw_other_occupant(const ModuleForm& row, const Module& occupant) {
  std::vector<std::string> wanted;
  for (const std::type_index source : row.sources) {
    wanted.push_back(nn::detail::short_class_name(source));
  }
  if (wanted.empty()) wanted.push_back(nn::detail::short_class_name(row.type));
  throw ArgumentError(fmt::format("module: expected {} in the float network, got {}",
                                  fmt::join(wanted, " or "), occupant.type_name()));
}

ModulePtr make_source(const ModuleForm& row, const ModulePtr& occupant, const SavedForm& saved) {
  const Module& module = *occupant;
  if (is_source(row, typeid(module))) return float_source(occupant, saved);
  for (const Form form : {Form::Fused, Form::Observed}) {
    const ModuleForm* source = source_row(row, form);
    if (source != nullptr && is_source(*source, typeid(module))) {
      return restore_form(*source, occupant, saved);
    }
  }
  throw_other_occupant(row, module);
}

const QConfig& expect_qconfig(const ModuleForm& row, const Module& occupant) {
  QUANTA_CHECK(occupant.qconfig() != nullptr,
               "expected a QConfig to make a {} with (give load_model those that the saved model "
               "was prepared with), got none",
               row.name);
  return *occupant.qconfig();
}

ModulePtr made_observed(const ModuleForm& row, const ModulePtr& occupant) {
  return make_observed(*occupant, row.make, expect_qconfig(row, *occupant), row.name);
}

// By way of the observed form, whose parts get their parameters from the state.
ModulePtr made_of_parts(const ModuleForm& row, const ModuleForm& observed_row,
                        const Module& occupant) {
  const ModulePtr observed = observed_row.make(occupant);
  const ObserverFactory unit = FixedQParamsObserver::with_args({});
  prepare_(*observed, QConfig{unit, default_weight_observer()});
  if (row.parts == CustomParts::Convert) {
    convert_(*observed, {.uncalibrated = Uncalibrated::Allow});
  }
  return row.make(*observed);
}

ModulePtr made_quantized(const ModuleForm& row, const ModulePtr& occupant, const SavedForm& saved,
                         const ObserverFactory& weight) {
  const ModuleForm* observed = source_row(row, Form::Observed);
  const Module& module = *occupant;
  if (observed != nullptr && is_source(*observed, typeid(module))) {
    return made_of_parts(row, *observed, module);
  }
  return from_uncalibrated(make_source(row, occupant, saved), row.make, saved.dtype(), weight);
}

ModulePtr made(const ModuleForm& row, const ModulePtr& occupant, const SavedForm& saved) {
  const ObserverFactory weight =
      row.weight_observer ? row.weight_observer : default_weight_observer();
  switch (row.form) {
    case Form::Quantized:
      return made_quantized(row, occupant, saved, weight);
    case Form::Observed:
      return made_observed(row, occupant);
    case Form::Qat: {
      const ModulePtr source = make_source(row, occupant, saved);
      source->set_qconfig(expect_qconfig(row, *occupant));
      return row.make(*source);
    }
    case Form::Dynamic:
    case Form::Reference:
    case Form::WeightOnly: {
      // The dtype of the weights follows from the state.
      const ModulePtr source = make_source(row, occupant, saved);
      source->set_qconfig(QConfig{default_dynamic_qconfig().activation, weight});
      return row.make(*source);
    }
    case Form::Float:
    case Form::Fused:
      break;
  }
  throw_other_occupant(row, *occupant);
}

}  // namespace

const ModuleForm* fused_source(const ModuleForm& row) { return source_row(row, Form::Fused); }

ModulePtr restore_form(const ModuleForm& row, const ModulePtr& occupant, const SavedForm& saved) {
  const Module& module = *occupant;
  ModulePtr result;
  if (row.type == typeid(module) && (!row.matches || row.matches(module))) {
    result = occupant;
  } else {
    if (row.restore) result = row.restore(module, saved);
    if (result == nullptr) result = made(row, occupant, saved);
    if (row.form == Form::Fused) result->take_qconfig_from(module);
  }
  if (row.configure) row.configure(*result, saved.settings());
  return result;
}

}  // namespace quanta
