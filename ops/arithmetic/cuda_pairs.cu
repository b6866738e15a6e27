#include "quanta/ops/arithmetic/cuda_pairs.h"

#include "quanta/ops/arithmetic/pair_functions.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {
namespace {

struct CombineCodePairs {
  static constexpr const char* kName = "combine_code_pairs";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = CodePairParams;

  static SIMT_DEVICE float value_of(CodePairFunction function, float lhs, float rhs) {
    switch (function) {
      case CodePairFunction::Divide:
        return arithmetic::Divide::value(lhs, rhs);
      case CodePairFunction::Minimum:
        return arithmetic::Minimum::value(lhs, rhs);
      case CodePairFunction::Maximum:
        break;
    }
    return arithmetic::Maximum::value(lhs, rhs);
  }

  template <typename T>
  static SIMT_DEVICE void combine(const Params& p, const std::int64_t (&at)[3]) {
    const float lhs =
        math::dequantize(static_cast<const T*>(p.lhs)[at[1]], p.lhs_scale, p.lhs_zero_point);
    const float rhs =
        math::dequantize(static_cast<const T*>(p.rhs)[at[2]], p.rhs_scale, p.rhs_zero_point);
    static_cast<T*>(p.out)[at[0]] = static_cast<T>(
        math::quantize(value_of(p.function, lhs, rhs), p.inv_scale, p.zero_point, p.low, p.high));
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    std::int64_t at[3];
    p.walk.places(i, at);
    p.is_signed ? combine<std::int8_t>(p, at) : combine<std::uint8_t>(p, at);
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void combine_code_pairs(Device device, const CodePairParams& params) {
  simt::launch<CombineCodePairs>(device, simt::grid_for(params.walk.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
