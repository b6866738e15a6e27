#pragma once

#include <optional>

#include "quanta/runtime/tensor.h"

namespace quanta {

// Each takes Float32, Float64, or a per-tensor quantized tensor (QUInt8, QInt8, QInt32) and then
// keeps the input's parameters, except where the function's range fixes them as in torch: sigmoid,
// hardsigmoid (scale 1/256, zero point 0 or -128) and tanh (scale 1/128, zero point 128 or 0);
// QInt32: 2^-32 and 2^-31, zero point 0. Shape and memory order are kept. Per-channel input is
// refused with ArgumentError.

Tensor relu(const Tensor& x);
/// In place, returns its argument. Views of one element by several indices (expand) are refused.
const Tensor& relu_(const Tensor& x);
Tensor relu6(const Tensor& x);
/// At least one bound. When low > high the upper bound wins, as in torch.
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high);
Tensor hardtanh(const Tensor& x, double low = -1.0, double high = 1.0);
/// x > threshold ? x : value.
Tensor threshold(const Tensor& x, double threshold, double value);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor hardsigmoid(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
enum class GeluApproximation : std::uint8_t { None, Tanh };
Tensor gelu(const Tensor& x, GeluApproximation approximate = GeluApproximation::None);

// Floats only here; their quantized forms need output parameters (namespace quantized).
Tensor hardswish(const Tensor& x);
Tensor silu(const Tensor& x);
Tensor elu(const Tensor& x, double alpha = 1.0);
Tensor celu(const Tensor& x, double alpha = 1.0);
/// `weight` has one value, or one for each index of dimension 1.
Tensor prelu(const Tensor& x, const Tensor& weight);
Tensor softmax(const Tensor& x, std::int64_t dim);

// Float only, here and in torch.
/// log(softmax(x, dim)), without the loss of digits.
Tensor log_softmax(const Tensor& x, std::int64_t dim);
/// log(1 + exp(beta * x)) / beta; x where beta * x > threshold. Throws ArgumentError for a beta
/// that is 0 or not finite.
Tensor softplus(const Tensor& x, double beta = 1.0, double threshold = 20.0);
/// x * tanh(softplus(x)).
Tensor mish(const Tensor& x);
/// elu with the alpha and scale under which activations keep mean 0 and variance 1.
Tensor selu(const Tensor& x);
/// log(sigmoid(x)).
Tensor logsigmoid(const Tensor& x);
/// x / (1 + |x|).
Tensor softsign(const Tensor& x);

/// Each element becomes 0 with probability p, else x / (1 - p); drawn from default_generator(). As
/// torch.nn.functional.dropout in train mode. Throws ArgumentError for p outside [0, 1].
Tensor dropout(const Tensor& x, double p = 0.5);

namespace quantized {

// Per-tensor QUInt8, QInt8 or QInt32 in; the result has the given scale and zero point and the
// input's dtype. Each value is f(dequantize(q)) quantized; for 8 bits it is looked up in a table of
// all 256 codes.
QTensor leaky_relu(const QTensor& x, double negative_slope, double scale, std::int64_t zero_point);
QTensor hardswish(const QTensor& x, double scale, std::int64_t zero_point);
/// x >= 0 ? x * scale : expm1(x * input_scale) * alpha * scale.
QTensor elu(const QTensor& x, double output_scale, std::int64_t output_zero_point,
            double alpha = 1.0, double scale = 1.0, double input_scale = 1.0);
QTensor celu(const QTensor& x, double scale, std::int64_t zero_point, double alpha = 1.0);
QTensor sigmoid(const QTensor& x, double scale, std::int64_t zero_point);
QTensor tanh(const QTensor& x, double scale, std::int64_t zero_point);
QTensor gelu(const QTensor& x, double scale, std::int64_t zero_point,
             GeluApproximation approximate = GeluApproximation::None);
QTensor silu(const QTensor& x, double scale, std::int64_t zero_point);
/// `weight` is per-tensor, of x's dtype, with one value, or one for each index of dimension 1. In
/// integers, with 1.0 as `weight`'s parameters round it:
///   q = clamp(zp + round((x - zx) * (x > zx ? Qw(1.0) - zw : w - zw) * (sx * sw / s)))
QTensor prelu(const QTensor& x, const QTensor& weight, double scale, std::int64_t zero_point);
QTensor softmax(const QTensor& x, std::int64_t dim, double scale, std::int64_t zero_point);

/// The tensor itself: nothing is dropped at inference, and its parameters stay (torch's
/// quantized::dropout). Throws ArgumentError for p outside [0, 1].
QTensor dropout(const QTensor& x, double p = 0.5);

}  // namespace quantized
}  // namespace quanta
