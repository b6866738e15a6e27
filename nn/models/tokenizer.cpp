#include "quanta/nn/models/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "quanta/nn/models/detail/text_normalizer.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_bytes.h"
#include "quanta/runtime/detail/reading.h"
#include "quanta/runtime/detail/utf8.h"

namespace quanta::nn::models {
namespace {

constexpr std::size_t kMaxVocabularyBytes = std::size_t{64} << 20;
constexpr std::string_view kContinued = "##";

void check_options(const TokenizerOptions& options) {
  QUANTA_CHECK(options.max_length >= 2,
               "WordPieceTokenizer: max_length: expected at least 2 for [CLS] and [SEP], got {}",
               options.max_length);
  QUANTA_CHECK(options.max_word_length >= 1,
               "WordPieceTokenizer: max_word_length: expected at least 1, got {}",
               options.max_word_length);
}

}  // namespace

WordPieceTokenizer WordPieceTokenizer::from_file(const std::filesystem::path& path,
                                                 const TokenizerOptions& options) {
  const std::string where = "WordPieceTokenizer: " + path.string();
  return quanta::detail::reading(where, [&] {
    const auto file = quanta::detail::FileBytes::open(path, "WordPieceTokenizer");
    const std::span<const std::byte> bytes = file->bytes();
    return from_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string(),
                     options);
  });
}

WordPieceTokenizer WordPieceTokenizer::from_text(std::string_view vocabulary,
                                                 const std::string& name,
                                                 const TokenizerOptions& options) {
  check_options(options);
  if (vocabulary.size() > kMaxVocabularyBytes) {
    throw FileError(fmt::format("WordPieceTokenizer: {}: expected at most {} bytes, got {}", name,
                                kMaxVocabularyBytes, vocabulary.size()));
  }
  WordPieceTokenizer tokenizer(options);
  while (!vocabulary.empty()) {
    const std::size_t end = std::min(vocabulary.find('\n'), vocabulary.size());
    std::string_view line = vocabulary.substr(0, end);
    vocabulary.remove_prefix(std::min(end + 1, vocabulary.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    tokenizer.add_token(line, name);
  }
  const auto special = [&](std::string_view token) {
    const auto found = tokenizer.ids_.find(token);
    if (found == tokenizer.ids_.end()) {
      throw FileError(fmt::format(
          "WordPieceTokenizer: {}: expected a BERT vocabulary with the token {}, got {} tokens "
          "without it",
          name, token, tokenizer.tokens_.size()));
    }
    return found->second;
  };
  tokenizer.unknown_ = special("[UNK]");
  tokenizer.first_ = special("[CLS]");
  tokenizer.last_ = special("[SEP]");
  tokenizer.padding_ = special("[PAD]");
  return tokenizer;
}

void WordPieceTokenizer::add_token(std::string_view token, const std::string& name) {
  const auto id = static_cast<std::int64_t>(tokens_.size());
  const auto fail = [&](std::string_view what) {
    throw FileError(fmt::format("WordPieceTokenizer: {}: line {}: expected one token, got {}", name,
                                id + 1, what));
  };
  if (token.empty()) fail("an empty line");
  if (!quanta::detail::is_utf8(token)) fail("bytes that are not UTF-8");
  const auto [place, is_new] = ids_.emplace(token, id);
  if (!is_new) fail(fmt::format("'{}' of line {} again", token, place->second + 1));
  tokens_.emplace_back(token);
  longest_ = std::max(longest_, token.size());
}

const std::string& WordPieceTokenizer::token(std::int64_t id) const {
  QUANTA_CHECK(id >= 0 && id < static_cast<std::int64_t>(tokens_.size()),
               "WordPieceTokenizer: id: expected 0..{}, got {}", tokens_.size() - 1, id);
  return tokens_[static_cast<std::size_t>(id)];
}

std::int64_t WordPieceTokenizer::id(std::string_view token) const noexcept {
  const auto found = ids_.find(token);
  return found == ids_.end() ? unknown_ : found->second;
}

// The longest piece that the word starts with, then the longest "##" piece of the rest, and so on.
void WordPieceTokenizer::add_pieces(std::string_view word, std::vector<std::int64_t>& ids) const {
  const std::size_t before = ids.size();
  std::string piece;
  for (std::size_t start = 0; start < word.size();) {
    const std::string_view prefix = start == 0 ? "" : kContinued;
    std::size_t length = std::min(word.size() - start, longest_);
    auto found = ids_.end();
    // A length that ends within a character matches nothing, as all tokens are UTF-8.
    for (; length > 0; --length) {
      piece.assign(prefix).append(word.substr(start, length));
      found = ids_.find(piece);
      if (found != ids_.end()) break;
    }
    if (length == 0) {
      ids.resize(before);
      ids.push_back(unknown_);
      return;
    }
    ids.push_back(found->second);
    start += length;
  }
}

std::vector<std::int64_t> WordPieceTokenizer::pieces(std::string_view text,
                                                     std::size_t enough) const {
  std::vector<std::int64_t> ids;
  const detail::NormalizerOptions options{options_.lower_case, options_.split_chinese};
  for (const detail::Word& word : detail::split_words(text, options)) {
    if (ids.size() >= enough) break;
    if (word.characters > options_.max_word_length) {
      ids.push_back(unknown_);
    } else {
      add_pieces(word.text, ids);
    }
  }
  return ids;
}

std::vector<std::string> WordPieceTokenizer::tokenize(std::string_view text) const {
  std::vector<std::string> result;
  for (const std::int64_t id : pieces(text, text.size() + 1)) result.push_back(token(id));
  return result;
}

std::vector<std::int64_t> WordPieceTokenizer::encode(std::string_view text) const {
  const auto room = static_cast<std::size_t>(options_.max_length - 2);
  std::vector<std::int64_t> ids = pieces(text, room);
  ids.resize(std::min(ids.size(), room));
  ids.insert(ids.begin(), first_);
  ids.push_back(last_);
  return ids;
}

TokenBatch WordPieceTokenizer::operator()(std::span<const std::string> texts) const {
  QUANTA_CHECK(!texts.empty(), "WordPieceTokenizer: texts: expected at least one, got none");
  std::vector<std::vector<std::int64_t>> rows;
  std::size_t length = 0;
  for (const std::string& text : texts) {
    rows.push_back(encode(text));
    length = std::max(length, rows.back().size());
  }
  const Dims sizes{static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(length)};
  TokenBatch batch{Tensor::full(sizes, static_cast<double>(padding_), DType::Int64),
                   Tensor::zeros(sizes, DType::Int64)};
  auto* ids = batch.input_ids.mutable_data<std::int64_t>();
  auto* mask = batch.attention_mask.mutable_data<std::int64_t>();
  for (const std::vector<std::int64_t>& row : rows) {
    std::copy(row.begin(), row.end(), ids);
    std::fill_n(mask, row.size(), std::int64_t{1});
    ids += length;
    mask += length;
  }
  return batch;
}

}  // namespace quanta::nn::models
