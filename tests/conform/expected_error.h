#pragma once

#include "registry.h"

namespace quanta::conform {

/// `runner` for suites in which cases have to fail: their `outputs.error` names the class of the
/// original failure. Quanta has to throw the class that stands for it (docs/differences.md); a case
/// that fails in another way, or not at all, does not pass.
Runner expecting_errors(Runner runner);

}  // namespace quanta::conform
