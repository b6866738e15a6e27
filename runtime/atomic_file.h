#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>

namespace quanta {

/// Writes a file whole or not at all: `write` gets a sink for the bytes of a temporary file beside
/// `path`, which is then synced and renamed over it. Whatever throws, the old file stays.
/// Throws FileError with the path and the system's message.
void write_file_atomically(
    const std::filesystem::path& path,
    const std::function<void(const std::function<void(std::span<const std::byte>)>& sink)>& write);

}  // namespace quanta
