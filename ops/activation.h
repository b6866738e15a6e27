#pragma once

#include <optional>

#include "quanta/runtime/tensor.h"

/// Activation functions: each element by itself, but for softmax and log_softmax.
///
/// They take Float32, Float64, or per-tensor quantized tensors (QUInt8, QInt8, QInt32). A quantized
/// result keeps the input's parameters, except where the function's range fixes them as in torch:
/// sigmoid and hardsigmoid have scale 1/256 and zero point 0 (QInt8: -128), tanh has scale 1/128
/// and zero point 128 (QInt8: 0); for QInt32 the scales are 2^-32 and 2^-31 and the zero point is
/// 0. Shape and memory order are kept.
///
/// All throw ArgumentError for per-channel tensors and for settings out of range, UnsupportedError
/// for other dtypes. Many threads may call them at once while nobody writes to the arguments; relu_
/// writes to its own, and dropout draws from default_generator(), which they may share.
namespace quanta {

/// max(x, 0).
Tensor relu(const Tensor& x);
/// relu in place; returns its argument. A tensor whose elements share memory (expand) is refused.
const Tensor& relu_(const Tensor& x);
/// min(max(x, 0), 6).
Tensor relu6(const Tensor& x);
/// min(max(x, low), high) with one bound at least. When low > high the upper bound wins, as in
/// torch.
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high);
/// min(max(x, low), high).
Tensor hardtanh(const Tensor& x, double low = -1.0, double high = 1.0);
/// x > threshold ? x : value.
Tensor threshold(const Tensor& x, double threshold, double value);
/// x > 0 ? x : negative_slope * x.
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// relu6(x + 3) / 6.
Tensor hardsigmoid(const Tensor& x);
/// 1 / (1 + exp(-x)).
Tensor sigmoid(const Tensor& x);
/// The hyperbolic tangent.
Tensor tanh(const Tensor& x);
enum class GeluApproximation : std::uint8_t { None, Tanh };
/// x times the normal distribution's probability of values below x; with Tanh its approximation
/// 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).
Tensor gelu(const Tensor& x, GeluApproximation approximate = GeluApproximation::None);

/// x * relu6(x + 3) / 6. quantized::hardswish gives codes other parameters.
Tensor hardswish(const Tensor& x);
/// x * sigmoid(x). Floats; quantized::silu takes codes.
Tensor silu(const Tensor& x);
/// x > 0 ? x : alpha * expm1(x). quantized::elu gives codes other parameters.
Tensor elu(const Tensor& x, double alpha = 1.0);
/// x > 0 ? x : alpha * expm1(x / alpha). Floats; quantized::celu takes codes.
Tensor celu(const Tensor& x, double alpha = 1.0);
/// x > 0 ? x : weight * x; `weight` has one value, or one for each index of dimension 1. Floats;
/// quantized::prelu takes codes.
Tensor prelu(const Tensor& x, const Tensor& weight);
/// exp(x) divided by its sum along `dim`. Floats; quantized::softmax takes codes.
Tensor softmax(const Tensor& x, std::int64_t dim);

// Floats only in torch; their forms in namespace quantized are Quanta's own.

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

// Floats only.

/// |x| > lambd ? x : 0; NaN stays.
Tensor hardshrink(const Tensor& x, double lambd = 0.5);

/// Each element becomes 0 with probability p, else x / (1 - p); drawn from default_generator(). As
/// torch.nn.functional.dropout in train mode. Throws ArgumentError for p outside [0, 1].
Tensor dropout(const Tensor& x, double p = 0.5);

namespace quantized {

// The function of this name in namespace quanta on per-tensor QUInt8, QInt8 or QInt32 codes, that
// is quantize(f(dequantize(q))). The result has the given scale and zero point and the input's
// dtype. Codes of 8 bits are looked up in a table of all 256.
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
QTensor softplus(const QTensor& x, double scale, std::int64_t zero_point, double beta = 1.0,
                 double threshold = 20.0);
QTensor mish(const QTensor& x, double scale, std::int64_t zero_point);
QTensor selu(const QTensor& x, double scale, std::int64_t zero_point);
QTensor logsigmoid(const QTensor& x, double scale, std::int64_t zero_point);
QTensor softsign(const QTensor& x, double scale, std::int64_t zero_point);
/// `weight` is per-tensor, of x's dtype, with one value, or one for each index of dimension 1. In
/// integers, with 1.0 as `weight`'s parameters round it:
///   q = clamp(zp + round((x - zx) * (x > zx ? Qw(1.0) - zw : w - zw) * (sx * sw / s)))
QTensor prelu(const QTensor& x, const QTensor& weight, double scale, std::int64_t zero_point);
QTensor softmax(const QTensor& x, std::int64_t dim, double scale, std::int64_t zero_point);
QTensor log_softmax(const QTensor& x, std::int64_t dim, double scale, std::int64_t zero_point);

/// The tensor itself: nothing is dropped at inference, and its parameters stay (torch's
/// quantized::dropout). Throws ArgumentError for p outside [0, 1].
QTensor dropout(const QTensor& x, double p = 0.5);

}  // namespace quantized
}  // namespace quanta
