#pragma once

// Changes to JSON that keep it JSON, so that they get past the parser.

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "quanta/runtime/detail/json.h"

namespace quanta::fuzz {

using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t end) {
  return end == 0 ? 0 : static_cast<std::size_t>(random() % end);
}

/// One value of `json` changed: numbers become others, words other words of the text, members and
/// items go, come twice or move. Text that is JSON itself (metadata) is changed within.
detail::Json changed_json(const detail::Json& json, Random& random);

/// The same for text; text that is no JSON is changed by LLVMFuzzerMutate.
std::string changed_json_text(std::string_view text, std::size_t max_size, Random& random);

/// Bytes as LLVMFuzzerMutate changes them.
std::string changed_bytes(std::string_view bytes, std::size_t max_size);

/// A mutator's last step: `text` in the place of the data. Text that is too long is left out.
std::size_t put_back(const std::string& text, std::uint8_t* data, std::size_t size,
                     std::size_t max_size);

}  // namespace quanta::fuzz
