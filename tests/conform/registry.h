#pragma once

#include <functional>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "suite.h"
#include "value.h"

namespace quanta::conform {

/// Runs a case through Quanta's public API. Throws UnsupportedError for what Quanta cannot do,
/// FormatError for a case it cannot read; anything else thrown is a failure.
using Runner = std::function<Outputs(const Case&)>;

/// The runner of an op, or null.
const Runner* find_runner(std::string_view op);

/// Adds ops while it is constructed; every family's file has one:
///   const Registration kOps{{"relu", run_relu}, ...};
/// so that a new family is a new file and nothing else.
class Registration {
 public:
  Registration(std::initializer_list<std::pair<const char*, Runner>> runners);
};

/// The outputs of an op with one result.
Outputs single(Value out);

}  // namespace quanta::conform
