#include "quanta/runtime/state_names.h"

#include <optional>
#include <regex>
#include <utility>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

// std::regex calls itself for each character; names of networks are far shorter.
constexpr std::size_t kMaxRegexName = 1024;

using Rule = RenameTable::Rule;

std::regex compile(std::string_view op, const std::string& pattern) {
  try {
    return std::regex(pattern, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    throw ArgumentError(
        fmt::format("{}: pattern: expected a regex, got '{}' ({})", op, pattern, error.what()));
  }
}

struct Matcher {
  const Rule* rule;
  std::optional<std::regex> regex;
};

/// Adds under a name that must be new; `old_names` says who came before.
class Renamed {
 public:
  explicit Renamed(std::string_view op) : op_(op) {}

  void add(std::string new_name, const std::string& old_name, const Tensor& tensor) {
    QUANTA_CHECK(!new_name.empty(),
                 "{}: state: expected new names that are not empty, got '{}' "
                 "without a name",
                 op_, old_name);
    QUANTA_CHECK(!result_.contains(new_name),
                 "{}: state: expected a new name for each tensor, got '{}' twice, once for '{}'",
                 op_, new_name, old_name);
    result_.set(std::move(new_name), tensor);
  }
  StateDict take() { return std::move(result_); }

 private:
  std::string_view op_;
  StateDict result_;
};

/// The new name; nothing where the tensor is left out.
std::optional<std::string> new_name(const std::string& name, const std::vector<Matcher>& matchers) {
  for (const Matcher& matcher : matchers) {
    const Rule& rule = *matcher.rule;
    if (rule.kind == Rule::Kind::Prefix) {
      if (name.starts_with(rule.from)) return rule.to + name.substr(rule.from.size());
      continue;
    }
    std::smatch match;
    if (!std::regex_match(name, match, *matcher.regex)) continue;
    if (rule.kind == Rule::Kind::Drop) return std::nullopt;
    return match.format(rule.to);
  }
  return name;
}

}  // namespace

StateDict strip_prefix(const StateDict& state, std::string_view prefix) {
  QUANTA_CHECK(!prefix.empty(), "strip_prefix: prefix: expected one such as 'module.', got ''");
  Renamed renamed("strip_prefix");
  for (const auto& [name, tensor] : state) {
    renamed.add(name.starts_with(prefix) ? name.substr(prefix.size()) : name, name, tensor);
  }
  return renamed.take();
}

RenameTable& RenameTable::add_prefix(std::string from, std::string to) {
  QUANTA_CHECK(!from.empty(), "RenameTable::add_prefix: from: expected a prefix, got ''");
  rules_.push_back({Rule::Kind::Prefix, std::move(from), std::move(to)});
  return *this;
}

RenameTable& RenameTable::add_regex(std::string pattern, std::string replacement) {
  compile("RenameTable::add_regex", pattern);
  rules_.push_back({Rule::Kind::Regex, std::move(pattern), std::move(replacement)});
  return *this;
}

RenameTable& RenameTable::drop_regex(std::string pattern) {
  compile("RenameTable::drop_regex", pattern);
  rules_.push_back({Rule::Kind::Drop, std::move(pattern), {}});
  return *this;
}

StateDict rename(const StateDict& state, const RenameTable& table) {
  std::vector<Matcher> matchers;
  bool has_regex = false;
  for (const Rule& rule : table.rules()) {
    const bool is_regex = rule.kind != Rule::Kind::Prefix;
    has_regex = has_regex || is_regex;
    matchers.push_back({&rule, is_regex ? std::optional(compile("rename", rule.from))
                                        : std::optional<std::regex>()});
  }
  Renamed renamed("rename");
  for (const auto& [name, tensor] : state) {
    QUANTA_CHECK(!has_regex || name.size() <= kMaxRegexName,
                 "rename: state: expected names of at most {} bytes for a regex, got {}",
                 kMaxRegexName, name.size());
    if (auto changed = new_name(name, matchers)) renamed.add(std::move(*changed), name, tensor);
  }
  return renamed.take();
}

}  // namespace quanta
