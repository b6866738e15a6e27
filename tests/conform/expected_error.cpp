#include "expected_error.h"

#include <fmt/core.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "quanta/runtime/error.h"

namespace quanta::conform {
namespace {

enum class ErrorClass : std::uint8_t { Argument, Unsupported };

struct ErrorKind {
  std::string_view python;
  ErrorClass quanta;
};

// The classes of the originals' failures and of ours.
constexpr ErrorKind kErrorKinds[] = {
    {"RuntimeError", ErrorClass::Argument},
    {"ValueError", ErrorClass::Argument},
    {"TypeError", ErrorClass::Argument},
    {"AssertionError", ErrorClass::Argument},
    {"ValidationError", ErrorClass::Argument},
    {"AttributeError", ErrorClass::Argument},
    {"EncodingError", ErrorClass::Argument},
    {"StatisticsNotFoundError", ErrorClass::Argument},
    {"NotImplementedError", ErrorClass::Unsupported},
};

ErrorClass class_for(const std::string& kind) {
  for (const ErrorKind& entry : kErrorKinds) {
    if (entry.python == kind) return entry.quanta;
  }
  throw FormatError(fmt::format("error: unknown kind '{}'", kind));
}

/// Null for a case that has to succeed.
const Object* expected_error(const Case& test) {
  const Object* outputs = test.expected.get_if<Object>();
  const Value* error = outputs == nullptr ? nullptr : outputs->find("error");
  const Object* wrapped = error == nullptr ? nullptr : error->get_if<Object>();
  const Value* inner = wrapped == nullptr ? nullptr : wrapped->find("error");
  return inner == nullptr ? nullptr : inner->get_if<Object>();
}

Outputs run_failing(const Case& test, const Object& error, const Runner& runner) {
  const Value* kind = error.find("kind");
  const std::string* name = kind == nullptr ? nullptr : kind->get_if<std::string>();
  if (name == nullptr) throw FormatError("error: expected a kind");
  const ErrorClass wanted = class_for(*name);
  try {
    return runner(test);
  } catch (const ArgumentError&) {
    if (wanted != ErrorClass::Argument) throw;
  } catch (const UnsupportedError& other) {
    if (wanted != ErrorClass::Unsupported) throw std::runtime_error(other.what());
  }
  return *test.expected.get_if<Object>();
}

}  // namespace

Runner expecting_errors(Runner runner) {
  return [runner = std::move(runner)](const Case& test) {
    const Object* error = expected_error(test);
    return error == nullptr ? runner(test) : run_failing(test, *error, runner);
  };
}

}  // namespace quanta::conform
