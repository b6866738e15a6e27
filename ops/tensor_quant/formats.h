#pragma once

// Private: the part of this family that adds operations of its own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::tensor_quant_formats {

void add(Catalogue& catalogue);

}  // namespace quanta::tensor_quant_formats
