#include "quanta/ops/loss/cuda_class_kernels.h"

#include "quanta/ops/cuda/block_sum.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

struct CheckClasses {
  static constexpr const char* kName = "check_classes";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = CheckClassesParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t row = simt::global_thread();
    if (row >= p.rows.rows) return;
    const auto& question = p.rows.question;
    if (!question.is_allowed(question.indices[row])) simt::atomic_max(p.fault, 1);
  }
};

// A warp takes a row, each lane every 32nd class. Sums of ignored rows are asked for by nobody.
struct SumClassRows {
  static constexpr const char* kName = "sum_class_rows";
  static constexpr int kThreads = 256;
  static constexpr int kRows = kThreads / detail::kRowLanes;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = true;
  using Params = ClassRowSumsParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const auto& question = p.rows.question;
    const int lane = simt::thread() % detail::kRowLanes;
    const std::int64_t row =
        static_cast<std::int64_t>(simt::block_x()) * kRows + simt::thread() / detail::kRowLanes;
    const bool counts = row < p.rows.rows;
    double sum = 0.0;
    if (counts) {
      for (std::int64_t c = lane; c < question.classes; c += detail::kRowLanes) {
        sum += p.what == ClassRowSum::Loss ? question.gain_of_class(row, c, p.log_probabilities)
                                           : static_cast<double>(question.q(row, c));
      }
    }
    sum = simt::warp_sum(sum);
    if (lane > 0 || row >= p.rows.rows) return;
    p.sums[row] = counts && p.what == ClassRowSum::Loss ? -sum : sum;
  }
};

SIMT_DEVICE double loss_at(const ClassLossesParams& p, std::int64_t row) {
  if (p.rows.question.ignores(row)) return 0.0;
  if (p.row_losses != nullptr) return p.row_losses[row];
  return p.rows.question.one_hot_loss(row, p.log_probabilities);
}

struct ClassLosses {
  static constexpr const char* kName = "class_losses";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ClassLossesParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t row = simt::global_thread();
    if (row < p.rows.rows) p.losses[row] = static_cast<float>(loss_at(p, row));
  }
};

struct SumClassLosses {
  static constexpr const char* kName = "sum_class_losses";
  static constexpr int kThreads = SumBlock::kThreads;
  static constexpr int kShared = SumBlock::kShared;
  static constexpr bool kTogether = true;
  using Params = ClassLossesParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    if (p.parts != nullptr) {
      const double sum =
          SumBlock::part(p.rows.rows, shared, [&](std::int64_t row) { return loss_at(p, row); });
      if (simt::thread() == 0) p.parts[simt::block_x()] = sum;
    }
    if (p.divisor_parts == nullptr) return;
    const double sum = SumBlock::part(
        p.rows.rows, shared, [&](std::int64_t row) { return p.rows.question.part_of_mean(row); });
    if (simt::thread() == 0) p.divisor_parts[simt::block_x()] = sum;
  }
};

SIMT_DEVICE float factor_of(const ClassGradientParams& p, std::int64_t row) {
  return p.gradient[row * p.step] / static_cast<float>(*p.divisor);
}

struct ClassScoresGradient {
  static constexpr const char* kName = "class_scores_gradient";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ClassGradientParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    const auto& question = p.rows.question;
    const std::int64_t row = i / question.classes;
    if (row >= p.rows.rows) return;
    if (question.ignores(row)) {
      p.result[i] = 0.0F;
      return;
    }
    const float factor = factor_of(p, row);
    float up = 0.0F;
    if (p.from != nullptr) {
      const double total = p.totals == nullptr ? question.one_hot_total(row) : p.totals[row];
      up = p.from[i] * (factor * static_cast<float>(total));
    }
    p.result[i] = loss::score_gradient(question, row, i % question.classes, factor, up);
  }
};

struct ClassSharesGradient {
  static constexpr const char* kName = "class_shares_gradient";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ClassGradientParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    const auto& question = p.rows.question;
    const std::int64_t row = i / question.classes;
    if (row >= p.rows.rows) return;
    p.result[i] =
        loss::share_gradient(question, i % question.classes, factor_of(p, row), p.from[i]);
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void check_classes(Device device, const CheckClassesParams& params) {
  simt::launch<CheckClasses>(device, simt::grid_for(params.rows.rows), params);
}
void sum_class_rows(Device device, const ClassRowSumsParams& params) {
  simt::launch<SumClassRows>(device, simt::grid_for(params.rows.rows, SumClassRows::kRows), params);
}
void class_losses(Device device, const ClassLossesParams& params) {
  simt::launch<ClassLosses>(device, simt::grid_for(params.rows.rows), params);
}
void sum_class_losses(Device device, const ClassLossesParams& params) {
  simt::launch<SumClassLosses>(device, SumBlock::grid(params.rows.rows), params);
}
void class_scores_gradient(Device device, const ClassGradientParams& params) {
  simt::launch<ClassScoresGradient>(
      device, simt::grid_for(params.rows.rows * params.rows.question.classes), params);
}
void class_shares_gradient(Device device, const ClassGradientParams& params) {
  simt::launch<ClassSharesGradient>(
      device, simt::grid_for(params.rows.rows * params.rows.question.classes), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
