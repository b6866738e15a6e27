#pragma once

#include "quanta/runtime/catalogue.h"

// Private: the files of this family, and what adds all of it to the catalogue.

namespace quanta::vision {

void add_boxes(Catalogue& catalogue);
void add_fold(Catalogue& catalogue);
void add_vision(Catalogue& catalogue);

}  // namespace quanta::vision
