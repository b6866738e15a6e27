#pragma once

// Private: what the parts of this family share: names of settings, rows of the catalogue.

#include "quanta/ops/rnn.h"
#include "quanta/runtime/catalogue.h"

namespace quanta {
std::span<const std::string_view> enumerators(StepOrder order);
}  // namespace quanta

namespace quanta::recurrent {

void add_general(Catalogue& catalogue);

}  // namespace quanta::recurrent
