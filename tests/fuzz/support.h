#pragma once

// What fuzz targets share. A target is libFuzzer's entry point: any bytes have to be read or refused
// with a quanta::Error; whatever else a reader does ends the program.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/warning.h"

// Of libFuzzer, or of driver.cpp in its place.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed);

namespace quanta::fuzz {

/// Set before the first input: one thread, and no lines of warnings.
inline const bool kPrepared = [] {
  set_num_threads(1);
  set_warning_handler([](std::string_view) {});
  return true;
}();

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
inline std::span<const std::byte> as_bytes(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

/// Ends the program: the input broke a promise.
[[noreturn]] inline void broken(const std::string& what) {
  std::fprintf(stderr, "broken promise: %s\n", what.c_str());
  std::abort();
}
inline void expect(bool condition, const char* what) {
  if (!condition) broken(what);
}

/// Runs a reader, which may refuse its input. Says whether it did not.
template <typename Read>
bool read_or_refuse(const Read& read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// A file in memory, for readers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes)
      : descriptor_(::memfd_create("quanta_fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0) std::abort();
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written <= 0) std::abort();
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace quanta::fuzz
