#pragma once

#include "quanta/runtime/catalogue.h"

// Private: unique, of this family.

namespace quanta::ordering {

void add_unique(Catalogue& catalogue);

}  // namespace quanta::ordering
