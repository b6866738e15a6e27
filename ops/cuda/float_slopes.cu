#include "quanta/ops/cuda/float_slopes.h"

#include <utility>

#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/slope_math.h"

namespace quanta::cuda {
namespace {

// A derivative in double, as the CPU has it.
template <typename Derivative>
SIMT_DEVICE float wide(float gradient, float x, Derivative derivative) {
  return gradient * static_cast<float>(derivative(static_cast<double>(x)));
}

// A kernel of its own for each function: one for all would need the registers of the largest.
template <FloatFunction kFunction>
SIMT_DEVICE float slope_of(float g, float x, const float (&n)[3]) {
  switch (kFunction) {
    case FloatFunction::Exp:
      return math::exp_slope(g, x);
    case FloatFunction::Erf:
      return math::erf_slope(g, x);
    case FloatFunction::Gelu:
      return math::gelu_slope(g, x);
    case FloatFunction::GeluTanh:
      return math::gelu_tanh_slope(g, x);
    case FloatFunction::Sqrt:
      return math::sqrt_slope(g, x);
    case FloatFunction::Reciprocal:
      return math::reciprocal_slope(g, x);
    case FloatFunction::HardSigmoid:
      return math::hardsigmoid_slope(g, x);
    case FloatFunction::HardSwish:
      return math::hardswish_slope(g, x);
    case FloatFunction::LeakyReLU:
      return math::leaky_relu_slope(g, x, n[0]);
    case FloatFunction::Threshold:
      return math::threshold_slope(g, x, n[0]);
    case FloatFunction::HardShrink:
      return math::hardshrink_slope(g, x, n[0]);
    case FloatFunction::Softsign:
      return math::softsign_slope(g, x);
    case FloatFunction::Log:
      return wide(g, x, [](double v) { return math::log_derivative(v); });
    case FloatFunction::Sin:
      return wide(g, x, [](double v) { return math::sin_derivative(v); });
    case FloatFunction::Cos:
      return wide(g, x, [](double v) { return math::cos_derivative(v); });
    case FloatFunction::Tan:
      return wide(g, x, [](double v) { return math::tan_derivative(v); });
    case FloatFunction::Asin:
      return wide(g, x, [](double v) { return math::asin_derivative(v); });
    case FloatFunction::Acos:
      return wide(g, x, [](double v) { return math::acos_derivative(v); });
    case FloatFunction::Atan:
      return wide(g, x, [](double v) { return math::atan_derivative(v); });
    case FloatFunction::Sinh:
      return wide(g, x, [](double v) { return math::sinh_derivative(v); });
    case FloatFunction::Cosh:
      return wide(g, x, [](double v) { return math::cosh_derivative(v); });
    case FloatFunction::Asinh:
      return wide(g, x, [](double v) { return math::asinh_derivative(v); });
    case FloatFunction::Acosh:
      return wide(g, x, [](double v) { return math::acosh_derivative(v); });
    case FloatFunction::Atanh:
      return wide(g, x, [](double v) { return math::atanh_derivative(v); });
    case FloatFunction::Sigmoid:
      return math::sigmoid_slope(g, x);
    case FloatFunction::Tanh:
      return math::tanh_slope(g, x);
    case FloatFunction::Silu:
      return math::silu_slope(g, x);
    case FloatFunction::Elu:
      return math::elu_slope(g, x, n[0], n[1], n[2]);
    case FloatFunction::Softplus:
      return math::softplus_slope(g, x, n[0], n[1]);
    case FloatFunction::Mish:
      return math::mish_slope(g, x);
    case FloatFunction::LogSigmoid:
      return math::logsigmoid_slope(g, x);
    case FloatFunction::Floor:
    case FloatFunction::Ceil:
    case FloatFunction::Round:
    case FloatFunction::Neg:  // these three have slopes of their own, by operations
    case FloatFunction::Abs:
    case FloatFunction::Sign:
      break;
  }
  return math::step_slope(g);
}

template <FloatFunction kFunction>
struct SlopeFloats {
  static constexpr const char* kName = "slope_floats";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = SlopeParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i < p.count) p.dst[i] = slope_of<kFunction>(p.gradient[i], p.x[i], p.call.numbers);
  }
};

template <int kFunction>
void launch_one(Device device, const SlopeParams& params) {
  if (static_cast<int>(params.call.function) != kFunction) return;
  simt::launch<SlopeFloats<static_cast<FloatFunction>(kFunction)>>(
      device, simt::grid_for(params.count), params);
}

template <int... kFunctions>
void launch_any(Device device, const SlopeParams& params,
                std::integer_sequence<int, kFunctions...>) {
  (launch_one<kFunctions>(device, params), ...);
}

struct GateFloats {
  static constexpr const char* kName = "gate_floats";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = GateParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    const float x = p.x[i];
    const bool passes = p.bounds.passes_bounds ? x >= p.bounds.low && x <= p.bounds.high
                                               : !(x <= p.bounds.low || x >= p.bounds.high);
    p.dst[i] = passes ? p.gradient[i] : 0.0F;
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void slope_floats(Device device, const SlopeParams& params) {
  launch_any(device, params, std::make_integer_sequence<int, kFloatFunctions>());
}
void gate_floats(Device device, const GateParams& params) {
  simt::launch<GateFloats>(device, simt::grid_for(params.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
