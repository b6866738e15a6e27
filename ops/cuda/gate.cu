#include "quanta/ops/cuda/gate.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

struct GateFloats {
  static constexpr const char* kName = "gate_floats";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = GateParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    const float x = static_cast<const float*>(p.x)[i];
    const bool is_outside = x <= p.low || x >= p.high;
    static_cast<float*>(p.dst)[i] = is_outside ? 0.0F : static_cast<const float*>(p.gradient)[i];
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void gate_floats(Device device, const GateParams& params) {
  simt::launch<GateFloats>(device, simt::grid_for(params.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
