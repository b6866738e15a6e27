#include "quanta/ops/activation/cuda_prelu.h"

#include "quanta/ops/activation/prelu_functions.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {
namespace {

template <typename T>
struct PReluFloats {
  static constexpr const char* kName = "prelu_floats";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PReluParams;

  static SIMT_DEVICE T result(const Params& p, const std::int64_t (&at)[4]) {
    const T x = static_cast<const T*>(p.x)[at[1]];
    switch (p.step) {
      case PReluStep::Value:
        return activation::prelu_value(x, static_cast<const T*>(p.weight)[at[2]]);
      case PReluStep::InputGradient:
        return activation::prelu_slope(static_cast<const T*>(p.gradient)[at[3]], x,
                                       static_cast<const T*>(p.weight)[at[2]]);
      case PReluStep::WeightGradient:
        break;
    }
    return activation::prelu_weight_slope(static_cast<const T*>(p.gradient)[at[3]], x);
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    std::int64_t at[4];
    p.walk.places(i, at);
    static_cast<T*>(p.out)[at[0]] = result(p, at);
  }
};

template <typename T>
struct PReluCodes {
  static constexpr const char* kName = "prelu_codes";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PReluCodesParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    std::int64_t at[3];
    p.walk.places(i, at);
    const std::int32_t x = static_cast<const T*>(p.x)[at[1]] - p.x_zero_point;
    const std::int32_t slope =
        x > 0 ? p.one : static_cast<const T*>(p.weight)[at[2]] - p.weight_zero_point;
    static_cast<T*>(p.out)[at[0]] = static_cast<T>(
        math::quantize(static_cast<float>(x * slope), p.multiplier, p.zero_point, p.low, p.high));
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void prelu_floats(Device device, const PReluParams& params) {
  const simt::Grid grid = simt::grid_for(params.walk.count);
  params.is_double ? simt::launch<PReluFloats<double>>(device, grid, params)
                   : simt::launch<PReluFloats<float>>(device, grid, params);
}
void prelu_codes(Device device, const PReluCodesParams& params) {
  const simt::Grid grid = simt::grid_for(params.walk.count);
  params.is_signed ? simt::launch<PReluCodes<std::int8_t>>(device, grid, params)
                   : simt::launch<PReluCodes<std::uint8_t>>(device, grid, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
