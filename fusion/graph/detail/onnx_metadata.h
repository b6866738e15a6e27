#pragma once

// Private: what the metadata of files says of how their model was quantized, so that it gives the
// same bits when it is read. Other programs ignore it.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quanta::graph::detail {

using OnnxMetadata = std::map<std::string, std::string>;

/// Of files whose model was quantized here: the codes of x are those of x * (1 / scale), as torch
/// has it, and not of x / scale.
inline constexpr const char* kArithmeticKey = "quanta.arithmetic";
inline constexpr const char* kTorchArithmetic = "torch";
bool has_torch_arithmetic(const OnnxMetadata& metadata);

/// What a layer was that stands in the file as several nodes; under `quanta.layer.NODE`, which is
/// the one with the weight: "DynamicLinear, bias, 8 bits".
struct LayerNote {
  std::string form;       ///< its name in the table of module forms
  bool bias = false;      ///< an Add behind the node belongs to it
  bool all_bits = false;  ///< activations have codes of 8 bits, not of 7
};
void put_layer(OnnxMetadata& metadata, const std::string& node, const LayerNote& note);
std::optional<LayerNote> find_layer(const OnnxMetadata& metadata, const std::string& node);

/// The float bias of which the file has Int32 codes; under `quanta.bias.CODES`.
void put_bias(OnnxMetadata& metadata, const std::string& codes, const std::vector<float>& bias);
/// Empty where there is none.
std::vector<float> find_bias(const OnnxMetadata& metadata, const std::string& codes);

/// Takes out all of these.
void erase_notes(OnnxMetadata& metadata);

}  // namespace quanta::graph::detail
