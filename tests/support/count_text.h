#pragma once

#include <cstddef>
#include <string>

namespace quanta::test {

/// How often `part` stands in `text`.
inline std::size_t count_text(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace quanta::test
