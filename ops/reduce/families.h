#pragma once

// Private: the parts of this family that add operations of their own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::reduction {

/// sum, mean, std and var.
void add_sums(Catalogue& catalogue);

}  // namespace quanta::reduction
