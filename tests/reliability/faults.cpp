#include "faults.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <optional>

// The C library's own, under the names that it has them for those who replace malloc.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* data, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace quanta::faults {
namespace {

struct State {
  bool armed = false;
  bool failed = false;
  bool foreign = false;
  std::int64_t seen = 0;
  Plan plan;
};
thread_local constinit State state;

/// True if oneDNN or OpenMP is on the stack: they end the process when they get no memory.
bool is_foreign() {
  void* frames[64];
  const int count = ::backtrace(frames, 64);
  for (int i = 0; i < count; ++i) {
    Dl_info info;
    if (::dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    const std::string_view file = info.dli_fname;
    if (file.find("libdnnl") != file.npos || file.find("libgomp") != file.npos) return true;
  }
  return false;
}

/// True if this call is the one.
bool hits(Call call) {
  if (!state.armed || state.plan.call != call) return false;
  const std::int64_t number = state.seen++;
  if (number != state.plan.at) return false;
  state.armed = false;  // the question may allocate
  if (call == Call::Allocate && is_foreign()) {
    state.foreign = true;
    return false;
  }
  state.failed = true;
  return true;
}

int error_number() {
  switch (state.plan.outcome) {
    case Outcome::NoSpace:
      return ENOSPC;
    case Outcome::Interrupted:
      return EINTR;
    case Outcome::InputOutput:
    case Outcome::Short:
      break;
  }
  return EIO;
}

/// The bytes that a call may move, or nothing when it fails with errno.
std::optional<std::size_t> allowed(Call call, std::size_t bytes) {
  if (!hits(call)) return bytes;
  if (state.plan.outcome == Outcome::Short && bytes > 1) return bytes / 2;
  errno = error_number();
  return std::nullopt;
}

/// True if the call fails, with errno.
bool fails(Call call) {
  if (!hits(call)) return false;
  errno = call == Call::Allocate ? ENOMEM : error_number();
  return true;
}

}  // namespace

std::string_view name_of(Call call) {
  constexpr std::string_view kNames[] = {"allocate", "open",   "read", "write",
                                         "sync",     "rename", "close"};
  return kNames[static_cast<std::size_t>(call)];
}

std::string_view name_of(Outcome outcome) {
  constexpr std::string_view kNames[] = {"ENOSPC", "EIO", "short", "EINTR"};
  return kNames[static_cast<std::size_t>(outcome)];
}

void arm(const Plan& plan) { state = {.armed = true, .plan = plan}; }

End disarm() {
  state.armed = false;
  return state.failed ? End::Failed : state.foreign ? End::Foreign : End::NotReached;
}

}  // namespace quanta::faults

using quanta::faults::allowed;
using quanta::faults::Call;
using quanta::faults::fails;

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
extern "C" {

void* malloc(std::size_t bytes) noexcept {
  return fails(Call::Allocate) ? nullptr : __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  return fails(Call::Allocate) ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* data, std::size_t bytes) noexcept {
  return fails(Call::Allocate) ? nullptr : __libc_realloc(data, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return fails(Call::Allocate) ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** data, std::size_t alignment, std::size_t bytes) noexcept {
  if (fails(Call::Allocate)) return ENOMEM;
  *data = __libc_memalign(alignment, bytes);
  return *data == nullptr ? ENOMEM : 0;
}
void* mmap(void* address, std::size_t bytes, int protection, int flags, int file,
           off_t offset) noexcept {
  if ((flags & MAP_ANONYMOUS) != 0 && fails(Call::Allocate)) return MAP_FAILED;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the system call's result
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (fails(Call::Open)) return -1;
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
int openat(int folder, const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (fails(Call::Open)) return -1;
  return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
}
ssize_t read(int file, void* data, std::size_t bytes) {
  const auto count = allowed(Call::Read, bytes);
  return count ? ::syscall(SYS_read, file, data, *count) : -1;
}
ssize_t pread(int file, void* data, std::size_t bytes, off_t offset) {
  const auto count = allowed(Call::Read, bytes);
  return count ? ::syscall(SYS_pread64, file, data, *count, offset) : -1;
}
ssize_t write(int file, const void* data, std::size_t bytes) {
  const auto count = allowed(Call::Write, bytes);
  return count ? ::syscall(SYS_write, file, data, *count) : -1;
}
ssize_t pwrite(int file, const void* data, std::size_t bytes, off_t offset) {
  const auto count = allowed(Call::Write, bytes);
  return count ? ::syscall(SYS_pwrite64, file, data, *count, offset) : -1;
}
ssize_t writev(int file, const iovec* parts, int count) {
  if (fails(Call::Write)) return -1;
  return ::syscall(SYS_writev, file, parts, count);
}
int fsync(int file) {
  return fails(Call::Sync) ? -1 : static_cast<int>(::syscall(SYS_fsync, file));
}
int rename(const char* from, const char* to) noexcept {
  return fails(Call::Rename) ? -1 : static_cast<int>(::syscall(SYS_rename, from, to));
}
// A descriptor is free after close() whatever it answers, as on Linux.
int close(int file) {
  const int result = static_cast<int>(::syscall(SYS_close, file));
  return fails(Call::Close) ? -1 : result;
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
