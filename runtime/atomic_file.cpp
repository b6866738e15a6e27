#include "quanta/runtime/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

[[noreturn]] void fail(const fs::path& path, std::string_view step, int error) {
  throw FileError(fmt::format("write_file: {}: {}: {}", path.string(), step,
                              std::generic_category().message(error)));
}

/// The temporary file: removed unless it was renamed.
class TemporaryFile {
 public:
  TemporaryFile(const fs::path& target, mode_t mode) : target_(target) {
    static std::atomic<unsigned> counter{0};
    for (int attempt = 0; attempt < 100; ++attempt) {
      path_ = target;
      path_ += fmt::format(".tmp{}-{}", ::getpid(), counter.fetch_add(1));
      descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
      if (descriptor_ >= 0) return;
      if (errno != EEXIST) break;
    }
    fail(target_, "creating the temporary file beside it", errno);
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!renamed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  /// Like the file that it will replace, so that a save changes the contents only.
  void set_mode(mode_t mode) const {
    if (::fchmod(descriptor_, mode) != 0) fail(target_, "setting the permissions", errno);
  }

  void write(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() <= kBufferBytes) {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
      return;
    }
    flush();
    write_through(bytes);
  }

  void commit() {
    flush();
    if (::fsync(descriptor_) != 0) fail(target_, "syncing", errno);
    // Some file systems report a failed write only here.
    if (::close(std::exchange(descriptor_, -1)) != 0) fail(target_, "closing", errno);
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail(target_, "renaming onto it", errno);
    renamed_ = true;
    sync_folder();
  }

 private:
  void flush() {
    write_through(buffer_);
    buffer_.clear();
  }

  void write_through(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail(target_, "writing", written < 0 ? errno : EIO);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  // Makes the rename itself survive a power failure. The new file is already in place and whole, so
  // a file system that cannot sync a folder is no error.
  void sync_folder() const noexcept {
    const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    ::fsync(descriptor);
    ::close(descriptor);
  }

  fs::path target_;
  fs::path path_;
  int descriptor_ = -1;
  bool renamed_ = false;
  std::vector<std::byte> buffer_;
};

}  // namespace

void write_file_atomically(
    const fs::path& path,
    const std::function<void(const std::function<void(std::span<const std::byte>)>& sink)>& write) {
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

  TemporaryFile file(target, 0666);
  if (replaces) file.set_mode(old.st_mode & 07777);
  write([&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

}  // namespace quanta
