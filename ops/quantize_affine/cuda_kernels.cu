#include "quanta/ops/quantize_affine/cuda_kernels.h"

#include "quanta/ops/cuda/affine_walk.h"
#include "quanta/ops/cuda/lane_sums.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

template <typename T>
SIMT_DEVICE math::AffineLimits<T> limits_of(const AffineCallParams& p) {
  return {static_cast<T>(p.limits.qmin), static_cast<T>(p.limits.qmax),
          static_cast<T>(p.limits.shift), p.limits.rounding};
}

template <typename T>
SIMT_DEVICE T value_of(const void* values, std::int64_t i) {
  return static_cast<const T*>(values)[i];
}

struct ApplyAffine {
  static constexpr const char* kName = "apply_affine";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AffineCallParams;

  template <typename T, typename Step>
  static SIMT_DEVICE void apply(const Params& p, std::int64_t i, Step step) {
    const std::int64_t at = parameter_of(p.places, i);
    static_cast<T*>(p.dst)[i] =
        math::affine_value(p.op, value_of<T>(p.src, i), value_of<T>(p.scale, at),
                           value_of<T>(p.offset, at), limits_of<T>(p), step);
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.places.count) return;
    if (p.is_double) return apply<double>(p, i, math::NativeStep());
    switch (p.step) {
      case AffineStep::Native:
        return apply<float>(p, i, math::NativeStep());
      case AffineStep::Float16:
        return apply<float>(p, i, math::Float16Step());
      case AffineStep::BFloat16:
        return apply<float>(p, i, math::BFloat16Step());
    }
  }
};

struct SpikeAffine {
  static constexpr const char* kName = "spike_affine";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AffineCallParams;

  template <typename T>
  static SIMT_DEVICE void spike(const Params& p, std::int64_t i) {
    const math::AffineSpike<T> spike{static_cast<T>(p.spike.border),
                                     static_cast<T>(p.spike.multiplier)};
    T& gradient = static_cast<T*>(p.dst)[i];
    gradient =
        math::affine_spike(gradient, value_of<T>(p.src, i),
                           value_of<T>(p.scale, parameter_of(p.places, i)), limits_of<T>(p), spike);
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.places.count) return;
    p.is_double ? spike<double>(p, i) : spike<float>(p, i);
  }
};

// The gradient of one element goes to x's; those of scale and offset are given.
template <typename T>
SIMT_DEVICE math::AffineGradient<T> gradient_at(const AffineSumsParams& p, std::int64_t i, T scale,
                                                T offset, const math::AffineLimits<T>& limits) {
  const math::AffineGradient<T> one = math::affine_gradient(
      p.call.op, value_of<T>(p.call.src, i), scale, offset, limits, value_of<T>(p.grad, i));
  static_cast<T*>(p.call.dst)[i] = one.x;
  return one;
}

struct SumAffineRows {
  using Lanes = LaneSums<float>;
  static constexpr const char* kName = "sum_affine_rows";
  static constexpr int kThreads = Lanes::kThreads;
  static constexpr int kShared = Lanes::kShared;
  static constexpr bool kTogether = true;
  using Params = AffineSumsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const std::int64_t row = simt::block_x();
    const std::int64_t first = row * p.length;
    const std::int64_t at = parameter_of(p.call.places, first);
    const float scale = value_of<float>(p.call.scale, at);
    const float offset = value_of<float>(p.call.offset, at);
    const math::AffineLimits<float> limits = limits_of<float>(p.call);
    Lanes::add(p.length, shared, [&](std::int64_t i) -> Lanes::Terms {
      const math::AffineGradient<float> one = gradient_at(p, first + i, scale, offset, limits);
      return {one.scale, one.offset};
    });
    const int t = simt::thread();
    constexpr int kBoth = 2 * Lanes::kLanes;
    if (t < kBoth) p.lanes[row * kBoth + t] = Lanes::lanes(shared)[t];
  }
};

// The elements (in order) of a parameter within a part of the rows, for a thread each.
struct PartOf {
  std::int64_t parameter = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double* scale_sum = nullptr;  // null: there is no such part
  double* offset_sum = nullptr;
};

SIMT_DEVICE PartOf part_of(const AffineSumsParams& p, std::int64_t item) {
  const std::int64_t parameters = p.call.places.parameters;
  PartOf result;
  if (item >= p.parts * parameters) return result;
  const std::int64_t part = item / parameters;
  result.parameter = item - part * parameters;
  const ElementsOf elements(p.call.places, result.parameter);
  result.begin = elements.before(p.rows * part / p.parts * p.length);
  result.end = elements.before(p.rows * (part + 1) / p.parts * p.length);
  result.scale_sum = p.sums + part * 2 * parameters + result.parameter;
  result.offset_sum = result.scale_sum + parameters;
  return result;
}

struct SumAffineLanes {
  static constexpr const char* kName = "sum_affine_lanes";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AffineSumsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    constexpr int kLanes = LaneSums<float>::kLanes;
    const PartOf part = part_of(p, simt::global_thread());
    if (part.scale_sum == nullptr) return;
    const ElementsOf elements(p.call.places, part.parameter);
    double of_scale = 0.0;
    double of_offset = 0.0;
    for (std::int64_t i = part.begin; i < part.end; i += p.length) {
      const double* const lanes = p.lanes + elements[i] / p.length * 2 * kLanes;
      for (int lane = 0; lane < kLanes; ++lane) {
        of_scale += lanes[lane];
        of_offset += lanes[kLanes + lane];
      }
    }
    *part.scale_sum = of_scale;
    *part.offset_sum = of_offset;
  }
};

template <typename T>
struct SumAffineElements {
  static constexpr const char* kName = "sum_affine_elements";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AffineSumsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const PartOf part = part_of(p, simt::global_thread());
    if (part.scale_sum == nullptr) return;
    const ElementsOf elements(p.call.places, part.parameter);
    const T scale = value_of<T>(p.call.scale, part.parameter);
    const T offset = value_of<T>(p.call.offset, part.parameter);
    double of_scale = 0.0;
    double of_offset = 0.0;
    for (std::int64_t i = part.begin; i < part.end; ++i) {
      const math::AffineGradient<T> one =
          gradient_at(p, elements[i], scale, offset, limits_of<T>(p.call));
      of_scale += static_cast<double>(one.scale);
      of_offset += static_cast<double>(one.offset);
    }
    *part.scale_sum = of_scale;
    *part.offset_sum = of_offset;
  }
};

struct JoinAffineParts {
  static constexpr const char* kName = "join_affine_parts";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AffineSumsParams;

  template <typename T>
  static SIMT_DEVICE void write(const Params& p, std::int64_t i, double scale, double offset) {
    static_cast<T*>(p.scale_grad)[i] = static_cast<T>(scale);
    static_cast<T*>(p.offset_grad)[i] = static_cast<T>(offset);
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t parameters = p.call.places.parameters;
    const std::int64_t i = simt::global_thread();
    if (i >= parameters) return;
    double scale = 0.0;
    double offset = 0.0;
    for (std::int64_t part = 0; part < p.parts; ++part) {
      const double* const sums = p.sums + part * 2 * parameters;
      scale += sums[i];
      offset += sums[parameters + i];
    }
    p.call.is_double ? write<double>(p, i, scale, offset) : write<float>(p, i, scale, offset);
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void apply_affine(Device device, const AffineCallParams& params) {
  simt::launch<ApplyAffine>(device, simt::grid_for(params.places.count), params);
}
void spike_affine(Device device, const AffineCallParams& params) {
  simt::launch<SpikeAffine>(device, simt::grid_for(params.places.count), params);
}
void sum_affine_rows(Device device, const AffineSumsParams& params) {
  simt::launch<SumAffineRows>(device, simt::Grid{params.rows, 1, 1}, params);
}
void sum_affine_parts(Device device, const AffineSumsParams& params) {
  const simt::Grid grid = simt::grid_for(params.parts * params.call.places.parameters, 128);
  if (params.lanes != nullptr) return simt::launch<SumAffineLanes>(device, grid, params);
  params.call.is_double ? simt::launch<SumAffineElements<double>>(device, grid, params)
                        : simt::launch<SumAffineElements<float>>(device, grid, params);
}
void join_affine_parts(Device device, const AffineSumsParams& params) {
  simt::launch<JoinAffineParts>(device, simt::grid_for(params.call.places.parameters, 128), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
