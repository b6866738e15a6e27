#pragma once

// Private: the parts of this family that add operations of their own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::embeddings {

void add_float_embeddings(Catalogue& catalogue);

}  // namespace quanta::embeddings
