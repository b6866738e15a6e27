#include "quanta/observers/yaml/descriptor_yaml.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/reading.h"

namespace quanta::modelopt {
namespace {

using Dict = ConfigValue::Dict;
using Sequence = ConfigValue::Sequence;

constexpr std::size_t kMaxBytes = std::size_t{8} << 20;
constexpr int kMaxDepth = 16;
// An amax has as many as its tensor has rows or blocks. What takes time or memory that the text
// does not show, the keys of dictionaries and what aliases repeat, is counted by itself.
constexpr int kMaxValues = 1000000;
constexpr int kMaxCostly = 10000;

// Reading ----------------------------------------------------------------------------------------

std::optional<std::int64_t> as_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> as_float(std::string_view text) {
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  const bool negative = digits.starts_with('-');
  const std::string_view unsigned_part = negative ? digits.substr(1) : digits;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (unsigned_part == ".inf" || unsigned_part == ".Inf" || unsigned_part == ".INF") {
    return negative ? -kInfinity : kInfinity;
  }
  if (text == ".nan" || text == ".NaN" || text == ".NAN") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  // Without a digit in front, words such as "infinity" would be numbers.
  if (unsigned_part.empty() ||
      unsigned_part.find_first_not_of("0123456789.eE+-") != std::string_view::npos) {
    return std::nullopt;
  }
  double value = 0.0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// A scalar without quotes and tag.
ConfigValue plain_scalar(const std::string& text) {
  constexpr std::string_view kNull[] = {"", "~", "null", "Null", "NULL"};
  constexpr std::string_view kTrue[] = {"true", "True", "TRUE", "yes", "Yes",
                                        "YES",  "on",   "On",   "ON"};
  constexpr std::string_view kFalse[] = {"false", "False", "FALSE", "no", "No",
                                         "NO",    "off",   "Off",   "OFF"};
  const auto is_one_of = [&](const auto& words) {
    return std::find(std::begin(words), std::end(words), text) != std::end(words);
  };
  if (is_one_of(kNull)) return {};
  if (is_one_of(kTrue)) return true;
  if (is_one_of(kFalse)) return false;
  if (const auto whole = as_integer(text)) return *whole;
  if (const auto real = as_float(text)) return *real;
  return text;
}

std::string position(const YAML::Mark& mark) {
  if (mark.is_null()) return "the text";
  return fmt::format("line {}, column {}", mark.line + 1, mark.column + 1);
}

class Reader {
 public:
  ConfigValue read(const YAML::Node& node, int depth = 0) {
    QUANTA_CHECK(depth <= kMaxDepth, "parse_yaml: text: expected at most {} levels, got more at {}",
                 kMaxDepth, position(node.Mark()));
    QUANTA_CHECK(++values_ <= kMaxValues, "parse_yaml: text: expected at most {} values, got more",
                 kMaxValues);
    if (is_repeated(node)) count_costly();
    // "?" is no tag at all, "!" what quotes give.
    const std::string& tag = node.Tag();
    QUANTA_CHECK(tag.empty() || tag == "?" || tag == "!",
                 "parse_yaml: text: expected no tags, got {} at {}", tag, position(node.Mark()));
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        if (tag == "!") return node.Scalar();
        return plain_scalar(node.Scalar());
      case YAML::NodeType::Sequence:
        return read_sequence(node, depth);
      case YAML::NodeType::Map:
        return read_map(node, depth);
      case YAML::NodeType::Null:
      case YAML::NodeType::Undefined:
        break;
    }
    return {};
  }

 private:
  // An alias is the node that its anchor stands at, and what is inside that.
  bool is_repeated(const YAML::Node& node) {
    const auto kind = static_cast<std::int64_t>(node.Type());
    return !seen_.insert(std::int64_t{node.Mark().pos} * 8 + kind).second;
  }

  void count_costly() {
    QUANTA_CHECK(++costly_ <= kMaxCostly,
                 "parse_yaml: text: expected at most {} keys and values of aliases, got more",
                 kMaxCostly);
  }

  ConfigValue read_sequence(const YAML::Node& node, int depth) {
    std::vector<ConfigValue> items;
    for (const YAML::Node& item : node) items.push_back(read(item, depth + 1));
    return ConfigValue::list(std::move(items));
  }

  ConfigValue read_map(const YAML::Node& node, int depth) {
    Dict dict;
    for (const auto& entry : node) {
      count_costly();
      ConfigValue key = read(entry.first, depth + 1);
      for (const auto& [other, value] : dict.items) {
        QUANTA_CHECK(!(other == key), "parse_yaml: text: expected {} once, got it again at {}",
                     to_string(key), position(entry.first.Mark()));
      }
      dict.items.emplace_back(std::move(key), read(entry.second, depth + 1));
    }
    return dict;
  }

  int values_ = 0;
  int costly_ = 0;
  std::unordered_set<std::int64_t> seen_;  // positions and kinds
};

// The parser keeps some hundred bytes for each value: no text comes to it that has too many.
void check_separators(std::string_view text) {
  const auto separates = [](char c) { return c == ',' || c == '\n' || c == '['; };
  const auto count = std::count_if(text.begin(), text.end(), separates);
  QUANTA_CHECK(count <= kMaxValues,
               "parse_yaml: text: expected at most {} values, got {} lines, commas and brackets",
               kMaxValues, count);
}

// Writing ----------------------------------------------------------------------------------------

// Text that reads as itself without quotes.
bool is_plain(const std::string& text) {
  if (text.empty() || plain_scalar(text).get_if<std::string>() == nullptr) return false;
  if (std::isalpha(static_cast<unsigned char>(text[0])) == 0 && text[0] != '_') return false;
  if (text.back() == ' ') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
           c == '/' || c == ' ';
  });
}

bool is_printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// As PyYAML: without quotes, else in single ones, where both can be.
std::string scalar_text(const std::string& text) {
  if (is_plain(text)) return text;
  if (is_printable(text)) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("''") : std::string(1, c);
    return result + "'";
  }
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned>(byte));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string scalar_text(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0.0 ? "-.inf" : ".inf";
  std::string text = float_text(value);
  // YAML 1.1 knows no floats without a point.
  const std::size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

class Writer {
 public:
  std::string write(const Dict& dict) {
    write_dict(dict, 0);
    return std::move(text_);
  }

 private:
  static std::string indented(int level) {
    return std::string(static_cast<std::size_t>(2 * level), ' ');
  }

  static std::string scalar(const ConfigValue& value) {
    struct Visitor {
      std::string operator()(ConfigValue::Null) const { return "null"; }
      std::string operator()(bool flag) const { return flag ? "true" : "false"; }
      std::string operator()(std::int64_t whole) const { return fmt::format("{}", whole); }
      std::string operator()(double real) const { return scalar_text(real); }
      std::string operator()(const std::string& text) const { return scalar_text(text); }
      std::string operator()(const Sequence&) const { return "[]"; }
      std::string operator()(const Dict&) const { return "{}"; }
    };
    return std::visit(Visitor{}, value.get());
  }

  static bool is_nested(const ConfigValue& value) {
    if (const auto* sequence = value.get_if<Sequence>()) return !sequence->items.empty();
    const auto* dict = value.get_if<Dict>();
    return dict != nullptr && !dict->items.empty();
  }

  void write_dict(const Dict& dict, int level) {
    auto items = dict.items;
    std::stable_sort(items.begin(), items.end(), [](const auto& lhs, const auto& rhs) {
      const auto* left = lhs.first.template get_if<std::string>();
      const auto* right = rhs.first.template get_if<std::string>();
      if (left != nullptr && right != nullptr) return *left < *right;
      return left == nullptr && right != nullptr;
    });
    for (const auto& [key, value] : items) {
      text_ += indented(level) + scalar(key) + ":";
      write_value(value, level);
    }
  }

  void write_value(const ConfigValue& value, int level) {
    if (!is_nested(value)) {
      text_ += " " + scalar(value) + "\n";
      return;
    }
    text_ += "\n";
    if (const auto* dict = value.get_if<Dict>()) return write_dict(*dict, level + 1);
    write_items(*value.get_if<Sequence>(), level, indented(level));
  }

  // Lists stand at the level of their key, lists in them one level further. Dictionaries in one go
  // in flow style. `first` stands before the first item.
  void write_items(const Sequence& sequence, int level, const std::string& first) {
    bool is_first = true;
    for (const ConfigValue& item : sequence.items) {
      text_ += (is_first ? first : indented(level)) + "- ";
      is_first = false;
      const auto* inner = item.get_if<Sequence>();
      if (inner != nullptr && is_nested(item)) {
        write_items(*inner, level + 1, "");
      } else {
        text_ += flow(item) + "\n";
      }
    }
  }

  static std::string flow(const ConfigValue& value) {
    if (!is_nested(value)) return scalar(value);
    std::string inside;
    const auto add = [&](const std::string& text) {
      inside += (inside.empty() ? "" : ", ") + text;
    };
    if (const auto* sequence = value.get_if<Sequence>()) {
      for (const ConfigValue& item : sequence->items) add(flow(item));
      return "[" + inside + "]";
    }
    for (const auto& [key, entry] : value.get_if<Dict>()->items) {
      add(scalar(key) + ": " + flow(entry));
    }
    return "{" + inside + "}";
  }

  std::string text_;
};

}  // namespace

std::string to_yaml(const ConfigValue& value) {
  const auto* dict = value.get_if<Dict>();
  QUANTA_CHECK(dict != nullptr, "to_yaml: value: expected a dictionary, got {}",
               modelopt::to_string(value));
  return Writer().write(*dict);
}

ConfigValue parse_yaml(std::string_view text) {
  QUANTA_CHECK(text.size() <= kMaxBytes, "parse_yaml: text: expected at most {} bytes, got {}",
               kMaxBytes, text.size());
  // The parser takes one for the end of the text.
  QUANTA_CHECK(text.find('\0') == std::string_view::npos,
               "parse_yaml: text: expected no NUL, got one at byte {}", text.find('\0'));
  check_separators(text);
  return quanta::detail::reading("parse_yaml", [&] {
    try {
      ConfigValue value = Reader().read(YAML::Load(std::string(text)));
      QUANTA_CHECK(value.get_if<Dict>() != nullptr,
                   "parse_yaml: text: expected a dictionary, got {}",
                   modelopt::to_string(value).substr(0, 100));
      return value;
    } catch (const YAML::Exception& error) {
      throw ArgumentError(fmt::format("parse_yaml: text: expected YAML, got an error at {}: {}",
                                      position(error.mark), error.msg));
    }
  });
}

std::string to_yaml(const ScaledQuantDescriptor& descriptor) { return to_yaml(descriptor.dict()); }

std::string released_yaml(const ScaledQuantDescriptor& descriptor) {
  QUANTA_CHECK(!descriptor.axis || !descriptor.axis->single,
               "released_yaml: axis: expected a tuple, got {}",
               descriptor.axis ? modelopt::to_string(to_value(*descriptor.axis)) : "");
  return to_yaml(descriptor.released_dict());
}

ScaledQuantDescriptor descriptor_from_yaml(std::string_view text,
                                           ScaledQuantDescriptor::Dialect dialect) {
  return ScaledQuantDescriptor::from_dict(parse_yaml(text), dialect);
}

std::string to_yaml(const QuantizerConfig& config) { return to_yaml(config.to_dict()); }

QuantizerConfig config_from_yaml(std::string_view text) {
  return QuantizerConfig::from_dict(parse_yaml(text));
}

}  // namespace quanta::modelopt
