#include "quanta/ops/cuda/amax.h"

#include <bit>

#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/cuda/walk.h"

namespace quanta::cuda {
namespace {

using detail::AmaxStep;

SIMT_DEVICE float apply(const detail::AmaxFunction& f, float x, float amax) {
  switch (f.step) {
    case AmaxStep::FakeTensorQuant:
      return detail::apply_amax<AmaxStep::FakeTensorQuant>(f, x, amax);
    case AmaxStep::Codes:
      return detail::apply_amax<AmaxStep::Codes>(f, x, amax);
    case AmaxStep::CodesInBFloat16:
      return detail::apply_amax<AmaxStep::CodesInBFloat16>(f, x, amax);
    case AmaxStep::ScaledE4M3:
      return detail::apply_amax<AmaxStep::ScaledE4M3>(f, x, amax);
    case AmaxStep::StaticFp4:
      return detail::apply_amax<AmaxStep::StaticFp4>(f, x, amax);
    case AmaxStep::Scale:
      return detail::apply_amax<AmaxStep::Scale>(f, x, amax);
    case AmaxStep::Divisor:
      return detail::apply_amax<AmaxStep::Divisor>(f, x, amax);
    case AmaxStep::IntCast:
      return detail::apply_amax<AmaxStep::IntCast>(f, x, amax);
    case AmaxStep::FakeAffine:
      return detail::apply_amax<AmaxStep::FakeAffine>(f, x, amax);
    case AmaxStep::Round:
      return detail::apply_amax<AmaxStep::Round>(f, x, amax);
    case AmaxStep::Inside:
      break;
  }
  return detail::apply_amax<AmaxStep::Inside>(f, x, amax);
}

struct MapByAmax {
  static constexpr const char* kName = "map_by_amax";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AmaxMapParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    const Places at = places_of(p.walk, i);
    const float x = p.x[at.first];
    const float amax = p.amax == nullptr ? 0.0F : p.amax[at.second];
    if (p.grad == nullptr) {
      p.out[at.first] = apply(p.function, x, amax);
    } else {
      const float grad = p.grad[at.first];
      p.out[at.first] =
          p.of_amax ? math::gradient_of_amax(x, grad, amax) : math::amax_gradient(x, grad, amax);
    }
  }
};

struct FindNegative {
  static constexpr const char* kName = "find_negative";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = FindNegativeParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    // The bits of magnitudes are ordered as the magnitudes are.
    if (i < p.count && p.floats[i] < 0.0F) {
      simt::atomic_max(p.magnitude, std::bit_cast<std::int32_t>(-p.floats[i]));
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void map_by_amax(Device device, const AmaxMapParams& params) {
  simt::launch<MapByAmax>(device, simt::grid_for(params.walk.count), params);
}
void find_negative(Device device, const FindNegativeParams& params) {
  simt::launch<FindNegative>(device, simt::grid_for(params.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
