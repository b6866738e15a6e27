#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "quanta/runtime/detail/file_bytes.h"
#include "quanta/runtime/detail/onnx_tensor.h"

namespace quanta::detail {
namespace {

namespace fs = std::filesystem;

std::size_t parse_size(const std::string& key, const std::string& text, const OnnxMessage& tensor) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    tensor.fail(fmt::format("external_data: {}: expected a number >= 0, got '{}'", key, text));
  }
  return value;
}

}  // namespace

std::shared_ptr<FileBytes> OnnxExternalData::open(const std::string& location,
                                                  const OnnxMessage& tensor) {
  const auto found = files_.find(location);
  if (found != files_.end()) return found->second;
  const auto fail = [&](std::string_view expected) {
    tensor.fail(fmt::format("external_data: location: expected {}, got '{}'", expected, location));
  };
  // A file may name only what lies in its own folder: it comes from anywhere.
  const fs::path relative(location);
  if (location.empty() || location.find('\0') != std::string::npos) fail("a file name");
  if (relative.is_absolute()) fail("a path relative to the model's folder");
  for (const fs::path& part : relative) {
    if (part == "..") fail("a path without '..'");
  }
  std::error_code error;
  const fs::path folder = fs::canonical(folder_.empty() ? fs::path(".") : folder_, error);
  if (error) fail("a file in the model's folder");
  const fs::path path = (folder / relative).lexically_normal();
  const fs::path canonical = fs::canonical(path, error);
  if (error) fail(fmt::format("a file in the model's folder ({})", error.message()));
  if (canonical != path) fail("a path without symbolic links");
  if (!fs::is_regular_file(fs::symlink_status(path, error))) fail("a regular file");
  if (fs::hard_link_count(path, error) != 1 || error) fail("a file with one hard link");
  std::shared_ptr<FileBytes> file;
  try {
    file = FileBytes::open(path, "external_data", access_);
  } catch (const FileError& failure) {
    tensor.fail(failure.what());
  }
  files_.emplace(location, file);
  return file;
}

OnnxBytes OnnxExternalData::find(const Entries& entries, std::size_t expected,
                                 const OnnxMessage& tensor) {
  if (!allowed_) tensor.fail("external data needs a model that is read from a file");
  std::optional<std::string> location;
  std::optional<std::size_t> offset;
  std::optional<std::size_t> length;
  bool checksum = false;
  const auto once = [&](const std::string& key, bool first) {
    if (!first)
      tensor.fail(fmt::format("external_data: expected each key once, got '{}' twice", key));
  };
  for (const auto& [key, value] : entries) {
    if (key == "location") {
      once(key, !location);
      location = value;
    } else if (key == "offset") {
      once(key, !offset);
      offset = parse_size(key, value, tensor);
    } else if (key == "length") {
      once(key, !length);
      length = parse_size(key, value, tensor);
    } else if (key == "checksum") {
      once(key, !checksum);
      checksum = true;
    } else {
      tensor.fail(fmt::format(
          "external_data: expected location, offset, length and checksum, got '{}'", key));
    }
  }
  if (!location) tensor.fail("external_data: location: expected a file name, got nothing");
  if (length && *length != expected) {
    tensor.fail(
        fmt::format("external_data: length: expected {} bytes for the tensor's sizes, got {}",
                    expected, *length));
  }
  const std::shared_ptr<FileBytes> file = open(*location, tensor);
  const std::size_t begin = offset.value_or(0);
  const std::size_t size = file->bytes().size();
  if (begin > size || expected > size - begin) {
    tensor.fail(fmt::format("external_data: expected {} bytes at {}, got {} bytes of '{}'",
                            expected, begin, size, *location));
  }
  return {file->bytes().subspan(begin, expected), file, {}};
}

}  // namespace quanta::detail
