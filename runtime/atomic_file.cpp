#include "quanta/runtime/atomic_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/temporary_file.h"

namespace quanta {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, std::string_view step, int error) {
  throw FileError(fmt::format("write_file: {}: {}: {}", path.string(), step,
                              std::generic_category().message(error)));
}

// The file that a path stands for, and whose the one was that is to be replaced.
struct Target {
  fs::path path;
  std::optional<detail::FileOwner> replaced;

  const detail::FileOwner* owner() const { return replaced ? &*replaced : nullptr; }
};

Target target_of(const fs::path& path) {
  if (path.empty()) throw FileError("write_file: path: expected a file name, got an empty one");
  fs::path target = path;
  std::error_code error;
  // A link keeps pointing where it points; the file behind it is replaced.
  if (fs::is_symlink(path, error)) {
    target = fs::canonical(path, error);
    if (error) fail(path, "following the link", error.value());
  }
  struct stat old {};
  const bool replaces = ::stat(target.c_str(), &old) == 0;
  if (!replaces && errno != ENOENT) fail(path, "looking at it", errno);
  if (replaces && !S_ISREG(old.st_mode)) {
    throw FileError(fmt::format("write_file: {}: expected a regular file or a new name, got {}",
                                path.string(),
                                S_ISDIR(old.st_mode) ? "a folder" : "a special file"));
  }

  if (!replaces) return {std::move(target), std::nullopt};
  return {std::move(target), detail::FileOwner{old.st_mode, old.st_uid, old.st_gid}};
}

}  // namespace

void write_file_atomically(
    const fs::path& path,
    const std::function<void(const std::function<void(std::span<const std::byte>)>& sink)>& write) {
  const Target target = target_of(path);
  detail::remove_left_files(target.path.has_parent_path() ? target.path.parent_path()
                                                          : fs::path("."));
  detail::TemporaryFile file(target.path, target.owner());
  write([&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

void require_writable(const fs::path& path) {
  const Target target = target_of(path);
  const detail::TemporaryFile file(target.path, target.owner());
}

}  // namespace quanta
