#include "quanta/fusion/graph/detail/onnx_metadata.h"

#include <charconv>

#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

constexpr std::string_view kLayerPrefix = "quanta.layer.";
constexpr std::string_view kBiasPrefix = "quanta.bias.";
constexpr std::string_view kBias = ", bias";
constexpr std::string_view kAllBits = ", 8 bits";

const std::string* find(const OnnxMetadata& metadata, std::string_view prefix,
                        const std::string& name) {
  const auto found = metadata.find(std::string(prefix) + name);
  return found == metadata.end() ? nullptr : &found->second;
}

/// Whether `text` ended with `end`, which is then cut off.
bool take_end(std::string& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.resize(text.size() - end.size());
  return true;
}

}  // namespace

bool has_torch_arithmetic(const OnnxMetadata& metadata) {
  const auto found = metadata.find(kArithmeticKey);
  return found != metadata.end() && found->second == kTorchArithmetic;
}

void put_layer(OnnxMetadata& metadata, const std::string& node, const LayerNote& note) {
  metadata[std::string(kLayerPrefix) + node] =
      fmt::format("{}{}{}", note.form, note.bias ? kBias : "", note.all_bits ? kAllBits : "");
}

std::optional<LayerNote> find_layer(const OnnxMetadata& metadata, const std::string& node) {
  const std::string* text = find(metadata, kLayerPrefix, node);
  if (text == nullptr) return {};
  LayerNote note{.form = *text};
  note.all_bits = take_end(note.form, kAllBits);
  note.bias = take_end(note.form, kBias);
  return note;
}

void put_bias(OnnxMetadata& metadata, const std::string& codes, const std::vector<float>& bias) {
  // The fewest digits that give the same number back.
  metadata[std::string(kBiasPrefix) + codes] = fmt::format("{}", fmt::join(bias, " "));
}

std::vector<float> find_bias(const OnnxMetadata& metadata, const std::string& codes) {
  const std::string* text = find(metadata, kBiasPrefix, codes);
  if (text == nullptr) return {};
  std::vector<float> bias;
  const char* const end = text->data() + text->size();
  for (const char* at = text->data(); at < end; ++at) {
    float value = 0.0F;
    const std::from_chars_result read = std::from_chars(at, end, value);
    if (read.ec != std::errc{} || (read.ptr != end && *read.ptr != ' ')) return {};
    bias.push_back(value);
    at = read.ptr;
  }
  return bias;
}

void erase_notes(OnnxMetadata& metadata) {
  std::erase_if(metadata, [](const auto& entry) {
    return entry.first == kArithmeticKey || entry.first.starts_with(kLayerPrefix) ||
           entry.first.starts_with(kBiasPrefix);
  });
}

}  // namespace quanta::graph::detail
