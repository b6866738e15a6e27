#pragma once

// Private: how quantized modules check, print, save and load their parameters.

#include <cstdint>
#include <string>
#include <string_view>

#include "quanta/nn/module.h"
#include "quanta/ops/conv.h"

namespace quanta::nn::detail {

/// Throws ArgumentError `op: ...` unless scale is finite and > 0 and the zero point in the range.
void check_qparams(std::string_view op, double scale, std::int64_t zero_point,
                   IntRange range = {-128, 255});

/// `scale` Float32 and `zero_point` Int64, of no dimension or of sizes [1].
void save_qparams(StateDict& state, const std::string& prefix, double scale,
                  std::int64_t zero_point, const Dims& sizes = {});
/// One-element tensors of any floating and any integer dtype, their names after `below`. Changes the
/// two on commit.
void load_qparams(StateReader& reader, double& scale, std::int64_t& zero_point,
                  IntRange range = {-128, 255}, const std::string& below = {});

/// Whether a state holds the very tensors that are packed already, unchanged since.
bool is_packed_already(const Tensor& weight, const Tensor& bias, const Tensor& packed_weight,
                       const Tensor& packed_bias);

/// Where the weight and bias of a linear layer are stored. Files of older versions have them as
/// `weight` and `bias`, below `_packed_params` or directly below the module.
struct LinearNames {
  std::string weight = "_packed_params._packed_params/0";
  std::string bias = "_packed_params._packed_params/1";
};
/// The names that the file has; the newest ones if it has none of them.
LinearNames find_linear(StateReader& reader);

// `weight` and `bias` of a packed convolution.
void save_conv(StateDict& state, const std::string& prefix,
               const quanta::quantized::ConvPackedParams& packed);
void load_conv(StateReader& reader, quanta::quantized::ConvPackedParams& packed);
/// The same convolution with another weight and bias. Throws ArgumentError for other sizes.
quanta::quantized::ConvPackedParams repacked(const quanta::quantized::ConvPackedParams& packed,
                                             const QTensor& weight, const Tensor& bias);
/// "3, 8, kernel_size=(3, 3), stride=(1, 1), scale=0.1, zero_point=64, ...".
std::string conv_repr(const quanta::quantized::ConvPackedParams& packed, double scale,
                      std::int64_t zero_point);

}  // namespace quanta::nn::detail
