#include "quanta/ops/detail/cuda_fake_quantize.h"

#include <algorithm>
#include <initializer_list>

#include "quanta/ops/cpu/fake_quantize.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/device_data.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/operation.h"

namespace quanta::cuda {
namespace {

Tensor floats_on_device(const Tensor& values) { return values.to(DType::Float32).contiguous(); }

bool is_aligned(const Tensor& x) {
  return reinterpret_cast<std::uintptr_t>(x.device_ptr()) % 16 == 0;
}

// `all`: the tensors that are read and written, the first of which says how they lie.
FakeQuantizeRowsOf rows_of(std::initializer_list<const Tensor*> all, std::int64_t axis,
                           std::int64_t channels) {
  const Tensor& x = **all.begin();
  const cpu::FakeQuantizeRows rows = cpu::fake_quantize_rows(x, axis);
  FakeQuantizeRowsOf result;
  result.is_double = x.dtype() == DType::Float64;
  result.all_channels = rows.kind == cpu::FakeQuantizeRows::Kind::AllChannels;
  result.channels = channels;
  result.count = rows.count;
  result.length = rows.length;
  result.in_vectors =
      (rows.length % 4 == 0 || rows.count == 1) &&
      std::all_of(all.begin(), all.end(), [](auto* each) { return is_aligned(*each); });
  return result;
}

}  // namespace

FakeQuantizeChannelsOf::FakeQuantizeChannelsOf(const Tensor& scale, const Tensor& zero_point,
                                               std::int64_t quant_min, std::int64_t quant_max,
                                               ZeroPointUse use)
    : FakeQuantizeChannelsOf(1.0F, 0.0F, quant_min, quant_max) {
  scale_ = floats_on_device(scale);
  zero_point_ = floats_on_device(zero_point);
  qparams.scales = floats_of(scale_);
  qparams.zero_points = floats_of(zero_point_);
  qparams.use = use;
  count = scale.numel();
}

FakeQuantizeChannelsOf::FakeQuantizeChannelsOf(float scale, float zero_point,
                                               std::int64_t quant_min, std::int64_t quant_max) {
  qparams.scale = scale;
  qparams.zero_point = zero_point;
  qparams.min = static_cast<float>(quant_min);
  qparams.max = static_cast<float>(quant_max);
}

void fake_quantize_tensor(const Tensor& x, std::int64_t axis,
                          const FakeQuantizeChannelsOf& channels, const Tensor& out,
                          const Tensor& mask) {
  const Tensor src = cpu::in_real(x);
  const bool is_direct = src.dtype() == out.dtype();
  const Tensor dst =
      is_direct ? out
                : Tensor::empty(src.sizes(), src.dtype(), src.suggested_format(), src.device());
  FakeQuantizeParams params;
  params.rows = rows_of({&src, &dst}, axis, channels.count);
  params.qparams = channels.qparams;
  params.x = src.device_ptr();
  params.y = dst.device_ptr();
  if (mask.defined()) params.mask = reinterpret_cast<std::uint8_t*>(mask.device_ptr());
  fake_quantize_rows(src.device(), params);
  if (!is_direct) copy_result(dst.to(out.dtype()), out);
}

void masked_gradient(const Tensor& grad, std::int64_t axis, const Tensor& mask, const Tensor& out) {
  FakeQuantizeParams params;
  params.rows = rows_of({&grad, &out}, axis, 1);
  params.x = grad.device_ptr();
  params.y = out.device_ptr();
  params.mask = reinterpret_cast<std::uint8_t*>(mask.device_ptr());
  mask_rows(grad.device(), params);
}

void learned_gradients(const Tensor& x, const Tensor& grad, std::int64_t axis,
                       const FakeQuantizeChannelsOf& channels, double factor, const Tensor& x_grad,
                       const Tensor& scale_grad, const Tensor& zero_point_grad) {
  LearnedGradientParams params;
  params.rows = rows_of({&x}, axis, channels.count);
  params.qparams = channels.qparams;
  params.x = x.device_ptr();
  params.grad = grad.device_ptr();
  params.x_grad = x_grad.device_ptr();
  params.factor = factor;
  params.scale_grad = reinterpret_cast<double*>(scale_grad.device_ptr());
  params.zero_point_grad = reinterpret_cast<double*>(zero_point_grad.device_ptr());
  if (params.rows.all_channels) return sum_learned_columns(x.device(), params);
  // The CPU's blocks.
  params.block = std::max<std::int64_t>(1, std::min(params.rows.length, cpu::kElementGrain));
  params.blocks = ceil_div(params.rows.length, params.block);
  const auto items = static_cast<std::size_t>(params.rows.count * params.blocks);
  const Buffer sums(x.device(), items * sizeof(LearnedSumsOf));
  params.sums = sums.as<LearnedSumsOf>();
  find_learned_sums(x.device(), params);
  join_learned_sums(x.device(), params);
}

}  // namespace quanta::cuda
