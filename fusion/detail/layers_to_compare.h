#pragma once

// Private: which layers of a quantized network are told beside those of the float one, for
// compare_layers and make_report.

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "quanta/nn/module.h"
#include "quanta/runtime/dims.h"

namespace quanta::detail {

struct LayerTypes {
  std::string in_float, quantized;  ///< the classes: "ConvReLU2d", "QuantizedConvReLU2d"
};

/// By path: modules that have another class in the quantized model, or whose results are
/// fake-quantized there. Throws ArgumentError, in the name of `op`, for a float model with a layer
/// where the quantized one has none any more.
std::map<std::string, LayerTypes> layers_to_compare(std::string_view op,
                                                    const nn::Module& float_model,
                                                    const nn::Module& quantized_model);

// Both throw ArgumentError.

/// How often the models call a layer.
void check_calls(std::string_view op, const std::string& path, std::size_t in_float,
                 std::size_t quantized);
/// The sizes of a layer's results.
void check_result_sizes(std::string_view op, const std::string& path, const Dims& in_float,
                        const Dims& quantized);

}  // namespace quanta::detail
