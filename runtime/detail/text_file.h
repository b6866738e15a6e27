#pragma once

// Private: small files of text, read whole.

#include <filesystem>
#include <string>
#include <string_view>

namespace quanta::detail {

/// The bytes of a file. Throws FileError `<path>: <what>: ...` with the system's message for one
/// that cannot be read, and from 1 GiB on: no file of settings is as large.
std::string read_text_file(const std::filesystem::path& path, std::string_view what);

}  // namespace quanta::detail
