#pragma once

// Private: propagate_qconfig_ and what quantize_dynamic has of it.

#include "quanta/fusion/mapping.h"
#include "quanta/nn/module.h"

namespace quanta {

/// What becomes of a QConfig that a module inherits.
enum class Inherited : bool {
  AsGiven,
  Fitting,  ///< see fitting_qconfig
};

/// Gives every module below `model` its QConfig. Throws ArgumentError, before any is given, for one
/// that was set for a module that cannot use it.
void assign_qconfigs(nn::Module& model, const QConfigMapping& mapping, Inherited inherited);

}  // namespace quanta
