#include "quanta/runtime/detail/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "quanta/runtime/check.h"

namespace quanta::detail {
namespace {

struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace

std::shared_ptr<MappedFile> MappedFile::open(const std::filesystem::path& path,
                                             std::string_view op) {
  const auto fail = [&](std::string_view step, int error) {
    throw FileError(fmt::format("{}: {}: {}: {}", op, path.string(), step,
                                std::generic_category().message(error)));
  };
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.value < 0) fail("opening", errno);
  struct stat info {};
  if (::fstat(file.value, &info) != 0) fail("looking at it", errno);
  if (!S_ISREG(info.st_mode)) {
    throw FileError(fmt::format("{}: {}: expected a regular file, got {}", op, path.string(),
                                S_ISDIR(info.st_mode) ? "a folder" : "a special file"));
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return std::make_shared<MappedFile>(std::span<std::byte>());
  void* data =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.value, 0);
  if (data == MAP_FAILED) fail("mapping", errno);
  return std::make_shared<MappedFile>(std::span(static_cast<std::byte*>(data), size));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace quanta::detail
