#pragma once

#include "quanta/runtime/catalogue.h"

// Private: the triangles and reversed sequences of this family.

namespace quanta::shapes {

void add_reorder(Catalogue& catalogue);

}  // namespace quanta::shapes
