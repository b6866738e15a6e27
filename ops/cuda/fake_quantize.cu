#include "quanta/ops/cuda/fake_quantize.h"

#include "quanta/ops/cuda/lane_sums.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {
namespace {

SIMT_DEVICE math::FakeQuantizeParams qparams_at(const FakeQuantizeQParams& q, std::int64_t c) {
  math::FakeQuantizeParams params;
  params.scale = q.scales == nullptr ? q.scale : q.scales[c];
  params.inv_scale = math::inverse_scale(params.scale);
  params.zero_point = q.scales == nullptr ? q.zero_point : q.zero_points[c];
  params.min = q.min;
  params.max = q.max;
  params.float_zero_point = q.float_zero_point;
  if (q.use == ZeroPointUse::Learned) {
    params.zero_point = math::learned_zero_point(params.zero_point, q.min, q.max);
  } else if (q.use == ZeroPointUse::LearnedBackward) {
    params.zero_point = math::learned_zero_point_backward(params.zero_point, q.min, q.max);
  }
  return params;
}

// A thread has the eight elements whose bits share a byte.
constexpr int kOfThread = 8;

struct Place {
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t at = 0;  // of the first element in memory
  int count = 0;
};

SIMT_DEVICE std::int64_t bytes_of_row(const FakeQuantizeRowsOf& rows) {
  return (rows.length + kOfThread - 1) / kOfThread;
}

SIMT_DEVICE Place place_of(const FakeQuantizeRowsOf& rows, std::int64_t byte) {
  Place place;
  place.row = byte / bytes_of_row(rows);
  place.column = (byte - place.row * bytes_of_row(rows)) * kOfThread;
  place.at = place.row * rows.length + place.column;
  const std::int64_t left = rows.length - place.column;
  place.count = left < kOfThread ? static_cast<int>(left) : kOfThread;
  return place;
}

struct alignas(16) FourFloats {
  float values[4];
};

template <typename T>
SIMT_DEVICE void read(const FakeQuantizeRowsOf&, const T* from, int count, T (&to)[kOfThread]) {
  for (int k = 0; k < kOfThread; ++k) to[k] = k < count ? from[k] : T{0};
}
SIMT_DEVICE void read(const FakeQuantizeRowsOf& rows, const float* from, int count,
                      float (&to)[kOfThread]) {
  if (!rows.in_vectors || count < kOfThread) {
    for (int k = 0; k < kOfThread; ++k) to[k] = k < count ? from[k] : 0.0F;
    return;
  }
  const auto low = simt::load<FourFloats>(from);
  const auto high = simt::load<FourFloats>(from + 4);
  for (int k = 0; k < 4; ++k) {
    to[k] = low.values[k];
    to[k + 4] = high.values[k];
  }
}

template <typename T>
SIMT_DEVICE void write(const FakeQuantizeRowsOf&, T* to, int count, const T (&from)[kOfThread]) {
  for (int k = 0; k < kOfThread; ++k) {
    if (k < count) to[k] = from[k];
  }
}
SIMT_DEVICE void write(const FakeQuantizeRowsOf& rows, float* to, int count,
                       const float (&from)[kOfThread]) {
  if (!rows.in_vectors || count < kOfThread) {
    for (int k = 0; k < kOfThread; ++k) {
      if (k < count) to[k] = from[k];
    }
    return;
  }
  FourFloats low;
  FourFloats high;
  for (int k = 0; k < 4; ++k) {
    low.values[k] = from[k];
    high.values[k] = from[k + 4];
  }
  simt::store(to, low);
  simt::store(to + 4, high);
}

struct FakeQuantizeRows {
  static constexpr const char* kName = "fake_quantize_rows";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = FakeQuantizeParams;

  template <typename T>
  static SIMT_DEVICE void quantize(const Params& p, std::int64_t byte) {
    const Place place = place_of(p.rows, byte);
    T x[kOfThread];
    read(p.rows, static_cast<const T*>(p.x) + place.at, place.count, x);
    math::FakeQuantizeParams params =
        qparams_at(p.qparams, p.rows.all_channels ? 0 : place.row % p.rows.channels);
    unsigned bits = 0;
    for (int k = 0; k < kOfThread; ++k) {
      if (k >= place.count) break;
      if (p.rows.all_channels) params = qparams_at(p.qparams, place.column + k);
      const math::FakeQuantized<T> one = math::fake_quantize(x[k], params);
      x[k] = one.value;
      if (one.inside) bits |= 1U << k;
    }
    write(p.rows, static_cast<T*>(p.y) + place.at, place.count, x);
    if (p.mask != nullptr) p.mask[byte] = static_cast<std::uint8_t>(bits);
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t byte = simt::global_thread();
    if (byte >= p.rows.count * bytes_of_row(p.rows)) return;
    p.rows.is_double ? quantize<double>(p, byte) : quantize<float>(p, byte);
  }
};

struct MaskRows {
  static constexpr const char* kName = "mask_rows";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = FakeQuantizeParams;

  template <typename T>
  static SIMT_DEVICE void mask(const Params& p, std::int64_t byte) {
    const Place place = place_of(p.rows, byte);
    const unsigned bits = p.mask[byte];
    T x[kOfThread];
    read(p.rows, static_cast<const T*>(p.x) + place.at, place.count, x);
    for (int k = 0; k < kOfThread; ++k) {
      if ((bits >> k & 1U) == 0) x[k] = T{0};
    }
    write(p.rows, static_cast<T*>(p.y) + place.at, place.count, x);
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t byte = simt::global_thread();
    if (byte >= p.rows.count * bytes_of_row(p.rows)) return;
    p.rows.is_double ? mask<double>(p, byte) : mask<float>(p, byte);
  }
};

// What one element adds to the sums; its own gradient goes to x_grad.
template <typename T>
SIMT_DEVICE typename LaneSums<T>::Terms learned_terms(const LearnedGradientParams& p,
                                                      const math::FakeQuantizeParams& params,
                                                      std::int64_t at) {
  const T grad = static_cast<const T*>(p.grad)[at];
  const math::LearnedGradient<T> one =
      math::learned_gradient(static_cast<const T*>(p.x)[at], params);
  const bool inside = one.x != T{0};
  static_cast<T*>(p.x_grad)[at] = inside ? grad : T{0};
  return {grad * one.scale, inside ? T{0} : grad * one.zero_point};
}

template <typename T>
struct FindLearnedSums {
  static constexpr const char* kName = "find_learned_sums";
  static constexpr int kThreads = LaneSums<T>::kThreads;
  static constexpr int kShared = LaneSums<T>::kShared;
  static constexpr bool kTogether = true;
  using Params = LearnedGradientParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const std::int64_t item = simt::block_x();
    const std::int64_t row = item / p.blocks;
    const std::int64_t start = (item - row * p.blocks) * p.block;
    const std::int64_t left = p.rows.length - start;
    const math::FakeQuantizeParams params = qparams_at(p.qparams, row % p.rows.channels);
    const std::int64_t first = row * p.rows.length + start;
    LaneSums<T>::add(left < p.block ? left : p.block, shared,
                     [&](std::int64_t i) { return learned_terms<T>(p, params, first + i); });
    if (simt::thread() != 0) return;
    const double* const lanes = LaneSums<T>::lanes(shared);
    LearnedSumsOf sums;
    for (int lane = 0; lane < LaneSums<T>::kLanes; ++lane) {
      sums.scale += lanes[lane];
      sums.zero_point += lanes[LaneSums<T>::kLanes + lane];
    }
    p.sums[item] = sums;
  }
};

struct JoinLearnedSums {
  static constexpr const char* kName = "join_learned_sums";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = LearnedGradientParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t c = simt::global_thread();
    if (c >= p.rows.channels) return;
    LearnedSumsOf total;
    for (std::int64_t row = c; row < p.rows.count; row += p.rows.channels) {
      for (std::int64_t item = row * p.blocks; item < (row + 1) * p.blocks; ++item) {
        total.scale += p.sums[item].scale;
        total.zero_point += p.sums[item].zero_point;
      }
    }
    p.scale_grad[c] = total.scale * p.factor;
    p.zero_point_grad[c] = total.zero_point * p.factor;
  }
};

template <typename T>
struct SumLearnedColumns {
  static constexpr const char* kName = "sum_learned_columns";
  static constexpr int kThreads = 64;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = LearnedGradientParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t c = simt::global_thread();
    if (c >= p.rows.channels) return;
    const math::FakeQuantizeParams params = qparams_at(p.qparams, c);
    LearnedSumsOf total;
    for (std::int64_t row = 0; row < p.rows.count; ++row) {
      const auto terms = learned_terms<T>(p, params, row * p.rows.length + c);
      total.scale += static_cast<double>(terms.first);
      total.zero_point += static_cast<double>(terms.second);
    }
    p.scale_grad[c] = total.scale * p.factor;
    p.zero_point_grad[c] = total.zero_point * p.factor;
  }
};

simt::Grid grid_of(const FakeQuantizeParams& params) {
  return simt::grid_for(params.rows.count * ((params.rows.length + kOfThread - 1) / kOfThread));
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void fake_quantize_rows(Device device, const FakeQuantizeParams& params) {
  simt::launch<FakeQuantizeRows>(device, grid_of(params), params);
}
void mask_rows(Device device, const FakeQuantizeParams& params) {
  simt::launch<MaskRows>(device, grid_of(params), params);
}
void find_learned_sums(Device device, const LearnedGradientParams& params) {
  const simt::Grid grid{params.rows.count * params.blocks, 1, 1};
  params.rows.is_double ? simt::launch<FindLearnedSums<double>>(device, grid, params)
                        : simt::launch<FindLearnedSums<float>>(device, grid, params);
}
void join_learned_sums(Device device, const LearnedGradientParams& params) {
  simt::launch<JoinLearnedSums>(device, simt::grid_for(params.rows.channels, 128), params);
}
void sum_learned_columns(Device device, const LearnedGradientParams& params) {
  const simt::Grid grid = simt::grid_for(params.rows.channels, 64);
  params.rows.is_double ? simt::launch<SumLearnedColumns<double>>(device, grid, params)
                        : simt::launch<SumLearnedColumns<float>>(device, grid, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
