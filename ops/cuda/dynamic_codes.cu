#include "quanta/ops/cuda/dynamic_codes.h"

#include "quanta/ops/cuda/dynamic_numbers.h"
#include "quanta/ops/cuda/four_floats.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {
namespace {

SIMT_DEVICE DynamicNumbers choose_numbers(const QuantizeDynamicParams& p) {
  const math::QParams qparams = choose_dynamic(p.range->min, p.range->max, p.reduce_range);
  return {static_cast<float>(qparams.scale), static_cast<std::uint8_t>(qparams.zero_point)};
}

struct QuantizeDynamic {
  static constexpr const char* kName = "quantize_dynamic";
  static constexpr int kThreads = 256;
  static constexpr int kEach = 4;  // neighbours of a thread
  static constexpr int kShared = sizeof(DynamicNumbers);
  static constexpr bool kTogether = true;
  using Params = QuantizeDynamicParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* const chosen = reinterpret_cast<DynamicNumbers*>(shared);
    if (simt::thread() == 0) {
      *chosen = choose_numbers(p);
      if (simt::block_x() == 0) *p.numbers = *chosen;
    }
    simt::sync();
    const std::int64_t first = simt::global_thread() * kEach;
    const float inverse = math::inverse_scale(chosen->scale);
    const std::int32_t zero_point = chosen->zero_point;
    // A reduced range, too, is cut off beyond 255 only, as in torch.
    const auto code_of = [&](float x) {
      return static_cast<std::uint32_t>(math::quantize(x, inverse, zero_point, 0, 255));
    };
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(p.floats) % sizeof(FourFloats) == 0;
    if (is_aligned && first + kEach <= p.count) {
      const auto x = simt::load<FourFloats>(p.floats + first);
      std::uint32_t word = 0;
      for (int i = 0; i < kEach; ++i) word |= code_of(x.of[i]) << (8 * i);
      return simt::store(p.codes + first, word);
    }
    for (std::int64_t i = first; i < first + kEach && i < p.count; ++i) {
      p.codes[i] = static_cast<std::uint8_t>(code_of(p.floats[i]));
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void quantize_dynamic(Device device, const QuantizeDynamicParams& params) {
  simt::launch<QuantizeDynamic>(
      device, simt::grid_for(params.count, QuantizeDynamic::kThreads, QuantizeDynamic::kEach),
      params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
