#include "quanta/runtime/detail/file_kind.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "quanta/runtime/detail/safetensors_format.h"
#include "quanta/runtime/detail/zip_reader.h"

namespace quanta::detail {
namespace {

using std::string_view_literals::operator""sv;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The name in a zip archive's first local header (APPNOTE.TXT 4.3.7).
std::string_view first_record(std::string_view text) {
  constexpr std::size_t kHeader = 30;
  constexpr std::size_t kNameLength = 26;
  if (text.size() < kHeader) return {};
  std::uint16_t length = 0;
  std::memcpy(&length, text.data() + kNameLength, sizeof(length));
  return text.substr(kHeader, length);
}

bool is_safetensors(std::string_view text) {
  if (text.size() <= kHeaderLengthBytes || text[kHeaderLengthBytes] != '{') return false;
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof(length));
  return length >= 2 && length <= kMaxHeaderBytes;
}

std::string lower_start(std::string_view text) {
  std::string start(text.substr(0, 64));
  std::transform(start.begin(), start.end(), start.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return start;
}

}  // namespace

std::string recognize_file(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  // The first pickle of the older files of torch.save: PROTO 2, LONG1 of 10 bytes, the magic.
  constexpr std::string_view kLegacyStart = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9"sv;
  // First, as the length of a header may look like another kind's first bytes.
  if (is_safetensors(text)) return "a .safetensors file: read_safetensors reads it";
  if (text.starts_with("version https://git-lfs.github.com/")) {
    return "a git-lfs pointer, not the file itself: fetch it with 'git lfs pull'";
  }
  if (is_zip(bytes)) {
    if (first_record(text).ends_with(".npy")) {
      return "an .npz archive of numpy: data::read_npz reads its arrays, numpy.load in Python";
    }
    return "a zip archive, as torch.save writes it: read_pt_state_dict reads a .pt file";
  }
  if (text.starts_with(kLegacyStart)) {
    return "an older file of torch.save: read_pt_state_dict reads a .pt file";
  }
  if (text.starts_with("\x93NUMPY"sv)) {
    return "an .npy array of numpy: save it from Python with safetensors.numpy.save_file";
  }
  if (text.starts_with("\x89HDF"sv)) {
    return "an HDF5 file (Keras): save the weights from Python as .safetensors";
  }
  if (text.starts_with("GGUF"sv)) {
    return "a GGUF file: convert the weights to .safetensors in Python";
  }
  if (text.starts_with("\x1f\x8b"sv)) return "gzip-compressed data: decompress it first";
  const std::string start = lower_start(text);
  if (start.starts_with("<!doctype html") || start.starts_with("<html")) {
    return "a web page: the download did not give the file itself";
  }
  if (text.starts_with('{')) {
    return "JSON text: read_safetensors reads the index of a model in shards "
           "(model.safetensors.index.json)";
  }
  return {};
}

}  // namespace quanta::detail
