#pragma once

// Private: little-endian numbers out of bytes that nobody has checked.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "quanta/runtime/check.h"

namespace quanta::detail {

static_assert(std::endian::native == std::endian::little,
              "file readers copy little-endian numbers");

/// Walks over bytes; reading past the end throws FileError `<where>: byte <n>: ...`.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string where, std::size_t position = 0)
      : bytes_(bytes), where_(std::move(where)), position_(position) {}

  std::size_t position() const noexcept { return position_; }
  std::size_t remaining() const noexcept { return bytes_.size() - position_; }
  const std::string& where() const noexcept { return where_; }

  /// Throws FileError `<where>: byte <position>: <text>`.
  [[noreturn]] void fail_at(std::size_t position, std::string_view text) const {
    throw FileError(fmt::format("{}: byte {}: {}", where_, position, text));
  }
  [[noreturn]] void fail(std::string_view text) const { fail_at(position_, text); }

  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (count > remaining()) {
      fail(fmt::format("expected {} bytes of {}, got {} up to the end", count, what, remaining()));
    }
    const auto result = bytes_.subspan(position_, static_cast<std::size_t>(count));
    position_ += static_cast<std::size_t>(count);
    return result;
  }

  std::string_view take_text(std::uint64_t count, std::string_view what) {
    const auto bytes = take(count, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  template <typename T>
  T take_number(std::string_view what) {
    T value{};
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  std::string where_;
  std::size_t position_ = 0;
};

}  // namespace quanta::detail
