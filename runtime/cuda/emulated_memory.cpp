#include "quanta/runtime/cuda/emulated_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "quanta/runtime/detail/sanitizers.h"

#if QUANTA_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (static_cast<void>(0))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (static_cast<void>(0))
#endif

namespace quanta::cuda::emulation {
namespace {

constexpr std::size_t kPage = 4096;
// What nobody has written yet; as a float about -2.9e-16, as a code 165.
constexpr int kGarbage = 0xA5;
constexpr unsigned char kMark = 0x5A;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
std::size_t aligned(std::size_t bytes) {
  return (bytes + Memory::kAlignment - 1) / Memory::kAlignment * Memory::kAlignment;
}

// The end of a block's pages.
unsigned char* end_of(void* block, std::size_t block_bytes) {
  return static_cast<unsigned char*>(block) + whole_pages(block_bytes);
}

}  // namespace

// Never destroyed: tensors with static lifetime may free after the end of main.
Memory& Memory::instance() {
  static auto* memory = new Memory;
  return *memory;
}

void* Memory::allocate(std::size_t bytes) {
  const std::size_t size = whole_pages(bytes);
  void* block = ::mmap(nullptr, size + kPage, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, 0);
  if (block == MAP_FAILED) return nullptr;
  return block;
}

void Memory::free(void* block, std::size_t bytes) noexcept {
  ::munmap(block, whole_pages(bytes) + kPage);
}

void* Memory::hand_out(void* block, std::size_t bytes, std::size_t block_bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t pages = whole_pages(block_bytes);
  blocks_.emplace(block, pages);
  protect(block, pages, PROT_READ | PROT_WRITE);
  unsigned char* const end = end_of(block, block_bytes);
  unsigned char* const data = end - aligned(bytes);
  std::memset(data, kGarbage, bytes);
  std::memset(data + bytes, kMark, aligned(bytes) - bytes);
  ASAN_POISON_MEMORY_REGION(data + bytes, aligned(bytes) - bytes);
  if (depth_ == 0) protect(block, pages, PROT_NONE);
  return data;
}

void* Memory::take_back(void* data, std::size_t bytes, std::size_t block_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  auto* const first = static_cast<unsigned char*>(data);
  const std::size_t pages = whole_pages(block_bytes);
  unsigned char* const block = first + aligned(bytes) - pages;
  protect(block, pages, PROT_READ | PROT_WRITE);
  ASAN_UNPOISON_MEMORY_REGION(first + bytes, aligned(bytes) - bytes);
  for (std::size_t i = bytes; i < aligned(bytes); ++i) {
    if (first[i] == kMark) continue;
    std::fprintf(stderr,
                 "quanta: cuda:emulated: a kernel wrote %zu bytes beyond the %zu of a tensor\n",
                 i - bytes + 1, bytes);
    std::abort();
  }
  protect(block, pages, PROT_NONE);
  blocks_.erase(block);
  return block;
}

Memory::Access::Access(Memory& memory) : memory_(&memory) {
  memory_->mutex_.lock();
  if (memory_->depth_++ == 0) memory_->protect(PROT_READ | PROT_WRITE);
}

Memory::Access::~Access() {
  if (--memory_->depth_ == 0) memory_->protect(PROT_NONE);
  memory_->mutex_.unlock();
}

void Memory::protect(int protection) noexcept {
  for (const auto& [block, bytes] : blocks_) protect(block, bytes, protection);
}

void Memory::protect(void* block, std::size_t bytes, int protection) noexcept {
  ::mprotect(block, bytes, protection);
}

}  // namespace quanta::cuda::emulation
