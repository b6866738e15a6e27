#pragma once

// Private: the parts of this family that add operations of their own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::reduction {

/// cumsum and cumprod.
void add_cumulative(Catalogue& catalogue);
/// amax, amin and prod.
void add_folds(Catalogue& catalogue);
/// sum, mean, std and var.
void add_sums(Catalogue& catalogue);

}  // namespace quanta::reduction
