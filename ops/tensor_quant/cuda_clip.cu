#include "quanta/ops/tensor_quant/cuda_clip.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

template <typename T>
struct ClipFloats {
  static constexpr const char* kName = "clip_floats";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ClipParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    std::int64_t at[5];
    p.walk.places(i, at);
    const T x = static_cast<const T*>(p.x)[at[1]];
    const T low = static_cast<const T*>(p.low)[at[2]];
    const T high = static_cast<const T*>(p.high)[at[3]];
    T* const out = static_cast<T*>(p.out) + at[0];
    if (p.step == clipping::ClipStep::Value) {
      *out = clipping::clip_value(x, low, high);
    } else {
      *out = clipping::clip_passes(p.step, x, low, high) ? static_cast<const T*>(p.gradient)[at[4]]
                                                         : T{0};
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void clip_floats(Device device, const ClipParams& params) {
  const simt::Grid grid = simt::grid_for(params.walk.count);
  params.is_double ? simt::launch<ClipFloats<double>>(device, grid, params)
                   : simt::launch<ClipFloats<float>>(device, grid, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
