#include "json_change.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "support.h"

namespace quanta::fuzz {
namespace {

using detail::Json;

constexpr std::array<std::int64_t, 22> kNumbers{0,
                                                1,
                                                -1,
                                                2,
                                                3,
                                                4,
                                                7,
                                                8,
                                                10,
                                                16,
                                                127,
                                                128,
                                                255,
                                                256,
                                                65536,
                                                (std::int64_t{1} << 31) - 1,
                                                std::int64_t{1} << 31,
                                                std::int64_t{1} << 32,
                                                std::int64_t{1} << 55,
                                                std::int64_t{1} << 62,
                                                std::numeric_limits<std::int64_t>::max(),
                                                std::numeric_limits<std::int64_t>::min()};
constexpr std::array kReals{0.0, -0.0, 0.5, -1.5, 1e-45, 1e-300, 3.5e38, 1e300, 1e-8, 127.5};
constexpr std::array<std::string_view, 34> kWords{"F64",
                                                  "F32",
                                                  "F16",
                                                  "BF16",
                                                  "I64",
                                                  "I32",
                                                  "I16",
                                                  "U16",
                                                  "I8",
                                                  "U8",
                                                  "BOOL",
                                                  "F8_E4M3",
                                                  "F8_E5M2",
                                                  "qint8",
                                                  "quint8",
                                                  "qint32",
                                                  "quint4x2",
                                                  "per_tensor_affine",
                                                  "per_channel_affine",
                                                  "per_channel_affine_float_qparams",
                                                  "per_tensor_symmetric",
                                                  "quanta.scales",
                                                  "quanta.packed",
                                                  "quanta.quantized",
                                                  "__metadata__",
                                                  "",
                                                  "Int8Tensor",
                                                  "Linear",
                                                  "DynamicLinear",
                                                  "WeightOnlyLinear",
                                                  "LinearReLU",
                                                  "Identity",
                                                  "inf",
                                                  "weight"};

std::size_t count_values(const Json& json) {
  std::size_t count = 1;
  if (const Json::Array* items = json.as_array()) {
    for (const Json& item : *items) count += count_values(item);
  }
  if (const Json::Object* members = json.as_object()) {
    for (const auto& [name, value] : *members) count += count_values(value);
  }
  return count;
}

void collect_words(const Json& json, std::vector<std::string>& words) {
  if (json.as_string() != nullptr && json.as_string()->size() < 100) {
    words.push_back(*json.as_string());
  }
  if (const Json::Array* items = json.as_array()) {
    for (const Json& item : *items) collect_words(item, words);
  }
  if (const Json::Object* members = json.as_object()) {
    for (const auto& [name, value] : *members) {
      words.push_back(name);
      collect_words(value, words);
    }
  }
}

class Changer {
 public:
  Changer(const Json& root, Random& random)
      : random_(random), left_(below(random, count_values(root))) {
    collect_words(root, words_);
  }

  /// The value, or, once `left_` values came before it, another in its place.
  Json walk(const Json& json) {
    if (left_-- == 0) return replaced(json);
    if (const Json::Array* items = json.as_array()) {
      Json::Array result;
      for (const Json& item : *items) result.push_back(walk(item));
      return result;
    }
    if (const Json::Object* members = json.as_object()) {
      Json::Object result;
      for (const auto& [name, value] : *members) result.emplace_back(name, walk(value));
      return result;
    }
    return json;
  }

 private:
  std::string word() {
    if (!words_.empty() && random_() % 3 != 0) return words_[below(random_, words_.size())];
    return std::string(kWords[below(random_, kWords.size())]);
  }

  Json scalar() {
    switch (below(random_, 6)) {
      case 0:
        return nullptr;
      case 1:
        return random_() % 2 == 0;
      case 2:
        return kReals[below(random_, kReals.size())];
      case 3:
        return word();
      default:
        return kNumbers[below(random_, kNumbers.size())];
    }
  }

  Json replaced(const Json& json) {
    if (random_() % 8 == 0) return scalar();
    if (const std::int64_t* number = json.as_int()) return other_number(*number);
    if (json.is_number()) return other_real(json.as_number());
    if (const std::string* text = json.as_string()) return other_text(*text);
    if (const Json::Array* items = json.as_array()) return rearranged(*items);
    if (const Json::Object* members = json.as_object()) return rearranged(*members);
    return scalar();
  }

  Json other_number(std::int64_t number) {
    const auto moved = [&](std::uint64_t by) {
      return Json(static_cast<std::int64_t>(static_cast<std::uint64_t>(number) + by));
    };
    switch (below(random_, 4)) {
      case 0:
        return moved(1);
      case 1:
        return moved(~std::uint64_t{0});
      case 2:
        return Json(static_cast<std::int64_t>(below(random_, 64)));
      default:
        return kNumbers[below(random_, kNumbers.size())];
    }
  }

  Json other_real(double number) {
    switch (below(random_, 3)) {
      case 0:
        return -number;
      case 1:
        return number * 1e-3;
      default:
        return kReals[below(random_, kReals.size())];
    }
  }

  Json other_text(const std::string& text) {
    if (text.size() > 1 && (text[0] == '{' || text[0] == '[') && random_() % 8 != 0) {
      try {
        return detail::to_json_text(changed_json(detail::parse_json(text, ""), random_));
      } catch (const Error&) {
      }
    }
    return word();
  }

  template <typename Items>
  Json rearranged(Items items) {
    using Item = typename Items::value_type;
    const auto at = [&] { return static_cast<std::ptrdiff_t>(below(random_, items.size())); };
    if (items.empty()) {
      if constexpr (std::is_same_v<Item, Json>) items.push_back(scalar());
      return Json(std::move(items));
    }
    switch (below(random_, 4)) {
      case 0:
        items.erase(items.begin() + at());
        break;
      case 1:
        std::swap(items[static_cast<std::size_t>(at())], items[static_cast<std::size_t>(at())]);
        break;
      case 2:
        if constexpr (std::is_same_v<Item, Json>) {
          const Json copy = items[static_cast<std::size_t>(at())];
          items.insert(items.begin() + at(), copy);
        } else {
          Item copy = items[static_cast<std::size_t>(at())];
          copy.first = word();
          items.insert(items.begin() + at(), std::move(copy));
        }
        break;
      default:
        if constexpr (std::is_same_v<Item, Json>) {
          items[static_cast<std::size_t>(at())] = scalar();
        } else {
          items[static_cast<std::size_t>(at())].first = word();
        }
    }
    return Json(std::move(items));
  }

  Random& random_;
  std::size_t left_;
  std::vector<std::string> words_;
};

}  // namespace

Json changed_json(const Json& json, Random& random) { return Changer(json, random).walk(json); }

std::string changed_bytes(std::string_view bytes, std::size_t max_size) {
  std::string result(std::max(max_size, bytes.size()), '\0');
  std::copy(bytes.begin(), bytes.end(), result.begin());
  auto* data = reinterpret_cast<std::uint8_t*>(result.data());
  result.resize(LLVMFuzzerMutate(data, bytes.size(), result.size()));
  return result;
}

std::string changed_json_text(std::string_view text, std::size_t max_size, Random& random) {
  if (random() % 8 != 0) {
    try {
      return detail::to_json_text(changed_json(detail::parse_json(text, ""), random));
    } catch (const Error&) {
    }
  }
  return changed_bytes(text, max_size);
}

std::size_t put_back(const std::string& text, std::uint8_t* data, std::size_t size,
                     std::size_t max_size) {
  if (text.size() > max_size) return size;
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

}  // namespace quanta::fuzz
