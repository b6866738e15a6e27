#include "quanta/runtime/detail/temporary_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/hash_bytes.h"

namespace quanta::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;
constexpr std::string_view kPrefix = ".quanta-";
constexpr std::size_t kDigits = 16;
constexpr std::chrono::hours kOld{24};  // of what another machine writes
constexpr int kAttempts = 100;          // at names and locks that others had first

int open_again(const char* path, int flags, mode_t mode = 0) noexcept {
  int result = -1;
  do {
    result = ::open(path, flags | O_CLOEXEC, mode);
  } while (result < 0 && errno == EINTR);
  return result;
}

/// 32 bits of what all processes have that see each other's locks: the same kernel since its start.
std::uint32_t kernel_number() noexcept {
  std::array<char, 36> id{};
  const int file = open_again("/proc/sys/kernel/random/boot_id", O_RDONLY);
  if (file < 0) return 0;
  const ssize_t length = ::read(file, id.data(), id.size());
  ::close(file);
  const std::span<const char> read(id.data(),
                                   static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return static_cast<std::uint32_t>(hash_bytes(std::as_bytes(read)));
}

std::string random_name() {
  std::random_device random;
  return fmt::format("{}{:08x}", temporary_name_of_kernel(), random());
}

bool is_our_name(std::string_view name) {
  if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + kDigits) return false;
  name.remove_prefix(kPrefix.size());
  return name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// By a path of the process's own, which works without privileges.
std::string path_of(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

/// Where a file system has no locks, nobody removes what is left either.
void lock(int descriptor) noexcept {
  while (::flock(descriptor, LOCK_EX) != 0 && errno == EINTR) {
  }
}

/// Whether a file was last written long ago. Locks of another machine may not be seen here.
bool is_old(const struct stat& info) noexcept {
  const auto written = std::chrono::system_clock::from_time_t(info.st_mtime);
  return std::chrono::system_clock::now() - written > kOld;
}

/// Removes the file unless somebody holds its lock, or somebody elsewhere may. The lock is kept until
/// it is gone.
void remove_if_left(const fs::path& path, bool of_this_kernel) noexcept {
  const int file = open_again(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return;
  struct stat info {};
  if (::fstat(file, &info) == 0 && S_ISREG(info.st_mode) && (of_this_kernel || is_old(info)) &&
      ::flock(file, LOCK_EX | LOCK_NB) == 0) {
    ::unlink(path.c_str());
  }
  ::close(file);
}

}  // namespace

std::string temporary_name_of_kernel() {
  static const std::uint32_t number = kernel_number();
  return fmt::format("{}{:08x}", kPrefix, number);
}

void remove_left_files(const fs::path& folder) noexcept {
  const auto close = [](DIR* listing) { ::closedir(listing); };
  const std::unique_ptr<DIR, decltype(close)> listing(::opendir(folder.c_str()), close);
  if (listing == nullptr) return;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (!is_our_name(name)) continue;
    try {
      remove_if_left(folder / name, name.starts_with(temporary_name_of_kernel()));
    } catch (const std::bad_alloc&) {  // for a path: another save will find it
      return;
    }
  }
}

TemporaryFile::TemporaryFile(fs::path target, const FileOwner* replaced, Naming naming)
    : target_(std::move(target)),
      folder_(target_.has_parent_path() ? target_.parent_path() : fs::path(".")),
      replaced_(replaced) {
  if (naming == Naming::Early || !open_nameless()) open_named();
}

TemporaryFile::~TemporaryFile() {
  // The lock goes with the descriptor: nobody takes the file for one that was left.
  if (!path_.empty()) ::unlink(path_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TemporaryFile::fail(std::string_view step, int error) const {
  throw FileError(fmt::format("write_file: {}: {}: {}", target_.string(), step,
                              std::generic_category().message(error)));
}

bool TemporaryFile::open_nameless() {
  const mode_t mode = replaced_ == nullptr ? 0666 : 0600;
  descriptor_ = open_again(folder_.c_str(), O_WRONLY | O_TMPFILE, mode);
  if (descriptor_ < 0) return false;
  // Without /proc there is no way to a name.
  if (::access(path_of(descriptor_).c_str(), F_OK) == 0) return true;
  ::close(std::exchange(descriptor_, -1));
  return false;
}

void TemporaryFile::open_named() {
  const mode_t mode = replaced_ == nullptr ? 0666 : 0600;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    path_ = folder_ / random_name();
    descriptor_ = open_again(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL, mode);
    if (descriptor_ < 0) {
      const int error = errno;
      path_.clear();
      if (error == EEXIST) continue;
      fail("creating the temporary file beside it", error);
    }
    // Before the lock was taken, somebody may have thought that it was left: then they have it until
    // the file is gone.
    struct stat info {};
    lock(descriptor_);
    if (::fstat(descriptor_, &info) == 0 && info.st_nlink > 0) return;
    path_.clear();
    ::close(std::exchange(descriptor_, -1));
  }
  fail("creating the temporary file beside it", EEXIST);
}

void TemporaryFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() <= kBufferBytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return;
  }
  flush();
  write_through(bytes);
}

void TemporaryFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void TemporaryFile::write_through(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("writing", written < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

// The rule stands at write_file_atomically. A change of the owner drops setuid bits, hence the order.
void TemporaryFile::take_over(const FileOwner& owner) const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) fail("looking at the temporary file", errno);
  bool same_user = info.st_uid == owner.user;
  bool same_group = info.st_gid == owner.group;
  if (!same_user && ::fchown(descriptor_, owner.user, owner.group) == 0) {
    same_user = same_group = true;
  }
  if (!same_group) {
    same_group = ::fchown(descriptor_, static_cast<uid_t>(-1), owner.group) == 0;
  }
  mode_t mode = owner.mode & 07777;
  if (!same_user || !same_group) mode &= 0777;
  // What one group was allowed is not for another.
  if (!same_group) mode &= static_cast<mode_t>(~070) | (mode & 07) << 3;
  if (::fchmod(descriptor_, mode) != 0) fail("setting the permissions", errno);
}

void TemporaryFile::give_name() {
  lock(descriptor_);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    path_ = folder_ / random_name();
    if (::linkat(AT_FDCWD, path_of(descriptor_).c_str(), AT_FDCWD, path_.c_str(),
                 AT_SYMLINK_FOLLOW) == 0) {
      return;
    }
    const int error = errno;
    path_.clear();
    if (error != EEXIST) fail("naming the temporary file beside it", error);
  }
  fail("naming the temporary file beside it", EEXIST);
}

void TemporaryFile::commit() {
  flush();
  if (replaced_ != nullptr) take_over(*replaced_);
  if (::fsync(descriptor_) != 0) fail("syncing", errno);
  // Some file systems report a failed write only when a descriptor is closed; the lock needs one.
  const int second = ::dup(descriptor_);
  if (second >= 0 && ::close(second) != 0) fail("closing", errno);
  if (path_.empty()) give_name();
  if (::rename(path_.c_str(), target_.c_str()) != 0) fail("renaming onto it", errno);
  path_.clear();
  ::close(std::exchange(descriptor_, -1));
  sync_folder();
}

// Makes the rename itself survive a power failure. The new file is already in place and whole, so a
// file system that cannot sync a folder is no error.
void TemporaryFile::sync_folder() const noexcept {
  const int descriptor = open_again(folder_.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace quanta::detail
