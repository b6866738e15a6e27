#include "quanta/runtime/detail/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include "quanta/runtime/check.h"

namespace quanta::detail {
namespace {

/// All mapped files, by where they end.
struct Registry {
  std::mutex mutex;
  std::map<const std::byte*, std::weak_ptr<MappedFile>> files;

  // Never destroyed: tensors with static lifetime may unmap after the end of main.
  static Registry& instance() {
    static auto* registry = new Registry;
    return *registry;
  }
};

}  // namespace

struct MappedFile::Descriptor {
  int value = -1;
  explicit Descriptor(int file) : value(file) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

std::shared_ptr<MappedFile> MappedFile::open(const std::filesystem::path& path,
                                             std::string_view op) {
  const auto fail = [&](std::string_view step, int error) {
    throw FileError(fmt::format("{}: {}: {}: {}", op, path.string(), step,
                                std::generic_category().message(error)));
  };
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const auto file =
      std::make_shared<const Descriptor>(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file->value < 0) fail("opening", errno);
  struct stat info {};
  if (::fstat(file->value, &info) != 0) fail("looking at it", errno);
  if (!S_ISREG(info.st_mode)) {
    throw FileError(fmt::format("{}: {}: expected a regular file, got {}", op, path.string(),
                                S_ISDIR(info.st_mode) ? "a folder" : "a special file"));
  }
  const auto mapped = map(file, static_cast<std::size_t>(info.st_size));
  if (mapped == nullptr) fail("mapping", errno);
  return mapped;
}

std::shared_ptr<MappedFile> MappedFile::map(std::shared_ptr<const Descriptor> file,
                                            std::size_t size) {
  void* data = nullptr;
  if (size > 0) {
    data =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file->value, 0);
    if (data == MAP_FAILED) return nullptr;
  }
  const std::span<std::byte> bytes(static_cast<std::byte*>(data), size);
  std::shared_ptr<MappedFile> mapped(new MappedFile(std::move(file), bytes));
  if (size > 0) {
    Registry& registry = Registry::instance();
    const std::lock_guard lock(registry.mutex);
    registry.files[bytes.data() + size] = mapped;
  }
  return mapped;
}

std::shared_ptr<MappedFile> MappedFile::holding(std::span<const std::byte> bytes) {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.files.lower_bound(bytes.data() + bytes.size());
  if (found == registry.files.end()) return nullptr;
  std::shared_ptr<MappedFile> file = found->second.lock();
  return file != nullptr && file->bytes_.data() <= bytes.data() ? file : nullptr;
}

MappedFile::MappedFile(std::shared_ptr<const Descriptor> file, std::span<std::byte> bytes)
    : file_(std::move(file)), bytes_(bytes) {}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  {
    // Before the addresses can be another file's.
    Registry& registry = Registry::instance();
    const std::lock_guard lock(registry.mutex);
    registry.files.erase(bytes_.data() + bytes_.size());
  }
  ::munmap(bytes_.data(), bytes_.size());
}

std::shared_ptr<std::byte> MappedFile::lend_twin(std::span<const std::byte> bytes) {
  const auto begin = static_cast<std::size_t>(bytes.data() - bytes_.data());
  const std::size_t end = begin + bytes.size();
  std::shared_ptr<MappedFile> twin;
  {
    const std::lock_guard lock(twin_mutex_);
    twin = twin_.lock();
    if (twin == nullptr) twin_ = twin = map(file_, bytes_.size());
  }
  if (twin == nullptr) return nullptr;
  {
    const std::lock_guard lock(twin->twin_mutex_);
    const auto next = twin->lent_.lower_bound(begin);
    if (next != twin->lent_.end() && next->first < end) return nullptr;
    if (next != twin->lent_.begin() && std::prev(next)->second > begin) return nullptr;
    twin->lent_[begin] = end;
  }
  // Without the lock: when there is no memory for the owner, what takes the bytes back runs at once.
  return {twin->bytes_.data() + begin, [twin, begin](std::byte*) {
            const std::lock_guard returning(twin->twin_mutex_);
            twin->lent_.erase(begin);
          }};
}

}  // namespace quanta::detail
