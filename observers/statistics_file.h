#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "quanta/observers/collector.h"

// What each function throws is said below. Many threads may read and write files at once.

namespace quanta {

/// Collectors by name, such as the path of a layer.
using Statistics = std::map<std::string, std::shared_ptr<Collector>>;

/// Writes collectors of any kind, with their settings and what they have gathered, as one
/// .safetensors file:
///
///   // In each of several processes:
///   save_statistics({{"conv1", observer}}, "part-1.safetensors");
///   // In one of them:
///   Statistics all = load_statistics("part-1.safetensors");
///   for (auto& [name, other] : load_statistics("part-2.safetensors")) all.at(name)->merge(*other);
///
/// Tensors are called `<name>.<tensor of the state>`; the metadata key "quanta.collectors" holds
/// classes and settings as JSON. Atomic, as write_safetensors is. Throws ArgumentError for a null
/// collector and for a class that collector_kinds() does not know, FileError as write_safetensors.
void save_statistics(const Statistics& collectors, const std::filesystem::path& path);
/// The same with the path first, as earlier versions had it.
inline void save_statistics(const std::filesystem::path& path, const Statistics& collectors) {
  save_statistics(collectors, path);
}

/// Makes the collectors of a file again. Functions are no part of it: an MseCalibrator comes back
/// with its errors and takes in nothing more. Throws FileError for a file that is no such file,
/// ArgumentError for unknown classes and for settings and tensors that cannot be.
Statistics load_statistics(const std::filesystem::path& path);

}  // namespace quanta
