#pragma once

#include <doctest/doctest.h>

// CAPTURE(name) for a structured binding: no lambda of clang before 16 captures one, and doctest's
// CAPTURE is a lambda.
#define CAPTURE_BINDING(name) \
  QUANTA_CAPTURE_BINDING(name, DOCTEST_ANONYMOUS(quanta_captured_binding_))
#define QUANTA_CAPTURE_BINDING(name, variable) \
  const auto& variable = name;                 \
  INFO(#name " := ", variable)
