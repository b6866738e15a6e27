#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "quanta/runtime/atomic_file.h"

namespace quanta::cli {

/// Writes `figures`, indented, whole or not at all. Throws FileError.
inline void write_json(const std::filesystem::path& path, const nlohmann::json& figures,
                       int indent = 1) {
  const std::string text = figures.dump(indent) + "\n";
  write_file_atomically(path, [&](const auto& sink) { sink(std::as_bytes(std::span(text))); });
}

}  // namespace quanta::cli
