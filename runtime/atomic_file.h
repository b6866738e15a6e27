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
///
/// The new file gets the permissions of the one that it replaces and, where the system allows it
/// (to root, or for a group that one belongs to), its owner and group. The bits setuid, setgid and
/// sticky stay if both stay; where the group cannot, its members may do what everybody may. Until
/// then nobody but the writer can read it. Access control lists and extended attributes are those
/// of a new file, and further hard links keep the old one.
///
/// The temporary file has no name before it is whole, where the file system has such files
/// (O_TMPFILE); elsewhere, and for a moment before it is renamed, it is called ".quanta-" and 16
/// hexadecimal digits. What a killed process left of such files, the next call in that folder
/// removes: their writers hold a lock (flock), which ends with them. Files of other machines it removes
/// after a day.
void write_file_atomically(
    const std::filesystem::path& path,
    const std::function<void(const std::function<void(std::span<const std::byte>)>& sink)>& write);

/// Whether write_file_atomically could begin, asked before the hours of work whose result it is to
/// write: makes a temporary file beside `path` and takes it away again. Throws FileError as it does.
/// Safe from many threads.
void require_writable(const std::filesystem::path& path);

}  // namespace quanta
