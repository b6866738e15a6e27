#include "quanta/ops/cuda/codes.h"

#include <algorithm>

#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {
namespace {

// The parameters of codes, with the channels' numbers on the device while this lives: what is freed
// is handed out again only to work that is asked for later.
class DeviceQParams {
 public:
  explicit DeviceQParams(const Tensor& codes) {
    const Quantizer& quantizer = codes.impl()->quantizer;
    params.scale = quantizer.scale;
    params.zero_point = quantizer.zero_point;
    if (!is_per_channel(quantizer.scheme)) return;
    const ChannelQParams& channel = *quantizer.channel;
    params.channels = static_cast<std::int64_t>(channel.scales.size());
    params.inner = codes.strides()[static_cast<std::size_t>(quantizer.axis)];
    const Device device = codes.device();
    scales_ = Buffer(device, channel.scales.data(), channel.scales.size() * sizeof(double));
    params.scales = scales_.as<double>();
    if (quantizer.scheme == QScheme::PerChannelAffineFloatQParams) {
      zero_points_ = Buffer(device, channel.float_zero_points.data(),
                            channel.float_zero_points.size() * sizeof(float));
      params.float_zero_points = zero_points_.as<float>();
    } else {
      zero_points_ = Buffer(device, channel.zero_points.data(),
                            channel.zero_points.size() * sizeof(std::int64_t));
      params.zero_points = zero_points_.as<std::int64_t>();
    }
  }

  CodeParams params;

 private:
  Buffer scales_;
  Buffer zero_points_;
};

QuantizeParams quantize_params(const Tensor& codes, const CodeParams& qparams) {
  const IntRange range = quant_range(codes.dtype());
  QuantizeParams params;
  params.count = codes.numel();
  params.codes = codes.device_ptr();
  params.dtype = codes.dtype();
  params.low = static_cast<std::int32_t>(range.min);
  params.high = static_cast<std::int32_t>(range.max);
  params.qparams = qparams;
  return params;
}

}  // namespace

void look_up(const Tensor& from, const Tensor& to, const std::array<std::uint8_t, 256>& table) {
  if (to.numel() == 0) return;
  LookUpParams params;
  params.walk = strided_walk(to, from);
  params.from = reinterpret_cast<const std::uint8_t*>(from.device_ptr());
  params.to = reinterpret_cast<std::uint8_t*>(to.device_ptr());
  std::copy(table.begin(), table.end(), params.table);
  look_up_codes(to.device(), params);
}

void quantize_tensor(const Tensor& x, const Tensor& codes) {
  const DeviceQParams qparams(codes);
  QuantizeParams params = quantize_params(codes, qparams.params);
  params.floats = reinterpret_cast<const float*>(x.device_ptr());
  quantize_floats(codes.device(), params);
}

void dequantize_tensor(const Tensor& codes, const Tensor& x) {
  const DeviceQParams qparams(codes);
  QuantizeParams params = quantize_params(codes, qparams.params);
  params.results = reinterpret_cast<float*>(x.device_ptr());
  dequantize_codes(codes.device(), params);
}

void set_places(CodeBinaryParams& params, const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
  const Tensor left = lhs.expand(out.sizes());
  const Tensor right = rhs.expand(out.sizes());
  params.walk = {out.sizes(), {&out.strides(), &left.strides(), &right.strides()}};
  params.lhs = lhs.device_ptr();
  params.rhs = rhs.device_ptr();
  params.out = out.device_ptr();
  params.dtype = out.dtype();
  const OperandWalk<3>& walk = params.walk;
  const auto bits = reinterpret_cast<std::uintptr_t>(params.lhs) |
                    reinterpret_cast<std::uintptr_t>(params.rhs) |
                    reinterpret_cast<std::uintptr_t>(params.out);
  const bool is_dense = walk.rank == 1 && walk.strides[0][0] == 1 && walk.strides[1][0] == 1 &&
                        walk.strides[2][0] == 1;
  if (is_dense && item_size(params.dtype) == 1 && bits % 4 == 0) params.at_once = 4;
}

}  // namespace quanta::cuda
