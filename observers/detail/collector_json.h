#pragma once

// Private: collectors, with their settings and without what they have gathered, in files.

#include <memory>
#include <string>

#include "quanta/observers/collector.h"
#include "quanta/runtime/detail/json.h"

namespace quanta::detail {

/// {"kind": "HistogramObserver", "settings": {...}}. Throws ArgumentError for a class that
/// collector_kinds() does not know.
Json to_json(const Collector& collector);

/// A new collector without data. Throws FileError `<where>: expected ..., got ...` for what has
/// another form, and what make_collector throws.
std::shared_ptr<Collector> collector_from(const Json& entry, const std::string& where);

}  // namespace quanta::detail
