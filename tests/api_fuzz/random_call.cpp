#include "random_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "quanta/runtime/error.h"
#include "random.h"
#include "random_tensor.h"

namespace quanta::api_fuzz {
namespace {

// Some pack weights: each is made once.
const Sample& sample_of(const OperationEntry& entry, DType dtype) {
  static std::map<std::pair<const OperationEntry*, DType>, Sample> samples;
  const auto key = std::pair(&entry, dtype);
  const auto found = samples.find(key);
  if (found != samples.end()) return found->second;
  return samples.emplace(key, entry.sample(dtype)).first->second;
}

// The names that an enumeration has, from what its setter says about another one.
std::vector<std::string> names_for(const Operation& operation, const AttributeInfo& info) {
  const std::shared_ptr<Operation> copy = operation.clone();
  try {
    info.set(*copy, std::string("?"));
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::string_view start = "expected one of ";
    const std::size_t begin = text.find(start);
    const std::size_t end = text.rfind(", got");
    if (begin == std::string::npos || end == std::string::npos) return {};
    std::vector<std::string> names;
    std::string list = text.substr(begin + start.size(), end - begin - start.size()) + ", ";
    for (std::size_t at = 0; (at = list.find(", ")) != std::string::npos; list.erase(0, at + 2)) {
      names.push_back(list.substr(0, at));
    }
    return names;
  }
  return {};
}

std::int64_t changed(std::int64_t value, Random& random) {
  constexpr std::int64_t kOrdinary = 1L << 60U;
  const bool ordinary = value > -kOrdinary && value < kOrdinary;
  return ordinary && random.one_in(3) ? value + random.below(std::int64_t{5}) - 2
                                      : edge_integer(random);
}

double changed(double value, Random& random) {
  return random.one_in(3) ? value * (0.1 + static_cast<double>(random.below(std::uint64_t{30})))
                          : edge_number(random);
}

template <typename List>
List changed_list(List list, Random& random) {
  if (random.one_in(4) && list.size() < 9) list.push_back({});
  if (list.size() == 0) return list;
  if (random.one_in(6)) list.resize(list.size() - 1);
  for (auto& value : list) {
    if (random.one_in(list.size())) value = changed(value, random);
  }
  return list;
}

Tensor changed_tensor(const Tensor& x, Call& call, Random& random);

Attribute changed_attribute(const Attribute& value, const AttributeInfo& info, Call& call,
                            Random& random) {
  if (const auto* flag = std::get_if<bool>(&value)) return !*flag;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return changed(*number, random);
  if (const auto* number = std::get_if<double>(&value)) return changed(*number, random);
  if (std::holds_alternative<std::string>(value)) {
    const std::vector<std::string> names = names_for(*call.operation, info);
    if (!names.empty()) return names[random.below(names.size())];
    std::string text = std::get<std::string>(value);  // an equation
    if (!text.empty()) text[random.below(text.size())] = "ijk,->.aA\x80"[random.below(9UL)];
    return text;
  }
  if (const auto* list = std::get_if<Dims>(&value)) return changed_list(*list, random);
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
    return changed_list(*list, random);
  }
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    return changed_list(*list, random);
  }
  if (const auto* dtype = std::get_if<DType>(&value)) {
    const Tensor x = with_other_dtype(Tensor::zeros({1}, DType::UInt8), random);
    return random.one_in(5) ? *dtype : x.dtype();
  }
  if (const auto* tensor = std::get_if<Tensor>(&value)) {
    return changed_tensor(*tensor, call, random);
  }
  if (std::holds_alternative<Quantizer>(value)) {
    return edge_quantizer(DType::QUInt8, {2, 3}, random);
  }
  if (std::holds_alternative<std::monostate>(value)) {  // an optional one
    switch (random.below(std::uint64_t{5})) {
      case 0:
        return edge_integer(random);
      case 1:
        return edge_number(random);
      case 2:
        return Dims{random.below(std::int64_t{4}), random.below(std::int64_t{4})};
      case 3:
        return std::vector<std::int64_t>{edge_integer(random)};
      default:
        return true;
    }
  }
  return value;
}

void change_setting(Call& call, Random& random) {
  std::vector<AttributeInfo> settings;
  for (const AttributeInfo& info : call.operation->attributes()) {
    if (info.set != nullptr) settings.push_back(info);
  }
  if (settings.empty()) return;
  const AttributeInfo& info = settings[random.below(settings.size())];
  const std::shared_ptr<Operation> copy = call.operation->clone();
  try {
    set_attribute(*copy, info.name,
                  changed_attribute(info.get(*call.operation), info, call, random));
  } catch (const Error&) {
    return;  // of another type
  }
  call.operation = copy;
  call.plain_settings = false;
}

Tensor changed_tensor(const Tensor& x, Call& call, Random& random) {
  if (!x.defined()) return random.one_in(2) ? x : Tensor::ones({random.below(std::int64_t{5})});
  switch (random.below(std::uint64_t{16})) {
    case 0:
      return {};
    case 1:
      call.plain_values = false;
      return with_edge_values(x, random);
    case 2:
    case 3:
      call.plain_values = false;
      return with_edge_quantizer(x, random);
    case 4:
    case 5:
      return with_other_size(x, random);
    case 6:
      return with_other_rank(x, random);
    case 7:
      return with_other_dtype(x, random);
    case 8:
      return empty_and_huge(x, random);
    case 9:
    case 10:
      return with_shared_elements(x, random);
    case 11:
      return fresh(x, x.sizes(), random);
    default:
      return with_other_layout(x, random);
  }
}

// All dimensions of one size get another one, so that arguments go on to fit each other.
void change_size(Call& call, Random& random) {
  const Tensor& x = call.inputs[random.below(call.inputs.size())];
  if (!x.defined() || x.dim() == 0) return;
  static constexpr std::array<std::int64_t, 12> kSizes{0, 1, 1, 2, 3, 5, 8, 17, 32, 64, 257, 3000};
  const std::int64_t from = x.sizes()[random.below(x.sizes().size())];
  const std::int64_t to = random.among(kSizes);
  for (Tensor& input : call.inputs) {
    if (!input.defined()) continue;
    Dims sizes = input.sizes();
    std::ranges::replace(sizes, from, to);
    if (sizes == input.sizes() || !is_small(sizes)) continue;
    input = fresh(input, sizes, random);
  }
}

}  // namespace

Call random_call(std::uint64_t seed, std::uint64_t number, std::string_view op) {
  Random random(seed, number);
  Call call;
  const auto& entries = operations().entries();
  call.entry = op.empty() ? &entries[random.below(entries.size())] : operations().find(op);
  if (call.entry == nullptr) {
    throw ArgumentError(fmt::format("api_fuzz: op: expected a name of the catalogue, got {}", op));
  }
  call.dtype = random.among(call.entry->dtypes);
  const Sample& sample = sample_of(*call.entry, call.dtype);
  call.operation = sample.operation;
  for (const Tensor& x : sample.inputs) call.inputs.push_back(x.defined() ? x.clone() : x);
  const std::int64_t changes = random.below(std::int64_t{5});
  for (std::int64_t i = 0; i < changes; ++i) {
    switch (random.below(std::uint64_t{8})) {
      case 0:
      case 1:
        change_setting(call, random);
        break;
      case 2:
      case 3:
        change_size(call, random);
        break;
      case 4:  // one tensor as two arguments
        if (random.one_in(4)) {
          call.inputs[random.below(call.inputs.size())] =
              call.inputs[random.below(call.inputs.size())];
          break;
        }
        [[fallthrough]];
      default: {
        Tensor& x = call.inputs[random.below(call.inputs.size())];
        x = changed_tensor(x, call, random);
      }
    }
  }
  call.wants_gradient = random.one_in(5);
  return call;
}

std::string to_string(const Call& call) {
  std::string text = quanta::to_string(*call.operation);
  for (const Tensor& x : call.inputs) {
    if (!x.defined()) {
      text += "\n    undefined";
      continue;
    }
    text += fmt::format("\n    {} {} strides {} offset {}", quanta::to_string(x.dtype()),
                        quanta::to_string(x.sizes()), quanta::to_string(x.strides()),
                        x.storage_offset());
    if (x.is_quantized()) {
      text += fmt::format(", {}", quanta::to_string(Attribute(x.impl()->quantizer)));
    }
  }
  return text;
}

}  // namespace quanta::api_fuzz
