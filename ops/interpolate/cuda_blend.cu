#include "quanta/ops/interpolate/cuda_blend.h"

#include <type_traits>

#include "quanta/runtime/cuda/elements.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

template <typename T, int kEach>
struct alignas(sizeof(T) * kEach) Pack {
  T values[kEach];
};

SIMT_DEVICE math::LinearTap tap_of(const BlendAxis& axis, std::int64_t o) {
  return axis.table != nullptr ? axis.table[o] : math::linear_tap(axis.linear, o);
}

// The input elements of one pack of the result, from the place of its plane and channels on.
template <typename T, int kEach>
struct Blend {
  using Element = Pack<T, kEach>;
  struct Values {
    float at[kEach];
  };

  const Element* x;
  std::int64_t pixel;
  std::int64_t row;    // packs from one line to the next
  std::int64_t plane;  // and from one depth to the next
  math::LinearTap width;
  math::LinearTap height;
  math::LinearTap depth;
  math::Fusing fusing;

  template <math::Fusing kFusing>
  static SIMT_DEVICE Values joined(float low, const Values& a, float high, const Values& b) {
    Values result;
    for (int k = 0; k < kEach; ++k) {
      result.at[k] = math::blend_of<kFusing>(low, a.at[k], high, b.at[k]);
    }
    return result;
  }
  SIMT_DEVICE Values join(float low, const Values& a, float high, const Values& b) const {
    using math::Fusing;
    if (fusing == Fusing::Low) return joined<Fusing::Low>(low, a, high, b);
    if (fusing == Fusing::High) return joined<Fusing::High>(low, a, high, b);
    return joined<Fusing::None>(low, a, high, b);
  }
  SIMT_DEVICE Values element(std::int64_t place) const {
    const auto pack = simt::load<Element>(x + place);
    Values result;
    for (int k = 0; k < kEach; ++k) result.at[k] = static_cast<float>(pack.values[k]);
    return result;
  }
  SIMT_DEVICE Values along_width(std::int64_t line) const {
    return join(width.weight_low, element(line + width.low * pixel), width.weight_high,
                element(line + width.high * pixel));
  }
  SIMT_DEVICE Values along_height(std::int64_t first) const {
    return join(height.weight_low, along_width(first + height.low * row), height.weight_high,
                along_width(first + height.high * row));
  }
  SIMT_DEVICE Values along_depth() const {
    return join(depth.weight_low, along_height(depth.low * plane), depth.weight_high,
                along_height(depth.high * plane));
  }
};

struct BlendPacks {
  static constexpr const char* kName = "blend_packs";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = BlendParams;

  template <typename T, int kEach>
  static SIMT_DEVICE void one(const Params& p, std::int64_t i) {
    using Kind = Blend<T, kEach>;
    std::int64_t rest = i;
    const std::int64_t channel = rest % p.pixel;
    rest /= p.pixel;
    const std::int64_t w = rest % p.output[2];
    rest /= p.output[2];
    const std::int64_t h = rest % p.output[1];
    rest /= p.output[1];
    const std::int64_t d = rest % p.output[0];
    rest /= p.output[0];
    Kind blend;
    blend.pixel = p.pixel;
    blend.row = p.input[2] * p.pixel;
    blend.plane = p.input[1] * blend.row;
    blend.x = static_cast<const Pack<T, kEach>*>(p.x) + rest * p.input[0] * blend.plane + channel;
    // A pack's channels are all of one kind: eight is a multiple of its size.
    blend.fusing = !p.is_fused                  ? math::Fusing::None
                   : channel * kEach < p.single ? math::Fusing::High
                                                : math::Fusing::Low;
    blend.width = tap_of(p.axes[2], w);
    typename Kind::Values values;
    if (p.spatial == 1) {
      values = blend.along_width(0);
    } else {
      blend.height = tap_of(p.axes[1], h);
      if (p.spatial == 2) {
        values = blend.along_height(0);
      } else {
        blend.depth = tap_of(p.axes[0], d);
        values = blend.along_depth();
      }
    }
    Pack<T, kEach> result;
    for (int k = 0; k < kEach; ++k) {
      result.values[k] = math::rounded_blend<T>(values.at[k], p.zero_point);
    }
    simt::store(static_cast<Pack<T, kEach>*>(p.y) + i, result);
  }

  template <int kEach>
  static SIMT_DEVICE void any(const Params& p, std::int64_t i) {
    switch (p.dtype) {
      case DType::Float32:
        return one<float, kEach>(p, i);
      case DType::QUInt8:
        return one<std::uint8_t, kEach>(p, i);
      default:
        return one<std::int8_t, kEach>(p, i);
    }
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    p.pack == 4 ? any<4>(p, i) : any<1>(p, i);
  }
};

struct WeighLines {
  static constexpr const char* kName = "weigh_lines";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = WeighParams;

  template <typename Float, typename T>
  static SIMT_DEVICE Float sum_of(const Params& p, std::int64_t i, T) {
    const std::int64_t line = i / p.inner;
    const T* const x =
        static_cast<const T*>(p.x) + line / p.output * p.input * p.inner + i % p.inner;
    const std::int64_t first = line % p.output * p.taps;
    Float sum = 0;
    for (std::int64_t k = first; k < first + p.taps; ++k) {
      const auto weight = static_cast<Float>(p.weights[k]);
      // NaN beside a position does not reach it.
      if (weight != Float{0}) sum += weight * static_cast<Float>(x[p.sources[k] * p.inner]);
    }
    return sum;
  }

  template <typename Float>
  static SIMT_DEVICE void one(const Params& p, std::int64_t i) {
    Float sum = 0;
    visit_ordered(p.from_dtype, [&](auto zero) { sum = sum_of<Float>(p, i, zero); });
    visit_ordered(p.to_dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_floating_point_v<T>) {
        static_cast<T*>(p.y)[i] = static_cast<T>(sum);
      } else {
        static_cast<T*>(p.y)[i] = math::saturated<T>(sum, p.fraction);
      }
    });
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    p.in_double ? one<double>(p, i) : one<float>(p, i);
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void blend_packs(Device device, const BlendParams& params) {
  simt::launch<BlendPacks>(device, simt::grid_for(params.count), params);
}
void weigh_lines(Device device, const WeighParams& params) {
  simt::launch<WeighLines>(device, simt::grid_for(params.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
