#pragma once

// Private: what a file is that was given to the wrong reader.

#include <cstddef>
#include <span>
#include <string>

namespace quanta::detail {

/// "a git-lfs pointer, not the file itself: ..." for the kinds of files that people take for
/// weights, by their first bytes: what it is and what to do. Empty for bytes that say nothing.
/// Looks at names within zip archives only as far as their first record.
std::string recognize_file(std::span<const std::byte> bytes);

}  // namespace quanta::detail
