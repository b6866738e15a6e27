#pragma once

#include <memory>

#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/rnn.h"

/// Recurrent steps with int8 and float16 weights.
///
/// Both functions throw ArgumentError for packed parameters that are empty. Products are immutable,
/// and many threads may call one at once.
namespace quanta::quantized {

/// linear_dynamic as the product of a recurrent step: the hidden states of all sequences of a step
/// share one scale and zero point, chosen anew in each step. States that are not finite are refused as
/// linear_dynamic refuses them: with ArgumentError on the CPU, with NaN on a CUDA device.
std::shared_ptr<const HiddenProduct> dynamic_hidden_product(
    const LinearPackedParams& packed, ReduceRange reduce_range = ReduceRange::No);
/// The same with linear_dynamic_fp16.
std::shared_ptr<const HiddenProduct> dynamic_hidden_product(const LinearPackedParamsFp16& packed);

}  // namespace quanta::quantized
