#include "quanta/runtime/detail/pt_select.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/pt_builder.h"

namespace quanta::detail {
namespace {

using Kind = PickleNode::Kind;

constexpr std::size_t kMaxListed = 20;
constexpr std::size_t kMaxShownKey = 100;

/// Cut where it is long, before a character that would be cut in two.
std::string_view shown(std::string_view text) {
  if (text.size() <= kMaxShownKey) return text;
  std::size_t end = kMaxShownKey;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

std::string key_text(const PickleNode& key) {
  if (key.kind == Kind::String) return key.text;
  if (key.kind == Kind::Int) return fmt::format("{}", key.integer);
  return std::string(describe(key));
}

/// A tensor, or the packed weights of a quantized layer: a tuple that begins with one, an object.
bool is_state(const PickleNode& node) {
  if (is_tensor_call(node) || node.kind == Kind::Object) return true;
  return node.kind == Kind::Tuple && !node.items.empty() && is_tensor_call(*node.items[0]);
}

std::size_t count_tensors(const PickleNode& dict) {
  std::size_t count = 0;
  for (std::size_t i = 1; i < dict.items.size(); i += 2) count += is_state(*dict.items[i]) ? 1 : 0;
  return count;
}

std::string describe_member(const PickleNode& value) {
  if (value.kind == Kind::Dict) {
    const std::size_t count = count_tensors(value);
    return count == 0 ? "a dict" : fmt::format("a dict with {} tensors", count);
  }
  if (value.kind == Kind::Opaque) {
    return fmt::format("{} '{}'", value.integer != 0 ? "a whole module" : "an object",
                       shown(value.text));
  }
  return std::string(shown(describe(value)));
}

const PickleNode* find_member(const PickleNode& value, std::string_view key) {
  if (value.kind == Kind::Dict) {
    for (std::size_t i = 0; i < value.items.size(); i += 2) {
      const PickleNode& name = *value.items[i];
      if ((name.kind == Kind::String || name.kind == Kind::Int) && key_text(name) == key) {
        return value.items[i + 1];
      }
    }
  }
  if (value.kind == Kind::List || value.kind == Kind::Tuple) {
    std::size_t index = 0;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), index);
    if (end.ec == std::errc() && end.ptr == key.data() + key.size() && index < value.items.size()) {
      return value.items[index];
    }
  }
  return nullptr;
}

}  // namespace

std::string list_keys(const PickleNode& dict) {
  std::string text;
  for (std::size_t i = 0; i < dict.items.size(); i += 2) {
    if (i == 2 * kMaxListed) {
      return text + fmt::format(" and {} more", dict.items.size() / 2 - kMaxListed);
    }
    text += fmt::format("{}'{}' ({})", i == 0 ? "" : ", ", shown(key_text(*dict.items[i])),
                        describe_member(*dict.items[i + 1]));
  }
  return text;
}

const PickleNode& select_value(const PickleNode& root, std::string_view key,
                               std::string_view where) {
  const PickleNode* value = &root;
  while (!key.empty()) {
    const PickleNode* member = nullptr;
    std::string_view rest = key;
    while (member == nullptr && !rest.empty()) {
      member = find_member(*value, rest);
      if (member != nullptr) break;
      const std::size_t slash = rest.rfind('/');
      rest = slash == std::string_view::npos ? std::string_view() : rest.substr(0, slash);
    }
    if (member == nullptr) {
      throw FileError(
          value->kind == Kind::Dict
              ? fmt::format("{}: key: expected one of {}, got '{}'", where, list_keys(*value), key)
              : fmt::format("{}: key: expected none within {}, got '{}'", where,
                            describe_member(*value), key));
    }
    value = member;
    key.remove_prefix(std::min(rest.size() + 1, key.size()));
  }
  return *value;
}

void expect_state_dict(const PickleNode& value, std::string_view key, std::string_view where) {
  const std::string place = key.empty() ? "the file" : fmt::format("'{}'", key);
  if (value.kind == Kind::Opaque && value.integer != 0) {
    throw FileError(
        fmt::format("{}: expected a state_dict, but {} holds a whole module, '{}', which only "
                    "Python can build: save its state_dict() instead: "
                    "torch.save(model.state_dict(), path)",
                    where, place, value.text));
  }
  if (value.kind == Kind::Opaque ||
      (value.kind == Kind::Global && value.global.kind == PickleGlobal::Kind::Opaque)) {
    throw FileError(fmt::format("{}: expected a state_dict, but {} holds an object of Python, '{}'",
                                where, place, value.text));
  }
  if (value.kind != Kind::Dict) return;
  const PickleNode* best = nullptr;
  std::size_t most = 0;
  std::unordered_set<const PickleNode*> seen;  // a hostile file may hold a large dict many times
  for (std::size_t i = 0; i < value.items.size(); i += 2) {
    const PickleNode& name = *value.items[i];
    const PickleNode& member = *value.items[i + 1];
    // What a module adds to its state_dict itself may be a dict.
    const bool is_extra = name.kind == Kind::String && name.text.ends_with("_extra_state");
    if (member.kind != Kind::Dict || is_extra || !seen.insert(&member).second) continue;
    const std::size_t count = count_tensors(member);
    if (count <= most) continue;
    most = count;
    best = &name;
  }
  if (best == nullptr) {
    if (count_tensors(value) > 0 || value.items.empty()) return;
    bool has_module = false;
    for (std::size_t i = 1; i < value.items.size(); i += 2) {
      has_module =
          has_module || (value.items[i]->kind == Kind::Opaque && value.items[i]->integer != 0);
    }
    if (!has_module) return;
    throw FileError(fmt::format(
        "{}: expected a state_dict, but {} is a dictionary without tensors: {}; whole modules can "
        "only be built by Python: save their state_dict() instead",
        where, place, list_keys(value)));
  }
  const std::string prefix = key.empty() ? std::string() : std::string(key) + "/";
  throw FileError(fmt::format(
      "{}: expected a state_dict, but {} is a dictionary of several things: {}; give the key of "
      "the state_dict: read_pt_state_dict(path, \"{}{}\")",
      where, place, list_keys(value), prefix, shown(key_text(*best))));
}

}  // namespace quanta::detail
