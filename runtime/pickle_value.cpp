#include "quanta/runtime/pickle_value.h"

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

constexpr std::size_t kMaxPathBytes = std::size_t{1} << 28;

std::string key_text(const PickleValue& key) {
  if (const auto* text = key.get_if<std::string>()) return *text;
  if (const auto* integer = key.get_if<std::int64_t>()) return fmt::format("{}", *integer);
  if (const auto* big = key.get_if<PickleValue::BigInt>()) return big->digits;
  if (const auto* number = key.get_if<double>()) return fmt::format("{}", *number);
  if (const auto* boolean = key.get_if<bool>()) return *boolean ? "True" : "False";
  QUANTA_CHECK(key.get_if<PickleValue::None>() != nullptr,
               "visit_leaves: value: expected dict keys that are strings, numbers, bools or None, "
               "got another kind");
  return "None";
}

class Walker {
 public:
  explicit Walker(const std::function<void(const std::string&, const PickleValue&)>& visit)
      : visit_(visit) {}

  void walk(const PickleValue& value) {
    if (const auto* sequence = value.get_if<PickleValue::Sequence>()) {
      for (std::size_t i = 0; i < sequence->items.size(); ++i) {
        descend(fmt::format("/{}", i), sequence->items[i]);
      }
      return;
    }
    if (const auto* dict = value.get_if<PickleValue::Dict>()) {
      for (const auto& [key, item] : dict->items) {
        const std::string text = key_text(key);
        descend(path_.empty() ? text : "/" + text, item);
      }
      return;
    }
    path_bytes_ += path_.size();
    QUANTA_CHECK(path_bytes_ <= kMaxPathBytes,
                 "visit_leaves: value: expected paths of at most {} bytes together, got more",
                 kMaxPathBytes);
    visit_(path_, value);
    if (const auto* object = value.get_if<PickleValue::Object>()) {
      if (object->state != nullptr) walk(*object->state);
    }
  }

 private:
  void descend(const std::string& step, const PickleValue& value) {
    const std::size_t length = path_.size();
    path_bytes_ += step.size();
    path_ += step;
    walk(value);
    path_.resize(length);
  }

  const std::function<void(const std::string&, const PickleValue&)>& visit_;
  std::string path_;
  std::size_t path_bytes_ = 0;
};

}  // namespace

void visit_leaves(
    const PickleValue& value,
    const std::function<void(const std::string& path, const PickleValue& leaf)>& visit) {
  Walker(visit).walk(value);
}

}  // namespace quanta
