#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/observers/collector.h"
#include "quanta/observers/settings.h"

namespace quanta {

/// A class of collectors as it is known by name: to state files, to test cases and to whoever makes
/// collectors from text.
struct CollectorKind {
  /// Throws what the class's constructor throws, and ArgumentError for settings that it has not.
  using Make = std::function<std::shared_ptr<Collector>(const Settings&)>;

  std::string name;
  /// The settings that have a default, and the names of the others.
  Settings defaults;
  std::vector<std::string> required;
  Make make;
};

/// A kind with the fields of `Options`, which `describe` lists (see SettingFields).
template <typename Options>
CollectorKind collector_kind(std::string name, CollectorKind::Make make) {
  const SettingFields fields = default_fields<Options>();
  return {std::move(name), fields.defaults(), fields.required_names(), std::move(make)};
}

/// The kind of T, which has Options that `describe` lists and a constructor that takes them.
template <typename T>
CollectorKind collector_kind(std::string name) {
  return collector_kind<typename T::Options>(name, [name](const Settings& settings) {
    return std::make_shared<T>(options_from<typename T::Options>(name, settings));
  });
}

/// All kinds: Quanta's own by name, then those that were added. Many threads may call these
/// functions at once.
std::vector<CollectorKind> collector_kinds();

/// Makes a class of one's own known. Throws ArgumentError when there is one of that name.
void add_collector_kind(CollectorKind kind);

/// A new collector without data: make_collector("HistogramObserver", {{"bins", 512}}). Throws
/// ArgumentError for an unknown name, listing those that are known, and what the kind's make
/// throws.
std::shared_ptr<Collector> make_collector(std::string_view name, const Settings& settings = {});

/// "HistogramObserver(reduce_range=True)": the class, and the settings that are not the default
/// ones.
std::string to_string(const Collector& collector);

}  // namespace quanta
