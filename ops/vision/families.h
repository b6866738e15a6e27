#pragma once

#include "quanta/runtime/catalogue.h"

// Private: the files of this family.

namespace quanta::vision {

void add_boxes(Catalogue& catalogue);
void add_fold(Catalogue& catalogue);

}  // namespace quanta::vision
