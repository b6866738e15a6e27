#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/observers/aimet/encoding.h"
#include "quanta/runtime/dims.h"

namespace quanta::aimet {

/// The versions of AIMET's encodings.
// NOLINTNEXTLINE(readability-identifier-naming): the digits stay apart.
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

/// An encoding from the text that to_json gives, in any version: affine per tensor, per channel and
/// in blocks, grouped blocks, float formats, NVFP4. Writing it again in that version gives the same
/// text. `input_shape` are the sizes of the tensor that it belongs to:
///
/// - 0.6.1 and 1.0.0 have plain lists. With the sizes, so many scales belong to the first axis of
///   that size, and blocks to the second axis (else the first); without, to the last axis.
/// - From 2.0.0 on an axis that is counted from the front needs the sizes: UnsupportedError. One
///   that is counted from the end does not.
///
/// What the text does not say is taken as AIMET means it: signed in 0.6.1 and 1.0.0 if symmetric,
/// symmetric from 2.0.0 on if signed with zero point 0, float16 where nothing is quantized, and as
/// many decompressed bits as the largest scale of a block asks for.
///
/// Throws FileError for text that is no JSON, ArgumentError that names the field for one that is
/// missing or unsuitable.
EncodingPtr encoding_from_json(std::string_view text, const std::optional<Dims>& input_shape = {});

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
/// A file from the text that to_json gives, in any version. `input_shapes` are the sizes of tensors
/// by their names, of weights above all (see encoding_from_json). From 2.0.0 on a file has one list:
/// its params begin with the first tensor whose axis is counted from the front. The producer and
/// quantizer_args are not kept, and a file below 2.0.0 may lack excluded_layers. Throws as encoding_from_json, with the tensor's name.
EncodingFile encoding_file_from_json(std::string_view text,
                                     const std::map<std::string, Dims>& input_shapes = {});

}  // namespace quanta::aimet
