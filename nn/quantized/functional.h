#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "quanta/nn/conv.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/interpolate.h"
#include "quanta/ops/pooling.h"
#include "quanta/runtime/tensor.h"

// Safe from many threads at once.

/// torch.nn.quantized.functional: the ops for callers that hold weights and parameters themselves.
/// Arithmetic and refusals are those of the ops in quanta/ops; in addition an input that is not
/// quantized is refused with an ArgumentError that names the function. (QFunctional, the module, is
/// in nn/quantized/qfunctional.h.)
namespace quanta::nn::quantized::functional {

/// What the convolutions take besides tensors, in torch's order.
struct ConvArguments {
  Dims stride{1};
  Dims padding{0};
  Dims dilation{1};
  std::int64_t groups = 1;
  PaddingMode padding_mode = PaddingMode::Zeros;  ///< others throw UnsupportedError, as in torch
  double scale = 1.0;
  std::int64_t zero_point = 0;
  DType dtype = DType::QUInt8;  ///< the result's; there is no other
};

/// `input` QUInt8 [N, C, spatial...] or [C, spatial...], `weight` QInt8 [O, C/groups, kernel...],
/// `bias` Float32 [O] or undefined. The weight is packed in every call: modules pack it once.
Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias,
              const ConvArguments& arguments = {});
Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias,
              const ConvArguments& arguments = {});
Tensor conv3d(const Tensor& input, const Tensor& weight, const Tensor& bias,
              const ConvArguments& arguments = {});

/// `input` QUInt8 [..., K], `weight` QInt8 [N, K], `bias` Float32 [N] or undefined. Scale and zero
/// point of the result are the input's unless given. Packs the weight in every call.
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
              std::optional<double> scale = std::nullopt,
              std::optional<std::int64_t> zero_point = std::nullopt);

// These keep the input's parameters.

Tensor max_pool1d(const Tensor& input, const MaxPoolOptions& options);
Tensor max_pool2d(const Tensor& input, const MaxPoolOptions& options);
Tensor avg_pool2d(const Tensor& input, const AvgPoolOptions& options);
Tensor avg_pool3d(const Tensor& input, const AvgPoolOptions& options);
Tensor adaptive_avg_pool2d(const Tensor& input, const Dims& output_size);
Tensor adaptive_avg_pool3d(const Tensor& input, const Dims& output_size);

/// Modes Nearest, NearestExact and Bilinear. `upsample` is its older name.
Tensor interpolate(const Tensor& input, const InterpolateOptions& options);
Tensor upsample(const Tensor& input, const InterpolateOptions& options);
/// To `size` or by `scale_factor`, the other empty. Bilinear aligns the corners, as torch's does.
Tensor upsample_nearest(const Tensor& input, const Dims& size,
                        const std::vector<double>& scale_factor = {});
Tensor upsample_bilinear(const Tensor& input, const Dims& size,
                         const std::vector<double>& scale_factor = {});

Tensor relu(const Tensor& input);
Tensor hardtanh(const Tensor& input, double min_val = -1.0, double max_val = 1.0);
Tensor clamp(const Tensor& input, double min, double max);
/// input > threshold ? input : value.
Tensor threshold(const Tensor& input, double threshold, double value);

/// With the parameters that its range fixes, see quanta::hardsigmoid.
Tensor hardsigmoid(const Tensor& input);

/// With the given scale and zero point, both or none; with none the input's, and then it may be
/// Float32 too, as in torch.
Tensor leaky_relu(const Tensor& input, double negative_slope = 0.01,
                  std::optional<double> scale = std::nullopt,
                  std::optional<std::int64_t> zero_point = std::nullopt);

// These have the given scale and zero point.

Tensor hardswish(const Tensor& input, double scale, std::int64_t zero_point);
Tensor elu(const Tensor& input, double scale, std::int64_t zero_point, double alpha = 1.0);
Tensor celu(const Tensor& input, double scale, std::int64_t zero_point, double alpha = 1.0);

}  // namespace quanta::nn::quantized::functional
