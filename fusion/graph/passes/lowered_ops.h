#pragma once

// Private: operations that hold a packed layer, for graphs.

#include <memory>

#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"
#include "quanta/runtime/operation.h"

namespace quanta::graph {

/// x QUInt8 to Float32.
std::shared_ptr<const Operation> conv_to_float_operation(quantized::ConvPackedParams packed);
std::shared_ptr<const Operation> linear_to_float_operation(quantized::LinearPackedParams packed);
/// Codes, scale, zero point to Float32.
std::shared_ptr<const Operation> conv_of_codes_operation(quantized::ConvPackedParams packed);
std::shared_ptr<const Operation> linear_of_codes_operation(quantized::LinearPackedParams packed);

/// What is put around an image [N, C, spatial...] before a convolution: what real zero is.
struct ImagePadding {
  Dims begin, end;  ///< one number for each spatial dimension
  /// Of auto_pad: the padding follows from the image's sizes. Kernel sizes with their dilation.
  bool same = false, lower = false;
  Dims stride, reach;
};
std::shared_ptr<const Operation> pad_image_operation(ImagePadding padding);

}  // namespace quanta::graph
