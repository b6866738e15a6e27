#pragma once

// Private: how load_model makes the modules that a file names.

#include <memory>

#include "quanta/nn/module.h"
#include "quanta/nn/module_forms.h"

namespace quanta {

/// A module of the row, made of what stands in its place in the float network (or is of its form
/// already). State is loaded afterwards. `occupant` stays as it is. Throws ArgumentError for a
/// module that the row's cannot be made of, and for qat and observed ones without a QConfig.
std::shared_ptr<nn::Module> restore_form(const nn::ModuleForm& row,
                                         const std::shared_ptr<nn::Module>& occupant,
                                         const nn::SavedForm& saved);

/// The fused row whose modules `row` is made of, or null.
const nn::ModuleForm* fused_source(const nn::ModuleForm& row);

}  // namespace quanta
