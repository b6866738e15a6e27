#include "quanta/fusion/detail/packed_weights.h"

#include <charconv>
#include <cstring>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/json.h"

namespace quanta {
namespace {

using detail::Json;
using detail::PackedForms;
using detail::SavedForms;

constexpr const char* kPacked = "quanta.packed";  // of the tensor and of the metadata
constexpr std::int64_t kFormat = 1;

std::string to_hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

bool from_hex(const std::string& text, std::uint64_t& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  return text.size() == 16 && error == std::errc() && stop == end;
}

/// One form and its place in the tensor.
struct Placed {
  PackedForms::Form form;
  std::size_t begin = 0;
};

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// What one entry of the metadata says of `memory`.
void add_entry(const Json& entry, const Tensor& memory, SavedForms& forms, const auto& refuse) {
  const Json::Array* values = entry.as_array();
  if (values == nullptr || values->size() != 6) {
    refuse("forms: expected arrays of name, layout, begin, bytes and two hashes");
  }
  const std::string* name = (*values)[0].as_string();
  const std::string* layout = (*values)[1].as_string();
  const std::int64_t* begin = (*values)[2].as_int();
  const std::int64_t* bytes = (*values)[3].as_int();
  const std::string* codes = (*values)[4].as_string();
  const std::string* seal = (*values)[5].as_string();
  if (name == nullptr || layout == nullptr || begin == nullptr || bytes == nullptr ||
      codes == nullptr || seal == nullptr) {
    refuse("forms: expected arrays of name, layout, begin, bytes and two hashes");
  }
  const auto all = static_cast<std::int64_t>(memory.nbytes());
  if (*begin < 0 || *bytes <= 0 || *begin > all || *bytes > all - *begin) {
    refuse(
        fmt::format("'{}': expected a range within the {} bytes of the tensor, got {} bytes at {}",
                    *name, all, *bytes, *begin));
  }
  std::uint64_t codes_hash = 0;
  SavedForms::Form form{*layout, bytes_of(memory).subspan(static_cast<std::size_t>(*begin),
                                                          static_cast<std::size_t>(*bytes))};
  if (!from_hex(*codes, codes_hash) || !from_hex(*seal, form.seal)) {
    refuse(fmt::format("'{}': expected hashes of 16 hexadecimal digits, got '{}' and '{}'", *name,
                       *codes, *seal));
  }
  forms.add(codes_hash, std::move(form));
}

}  // namespace

void add_packed_weights(StateDict& state, std::map<std::string, std::string>& metadata) {
  std::vector<Placed> placed;
  Json::Array entries;
  std::set<std::pair<std::uint64_t, std::string>> seen;
  std::size_t position = 0;
  for (const auto& [name, tensor] : state) {
    const std::shared_ptr<const PackedForms> weight = PackedForms::of(tensor);
    if (weight == nullptr) continue;
    const std::vector<PackedForms::Form> forms = weight->all();
    if (forms.empty()) continue;
    const std::uint64_t codes = detail::hash_codes(tensor);
    for (const PackedForms::Form& form : forms) {
      if (form.bytes == 0 || !seen.emplace(codes, form.layout).second) continue;
      const std::uint64_t seal =
          detail::seal_form(codes, form.layout, {form.memory.get(), form.bytes});
      entries.emplace_back(Json::Array{
          Json(name), Json(form.layout), Json(static_cast<std::int64_t>(position)),
          Json(static_cast<std::int64_t>(form.bytes)), Json(to_hex(codes)), Json(to_hex(seal))});
      placed.push_back({form, position});
      position = round_up(position + form.bytes, detail::kFormAlignment);
    }
  }
  QUANTA_CHECK(!placed.empty(),
               "save_model: options.packed: expected a model whose weights are packed (run it once "
               "on inputs of the sizes that it will get), got one without packed weights");

  const auto words = static_cast<std::int64_t>(position / sizeof(std::int64_t));
  const Tensor memory = Tensor::zeros({words}, DType::Int64);
  auto* to = reinterpret_cast<std::byte*>(memory.mutable_data<std::int64_t>());
  for (const Placed& one : placed) {
    std::memcpy(to + one.begin, one.form.memory.get(), one.form.bytes);
  }
  StateDict all;
  all.set(kPacked, memory);
  for (const auto& [name, tensor] : state) all.set(name, tensor);
  state = std::move(all);
  metadata[kPacked] = detail::to_json_text(
      Json(Json::Object{{"format", Json(kFormat)}, {"forms", Json(std::move(entries))}}));
}

std::shared_ptr<const SavedForms> take_packed_weights(
    StateDict& state, const std::map<std::string, std::string>& metadata,
    const std::string& where) {
  const auto text = metadata.find(kPacked);
  const Tensor* found = state.find(kPacked);
  const Tensor memory = found == nullptr ? Tensor() : *found;
  state.erase(kPacked);
  if (text == metadata.end()) return nullptr;
  const auto refuse = [&](const std::string& what) {
    throw FileError(fmt::format("load_model: {}: {}: {}", where, kPacked, what));
  };
  const Json description = detail::parse_json(text->second, fmt::format("{}: {}", where, kPacked));
  const Json* format = description.find("format");
  const Json* forms = description.find("forms");
  if (format == nullptr || format->as_int() == nullptr) refuse("format: expected a number");
  if (*format->as_int() != kFormat) return nullptr;
  if (forms == nullptr || forms->as_array() == nullptr) refuse("forms: expected an array");
  if (!memory.defined() || memory.dtype() != DType::Int64 || !memory.is_contiguous()) {
    refuse(fmt::format("expected a tensor of this name of Int64, got {}",
                       memory.defined() ? torch_name(memory.dtype()) : "none"));
  }
  const auto result = std::make_shared<SavedForms>(memory);
  for (const Json& entry : *forms->as_array()) add_entry(entry, memory, *result, refuse);
  return result;
}

}  // namespace quanta
