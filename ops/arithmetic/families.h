#pragma once

// Private: the parts of this family that add operations of their own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::arithmetic {

void add_quantized(Catalogue& catalogue);
void add_quantized_functions(Catalogue& catalogue);

}  // namespace quanta::arithmetic
