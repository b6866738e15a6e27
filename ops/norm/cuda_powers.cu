#include "quanta/ops/norm/cuda_powers.h"

#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/power_math.h"

namespace quanta::cuda {
namespace {

// Lines side by side: a thread for each.
template <typename T>
struct LpNormalizeColumns {
  static constexpr const char* kName = "lp_normalize_columns";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = LpNormalizeParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.outer * p.inner) return;
    const std::int64_t outer = i / p.inner;
    const std::int64_t first = outer * p.width * p.inner + (i - outer * p.inner);
    const T* const x = static_cast<const T*>(p.x) + first;
    T* const y = static_cast<T*>(p.y) + first;
    double sum = 0.0;
    for (std::int64_t k = 0; k < p.width; ++k) sum += math::power_term(x[k * p.inner], p.p);
    const double norm = math::power_root(sum, p.p);
    for (std::int64_t k = 0; k < p.width; ++k) {
      y[k * p.inner] = static_cast<T>(math::part_of_norm(x[k * p.inner], norm));
    }
  }
};

// Few lines side by side: a block for each. Its threads make the terms, one of them adds them up in
// the order of the line.
template <typename T>
struct LpNormalizeLine {
  static constexpr const char* kName = "lp_normalize_line";
  static constexpr int kThreads = 128;
  static constexpr int kTile = 8 * kThreads;
  static constexpr int kShared = kTile * static_cast<int>(sizeof(double));
  static constexpr bool kTogether = true;
  using Params = LpNormalizeParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* const terms = reinterpret_cast<double*>(shared);
    const int t = simt::thread();
    const std::int64_t i = simt::block_x();
    const std::int64_t outer = i / p.inner;
    const std::int64_t first = outer * p.width * p.inner + (i - outer * p.inner);
    const T* const x = static_cast<const T*>(p.x) + first;
    T* const y = static_cast<T*>(p.y) + first;
    double sum = 0.0;
    for (std::int64_t begin = 0; begin < p.width; begin += kTile) {
      const std::int64_t left = p.width - begin;
      const int count = left < kTile ? static_cast<int>(left) : kTile;
      for (int k = t; k < count; k += kThreads) {
        terms[k] = math::power_term(x[(begin + k) * p.inner], p.p);
      }
      simt::sync();
      if (t == 0) {
        for (int k = 0; k < count; ++k) sum += terms[k];
      }
      simt::sync();
    }
    if (t == 0) terms[0] = math::power_root(sum, p.p);
    simt::sync();
    const double norm = terms[0];
    for (std::int64_t k = t; k < p.width; k += kThreads) {
      y[k * p.inner] = static_cast<T>(math::part_of_norm(x[k * p.inner], norm));
    }
  }
};

template <typename T>
struct NormalizeLocalResponses {
  static constexpr const char* kName = "normalize_local_responses";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = LocalResponseParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.images * p.channels * p.volume) return;
    const std::int64_t channel = i / p.volume % p.channels;
    const std::int64_t first = channel < p.before ? -channel : -p.before;
    const std::int64_t left = p.channels - 1 - channel;
    const std::int64_t last = left < p.behind ? left : p.behind;
    const T* const x = static_cast<const T*>(p.x) + i;
    double squares = 0.0;
    for (std::int64_t c = first; c <= last; ++c) {
      const auto value = static_cast<double>(x[c * p.volume]);
      squares += value * value;
    }
    static_cast<T*>(p.y)[i] =
        static_cast<T>(math::local_response(x[0], squares, p.factor, p.beta, p.bias));
  }
};

template <typename T>
void lp_normalize(Device device, const LpNormalizeParams& params) {
  constexpr std::int64_t kFewColumns = 32;
  const std::int64_t lines = params.outer * params.inner;
  if (params.inner < kFewColumns) {
    simt::launch<LpNormalizeLine<T>>(device, simt::Grid{lines, 1, 1}, params);
  } else {
    using Kernel = LpNormalizeColumns<T>;
    simt::launch<Kernel>(device, simt::grid_for(lines, Kernel::kThreads), params);
  }
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void lp_normalize_lines(Device device, const LpNormalizeParams& params) {
  params.is_double ? lp_normalize<double>(device, params) : lp_normalize<float>(device, params);
}
void normalize_local_responses(Device device, const LocalResponseParams& params) {
  const simt::Grid grid = simt::grid_for(params.images * params.channels * params.volume);
  params.is_double ? simt::launch<NormalizeLocalResponses<double>>(device, grid, params)
                   : simt::launch<NormalizeLocalResponses<float>>(device, grid, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
