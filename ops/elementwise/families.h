#pragma once

// Private: the parts of this family that add operations of their own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::elementwise {

// One a file, sorted.
void add_binary(Catalogue& catalogue);
void add_cast(Catalogue& catalogue);
void add_float_functions(Catalogue& catalogue);
void add_signs(Catalogue& catalogue);

}  // namespace quanta::elementwise
