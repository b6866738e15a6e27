#include "quanta/nn/models/detail/text_normalizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "quanta/nn/models/detail/unicode_tables.h"
#include "quanta/runtime/detail/utf8.h"

namespace quanta::nn::models::detail {
namespace {

// The last entry of a sorted table that starts at or before `code`, or null.
template <typename Entry, std::size_t kCount, typename Start>
const Entry* find_at_or_before(const Entry (&table)[kCount], std::uint32_t code, Start&& start) {
  const Entry* after = std::upper_bound(
      std::begin(table), std::end(table), code,
      [&](std::uint32_t value, const Entry& entry) { return value < start(entry); });
  return after == std::begin(table) ? nullptr : after - 1;
}

template <std::size_t kCount>
bool within(const unicode::Range (&table)[kCount], std::uint32_t code) {
  const unicode::Range* range =
      find_at_or_before(table, code, [](const unicode::Range& r) { return r.first; });
  return range != nullptr && code <= range->last;
}

bool is_space(std::uint32_t code) {
  return code == '\t' || code == '\n' || code == '\r' || within(unicode::kSpaces, code);
}

// 0xFFFD stands for what could not be decoded.
bool is_dropped(std::uint32_t code) { return code == 0xFFFD || within(unicode::kControls, code); }

// All of ASCII but letters and digits: BERT counts "$" and "^" too, which Unicode calls symbols.
bool is_punctuation(std::uint32_t code) {
  if (code < 0x80) {
    return (code >= 33 && code <= 47) || (code >= 58 && code <= 64) || (code >= 91 && code <= 96) ||
           (code >= 123 && code <= 126);
  }
  return within(unicode::kPunctuation, code);
}

// BERT's ranges: ideographs, no Japanese kana and no Korean.
bool is_ideograph(std::uint32_t code) {
  constexpr unicode::Range kIdeographs[] = {
      {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
      {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return within(kIdeographs, code);
}

// A Hangul syllable's two or three letters (The Unicode Standard, section 3.12).
template <typename Use>
void decompose_hangul(std::uint32_t syllable, Use&& use) {
  constexpr std::uint32_t kVowels = 21;
  constexpr std::uint32_t kTails = 28;
  use(0x1100 + syllable / (kVowels * kTails));
  use(0x1161 + syllable / kTails % kVowels);
  if (syllable % kTails != 0) use(0x11A7 + syllable % kTails);
}

/// Calls use() with the lower-case letters of a character without its accents.
template <typename Use>
void fold(std::uint32_t code, Use&& use) {
  constexpr std::uint32_t kHangul = 0xAC00;
  constexpr std::uint32_t kHangulEnd = 0xD7A4;
  if (code < 0x80) return use(code >= 'A' && code <= 'Z' ? code + 32 : code);
  if (code >= kHangul && code < kHangulEnd) return decompose_hangul(code - kHangul, use);
  if (within(unicode::kAccents, code)) return;
  const unicode::FoldSeveral* several = find_at_or_before(
      unicode::kFoldsToSeveral, code, [](const unicode::FoldSeveral& f) { return f.from; });
  if (several != nullptr && several->from == code) {
    for (const std::uint32_t part : several->to) {
      if (part != 0) use(part);
    }
    return;
  }
  const unicode::FoldRun* run =
      find_at_or_before(unicode::kFolds, code, [](const unicode::FoldRun& r) { return r.first; });
  if (run != nullptr) {
    const std::uint32_t distance = code - run->first;
    if (distance % run->step == 0 && distance / run->step < run->count) {
      return use(run->target + distance / run->step * run->target_step);
    }
  }
  use(code);
}

/// Calls use() with each code point; bytes that are no character give 0xFFFD.
template <typename Use>
void for_each_code_point(std::string_view text, Use&& use) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = quanta::detail::utf8_character(text, i);
    if (length == 0) {
      use(std::uint32_t{0xFFFD});
      ++i;
      continue;
    }
    const auto lead = static_cast<std::uint8_t>(text[i]);
    std::uint32_t code = length == 1 ? lead : lead & (0xFFU >> (length + 1));
    for (std::size_t k = 1; k < length; ++k) {
      code = (code << 6) | (static_cast<std::uint8_t>(text[i + k]) & 0x3FU);
    }
    use(code);
    i += length;
  }
}

class WordList {
 public:
  void append(std::uint32_t code) {
    quanta::detail::append_utf8(word_.text, code);
    ++word_.characters;
  }
  void end_word() {
    if (word_.characters > 0) words_.push_back(std::exchange(word_, {}));
  }
  void add_alone(std::uint32_t code) {
    end_word();
    append(code);
    end_word();
  }
  std::vector<Word> take() {
    end_word();
    return std::move(words_);
  }

 private:
  Word word_;
  std::vector<Word> words_;
};

}  // namespace

std::vector<Word> split_words(std::string_view text, const NormalizerOptions& options) {
  WordList words;
  const auto add = [&](std::uint32_t code) {
    if (is_punctuation(code)) {
      words.add_alone(code);
    } else {
      words.append(code);
    }
  };
  for_each_code_point(text, [&](std::uint32_t code) {
    if (is_space(code)) return words.end_word();
    if (is_dropped(code)) return;
    const bool alone = options.split_chinese && is_ideograph(code);
    if (alone) words.end_word();
    if (options.lower_case) {
      fold(code, add);
    } else {
      add(code);
    }
    if (alone) words.end_word();
  });
  return words.take();
}

}  // namespace quanta::nn::models::detail
