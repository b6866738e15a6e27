#pragma once

// Private: the parts of this family that add operations of their own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::linear_quantization {

void add_tables(Catalogue& catalogue);

}  // namespace quanta::linear_quantization
