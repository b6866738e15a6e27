#include "quanta/runtime/detail/file_bytes.h"

#include <sys/mman.h>

#include <cerrno>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/reading.h"

namespace quanta::detail {
namespace {

/// All mapped files, by where they end.
struct Registry {
  std::mutex mutex;
  std::map<const std::byte*, std::weak_ptr<FileBytes>> files;

  // Never destroyed: tensors with static lifetime may unmap after the end of main.
  static Registry& instance() {
    static auto* registry = new Registry;
    return *registry;
  }
};

}  // namespace

std::shared_ptr<FileBytes> FileBytes::open(const std::filesystem::path& path, std::string_view op,
                                           FileAccess access) {
  const auto file = std::make_shared<const OpenFile>(path, op);
  if (access == FileAccess::Copy) return read(*file, 0, file->size());
  const auto mapped = map(file);
  if (mapped == nullptr) {
    throw FileError(
        fmt::format("{}: mapping: {}", file->where(), std::generic_category().message(errno)));
  }
  return mapped;
}

std::shared_ptr<FileBytes> FileBytes::read(const OpenFile& file, std::size_t begin,
                                           std::size_t size) {
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw_no_memory_for_file(file.where());
  }
  const std::span<std::byte> bytes(static_cast<std::byte*>(data), size);
  std::shared_ptr<FileBytes> result(new FileBytes(nullptr, bytes));
  file.read(begin, bytes);
  return result;
}

std::shared_ptr<FileBytes> FileBytes::map(std::shared_ptr<const OpenFile> file) {
  const std::size_t size = file->size();
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                  file->descriptor(), 0);
    if (data == MAP_FAILED) return nullptr;
  }
  const std::span<std::byte> bytes(static_cast<std::byte*>(data), size);
  std::shared_ptr<FileBytes> mapped(new FileBytes(std::move(file), bytes));
  if (size > 0) {
    Registry& registry = Registry::instance();
    const std::lock_guard lock(registry.mutex);
    registry.files[bytes.data() + size] = mapped;
  }
  return mapped;
}

std::shared_ptr<FileBytes> FileBytes::holding(std::span<const std::byte> bytes) {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  const auto found = registry.files.lower_bound(bytes.data() + bytes.size());
  if (found == registry.files.end()) return nullptr;
  std::shared_ptr<FileBytes> file = found->second.lock();
  return file != nullptr && file->bytes_.data() <= bytes.data() ? file : nullptr;
}

FileBytes::FileBytes(std::shared_ptr<const OpenFile> file, std::span<std::byte> bytes)
    : file_(std::move(file)), bytes_(bytes) {}

FileBytes::~FileBytes() {
  if (bytes_.empty()) return;
  if (file_ != nullptr) {
    // Before the addresses can be another file's.
    Registry& registry = Registry::instance();
    const std::lock_guard lock(registry.mutex);
    registry.files.erase(bytes_.data() + bytes_.size());
  }
  ::munmap(bytes_.data(), bytes_.size());
}

std::shared_ptr<std::byte> FileBytes::lend_twin(std::span<const std::byte> bytes) {
  const auto begin = static_cast<std::size_t>(bytes.data() - bytes_.data());
  const std::size_t end = begin + bytes.size();
  std::shared_ptr<FileBytes> twin;
  {
    const std::lock_guard lock(twin_mutex_);
    twin = twin_.lock();
    if (twin == nullptr) twin_ = twin = map(file_);
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
