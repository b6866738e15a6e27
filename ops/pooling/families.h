#pragma once

// Private: the parts of this family that add operations of their own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::pooling {

void add_mean_of_codes(Catalogue& catalogue);

}  // namespace quanta::pooling
