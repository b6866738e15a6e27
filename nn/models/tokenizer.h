#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quanta/runtime/tensor.h"

// A tokenizer is immutable: many threads may call one at once. What each function throws is said
// below.

namespace quanta::nn::models {

struct TokenizerOptions {
  bool lower_case = true;              ///< lower-cases and strips accents
  bool split_chinese = true;           ///< each CJK ideograph is a word of its own
  std::int64_t max_length = 512;       ///< tokens with [CLS] and [SEP]; the rest is cut off
  std::int64_t max_word_length = 100;  ///< characters; longer words are [UNK]
};

/// Token numbers as a model takes them: Int64 [texts, longest text], [PAD] behind shorter ones.
struct TokenBatch {
  Tensor input_ids;
  Tensor attention_mask;  ///< Int64, 1 for tokens, 0 for padding
};

/// BERT's tokenizer: the text is cleaned, lower-cased, freed of accents and split at white space
/// and punctuation; each word is then the longest piece of the vocabulary that it starts with,
/// followed by the longest "##" pieces (WordPiece). Same ids as Hugging Face's BertTokenizer,
/// except that special tokens within the text ("[SEP]") are split as any other text.
///
/// Letters are those of Unicode 14; CJK compatibility ideographs stay as they are.
class WordPieceTokenizer {
 public:
  /// Reads `vocab.txt`: one token a line, numbered from 0. Throws FileError when the file is
  /// missing, larger than 64 MB, not UTF-8, has an empty line or a token twice, or lacks [UNK],
  /// [CLS], [SEP] or [PAD].
  static WordPieceTokenizer from_file(const std::filesystem::path& path,
                                      const TokenizerOptions& options = {});
  /// The same from the file's text; `name` stands for the path in messages.
  static WordPieceTokenizer from_text(std::string_view vocabulary, const std::string& name,
                                      const TokenizerOptions& options = {});

  const TokenizerOptions& options() const noexcept { return options_; }
  std::size_t vocabulary_size() const noexcept { return tokens_.size(); }
  /// Throws ArgumentError for a number outside of the vocabulary.
  const std::string& token(std::int64_t id) const;
  /// The number of a token; that of [UNK] when there is none.
  std::int64_t id(std::string_view token) const noexcept;

  /// The pieces of a text, without special tokens and not cut off. Bytes that are not UTF-8 are
  /// dropped, as BERT drops the replacement character.
  std::vector<std::string> tokenize(std::string_view text) const;
  /// [CLS] pieces [SEP], at most max_length numbers.
  std::vector<std::int64_t> encode(std::string_view text) const;
  /// Throws ArgumentError when there is no text.
  TokenBatch operator()(std::span<const std::string> texts) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>{}(text);
    }
  };

  explicit WordPieceTokenizer(const TokenizerOptions& options) : options_(options) {}
  void add_token(std::string_view token, const std::string& name);
  void add_pieces(std::string_view word, std::vector<std::int64_t>& ids) const;
  /// The pieces of whole words, until there are `enough`.
  std::vector<std::int64_t> pieces(std::string_view text, std::size_t enough) const;

  TokenizerOptions options_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> ids_;
  std::size_t longest_ = 0;  // bytes of a token
  std::int64_t unknown_ = 0;
  std::int64_t first_ = 0;  // [CLS]
  std::int64_t last_ = 0;   // [SEP]
  std::int64_t padding_ = 0;
};

}  // namespace quanta::nn::models
