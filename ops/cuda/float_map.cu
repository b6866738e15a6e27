#include "quanta/ops/cuda/float_map.h"

#include <cmath>
#include <utility>

#include "quanta/ops/cuda/float_elements.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/activation_math.h"
#include "quanta/runtime/detail/exp_math.h"
#include "quanta/runtime/detail/gelu_math.h"

namespace quanta::cuda {
namespace {

SIMT_DEVICE float sign_of(float x) {
  return x != x ? x : static_cast<float>((x > 0.0F ? 1 : 0) - (x < 0.0F ? 1 : 0));
}

// A kernel of its own for each function: one for all would need the registers of the largest.
template <FloatFunction kFunction>
SIMT_DEVICE float value_of(float x, const float (&n)[3]) {
  const auto wide = static_cast<double>(x);
  switch (kFunction) {
    case FloatFunction::Exp:
      return math::exp_float(x);
    case FloatFunction::Erf:
      return math::erf_float(x);
    case FloatFunction::Gelu:
      return math::gelu_float(x);
    case FloatFunction::GeluTanh:
      return math::gelu_tanh_float(x);
    case FloatFunction::Sqrt:
      return sqrtf(x);
    case FloatFunction::Reciprocal:
      return 1.0F / x;
    case FloatFunction::Floor:
      return floorf(x);
    case FloatFunction::Ceil:
      return ceilf(x);
    case FloatFunction::Round:
      return nearbyintf(x);
    case FloatFunction::Neg:
      return -x;
    case FloatFunction::Abs:
      return fabsf(x);
    case FloatFunction::Sign:
      return sign_of(x);
    case FloatFunction::HardSigmoid:
      return math::hardsigmoid(x);
    case FloatFunction::HardSwish:
      return math::hardswish(x);
    case FloatFunction::LeakyReLU:
      return math::leaky_relu(x, n[0]);
    case FloatFunction::Threshold:
      return math::threshold(x, n[0], n[1]);
    case FloatFunction::HardShrink:
      return math::hardshrink(x, n[0]);
    case FloatFunction::Softsign:
      return math::softsign(x);
    case FloatFunction::Log:
      return math::log_float(x);
    case FloatFunction::Sin:
      return static_cast<float>(sin(wide));
    case FloatFunction::Cos:
      return static_cast<float>(cos(wide));
    case FloatFunction::Tan:
      return static_cast<float>(tan(wide));
    case FloatFunction::Asin:
      return static_cast<float>(asin(wide));
    case FloatFunction::Acos:
      return static_cast<float>(acos(wide));
    case FloatFunction::Atan:
      return static_cast<float>(atan(wide));
    case FloatFunction::Sinh:
      return static_cast<float>(sinh(wide));
    case FloatFunction::Cosh:
      return static_cast<float>(cosh(wide));
    case FloatFunction::Asinh:
      return static_cast<float>(asinh(wide));
    case FloatFunction::Acosh:
      return static_cast<float>(acosh(wide));
    case FloatFunction::Atanh:
      return static_cast<float>(atanh(wide));
    case FloatFunction::Sigmoid:
      return math::sigmoid(x);
    case FloatFunction::Tanh:
      return tanhf(x);
    case FloatFunction::Silu:
      return math::silu(x);
    case FloatFunction::Elu:
      return math::elu(x, n[0], n[1], n[2]);
    case FloatFunction::Softplus:
      return math::softplus(x, n[0], n[1]);
    case FloatFunction::Mish:
      return math::mish(x);
    case FloatFunction::LogSigmoid:
      break;
  }
  return math::logsigmoid(x);
}

template <FloatFunction kFunction>
struct MapFloats {
  static constexpr const char* kName = "map_floats";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  static constexpr int kEach = 4;
  using Params = MapFloatsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t first = static_cast<std::int64_t>(simt::block_x()) * kThreads * kEach;
    if (p.aligned && first + kThreads * kEach <= p.count) {
      const std::int64_t at = first + simt::thread() * kEach;
      FourFloats values = four_floats_at(p.dtype, p.x, at);
      for (float& value : values.of) value = value_of<kFunction>(value, p.call.numbers);
      put_four_floats(p.dtype, p.y, at, values);
      return;
    }
    for (int k = 0; k < kEach; ++k) {
      const std::int64_t i = first + k * kThreads + simt::thread();
      if (i >= p.count) continue;
      const float value = value_of<kFunction>(float_at(p.dtype, p.x, i), p.call.numbers);
      put_float(p.dtype, p.y, i, value);
    }
  }
};

template <int kFunction>
void launch_one(Device device, const MapFloatsParams& params) {
  using Kernel = MapFloats<static_cast<FloatFunction>(kFunction)>;
  if (static_cast<int>(params.call.function) != kFunction) return;
  simt::launch<Kernel>(device, simt::grid_for(params.count, Kernel::kThreads, Kernel::kEach),
                       params);
}

template <int... kFunctions>
void launch_any(Device device, const MapFloatsParams& params,
                std::integer_sequence<int, kFunctions...>) {
  (launch_one<kFunctions>(device, params), ...);
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void map_floats(Device device, const MapFloatsParams& params) {
  launch_any(device, params, std::make_integer_sequence<int, kFloatFunctions>());
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
