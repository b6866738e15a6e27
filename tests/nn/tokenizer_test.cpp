#include "quanta/nn/models/tokenizer.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "quanta/runtime/error.h"

namespace quanta::nn::models {
namespace {

using Tokens = std::vector<std::string>;

const std::string kVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nworld\n,\n!\nun\n##aff\n##"
    "able\ncafe\nnaive\n\u4e2d\n\u6587\n"
    "a\nb\nab\n##c\n\u03c3\u03b1\u03c3\n\u043c\u0438\u0440\n$\n\u2014\n'\ns\nit\n##e\n"
    "\u1112\u1161\u11ab\ni\n";

WordPieceTokenizer tokenizer(const TokenizerOptions& options = {}) {
  return WordPieceTokenizer::from_text(kVocabulary, "vocab.txt", options);
}

TEST_CASE("WordPieceTokenizer: words split into the longest pieces of the vocabulary") {
  const WordPieceTokenizer t = tokenizer();
  CHECK(t.tokenize("unaffable") == Tokens{"un", "##aff", "##able"});
  CHECK(t.tokenize("abc") == Tokens{"ab", "##c"});
  CHECK(t.tokenize("ac ab") == Tokens{"a", "##c", "ab"});
  // Nothing matches the rest, so that the whole word is unknown.
  CHECK(t.tokenize("abx hello") == Tokens{"[UNK]", "hello"});
}

TEST_CASE("WordPieceTokenizer: punctuation and symbols of ASCII are words of their own") {
  const WordPieceTokenizer t = tokenizer();
  CHECK(t.tokenize("Hello,world!!") == Tokens{"hello", ",", "world", "!", "!"});
  CHECK(t.tokenize("it's") == Tokens{"it", "'", "s"});
  CHECK(t.tokenize("a$b\u2014a") == Tokens{"a", "$", "b", "\u2014", "a"});
}

TEST_CASE("WordPieceTokenizer: lower case and accents of several scripts") {
  const WordPieceTokenizer t = tokenizer();
  CHECK(t.tokenize("CAF\u00c9 na\u00efve") == Tokens{"cafe", "naive"});
  CHECK(t.tokenize("cafe\u0301") == Tokens{"cafe"});
  CHECK(t.tokenize("\u03a3\u0391\u03a3 \u041c\u0418\u0420") ==
        Tokens{"\u03c3\u03b1\u03c3", "\u043c\u0438\u0440"});
  CHECK(t.tokenize("\u0130") == Tokens{"i"});
  // A Korean syllable becomes its letters.
  CHECK(t.tokenize("\ud55c") == Tokens{"\u1112\u1161\u11ab"});
  const WordPieceTokenizer cased = tokenizer({.lower_case = false});
  CHECK(cased.tokenize("Hello hello") == Tokens{"[UNK]", "hello"});
  CHECK(cased.tokenize("caf\u00e9") == Tokens{"[UNK]"});
}

TEST_CASE("WordPieceTokenizer: ideographs stand alone unless asked otherwise") {
  CHECK(tokenizer().tokenize("a\u4e2d\u6587b") == Tokens{"a", "\u4e2d", "\u6587", "b"});
  CHECK(tokenizer({.split_chinese = false}).tokenize("\u4e2d\u6587") == Tokens{"[UNK]"});
}

TEST_CASE("WordPieceTokenizer: white space parts words and control characters vanish") {
  const WordPieceTokenizer t = tokenizer();
  CHECK(t.tokenize("a\tb\nc\ra\u00a0b\u3000a\u2028b").size() == 7);
  CHECK(t.tokenize("he\x01ll\u200do \ufeffworld") == Tokens{"hello", "world"});
  CHECK(t.tokenize("").empty());
  CHECK(t.tokenize(" \n ").empty());
}

TEST_CASE("WordPieceTokenizer: bytes that are not UTF-8 are dropped") {
  const WordPieceTokenizer t = tokenizer();
  CHECK(t.tokenize("he\xffllo wor\xc3ld") == Tokens{"hello", "world"});
  CHECK(t.tokenize("\xed\xa0\x80hello\xf4\x90\x80\x80") == Tokens{"hello"});
  CHECK(t.tokenize("hello\ufffd") == Tokens{"hello"});
  CHECK(t.tokenize(std::string("hel\0lo", 6)) == Tokens{"hello"});
  CHECK(t.tokenize("hello\xe4\xb8") == Tokens{"hello"});
}

TEST_CASE("WordPieceTokenizer: a word of more than a hundred characters is unknown") {
  std::string word = "a";
  for (int i = 1; i < 100; ++i) word += "c";
  CHECK(tokenizer().tokenize(word).size() == 100);
  CHECK(tokenizer().tokenize(word + "c") == Tokens{"[UNK]"});
}

TEST_CASE("WordPieceTokenizer: batches are padded and masked and long texts cut") {
  const WordPieceTokenizer t = tokenizer({.max_length = 5});
  const std::vector<std::string> texts{"hello", "hello , world ! hello", ""};
  const TokenBatch batch = t(texts);
  CHECK(batch.input_ids.sizes() == Dims{3, 5});
  CHECK(batch.input_ids.to_int64_vector() ==
        std::vector<std::int64_t>{2, 4, 3, 0, 0, 2, 4, 6, 5, 3, 2, 3, 0, 0, 0});
  CHECK(batch.attention_mask.to_int64_vector() ==
        std::vector<std::int64_t>{1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0});
  // A word of several pieces is cut as well.
  CHECK(tokenizer({.max_length = 4}).encode("unaffable") == std::vector<std::int64_t>{2, 8, 9, 3});
  CHECK(t.id("hello") == 4);
  CHECK(t.id("nothing") == 1);
  CHECK(t.token(3) == "[SEP]");
}

TEST_CASE("WordPieceTokenizer: bad vocabularies are refused with their line") {
  const auto load = [](const std::string& text) {
    return WordPieceTokenizer::from_text(text, "v.txt");
  };
  CHECK_NOTHROW(load("[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]"));
  CHECK_THROWS_WITH_AS(load(""),
                       doctest::Contains("v.txt: expected a BERT vocabulary with the "
                                         "token [UNK], got 0 tokens"),
                       FileError);
  CHECK_THROWS_WITH_AS(load("[PAD]\n[UNK]\n[CLS]\n"), doctest::Contains("the token [SEP]"),
                       FileError);
  CHECK_THROWS_WITH_AS(load("[PAD]\n\n[UNK]\n"),
                       doctest::Contains("line 2: expected one token, got an empty line"),
                       FileError);
  CHECK_THROWS_WITH_AS(load("[PAD]\na\na\n"),
                       doctest::Contains("line 3: expected one token, got "
                                         "'a' of line 2 again"),
                       FileError);
  CHECK_THROWS_WITH_AS(load("[PAD]\n\xff\xfe\n"),
                       doctest::Contains("line 2: expected one token, "
                                         "got bytes that are not UTF-8"),
                       FileError);
  CHECK_THROWS_WITH_AS(load(std::string((std::size_t{64} << 20) + 1, 'a')),
                       doctest::Contains("expected at most 67108864 bytes"), FileError);
  CHECK_THROWS_AS(WordPieceTokenizer::from_file("/nonexistent/vocab.txt"), FileError);
  CHECK_THROWS_AS(WordPieceTokenizer::from_file(std::filesystem::temp_directory_path()), FileError);
}

TEST_CASE("WordPieceTokenizer: bad options and numbers are refused by name") {
  CHECK_THROWS_WITH_AS(tokenizer({.max_length = 1}),
                       doctest::Contains("max_length: expected at least 2"), ArgumentError);
  CHECK_THROWS_WITH_AS(tokenizer({.max_word_length = 0}),
                       doctest::Contains("max_word_length: expected at least 1"), ArgumentError);
  CHECK_THROWS_WITH_AS(tokenizer()(std::span<const std::string>()),
                       doctest::Contains("texts: expected at least one"), ArgumentError);
  CHECK_THROWS_WITH_AS(static_cast<void>(tokenizer().token(29)),
                       doctest::Contains("id: expected 0..28, got 29"), ArgumentError);
}

}  // namespace
}  // namespace quanta::nn::models
