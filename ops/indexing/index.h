#pragma once

#include "quanta/runtime/catalogue.h"

// Private: the other parts of this family: index and index_put_, and the scattering operations.

namespace quanta::indexing {

void add_index(Catalogue& catalogue);
void add_scatter(Catalogue& catalogue);

}  // namespace quanta::indexing
