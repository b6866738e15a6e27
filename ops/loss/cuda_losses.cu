#include "quanta/ops/loss/cuda_losses.h"

#include "quanta/ops/cuda/block_sum.h"
#include "quanta/ops/loss/loss_math.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

// visit(loss) with the functions of this kind.
template <typename Visit>
SIMT_DEVICE float visit_loss(const PointwiseLossParams& p, const Visit& visit) {
  switch (p.kind) {
    case LossKind::Squared:
      return visit(loss::SquaredError{});
    case LossKind::Absolute:
      return visit(loss::AbsoluteError{});
    case LossKind::SmoothAbsolute:
      return visit(loss::SmoothAbsoluteError{p.beta});
    case LossKind::BinaryCrossEntropy:
      return visit(loss::BinaryCrossEntropy{});
  }
  return 0.0F;
}

SIMT_DEVICE float weight_at(const PointwiseLossParams& p, std::int64_t i) {
  return p.weight == nullptr ? 1.0F : p.weight[i];
}
SIMT_DEVICE float positive_at(const PointwiseLossParams& p, std::int64_t i) {
  return p.positive == nullptr ? 1.0F : p.positive[i];
}

SIMT_DEVICE float loss_at(const PointwiseLossParams& p, std::int64_t i) {
  const float value = visit_loss(
      p, [&](const auto& one) { return one.value(p.input[i], p.target[i], positive_at(p, i)); });
  return value * weight_at(p, i);
}

struct PointwiseLosses {
  static constexpr const char* kName = "pointwise_losses";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = LossesParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i < p.elements.count) p.losses[i] = loss_at(p.elements, i);
  }
};

struct SumPointwiseLosses {
  static constexpr const char* kName = "sum_pointwise_losses";
  static constexpr int kThreads = SumBlock::kThreads;
  static constexpr int kShared = SumBlock::kShared;
  static constexpr bool kTogether = true;
  using Params = LossPartsParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const double sum = SumBlock::part(p.elements.count, shared, [&](std::int64_t i) {
      return static_cast<double>(loss_at(p.elements, i));
    });
    if (simt::thread() == 0) p.parts[simt::block_x()] = sum;
  }
};

struct PointwiseLossGradient {
  static constexpr const char* kName = "pointwise_loss_gradient";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = LossGradientParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    const PointwiseLossParams& at = p.elements;
    if (i >= at.count) return;
    const float derivative = visit_loss(at, [&](const auto& one) {
      return p.side == LossSide::Input
                 ? one.by_input(at.input[i], at.target[i], positive_at(at, i))
                 : one.by_target(at.input[i], at.target[i], positive_at(at, i));
    });
    p.result[i] = derivative * weight_at(at, i) * p.gradient[i * p.step] * p.share;
  }
};

struct JoinLossParts {
  static constexpr const char* kName = "join_loss_parts";
  static constexpr int kThreads = SumBlock::kThreads;
  static constexpr int kShared = SumBlock::kShared;
  static constexpr bool kTogether = true;
  using Params = JoinLossParams;

  static SIMT_DEVICE double total(const double* parts, std::int64_t count, unsigned char* shared) {
    return SumBlock::sum(0, count, shared, [&](std::int64_t i) { return parts[i]; });
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const double divisor =
        p.divisor_parts == nullptr ? p.divisor : total(p.divisor_parts, p.count, shared);
    if (p.divisor_result != nullptr && simt::thread() == 0) *p.divisor_result = divisor;
    if (p.y == nullptr) return;
    const double sum = total(p.parts, p.count, shared);
    if (simt::thread() == 0) *p.y = static_cast<float>(sum / divisor);
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void pointwise_losses(Device device, const LossesParams& params) {
  simt::launch<PointwiseLosses>(device, simt::grid_for(params.elements.count), params);
}
void sum_pointwise_losses(Device device, const LossPartsParams& params) {
  simt::launch<SumPointwiseLosses>(device, SumBlock::grid(params.elements.count), params);
}
void pointwise_loss_gradient(Device device, const LossGradientParams& params) {
  simt::launch<PointwiseLossGradient>(device, simt::grid_for(params.elements.count), params);
}
void join_loss_parts(Device device, const JoinLossParams& params) {
  simt::launch<JoinLossParts>(device, simt::Grid{}, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
