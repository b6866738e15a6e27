#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/observers/aimet/encoding.h"
#include "quanta/runtime/dims.h"

namespace quanta::aimet {

/// The versions of AIMET's encodings.
enum class EncodingVersion : std::uint8_t { V0_6_1, V1_0_0, V2_0_0, V2_1_0 };

/// The version called "0.6.1", "1.0.0", "2.0.0" or "2.1.0". Throws ArgumentError for other text.
EncodingVersion encoding_version(std::string_view text);
std::string_view to_string(EncodingVersion version) noexcept;

/// The encoding as JSON text:
///
///   0.6.1         a list with an object for each scale
///   1.0.0         one object with lists of scales and offsets, and enc_type
///   2.0.0, 2.1.0  one object in ONNX's terms: output_dtype, y_scale, y_zero_point, axis and
///                 block_size
///
/// From 2.0.0 on, `input_shape` (the sizes of the tensor that was quantized) decides which axis
/// carries channels and which blocks; a single scale does without. Throws ArgumentError: a grid
/// without a bitwidth where one is written, several channel or block axes, blocks without channels,
/// an unknown input shape, float formats that the version cannot express; UnsupportedError for a
/// block_size of -1 in 1.0.0.
std::string to_json(const Encoding& encoding, EncodingVersion version,
                    const std::optional<Dims>& input_shape = {});

/// A per-tensor integer encoding of version 2.0.0 or 2.1.0; symmetric when it is signed with zero
/// point 0. Throws FileError for text that is no JSON, ArgumentError that names the field for one
/// that is missing or unsuitable, UnsupportedError for encodings per channel or block and of float
/// formats.
std::shared_ptr<const AffineEncoding> encoding_from_json(std::string_view text);

/// One tensor of an encoding file.
struct NamedEncoding {
  std::string name;
  EncodingPtr encoding;
  std::optional<Dims> input_shape{};
};

/// The contents of an encoding file: a plain value, which threads may share unchanged.
struct EncodingFile {
  EncodingVersion version = EncodingVersion::V2_0_0;
  std::vector<NamedEncoding> activations{};
  std::vector<NamedEncoding> params{};
  std::vector<std::string> excluded_layers{};  ///< below 2.0.0
};

/// The text of a file: producer, version, and the encodings (axes of params counted from the front
/// from 2.0.0 on). Throws as to_json of an encoding.
std::string to_json(const EncodingFile& file);
/// The per-tensor integer encodings of a file of version 2.0.0 or later, all as activations.
/// Throws as encoding_from_json.
EncodingFile encoding_file_from_json(std::string_view text);

}  // namespace quanta::aimet
