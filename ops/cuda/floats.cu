#include "quanta/ops/cuda/floats.h"

#include "quanta/ops/cuda/float_elements.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

SIMT_DEVICE float apply(FloatStep step, float left, float right) {
  switch (step) {
    case FloatStep::Add:
      return left + right;
    case FloatStep::Sub:
      return left - right;
    case FloatStep::Mul:
      return left * right;
    case FloatStep::Div:
      return left / right;
    case FloatStep::AddReLU:
      break;
  }
  const float sum = left + right;
  return sum < 0.0F ? 0.0F : sum;
}

struct CombineFloats {
  static constexpr const char* kName = "combine_floats";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = FloatBinaryParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    std::int64_t at[3] = {0, 0, 0};
    std::int64_t rest = i;
    for (int d = p.rank - 1; d >= 0; --d) {
      const std::int64_t index = rest % p.sizes[d];
      rest /= p.sizes[d];
      for (int k = 0; k < 3; ++k) at[k] += index * p.strides[k][d];
    }
    const float right = float_or(p.dtype, p.rhs, at[1], p.number);
    put_float(p.dtype, p.out, at[2], apply(p.step, float_at(p.dtype, p.lhs, at[0]), right));
  }
};

struct ClampFloats {
  static constexpr const char* kName = "clamp_floats";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ClampParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    const float x = float_at(p.dtype, p.x, i);
    const float at_least = x < p.low ? p.low : x;
    put_float(p.dtype, p.y, i, at_least > p.high ? p.high : at_least);
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void combine_floats(Device device, const FloatBinaryParams& params) {
  simt::launch<CombineFloats>(device, simt::grid_for(params.count), params);
}
void clamp_floats(Device device, const ClampParams& params) {
  simt::launch<ClampFloats>(device, simt::grid_for(params.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
