#pragma once

// Private: from a text to words, as BERT's BasicTokenizer does it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quanta::nn::models::detail {

struct Word {
  std::string text;             ///< UTF-8
  std::int64_t characters = 0;  ///< code points
};

struct NormalizerOptions {
  bool lower_case = true;
  bool split_chinese = true;
};

/// The words of a text: control characters and bytes that are not UTF-8 are dropped, letters are
/// lower-cased and lose their accents; white space separates words, punctuation and (with
/// split_chinese) CJK ideographs are words of their own.
std::vector<Word> split_words(std::string_view text, const NormalizerOptions& options);

}  // namespace quanta::nn::models::detail
