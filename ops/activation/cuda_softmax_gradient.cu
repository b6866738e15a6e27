#include "quanta/ops/activation/cuda_softmax_gradient.h"

#include "quanta/ops/activation/softmax_slopes.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

using activation::LogSoftmaxSlope;
using activation::SoftmaxSlope;

// Lines side by side: a thread for each.
template <typename Slope>
struct SoftmaxColumnGradients {
  static constexpr const char* kName = "softmax_column_gradients";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = SoftmaxGradientParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.outer * p.inner) return;
    const std::int64_t outer = i / p.inner;
    const std::int64_t first = outer * p.length * p.inner + (i - outer * p.inner);
    const std::int64_t end = first + p.length * p.inner;
    double total = 0.0;
    for (std::int64_t k = first; k < end; k += p.inner) {
      total += Slope::term(p.gradient[k], p.y[k]);
    }
    const auto sum = static_cast<float>(total);
    for (std::int64_t k = first; k < end; k += p.inner) {
      p.out[k] = Slope::slope(p.gradient[k], p.y[k], sum);
    }
  }
};

// Few lines side by side: a block for each. Its threads make the terms, one of them adds them up in
// the order of the line.
template <typename Slope>
struct SoftmaxLineGradient {
  static constexpr const char* kName = "softmax_line_gradient";
  static constexpr int kThreads = 128;
  static constexpr int kTile = 8 * kThreads;
  static constexpr int kShared = kTile * static_cast<int>(sizeof(double));
  static constexpr bool kTogether = true;
  using Params = SoftmaxGradientParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* const terms = reinterpret_cast<double*>(shared);
    const int t = simt::thread();
    const std::int64_t i = simt::block_x();
    const std::int64_t outer = i / p.inner;
    const std::int64_t first = outer * p.length * p.inner + (i - outer * p.inner);
    double total = 0.0;
    for (std::int64_t begin = 0; begin < p.length; begin += kTile) {
      const std::int64_t left = p.length - begin;
      const int count = left < kTile ? static_cast<int>(left) : kTile;
      for (int k = t; k < count; k += kThreads) {
        const std::int64_t at = first + (begin + k) * p.inner;
        terms[k] = Slope::term(p.gradient[at], p.y[at]);
      }
      simt::sync();
      if (t == 0) {
        for (int k = 0; k < count; ++k) total += terms[k];
      }
      simt::sync();
    }
    if (t == 0) terms[0] = total;
    simt::sync();
    const auto sum = static_cast<float>(terms[0]);
    for (std::int64_t k = t; k < p.length; k += kThreads) {
      const std::int64_t at = first + k * p.inner;
      p.out[at] = Slope::slope(p.gradient[at], p.y[at], sum);
    }
  }
};

template <typename Slope>
void launch_gradients(Device device, const SoftmaxGradientParams& params) {
  constexpr std::int64_t kFewColumns = 32;
  const std::int64_t lines = params.outer * params.inner;
  if (params.inner < kFewColumns) {
    simt::launch<SoftmaxLineGradient<Slope>>(device, simt::Grid{lines, 1, 1}, params);
  } else {
    using Kernel = SoftmaxColumnGradients<Slope>;
    simt::launch<Kernel>(device, simt::grid_for(lines, Kernel::kThreads), params);
  }
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void softmax_line_gradients(Device device, const SoftmaxGradientParams& params) {
  params.is_log ? launch_gradients<LogSoftmaxSlope>(device, params)
                : launch_gradients<SoftmaxSlope>(device, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
