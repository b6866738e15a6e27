#include "quanta/observers/statistics_file.h"

#include <utility>

#include "quanta/observers/detail/collector_json.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/detail/reading.h"
#include "quanta/runtime/safetensors.h"

namespace quanta {
namespace {

using detail::Json;

constexpr const char* kKey = "quanta.collectors";

Statistics read_collectors(const std::filesystem::path& path) {
  const SafetensorsFile file = load_safetensors(path);
  const auto found = file.metadata.find(kKey);
  if (found == file.metadata.end()) {
    throw FileError(fmt::format("{}: expected a file of statistics (metadata key {}), got none",
                                path.string(), kKey));
  }
  const Json entries = detail::parse_json(found->second, path.string());
  if (entries.as_object() == nullptr) {
    throw FileError(
        fmt::format("{}: {}: expected an object, got {}", path.string(), kKey, entries.kind()));
  }
  Statistics collectors;
  for (const auto& [name, entry] : *entries.as_object()) {
    const std::shared_ptr<Collector> collector =
        detail::collector_from(entry, path.string() + ": " + name);
    collector->load_state(file.tensors, name + ".");
    collectors.emplace(name, collector);
  }
  return collectors;
}

}  // namespace

void save_statistics(const Statistics& collectors, const std::filesystem::path& path) {
  StateDict state;
  Json::Object entries;
  for (const auto& [name, collector] : collectors) {
    QUANTA_CHECK(collector != nullptr, "save_statistics: {}: expected a collector, got null", name);
    entries.emplace_back(name, detail::to_json(*collector));
    collector->save_state(state, name + ".");
  }
  write_safetensors(state, path, {{kKey, detail::to_json_text(Json(std::move(entries)))}});
}

Statistics load_statistics(const std::filesystem::path& path) {
  return detail::reading(path.string(), [&] { return read_collectors(path); });
}

}  // namespace quanta
