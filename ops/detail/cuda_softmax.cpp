#include "quanta/ops/detail/cuda_softmax.h"

#include "quanta/ops/cpu/per_channel.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

std::string_view softmax(SoftmaxKind kind, const Tensor& x, const Tensor& out, std::int64_t axis) {
  SoftmaxParams params;
  params.kind = kind;
  params.dtype = x.dtype();
  params.x = x.device_ptr();
  params.y = out.device_ptr();
  params.lines = 1;
  params.length = 1;
  if (x.dim() > 0) {
    const cpu::ChannelLayout layout(out, axis);
    params.lines = layout.outer * layout.inner;
    params.length = layout.channels;
    params.inner = layout.inner;
  }
  if (x.is_quantized()) {
    params.scale_in = static_cast<float>(x.impl()->quantizer.scale);
    params.zero_point_in = static_cast<std::int32_t>(x.impl()->quantizer.zero_point);
    const cpu::ScalarQuantizer to_code(out);
    params.inv_scale = to_code.inv_scale;
    params.zero_point = to_code.zero_point;
    params.low = to_code.min;
    params.high = to_code.max;
  }
  if (params.inner == 1) {
    softmax_rows(x.device(), params);
    return "softmax_rows";
  }
  softmax_lines(x.device(), params);
  return "softmax_lines";
}

}  // namespace quanta::cuda
