#include "quanta/runtime/detail/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "quanta/runtime/check.h"

namespace quanta::detail {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // the system takes no more than 2 GiB

}  // namespace

ReadDescriptor::ReadDescriptor(const std::filesystem::path& path, int flags) noexcept {
  do {
    number_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  } while (number_ < 0 && errno == EINTR);
}

ReadDescriptor::~ReadDescriptor() {
  if (number_ >= 0) ::close(number_);
}

// O_NONBLOCK: opening a pipe must not wait for a writer.
OpenFile::OpenFile(const std::filesystem::path& path, std::string_view op)
    : where_(fmt::format("{}: {}", op, path.string())), descriptor_(path, O_NONBLOCK) {
  const auto fail = [&](std::string_view step) {
    throw FileError(
        fmt::format("{}: {}: {}", where_, step, std::generic_category().message(errno)));
  };
  if (descriptor() < 0) fail("opening");
  struct stat info {};
  if (::fstat(descriptor(), &info) != 0) fail("looking at it");
  if (!S_ISREG(info.st_mode)) {
    throw FileError(fmt::format("{}: expected a regular file, got {}", where_,
                                S_ISDIR(info.st_mode) ? "a folder" : "a special file"));
  }
  size_ = static_cast<std::size_t>(info.st_size);
}

void OpenFile::read(std::size_t begin, std::span<std::byte> to) const {
  for (std::size_t done = 0; done < to.size();) {
    const ssize_t count =
        ::pread(descriptor(), to.data() + done, std::min(to.size() - done, kMostAtOnce),
                static_cast<off_t>(begin + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw FileError(
          fmt::format("{}: reading: {}", where_, std::generic_category().message(errno)));
    }
    if (count == 0) {
      throw FileError(
          fmt::format("{}: expected {} bytes as when it was opened, got {}: it was cut off while "
                      "it was read",
                      where_, size_, begin + done));
    }
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace quanta::detail
