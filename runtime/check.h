#pragma once

// Private: argument checks with formatted messages. Not installed, never included by a public
// header.

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quanta/runtime/dims.h"
#include "quanta/runtime/dtype.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/quantizer.h"

/// Throws ArgumentError with the formatted text unless `condition` holds. For callers' mistakes.
#define QUANTA_CHECK(condition, ...)                                                       \
  do {                                                                                     \
    if (!(condition)) [[unlikely]]                                                         \
      throw ::quanta::ArgumentError(::quanta::with_module_path(fmt::format(__VA_ARGS__))); \
  } while (false)

/// Like QUANTA_CHECK, for what is meaningful but not implemented: throws UnsupportedError.
#define QUANTA_SUPPORTED(condition, ...)                                                      \
  do {                                                                                        \
    if (!(condition)) [[unlikely]]                                                            \
      throw ::quanta::UnsupportedError(::quanta::with_module_path(fmt::format(__VA_ARGS__))); \
  } while (false)

/// What only a bug of ours can break; compiled out of release builds.
#ifdef NDEBUG
#define QUANTA_DCHECK(condition) static_cast<void>(0)
#else
#define QUANTA_DCHECK(condition)                                                               \
  do {                                                                                         \
    if (!(condition)) [[unlikely]]                                                             \
      throw ::quanta::InternalError(fmt::format("{}:{}: {}", __FILE__, __LINE__, #condition)); \
  } while (false)
#endif

namespace quanta {

/// Appends " (in module <path>)" when the calling thread is inside a module's forward.
std::string with_module_path(std::string message);

}  // namespace quanta

template <>
struct fmt::formatter<quanta::DType> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(quanta::DType dtype, Context& context) const {
    return fmt::formatter<std::string_view>::format(quanta::to_string(dtype), context);
  }
};

template <>
struct fmt::formatter<quanta::QScheme> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(quanta::QScheme scheme, Context& context) const {
    return fmt::formatter<std::string_view>::format(quanta::to_string(scheme), context);
  }
};

template <>
struct fmt::formatter<quanta::Dims> : fmt::formatter<std::string_view> {
  template <typename Context>
  auto format(const quanta::Dims& dims, Context& context) const {
    return fmt::formatter<std::string_view>::format(quanta::to_string(dims), context);
  }
};
