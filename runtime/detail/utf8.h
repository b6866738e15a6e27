#pragma once

// Private: is a text UTF-8? Names in files become names in messages and in other files.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quanta::detail {

/// Appends the code point (at most 0x10FFFF) as UTF-8.
template <typename String>
void append_utf8(String& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

/// The length of the UTF-8 character at `position`, 0 when there is none: surrogates, overlong
/// forms and values above 0x10FFFF are not characters.
inline std::size_t utf8_character(std::string_view text, std::size_t position) noexcept {
  const auto at = [&](std::size_t i) -> std::uint32_t {
    return position + i < text.size() ? static_cast<std::uint8_t>(text[position + i]) : 0U;
  };
  const auto is_tail = [&](std::size_t i) { return (at(i) & 0xC0) == 0x80; };
  const std::uint32_t lead = at(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return is_tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!is_tail(1) || !is_tail(2)) return 0;
    if (lead == 0xE0 && at(1) < 0xA0) return 0;
    if (lead == 0xED && at(1) > 0x9F) return 0;
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!is_tail(1) || !is_tail(2) || !is_tail(3)) return 0;
    if (lead == 0xF0 && at(1) < 0x90) return 0;
    if (lead == 0xF4 && at(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

inline bool is_utf8(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_character(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

}  // namespace quanta::detail
