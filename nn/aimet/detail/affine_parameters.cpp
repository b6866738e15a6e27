#include "quanta/nn/aimet/detail/affine_parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/observers/aimet/analyzer.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::aimet::detail {
namespace {

using autograd::BackwardContext;

// The factor that a gradient of max(|x|, smallest) is multiplied with. At the end itself nothing
// passes, as in torch.
float bounded_slope(float x, float smallest) {
  if (!(std::fabs(x) > smallest)) return 0.0F;
  return x < 0.0F ? -1.0F : 1.0F;
}

float steps_below_zero(float min, float scale) { return math::round_half_even(min / scale); }

float product_of(float grad, float factor) { return grad * factor; }

// Arguments: x, and y of other values, which has a gradient as if it were x.
struct StraightThrough final : Op<StraightThrough> {
  static constexpr std::string_view kName = "straight_through";
  static constexpr ArgumentCount kArguments{2};
  void infer(const Arguments& in, Results& out) const override {
    out.arrange(1, MemoryFormat::Contiguous);
    out.add(in[1].sizes(), in[1].dtype());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    copy_result(in[1], out[0]);
    return "copy";
  }
  GradientUse gradient_use(std::uint64_t needed) const override {
    return (needed & 1U) != 0 ? GradientUse::of(0) : GradientUse::none();
  }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    return {context.grad(), {}};
  }
};

// Derived gives a number for each pair of elements of two Float32 tensors of the same sizes.
template <typename Derived>
struct PairOperation : Op<Derived> {
  static constexpr ArgumentCount kArguments{2};
  void infer(const Arguments& in, Results& out) const override {
    require_tensor(Derived::kName, "x", in[0], {DType::Float32});
    out.arrange(0, MemoryFormat::Contiguous);
    out.arrange(1, MemoryFormat::Contiguous);
    out.add(in[0].sizes(), DType::Float32);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const auto* from = in[0].data<float>();
    const auto* with = in[1].data<float>();
    auto* to = static_cast<float*>(out[0].data_ptr());
    const auto& function = static_cast<const Derived&>(*this);
    for (std::int64_t i = 0; i < out[0].numel(); ++i) to[i] = function(from[i], with[i]);
    return "scalar";
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b11); }
};

// Arguments: min, max.
struct ScaleOfRange final : PairOperation<ScaleOfRange> {
  static constexpr std::string_view kName = "scale_of_range";
  std::int64_t num_steps = 255;

  ScaleOfRange() = default;
  explicit ScaleOfRange(std::int64_t steps) : num_steps(steps) {}
  float operator()(float low, float high) const {
    const float step = std::fabs((high - low) / static_cast<float>(num_steps));
    const float smallest = minimum_scale(num_steps);
    return step < smallest ? smallest : step;
  }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    const auto n = static_cast<float>(num_steps);
    const float smallest = minimum_scale(num_steps);
    const Tensor slope = map_two(context.input(0), context.input(1), [&](float low, float high) {
      return bounded_slope((high - low) / n, smallest);
    });
    // Of torch's roundings: what is left of gradients that cancel depends on them.
    const auto plus = [n](float grad, float factor) { return grad * factor / n; };
    const auto minus = [n](float grad, float factor) { return -(grad * factor / n); };
    return {map_two(context.grad(), slope, minus), map_two(context.grad(), slope, plus)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<ScaleOfRange, &ScaleOfRange::num_steps>("num_steps")};
    return kTable;
  }
};

// Arguments: the scale, twice.
struct BoundedScale final : PairOperation<BoundedScale> {
  static constexpr std::string_view kName = "bounded_scale";
  std::int64_t num_steps = 255;

  BoundedScale() = default;
  explicit BoundedScale(std::int64_t steps) : num_steps(steps) {}
  float operator()(float value, float) const {
    const float smallest = minimum_scale(num_steps);
    const float magnitude = std::fabs(value);
    return magnitude < smallest ? smallest : magnitude;
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b1); }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    const float smallest = minimum_scale(num_steps);
    return {map_two(context.grad(), context.input(0),
                    [&](float grad, float value) { return grad * bounded_slope(value, smallest); }),
            {}};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<BoundedScale, &BoundedScale::num_steps>("num_steps")};
    return kTable;
  }
};

// Arguments: min, scale.
struct OffsetOfRange final : PairOperation<OffsetOfRange> {
  static constexpr std::string_view kName = "offset_of_range";
  double qmin = 0.0;
  double qmax = 255.0;

  OffsetOfRange() = default;
  explicit OffsetOfRange(const Grid& grid)
      : qmin(static_cast<double>(grid.qmin())), qmax(static_cast<double>(grid.qmax())) {}
  float operator()(float min, float scale) const {
    return math::clamp(steps_below_zero(min, scale) - low(), -high(), -low());
  }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    const Tensor min = context.input(0);
    const Tensor scale = context.input(1);
    const Tensor inside = map_two(min, scale, [&](float one, float step) {
      const float offset = steps_below_zero(one, step) - low();
      // At the ends themselves nothing passes, as in AIMET.
      return offset > -high() && offset < -low() ? 1.0F : 0.0F;
    });
    const Tensor passed = map_two(context.grad(), inside, product_of);
    const Tensor ratio =
        map_two(min, scale, [](float one, float step) { return one / step / step; });
    return {map_two(passed, scale, [](float grad, float step) { return grad / step; }),
            map_two(passed, ratio, [](float grad, float factor) { return -grad * factor; })};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<OffsetOfRange, &OffsetOfRange::qmin>("qmin"),
                                       attribute<OffsetOfRange, &OffsetOfRange::qmax>("qmax")};
    return kTable;
  }

 private:
  float low() const { return static_cast<float>(qmin); }
  float high() const { return static_cast<float>(qmax); }
};

}  // namespace

Tensor straight_through(const Tensor& x, const Tensor& y) { return run(StraightThrough{}, x, y); }

Tensor plain_scale(const Tensor& min, const Tensor& max, std::int64_t num_steps) {
  const auto n = static_cast<float>(num_steps);
  return map_two(min, max, [n](float low, float high) { return (high - low) / n; });
}

Tensor plain_offset(const Tensor& min, const Tensor& scale, const Grid& grid) {
  const auto qmin = static_cast<float>(grid.qmin());
  return map_two(min, scale,
                 [qmin](float low, float step) { return steps_below_zero(low, step) - qmin; });
}

Tensor scale_of_range(const Tensor& min, const Tensor& max, std::int64_t num_steps) {
  return run(ScaleOfRange{num_steps}, min, max);
}

Tensor bounded_scale(const Tensor& scale, std::int64_t num_steps) {
  return run(BoundedScale{num_steps}, scale, scale);
}

Tensor offset_of_range(const Tensor& min, const Tensor& scale, const Grid& grid) {
  return run(OffsetOfRange{grid}, min, scale);
}

Tensor round_straight_through(const Tensor& x) {
  return straight_through(
      x, map_two(x, x, [](float value, float) { return math::round_half_even(value); }));
}

}  // namespace quanta::aimet::detail
