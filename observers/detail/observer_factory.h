#pragma once

// Private: the factories that with_args gives, named after the class and what differs from its
// defaults.

#include <memory>

#include "quanta/observers/qconfig.h"
#include "quanta/observers/settings.h"

namespace quanta::detail {

/// Makes one observer at once, so that wrong arguments are found where they are written.
template <typename T>
ObserverFactory observer_factory(const typename T::Options& options) {
  const T checked(options);
  return {call_text(checked.name(), settings_of(options),
                    default_fields<typename T::Options>().defaults()),
          [options] { return std::make_shared<T>(options); }};
}

}  // namespace quanta::detail
