#include "quanta/observers/collector_kinds.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "quanta/runtime/check.h"

namespace quanta {
namespace detail {

// One function for each file of observers/CMakeLists.txt that defines collectors.
#define QUANTA_COLLECTORS(file) std::vector<CollectorKind> kinds_of_##file();
#include "collector_files.inc"
#undef QUANTA_COLLECTORS

}  // namespace detail

namespace {

std::vector<CollectorKind> own_kinds() {
  std::vector<CollectorKind> kinds;
#define QUANTA_COLLECTORS(file)                            \
  for (CollectorKind & kind : detail::kinds_of_##file()) { \
    kinds.push_back(std::move(kind));                      \
  }
#include "collector_files.inc"
#undef QUANTA_COLLECTORS
  std::sort(kinds.begin(), kinds.end(),
            [](const CollectorKind& lhs, const CollectorKind& rhs) { return lhs.name < rhs.name; });
  return kinds;
}

struct Catalogue {
  std::mutex mutex;
  std::vector<CollectorKind> kinds = own_kinds();
};

Catalogue& catalogue() {
  static Catalogue all;
  return all;
}

const CollectorKind* find_kind(const std::vector<CollectorKind>& kinds, std::string_view name) {
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [name](const CollectorKind& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

}  // namespace

std::vector<CollectorKind> collector_kinds() {
  Catalogue& all = catalogue();
  const std::lock_guard lock(all.mutex);
  return all.kinds;
}

void add_collector_kind(CollectorKind kind) {
  Catalogue& all = catalogue();
  const std::lock_guard lock(all.mutex);
  QUANTA_CHECK(find_kind(all.kinds, kind.name) == nullptr,
               "add_collector_kind: kind: expected a name of its own, got {}, which is taken",
               kind.name);
  QUANTA_CHECK(static_cast<bool>(kind.make),
               "add_collector_kind: kind: expected a function that makes a {}, got none",
               kind.name);
  all.kinds.push_back(std::move(kind));
}

std::shared_ptr<Collector> make_collector(std::string_view name, const Settings& settings) {
  const std::vector<CollectorKind> kinds = collector_kinds();
  if (const CollectorKind* kind = find_kind(kinds, name)) return kind->make(settings);
  std::vector<std::string_view> names;
  names.reserve(kinds.size());
  for (const CollectorKind& kind : kinds) names.push_back(kind.name);
  throw ArgumentError(fmt::format("make_collector: name: expected one of {}, got {}",
                                  fmt::join(names, ", "), name));
}

std::string to_string(const Collector& collector) {
  const std::vector<CollectorKind> kinds = collector_kinds();
  const CollectorKind* kind = find_kind(kinds, collector.name());
  return call_text(collector.name(), collector.settings(),
                   kind == nullptr ? Settings{} : kind->defaults);
}

}  // namespace quanta
