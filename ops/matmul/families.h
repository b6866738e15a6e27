#pragma once

// Private: the parts of this family that add operations of their own to the catalogue.

#include "quanta/runtime/catalogue.h"

namespace quanta::matrix_product {

void add_det(Catalogue& catalogue);
void add_einsum(Catalogue& catalogue);

}  // namespace quanta::matrix_product
