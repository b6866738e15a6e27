#pragma once

#include <optional>

#include "random_call.h"

namespace quanta::api_fuzz {

/// The first result of the call, calculated number by number from the formula of its header, for
/// floats and codes; empty where there is no such formula here, or for other settings than those
/// of the sample.
std::optional<Tensor> reference_of(const Call& call);

}  // namespace quanta::api_fuzz
