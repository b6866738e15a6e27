#pragma once

#include "quanta/runtime/catalogue.h"

// Private: index and index_put_, the other half of this family.

namespace quanta::indexing {

void add_index(Catalogue& catalogue);

}  // namespace quanta::indexing
