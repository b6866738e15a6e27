#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/detail/safetensors_format.h"
#include "quanta/runtime/safetensors.h"

namespace quanta {
namespace {

using detail::Json;

// The data begins at a multiple of this, so that a mapped file's widest elements are aligned.
constexpr std::size_t kDataAlignment = 64;

/// What is stored for a tensor: itself, or the codes of a quantized one.
struct Stored {
  std::string_view name;
  Tensor tensor;
  std::size_t begin = 0;
};

Tensor stored_tensor(const Tensor& tensor) {
  return tensor.is_quantized() ? QTensor(tensor).int_repr_view() : tensor;
}

// Observers compute in float32, so that most scales are float32 numbers.
Tensor pooled_scales(const std::vector<double>& scales) {
  const Tensor wide = Tensor::empty({static_cast<std::int64_t>(scales.size())}, DType::Float64);
  std::copy(scales.begin(), scales.end(), wide.mutable_data<double>());
  const bool exact = std::all_of(scales.begin(), scales.end(), [](double scale) {
    return static_cast<double>(static_cast<float>(scale)) == scale;
  });
  return exact ? wide.to(DType::Float32) : wide;
}

}  // namespace

void write_safetensors(const StateDict& tensors, const std::filesystem::path& path,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<Stored> entries;
  std::vector<double> scales;
  Json::Object quantized;
  for (const auto& [name, tensor] : tensors) {
    QUANTA_CHECK(tensor.defined(),
                 "write_safetensors: tensors: expected defined tensors, got an "
                 "undefined one as '{}'",
                 name);
    QUANTA_CHECK(name != detail::kMetadataKey && name != detail::kScalesName,
                 "write_safetensors: tensors: expected other names than '{}'", name);
    if (tensor.is_quantized()) {
      quantized.emplace_back(name, detail::describe_quantized(QTensor(tensor), scales));
    }
    entries.push_back({name, stored_tensor(tensor), 0});
  }
  if (!scales.empty()) entries.push_back({detail::kScalesName, pooled_scales(scales), 0});
  QUANTA_CHECK(!metadata.contains(std::string(detail::kQuantizedKey)),
               "write_safetensors: metadata: expected other keys than '{}', which describes the "
               "quantized tensors",
               detail::kQuantizedKey);

  // Wide elements first: with no gaps allowed, this aligns every tensor. The header keeps the
  // order.
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return item_size(entries[a].tensor.dtype()) > item_size(entries[b].tensor.dtype());
  });
  std::size_t position = 0;
  for (const std::size_t i : order) {
    entries[i].begin = position;
    position += entries[i].tensor.nbytes();
  }

  Json::Object header;
  Json::Object texts;
  for (const auto& [key, value] : metadata) texts.emplace_back(key, value);
  if (!quantized.empty()) {
    texts.emplace_back(detail::kQuantizedKey, detail::to_json_text(std::move(quantized)));
  }
  if (!texts.empty()) header.emplace_back(detail::kMetadataKey, std::move(texts));
  for (const Stored& entry : entries) {
    Json::Array shape;
    for (const std::int64_t size : entry.tensor.sizes()) shape.emplace_back(size);
    Json::Array offsets{static_cast<std::int64_t>(entry.begin),
                        static_cast<std::int64_t>(entry.begin + entry.tensor.nbytes())};
    header.emplace_back(std::string(entry.name),
                        Json::Object{{"dtype", detail::safetensors_name(entry.tensor.dtype())},
                                     {"shape", std::move(shape)},
                                     {"data_offsets", std::move(offsets)}});
  }
  std::string text = detail::to_json_text(std::move(header));
  const std::size_t unpadded = detail::kHeaderLengthBytes + text.size();
  text.append((kDataAlignment - unpadded % kDataAlignment) % kDataAlignment, ' ');
  if (text.size() > detail::kMaxHeaderBytes) {
    throw FileError(
        fmt::format("write_safetensors: {}: expected a header of at most {} bytes, got {}",
                    path.string(), detail::kMaxHeaderBytes, text.size()));
  }

  write_file_atomically(path, [&](const auto& sink) {
    const std::uint64_t length = text.size();
    sink(std::as_bytes(std::span(&length, 1)));
    sink(std::as_bytes(std::span(text)));
    for (const std::size_t i : order) {
      const Tensor contiguous = entries[i].tensor.cpu().contiguous();
      sink({static_cast<const std::byte*>(contiguous.data_ptr()), contiguous.nbytes()});
    }
  });
}

}  // namespace quanta
