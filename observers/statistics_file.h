#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "quanta/observers/collector.h"

namespace quanta {

/// Collectors by name: the path of a layer, say.
using Statistics = std::map<std::string, std::shared_ptr<Collector>>;

/// Writes collectors of any kind, with their settings and what they have gathered, as one
/// .safetensors file:
///
///   save_statistics("part-1.safetensors", {{"conv1", observer}});   // in each of several
///   processes
///
///   Statistics all = load_statistics("part-1.safetensors");
///   for (auto& [name, other] : load_statistics("part-2.safetensors")) all.at(name)->merge(*other);
///
/// Tensors are called `<name>.<tensor of the state>`; the metadata key "quanta.collectors" holds
/// classes and settings as JSON. Atomic, as write_safetensors is. Throws ArgumentError for a null
/// collector and for a class that collector_kinds() does not know, FileError as write_safetensors.
void save_statistics(const std::filesystem::path& path, const Statistics& collectors);

/// Makes them again. Functions are no part of a file: an MseCalibrator has its errors, and takes in
/// nothing more. Throws FileError for a file that is no such file, ArgumentError for unknown
/// classes and for settings and tensors that cannot be.
Statistics load_statistics(const std::filesystem::path& path);

}  // namespace quanta
