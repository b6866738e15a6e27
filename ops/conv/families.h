#pragma once

// Private: the parts of this family that add operations of their own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::conv {

inline constexpr std::string_view kHeader = "quanta/ops/conv.h";

void add_quantized(Catalogue& catalogue);
void add_dynamic(Catalogue& catalogue);
void add_integer(Catalogue& catalogue);
void add_to_float(Catalogue& catalogue);

}  // namespace quanta::conv
