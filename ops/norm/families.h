#pragma once

// Private: the parts of this family that add operations of their own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::norm {

void add_batch_norms(Catalogue& catalogue);
void add_row_norms(Catalogue& catalogue);

}  // namespace quanta::norm
