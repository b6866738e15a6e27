#include "quanta/nn/optim/cuda/kernels.h"

#include "quanta/ops/cuda/block_sum.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

struct SGDKernel {
  static constexpr const char* kName = "sgd_step";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = SGDParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    p.step(p.parameter[i], p.gradient[i], p.buffer == nullptr ? nullptr : p.buffer + i);
  }
};

struct AdamKernel {
  static constexpr const char* kName = "adam_step";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AdamParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    p.step(p.parameter[i], p.gradient[i], p.mean[i], p.square[i],
           p.largest == nullptr ? nullptr : p.largest + i);
  }
};

struct Larger {
  SIMT_DEVICE double operator()(double left, double right) const {
    return optim::larger_size(left, right);
  }
};

struct SumGradientSizes {
  static constexpr const char* kName = "sum_gradient_sizes";
  static constexpr int kThreads = SumBlock::kThreads;
  static constexpr int kShared = SumBlock::kShared;
  static constexpr bool kTogether = true;
  using Params = GradientSizeParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const double part =
        p.is_largest ? SumBlock::part(
                           p.count, shared,
                           [&](std::int64_t i) { return fabs(static_cast<double>(p.gradient[i])); },
                           Larger{})
                     : SumBlock::part(p.count, shared, [&](std::int64_t i) {
                         return optim::norm_term(static_cast<double>(p.gradient[i]), p.norm_type);
                       });
    if (simt::thread() == 0) p.parts[simt::block_x()] = part;
  }
};

struct JoinGradientSizes {
  static constexpr const char* kName = "join_gradient_sizes";
  static constexpr int kThreads = SumBlock::kThreads;
  static constexpr int kShared = SumBlock::kShared;
  static constexpr bool kTogether = true;
  using Params = GradientSizeParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const std::int64_t parts = (p.count + detail::kBlockTerms - 1) / detail::kBlockTerms;
    const auto part = [&](std::int64_t i) { return p.parts[i]; };
    const double total = p.is_largest ? SumBlock::sum(0, parts, shared, part, Larger{})
                                      : SumBlock::sum(0, parts, shared, part);
    if (simt::thread() == 0) *p.total = total;
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void sgd_step(Device device, const SGDParams& params) {
  simt::launch<SGDKernel>(device, simt::grid_for(params.count), params);
}
void adam_step(Device device, const AdamParams& params) {
  simt::launch<AdamKernel>(device, simt::grid_for(params.count), params);
}
void sum_gradient_sizes(Device device, const GradientSizeParams& params) {
  simt::launch<SumGradientSizes>(device, SumBlock::grid(params.count), params);
}
void join_gradient_sizes(Device device, const GradientSizeParams& params) {
  simt::launch<JoinGradientSizes>(device, simt::Grid{}, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
