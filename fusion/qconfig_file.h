#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "quanta/fusion/mapping.h"

// Which layers get which QConfig, as a file: what auto_mixed_precision has chosen, or a person has
// written. Many threads may call these functions at once.

namespace quanta {

/// A QConfigMapping as JSON:
///
///   {"format": "quanta.qconfig_mapping", "version": 1,
///    "global": {"activation": {"kind": "HistogramObserver", "settings": {...}},
///               "weight": {"kind": "PerChannelMinMaxObserver", "settings": {...}}},
///    "types": {"Linear": null},
///    "names": {"layer1.0.conv1": {...}, "fc": null},
///    "regexes": [["layer2\\..*", {...}]]}
///
/// null leaves a layer in float, as std::nullopt does; a member that is not there says nothing. An
/// observer that is null observes nothing. Fake quantizers have their observer below "observer",
/// grids that were found before (GivenQParamsObserver) their numbers. Types are named as in the table
/// of module forms. Throws UnsupportedError, naming it, for an observer that cannot be made again
/// from its settings (one of a class that collector_kinds() does not know) and for a type without a
/// row.
std::string to_json(const QConfigMapping& mapping);
/// Throws FileError, with `where` and the place in the text, for what is no such JSON, and
/// ArgumentError for settings that an observer refuses.
QConfigMapping qconfig_mapping_from_json(std::string_view text,
                                         std::string_view where = "qconfig_mapping");

/// to_json of a mapping, written whole or not at all. Throws as to_json, and FileError.
void save_qconfig_mapping(const QConfigMapping& mapping, const std::filesystem::path& path);
/// Throws as qconfig_mapping_from_json, and FileError for a file that cannot be read.
QConfigMapping load_qconfig_mapping(const std::filesystem::path& path);

}  // namespace quanta
