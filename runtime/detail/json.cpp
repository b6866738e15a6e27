#include "quanta/runtime/detail/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/utf8.h"

namespace quanta::detail {
namespace {

class Parser {
 public:
  Parser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Json parse() {
    Json value = parse_value(0);
    skip_space();
    if (position_ != text_.size()) fail("the end");
    return value;
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const { fail_at(position_, expected); }

  [[noreturn]] void fail_at(std::size_t position, std::string_view expected) const {
    const auto byte = [&] {
      return static_cast<unsigned>(static_cast<unsigned char>(text_[position]));
    };
    const std::string got = position >= text_.size()         ? "the end of the text"
                            : byte() > 0x20 && byte() < 0x7F ? fmt::format("'{}'", text_[position])
                                                             : fmt::format("byte 0x{:02x}", byte());
    throw FileError(
        fmt::format("{}: json byte {}: expected {}, got {}", where_, position, expected, got));
  }

  char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }

  bool accept(char wanted) {
    if (position_ >= text_.size() || text_[position_] != wanted) return false;
    ++position_;
    return true;
  }

  void skip_space() {
    while (position_ < text_.size()) {
      const char c = text_[position_];
      if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return;
      ++position_;
    }
  }

  Json parse_value(std::size_t depth) {
    if (depth > kMaxJsonDepth) fail(fmt::format("at most {} levels of nesting", kMaxJsonDepth));
    if (++values_ > kMaxJsonValues) fail(fmt::format("at most {} values", kMaxJsonValues));
    skip_space();
    switch (peek()) {
      case '{':
        return parse_object(depth);
      case '[':
        return parse_array(depth);
      case '"':
        return parse_string();
      case 't':
        return parse_word("true", true);
      case 'f':
        return parse_word("false", false);
      case 'n':
        return parse_word("null", nullptr);
      default:
        return parse_number();
    }
  }

  Json parse_word(std::string_view word, Json value) {
    if (text_.substr(position_, word.size()) != word) fail("a value");
    position_ += word.size();
    return value;
  }

  Json parse_array(std::size_t depth) {
    ++position_;
    Json::Array items;
    skip_space();
    if (accept(']')) return items;
    do {
      items.push_back(parse_value(depth + 1));
      skip_space();
    } while (accept(','));
    if (!accept(']')) fail("',' or ']'");
    return items;
  }

  Json parse_object(std::size_t depth) {
    const std::size_t begin = position_++;
    Json::Object members;
    skip_space();
    if (accept('}')) return members;
    do {
      skip_space();
      if (peek() != '"') fail("a key in quotes");
      std::string key = parse_string();
      skip_space();
      if (!accept(':')) fail("':'");
      members.emplace_back(std::move(key), parse_value(depth + 1));
      skip_space();
    } while (accept(','));
    if (!accept('}')) fail("',' or '}'");
    check_keys(members, begin);
    return members;
  }

  void check_keys(const Json::Object& members, std::size_t begin) const {
    std::vector<std::string_view> keys;
    keys.reserve(members.size());
    for (const Json::Member& member : members) keys.push_back(member.first);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) {
      throw FileError(
          fmt::format("{}: json byte {}: expected an object with different keys, got '{}' twice",
                      where_, begin, twice->substr(0, 200)));
    }
  }

  std::uint32_t parse_hex4() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      std::uint32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<std::uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<std::uint32_t>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<std::uint32_t>(c - 'A' + 10);
      } else {
        fail("four hexadecimal digits");
      }
      code = code * 16 + digit;
      ++position_;
    }
    return code;
  }

  void parse_unicode_escape(std::string& result) {
    const std::size_t begin = position_;
    std::uint32_t code = parse_hex4();
    if (code >= 0xDC00 && code <= 0xDFFF) fail_at(begin, "a high surrogate before a low one");
    if (code >= 0xD800 && code <= 0xDBFF) {
      if (!accept('\\') || !accept('u')) fail("a low surrogate");
      const std::size_t second = position_;
      const std::uint32_t low = parse_hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail_at(second, "a low surrogate");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(result, code);
  }

  std::string parse_string() {
    ++position_;
    std::string result;
    while (true) {
      if (position_ >= text_.size()) fail("'\"'");
      const auto c = static_cast<unsigned char>(text_[position_]);
      if (c == '"') {
        ++position_;
        return result;
      }
      if (c == '\\') {
        ++position_;
        parse_escape(result);
        continue;
      }
      if (c < 0x20) fail("an escaped control character");
      const std::size_t length = utf8_character(text_, position_);
      if (length == 0) fail("UTF-8");
      result.append(text_, position_, length);
      position_ += length;
    }
  }

  void parse_escape(std::string& result) {
    constexpr std::string_view kEscapes = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (accept('u')) return parse_unicode_escape(result);
    const std::size_t index =
        position_ < text_.size() ? kEscapes.find(text_[position_]) : kEscapes.npos;
    if (index == kEscapes.npos) fail("an escape");
    result.push_back(kMeanings[index]);
    ++position_;
  }

  bool skip_digits() {
    const std::size_t begin = position_;
    while (peek() >= '0' && peek() <= '9') ++position_;
    return position_ > begin;
  }

  Json parse_number() {
    const std::size_t begin = position_;
    const bool negative = accept('-');
    if (!negative && !(peek() >= '0' && peek() <= '9')) fail("a value");
    if (!accept('0') && !skip_digits()) fail("a digit");
    bool integer = true;
    if (accept('.')) {
      integer = false;
      if (!skip_digits()) fail("a digit");
    }
    if (accept('e') || accept('E')) {
      integer = false;
      if (!accept('+')) accept('-');
      if (!skip_digits()) fail("a digit");
    }
    const char* first = text_.data() + begin;
    const char* last = text_.data() + position_;
    if (integer) {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(first, last, value);
      // Minus zero is a double: an integer would lose the sign.
      if (error == std::errc{} && end == last && !(negative && value == 0)) return value;
    }
    double value = 0.0;
    const auto [end, error] = std::from_chars(first, last, value);
    if (error != std::errc{} || end != last) fail_at(begin, "a number within the range of double");
    return value;
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t position_ = 0;
  std::size_t values_ = 0;
};

void write_string(std::string_view value, std::string& text) {
  QUANTA_CHECK(is_utf8(value),
               "json: string: expected UTF-8, got other bytes in a text of {} bytes", value.size());
  text.push_back('"');
  for (const char c : value) {
    switch (c) {
      case '"':
        text += "\\\"";
        break;
      case '\\':
        text += "\\\\";
        break;
      case '\n':
        text += "\\n";
        break;
      case '\r':
        text += "\\r";
        break;
      case '\t':
        text += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(text), "\\u{:04x}", static_cast<unsigned>(c));
        } else {
          text.push_back(c);
        }
    }
  }
  text.push_back('"');
}

void write_double(double value, std::string& text) {
  QUANTA_CHECK(std::isfinite(value), "json: number: expected a finite one, got {}", value);
  std::array<char, 32> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  const std::string_view shortest(digits.data(), static_cast<std::size_t>(end - digits.data()));
  text += shortest;
  if (shortest.find_first_of(".e") == std::string_view::npos) text += ".0";
}

}  // namespace

Json::Json(const Json& other) {
  std::visit([this](const auto& value) { value_ = value; }, other.value_);
}

double Json::as_number() const noexcept {
  if (const std::int64_t* integer = as_int()) return static_cast<double>(*integer);
  const double* number = std::get_if<double>(&value_);
  return number == nullptr ? 0.0 : *number;
}

const Json* Json::find(std::string_view key) const noexcept {
  const Object* object = as_object();
  if (object == nullptr) return nullptr;
  const auto found = std::find_if(object->begin(), object->end(),
                                  [&](const Member& member) { return member.first == key; });
  return found == object->end() ? nullptr : &found->second;
}

std::string_view Json::kind() const noexcept {
  constexpr std::array<std::string_view, 7> kNames{"null",     "a bool",   "an integer", "a number",
                                                   "a string", "an array", "an object"};
  return kNames[value_.index()];
}

Json parse_json(std::string_view text, std::string_view where) {
  return Parser(text, where).parse();
}

void write_json(const Json& value, std::string& text) {
  if (const std::string* string = value.as_string()) return write_string(*string, text);
  if (const bool* boolean = value.as_bool()) {
    text += *boolean ? "true" : "false";
  } else if (const std::int64_t* integer = value.as_int()) {
    text += std::to_string(*integer);
  } else if (value.is_number()) {
    write_double(value.as_number(), text);
  } else if (const Json::Array* array = value.as_array()) {
    text.push_back('[');
    for (std::size_t i = 0; i < array->size(); ++i) {
      if (i > 0) text.push_back(',');
      write_json((*array)[i], text);
    }
    text.push_back(']');
  } else if (const Json::Object* object = value.as_object()) {
    text.push_back('{');
    for (std::size_t i = 0; i < object->size(); ++i) {
      if (i > 0) text.push_back(',');
      write_string((*object)[i].first, text);
      text.push_back(':');
      write_json((*object)[i].second, text);
    }
    text.push_back('}');
  } else {
    text += "null";
  }
}

std::string to_json_text(const Json& value) {
  std::string text;
  write_json(value, text);
  return text;
}

}  // namespace quanta::detail
