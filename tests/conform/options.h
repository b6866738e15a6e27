#pragma once

// The options of functions and modules by torch's names.

#include "arguments.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"
#include "quanta/nn/transformer.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/embedding.h"
#include "quanta/ops/interpolate.h"
#include "quanta/ops/loss.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/pooling.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/sort.h"

namespace quanta::conform {

template <>
inline constexpr std::array<std::string_view, 2> kTorchNames<GeluApproximation>{"none", "tanh"};
template <>
inline constexpr std::array<std::string_view, 5> kTorchNames<InterpolateMode>{
    "nearest", "nearest-exact", "linear", "bilinear", "trilinear"};
template <>
inline constexpr std::array<std::string_view, 4> kTorchNames<PadMode>{"constant", "reflect",
                                                                      "replicate", "circular"};
template <>
inline constexpr std::array<std::string_view, 3> kTorchNames<Reduction>{"none", "mean", "sum"};
template <>
inline constexpr std::array<std::string_view, 3> kTorchNames<quantized::EmbeddingBagMode>{
    "sum", "mean", "max"};
template <>
inline constexpr std::array<std::string_view, 4> kTorchNames<nn::PaddingMode>{
    "zeros", "reflect", "replicate", "circular"};
template <>
inline constexpr std::array<std::string_view, 2> kTorchNames<nn::RnnNonlinearity>{"tanh", "relu"};
template <>
inline constexpr std::array<std::string_view, 2> kTorchNames<nn::TransformerActivation>{"relu",
                                                                                        "gelu"};

void take(const Arguments& given, ReduceOptions& options);
void take(const Arguments& given, StdOptions& options);
void take(const Arguments& given, SortOptions& options);
void take(const Arguments& given, TopkOptions& options);
void take(const Arguments& given, ConvOptions& options);
void take(const Arguments& given, ConvTransposeOptions& options);
void take(const Arguments& given, MaxPoolOptions& options);
void take(const Arguments& given, AvgPoolOptions& options);
void take(const Arguments& given, InterpolateOptions& options);
void take(const Arguments& given, BinaryLossOptions& options);
void take(const Arguments& given, ClassLossOptions& options);
void take(const Arguments& given, quantized::NBitPrepackOptions& options);

void take(const Arguments& given, nn::ConvNdOptions& options);
void take(const Arguments& given, nn::ConvTransposeNdOptions& options);
void take(const Arguments& given, nn::LinearOptions& options);
void take(const Arguments& given, nn::BatchNormOptions& options);
void take(const Arguments& given, nn::InstanceNormOptions& options);
void take(const Arguments& given, nn::LayerNormOptions& options);
void take(const Arguments& given, nn::GroupNormOptions& options);
void take(const Arguments& given, nn::RecurrentOptions& options);
void take(const Arguments& given, nn::CellOptions& options);
void take(const Arguments& given, nn::EmbeddingOptions& options);
void take(const Arguments& given, nn::EmbeddingBagOptions& options);
void take(const Arguments& given, nn::MultiheadAttentionOptions& options);
void take(const Arguments& given, nn::TransformerLayerOptions& options);

void take(const Arguments& given, optim::SGDOptions& options);
void take(const Arguments& given, optim::AdamOptions& options);

}  // namespace quanta::conform
