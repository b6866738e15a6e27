#pragma once

// Private: the parts of this family that add operations of their own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::activation {

void add_prelu(Catalogue& catalogue);
void add_softmax(Catalogue& catalogue);

}  // namespace quanta::activation
