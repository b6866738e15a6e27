#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>

/// Files that are there whole or not at all.
namespace quanta {

/// Writes a file whole or not at all: `write` gets a sink for the bytes of a temporary file beside
/// `path`, which is then synced and renamed over it. Whatever throws, the old file stays. Throws
/// FileError with the path and the system's message. Threads may write at once; of several that
/// write to one path, the last one's file stays.
void write_file_atomically(
    const std::filesystem::path& path,
    const std::function<void(const std::function<void(std::span<const std::byte>)>& sink)>& write);

}  // namespace quanta
