#pragma once

#include <string>
#include <string_view>

#include "quanta/runtime/catalogue.h"

namespace quanta::coverage {

/// The test of an operation's values: what "quanta/ops/conv.h" declares is tested in
/// "tests/ops/conv_test.cpp", unless a table says otherwise.
std::string test_of(const OperationEntry& row);

/// The catalogue of operations as a section of docs/coverage.md.
std::string operations_to_markdown();

}  // namespace quanta::coverage
