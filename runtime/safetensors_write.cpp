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

using Sink = std::function<void(std::span<const std::byte>)>;

/// A file that is ready to be written.
class File {
 public:
  // `where` stands before what is expected of a header, as `path: `.
  File(const StateDict& tensors, const std::map<std::string, std::string>& metadata,
       std::string_view op, const std::string& where);

  std::size_t size() const noexcept {
    return detail::kHeaderLengthBytes + header_.size() + data_bytes_;
  }
  void write(const Sink& sink) const;

 private:
  std::string header_;
  std::vector<Tensor> data_;  // in the order of the file
  std::size_t data_bytes_ = 0;
};

File::File(const StateDict& tensors, const std::map<std::string, std::string>& metadata,
           std::string_view op, const std::string& where) {
  std::vector<Stored> entries;
  std::vector<double> scales;
  Json::Object quantized;
  for (const auto& [name, tensor] : tensors) {
    QUANTA_CHECK(tensor.defined(),
                 "{}: tensors: expected defined tensors, got an undefined one as '{}'", op, name);
    QUANTA_CHECK(name != detail::kMetadataKey && name != detail::kScalesName,
                 "{}: tensors: expected other names than '{}'", op, name);
    if (tensor.is_quantized()) {
      quantized.emplace_back(name, detail::describe_quantized(QTensor(tensor), scales));
    }
    entries.push_back({name, stored_tensor(tensor), 0});
  }
  if (!scales.empty()) entries.push_back({detail::kScalesName, pooled_scales(scales), 0});
  QUANTA_CHECK(!metadata.contains(std::string(detail::kQuantizedKey)),
               "{}: metadata: expected other keys than '{}', which describes the quantized tensors",
               op, detail::kQuantizedKey);

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
    throw FileError(fmt::format("{}: {}expected a header of at most {} bytes, got {}", op, where,
                                detail::kMaxHeaderBytes, text.size()));
  }
  for (const std::size_t i : order) data_.push_back(entries[i].tensor);
  data_bytes_ = position;
  header_ = std::move(text);
}

void File::write(const Sink& sink) const {
  const std::uint64_t length = header_.size();
  sink(std::as_bytes(std::span(&length, 1)));
  sink(std::as_bytes(std::span(header_)));
  for (const Tensor& tensor : data_) {
    const Tensor contiguous = tensor.cpu().contiguous();
    sink({static_cast<const std::byte*>(contiguous.data_ptr()), contiguous.nbytes()});
  }
}

}  // namespace

void write_safetensors(const StateDict& tensors, const std::filesystem::path& path,
                       const std::map<std::string, std::string>& metadata) {
  const File file(tensors, metadata, "write_safetensors", path.string() + ": ");
  write_file_atomically(path, [&](const Sink& sink) { file.write(sink); });
}

std::vector<std::byte> serialize_safetensors(const StateDict& tensors,
                                             const std::map<std::string, std::string>& metadata) {
  const File file(tensors, metadata, "serialize_safetensors", "");
  std::vector<std::byte> bytes;
  bytes.reserve(file.size());
  file.write([&](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  });
  return bytes;
}

}  // namespace quanta
