#pragma once

// Private: the file that is written before it takes its name.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quanta::detail {

/// Who may read a file that is to be replaced, and whose it is.
struct FileOwner {
  mode_t mode = 0;
  uid_t user = 0;
  gid_t group = 0;
};

/// A new file in the folder of `target`. Where the file system has files without a name (O_TMPFILE),
/// it gets one when it is whole, so that nothing is left of a process that is killed before. Until
/// commit() only its owner may read it if it replaces a file; a wholly new file has the permissions
/// of every new file from the start.
///
/// Names are ".quanta-" and 16 hexadecimal digits, whatever the target's is; 8 of them are the same for
/// all processes of a running kernel. Who writes such a file holds a lock on it (flock); one that nobody
/// holds was left by a process that is gone. A file system may not show another machine's locks: files
/// from there are left only once they are a day old.
class TemporaryFile {
 public:
  /// When the file gets its name. Late means early where the file system knows no other.
  enum class Naming : std::uint8_t { Early, Late };
  /// Throws FileError `write_file: <target>: ...`.
  TemporaryFile(std::filesystem::path target, const FileOwner* replaced,
                Naming naming = Naming::Late);
  /// Takes the file away unless it was committed.
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::span<const std::byte> bytes);
  /// Syncs the file, gives it the permissions and owner of the one that it replaces and puts it in
  /// the target's place.
  void commit();

 private:
  [[noreturn]] void fail(std::string_view step, int error) const;
  bool open_nameless();
  void open_named();
  void give_name();
  void take_over(const FileOwner& owner) const;
  void flush();
  void write_through(std::span<const std::byte> bytes) const;
  void sync_folder() const noexcept;

  std::filesystem::path target_;
  std::filesystem::path folder_;
  const FileOwner* replaced_;
  std::filesystem::path path_;  // empty without a name
  int descriptor_ = -1;
  std::vector<std::byte> buffer_;
};

/// What the names of this kernel's processes begin with.
std::string temporary_name_of_kernel();

/// Removes the files that killed processes have left in a folder. Those that somebody writes, and
/// what cannot be removed, stay.
void remove_left_files(const std::filesystem::path& folder) noexcept;

}  // namespace quanta::detail
