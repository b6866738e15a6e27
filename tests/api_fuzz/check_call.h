#pragma once

#include <optional>
#include <string>

#include "random_call.h"

namespace quanta::api_fuzz {

struct Outcome {
  enum class Kind { Calculated, Refused, Skipped };
  Kind kind = Kind::Skipped;
  bool by_reference = false;           ///< compared with a scalar reference
  std::optional<std::string> finding;  ///< what is wrong with it
};

/// Makes the call: with the inputs as they are, with contiguous copies, with two threads, and where
/// there is a scalar reference compares with it. A right call gives the same each time, or throws
/// what derives from quanta::Error and leaves its inputs alone. One whose results would take much
/// memory is only inferred.
Outcome check_call(const Call& call);

}  // namespace quanta::api_fuzz
