// Losses of elements on their own; those over classes are in class_loss.cpp.

#include "quanta/ops/loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/sum_terms.h"
#include "quanta/ops/loss/cuda_losses.h"
#include "quanta/ops/loss/families.h"
#include "quanta/ops/loss/loss_math.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace {

using namespace loss;
using detail::sum_terms;

// Which of the device's losses it is.
constexpr cuda::LossKind kind_of(const SquaredError&) { return cuda::LossKind::Squared; }
constexpr cuda::LossKind kind_of(const AbsoluteError&) { return cuda::LossKind::Absolute; }
constexpr cuda::LossKind kind_of(const SmoothAbsoluteError&) {
  return cuda::LossKind::SmoothAbsolute;
}
constexpr cuda::LossKind kind_of(const BinaryCrossEntropy&) {
  return cuda::LossKind::BinaryCrossEntropy;
}

const float* floats_or_null(const Tensor& x) {
  return x.defined() ? reinterpret_cast<const float*>(x.device_ptr()) : nullptr;
}

// One element after the other of contiguous tensors.
template <typename T>
struct LossElements {
  const T* input;
  const T* target;
  const T* weight;
  const T* positive;

  LossElements(const Tensor& inputs, const Tensor& targets, const Tensor& weights,
               const Tensor& positives)
      : input(static_cast<const T*>(inputs.data_ptr())),
        target(static_cast<const T*>(targets.data_ptr())),
        weight(weights.defined() ? weights.data<T>() : nullptr),
        positive(positives.defined() ? positives.data<T>() : nullptr) {}

  T weight_at(std::int64_t i) const { return weight == nullptr ? T{1} : weight[i]; }
  T positive_at(std::int64_t i) const { return positive == nullptr ? T{1} : positive[i]; }
};

// What each element has of a mean.
template <typename T>
T mean_share(std::int64_t count) {
  return T{1} / static_cast<T>(count);
}

// derivative(input, target, positive) times the weight and the gradient.
template <typename T, typename Derivative>
Tensor loss_gradient(const Tensor& gradient, const Dims& sizes, const LossElements<T>& at,
                     Reduction reduction, const Derivative& derivative) {
  const Tensor result = Tensor::empty(sizes, gradient.dtype());
  auto* to = static_cast<T*>(result.data_ptr());
  const Tensor dense = gradient.contiguous();
  const auto* from = static_cast<const T*>(dense.data_ptr());
  const T share = reduction == Reduction::Mean ? mean_share<T>(result.numel()) : T{1};
  const std::int64_t step = reduction == Reduction::None ? 1 : 0;
  cpu::parallel_elements(result.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      to[i] = derivative(at.input[i], at.target[i], at.positive_at(i)) * at.weight_at(i) *
              from[i * step] * share;
    }
  });
  return result;
}

void check_weight(std::string_view op, std::string_view name, const Tensor& weight,
                  const Tensor& input) {
  if (!weight.defined()) return;
  QUANTA_CHECK(weight.dtype() == input.dtype() &&
                   broadcast_sizes(weight.sizes(), input.sizes(), op) == input.sizes(),
               "{}: {}: expected {} that broadcasts to {}, got {} {}", op, name, input.dtype(),
               input.sizes(), weight.dtype(), weight.sizes());
}

// A weight as wide as the input; undefined stays.
Tensor expanded(const Tensor& weight, const Dims& sizes) {
  return weight.defined() ? weight.expand(sizes).contiguous() : weight;
}

// Arguments: input, target, and for some losses weight and pos_weight, which may be left out.
template <typename Loss>
struct PointwiseLoss final : Op<PointwiseLoss<Loss>> {
  static constexpr std::string_view kName = Loss::kName;
  static constexpr ArgumentCount kArguments{std::is_same_v<Loss, BinaryCrossEntropy> ? 4U : 2U};
  Loss loss;
  Reduction reduction = Reduction::Mean;

  PointwiseLoss() = default;
  PointwiseLoss(Loss given, Reduction how) : loss(given), reduction(how) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& input = in[0];
    const Tensor& target = in[1];
    if constexpr (requires { loss.beta; }) {
      QUANTA_CHECK(loss.beta >= 0.0, "{}: beta: expected a number >= 0, got {}", kName, loss.beta);
    }
    detail::check_floats(kName, "input", input);
    QUANTA_CHECK(
        target.defined() && target.dtype() == input.dtype() && target.sizes() == input.sizes(),
        "{}: target: expected {} {} as input is, got {} {}", kName, input.dtype(), input.sizes(),
        target.defined() ? to_string(target.dtype()) : "undefined",
        target.defined() ? target.sizes() : Dims{});
    if (in.size() > 2) check_weight(kName, "weight", in[2], input);
    if (in.size() > 3) check_weight(kName, "pos_weight", in[3], input);
    out.arrange(0, MemoryFormat::Contiguous);
    out.arrange(1, MemoryFormat::Contiguous);
    out.add(reduction == Reduction::None ? input.sizes() : Dims{}, input.dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Dims& sizes = in[0].sizes();
    const Tensor weight = in.size() > 2 ? expanded(in[2], sizes) : Tensor();
    const Tensor positive = in.size() > 3 ? expanded(in[3], sizes) : Tensor();
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const LossElements<T> at(in[0], in[1], weight, positive);
      const auto value = [&](std::int64_t i) {
        return loss.value(at.input[i], at.target[i], at.positive_at(i)) * at.weight_at(i);
      };
      auto* to = static_cast<T*>(out[0].data_ptr());
      const std::int64_t count = in[0].numel();
      if (reduction == Reduction::None) {
        cpu::parallel_elements(count, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) to[i] = value(i);
        });
        return;
      }
      const double divisor = reduction == Reduction::Mean ? static_cast<double>(count) : 1.0;
      *to = static_cast<T>(sum_terms(count, value) / divisor);
    });
    return "scalar";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Dims& sizes = in[0].sizes();
    const Tensor weight = in.size() > 2 ? expanded(in[2], sizes) : Tensor();
    const Tensor positive = in.size() > 3 ? expanded(in[3], sizes) : Tensor();
    const cuda::PointwiseLossParams params = params_of(in[0], in[1], weight, positive);
    auto* const to = reinterpret_cast<float*>(out[0].device_ptr());
    if (reduction == Reduction::None) {
      cuda::pointwise_losses(in[0].device(), {.elements = params, .losses = to});
      return "pointwise_losses";
    }
    cuda::LossSums sums(in[0].device(), params.count);
    if (params.count > 0) {
      cuda::sum_pointwise_losses(in[0].device(), {.elements = params, .parts = sums.parts()});
    }
    const double divisor = reduction == Reduction::Mean ? static_cast<double>(params.count) : 1.0;
    sums.join({.divisor = divisor, .y = to});
    return "sum_pointwise_losses";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }

  /// Weights get no gradient, and one that asks for it is refused.
  GradientUse gradient_use(std::uint64_t needed) const override {
    return (needed & ~std::uint64_t{0b11}) != 0 ? GradientUse{} : GradientUse::of(0b1111);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const std::size_t count = context.input_count();
    const Tensor input = context.input(0).contiguous();
    const Tensor target = context.input(1).contiguous();
    const Dims& sizes = input.sizes();
    const Tensor weight = count > 2 ? expanded(context.input(2), sizes) : Tensor();
    const Tensor positive = count > 3 ? expanded(context.input(3), sizes) : Tensor();
    std::vector<Tensor> results(count);
    if (input.device().is_cuda()) {
      const cuda::PointwiseLossParams params = params_of(input, target, weight, positive);
      for (std::size_t i = 0; i < 2; ++i) {
        if (context.needs(i)) {
          results[i] = gradient_on_cuda(context.grad(), sizes, params,
                                        i == 0 ? cuda::LossSide::Input : cuda::LossSide::Target);
        }
      }
      return results;
    }
    detail::visit_floats(input.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const LossElements<T> at(input, target, weight, positive);
      if (context.needs(0)) {
        results[0] = loss_gradient<T>(
            context.grad(), sizes, at, reduction,
            [&](T a, T b, T positive_at) { return loss.by_input(a, b, positive_at); });
      }
      if (context.needs(1)) {
        results[1] = loss_gradient<T>(
            context.grad(), sizes, at, reduction,
            [&](T a, T b, T positive_at) { return loss.by_target(a, b, positive_at); });
      }
    });
    return results;
  }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = PointwiseLoss;
    if constexpr (requires(Loss any) { any.beta; }) {
      static constexpr std::array kTable{attribute<Self, &Self::reduction>("reduction"),
                                         attribute<Self, &Self::loss, &Loss::beta>("beta")};
      return kTable;
    } else {
      static constexpr std::array kTable{attribute<Self, &Self::reduction>("reduction")};
      return kTable;
    }
  }

 private:
  cuda::PointwiseLossParams params_of(const Tensor& input, const Tensor& target,
                                      const Tensor& weight, const Tensor& positive) const {
    cuda::PointwiseLossParams params;
    params.kind = kind_of(loss);
    if constexpr (requires { loss.beta; }) params.beta = loss.beta;
    params.input = floats_or_null(input);
    params.target = floats_or_null(target);
    params.weight = floats_or_null(weight);
    params.positive = floats_or_null(positive);
    params.count = input.numel();
    return params;
  }
  Tensor gradient_on_cuda(const Tensor& gradient, const Dims& sizes,
                          const cuda::PointwiseLossParams& params, cuda::LossSide side) const {
    const Device device = gradient.device();
    const Tensor dense = gradient.contiguous();
    const Tensor result = Tensor::empty(sizes, gradient.dtype(), MemoryFormat::Contiguous, device);
    if (params.count == 0) return result;
    cuda::pointwise_loss_gradient(
        device, {.elements = params,
                 .side = side,
                 .gradient = floats_or_null(dense),
                 .step = reduction == Reduction::None ? 1 : 0,
                 .share = reduction == Reduction::Mean ? mean_share<float>(params.count) : 1.0F,
                 .result = reinterpret_cast<float*>(result.device_ptr())});
    return result;
  }
};

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return run(PointwiseLoss(SquaredError{}, reduction), input, target);
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return run(PointwiseLoss(AbsoluteError{}, reduction), input, target);
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction, double beta) {
  return run(PointwiseLoss(SmoothAbsoluteError{beta}, reduction), input, target);
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const BinaryLossOptions& options) {
  return run(PointwiseLoss(BinaryCrossEntropy{}, options.reduction), input, target, options.weight,
             options.pos_weight);
}

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/loss.h";

// Float64 with another reduction.
Reduction sample_reduction(DType dtype) {
  return dtype == DType::Float64 ? Reduction::None : Reduction::Mean;
}

template <typename Loss>
void add(Catalogue& catalogue) {
  catalogue.add(
      {.name = Loss::kName, .header = kHeader, .dtypes = dtypes::kFloats}, [](DType dtype) {
        return sample_call(PointwiseLoss(Loss{}, sample_reduction(dtype)),
                           {sample_tensor({4, 6}, dtype), sample_tensor({4, 6}, dtype, 2)});
      });
}

}  // namespace

void detail::add_loss(Catalogue& catalogue) {
  add<SquaredError>(catalogue);
  add<AbsoluteError>(catalogue);
  add<SmoothAbsoluteError>(catalogue);
  catalogue.add({.name = BinaryCrossEntropy::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  return sample_call(
                      PointwiseLoss(BinaryCrossEntropy{}, sample_reduction(dtype)),
                      {sample_tensor({4, 6}, dtype), sample_tensor({4, 6}, dtype, 2),
                       dtype == DType::Float64 ? Tensor() : Tensor::full({6}, 0.5, dtype),
                       Tensor::full({4, 1}, 2.0, dtype)});
                });
  loss::add_class_losses(catalogue);
}

}  // namespace quanta
