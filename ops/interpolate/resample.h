#pragma once

#include "quanta/runtime/catalogue.h"

// Private: ONNX's resizing, the other half of this family.

namespace quanta::interpolation {

void add_resample(Catalogue& catalogue);

}  // namespace quanta::interpolation
