#include "quanta/ops/cuda/targets.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

struct NameTargets {
  static constexpr const char* kName = "name_targets";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = TargetParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    std::int64_t target = 0;
    for (int k = 0; k < p.count; ++k) {
      const PickParams::Index& index = p.index[k];
      std::int64_t rest = i;
      std::int64_t at = 0;
      for (int d = p.walk.rank - 1; d >= 0; --d) {
        const std::int64_t place = rest % p.walk.sizes[d];
        rest /= p.walk.sizes[d];
        at += place * index.strides[d];
        if (k == 0) target += place * p.walk.first[d];
      }
      std::int64_t position = index.is_long ? static_cast<const std::int64_t*>(index.positions)[at]
                                            : static_cast<const std::int32_t*>(index.positions)[at];
      if (position < index.low || position >= index.length) {
        p.to[i] = -1;
        if (p.fault != nullptr) simt::atomic_max(p.fault, 1);
        return;
      }
      if (position < 0) position += index.length;
      target += position * index.step;
    }
    p.to[i] = target;
  }
};

struct CountUp {
  static constexpr const char* kName = "count_up";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = CountUpParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i < p.count) p.to[i] = i;
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void name_targets(Device device, const TargetParams& params) {
  simt::launch<NameTargets>(device, simt::grid_for(params.walk.count), params);
}
void count_up(Device device, const CountUpParams& params) {
  simt::launch<CountUp>(device, simt::grid_for(params.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
