#include "quanta/ops/fake_quantize.h"

#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/fake_quantize.h"
#include "quanta/ops/detail/cuda_fake_quantize.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using autograd::BackwardContext;
using cpu::FakeQuantizeChannels;
using cpu::kAllChannels;

void check_x(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  QUANTA_CHECK(x.dtype() == DType::Float32 || x.dtype() == DType::Float64 ||
                   x.dtype() == DType::Float16 || x.dtype() == DType::BFloat16,
               "{}: x: expected Float32, Float64, Float16 or BFloat16, got {}", op, x.dtype());
}

void check_range(std::string_view op, std::int64_t quant_min, std::int64_t quant_max) {
  QUANTA_CHECK(quant_min <= quant_max,
               "{}: quant_min: expected quant_min <= quant_max, got {} and {}", op, quant_min,
               quant_max);
}

void check_zero_point(std::string_view op, std::int64_t zero_point, std::int64_t quant_min,
                      std::int64_t quant_max) {
  QUANTA_CHECK(zero_point >= quant_min && zero_point <= quant_max,
               "{}: zero_point: expected {}..{}, got {}", op, quant_min, quant_max, zero_point);
}

void check_plain(std::string_view op, std::string_view argument, const Tensor& values,
                 std::int64_t count) {
  QUANTA_CHECK(values.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
  QUANTA_CHECK(!values.is_quantized() && values.dtype() != DType::Bool,
               "{}: {}: expected a plain numeric tensor, got {}", op, argument, values.dtype());
  QUANTA_CHECK(values.dim() <= 1 && values.numel() == count, "{}: {}: expected {} in [{}], got {}",
               op, argument, count == 1 ? "one value" : "one value for each index along axis",
               count, values.sizes());
}

void check_floating(std::string_view op, std::string_view argument, const Tensor& values) {
  QUANTA_CHECK(values.is_floating_point(), "{}: {}: expected a floating tensor, got {}", op,
               argument, values.dtype());
}

std::vector<float> floats_of(const Tensor& values) { return values.to_float_vector(); }

// The result for x, in x's memory order.
MemoryFormat infer_like(const Tensor& x, Results& out) {
  const MemoryFormat format = x.suggested_format();
  out.arrange(0, format);
  out.add(x.sizes(), x.dtype(), format);
  return format;
}

// What the forms with a straight-through gradient share. Derived has axis(x), channels(in) and
// channels_on_device(in), the parameters, whose values it checks; check(in) looks at all but values.
template <typename Derived>
struct StraightThrough : Op<Derived> {
  std::int64_t quant_min = 0;
  std::int64_t quant_max = 255;
  /// Whether there is a second result: bits that say where the gradient passes. Its rank says in
  /// which order they lie: 1 for contiguous, 2 for channels-last.
  bool keeps_mask = false;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_x(Derived::kName, x);
    check_range(Derived::kName, quant_min, quant_max);
    self().check(in);
    const MemoryFormat format = infer_like(x, out);
    if (!keeps_mask) return;
    const std::int64_t bytes = cpu::fake_quantize_rows(out[0], self().axis_of(x)).mask_bytes();
    out.add(format == MemoryFormat::Contiguous ? Dims{bytes} : Dims{bytes, 1}, DType::UInt8);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    cpu::fake_quantize_tensor(in[0], self().axis_of(in[0]), self().channels(in), out[0],
                              keeps_mask ? static_cast<std::uint8_t*>(out[1].data_ptr()) : nullptr);
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::fake_quantize_tensor(in[0], self().axis_of(in[0]), self().channels_on_device(in), out[0],
                               keeps_mask ? out[1] : Tensor());
    return "fake_quantize_rows";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloating; }

  /// Scale and zero point get no gradient, as in torch.
  GradientUse gradient_use(std::uint64_t needed) const override {
    return (needed & 1U) != 0 ? GradientUse::of(0, 0b10) : GradientUse::none();
  }
  std::shared_ptr<const Operation> for_gradient(std::uint64_t needed) const override {
    if ((needed & 1U) == 0) return nullptr;
    auto form = std::make_shared<Derived>(self());
    form->keeps_mask = true;
    return form;
  }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    const Tensor mask = context.output(1);
    const Tensor real =
        cpu::in_real(context.grad())
            .contiguous(mask.dim() == 1 ? MemoryFormat::Contiguous : MemoryFormat::ChannelsLast);
    const Tensor result =
        Tensor::empty(real.sizes(), real.dtype(), real.suggested_format(), real.device());
    if (real.device().is_cpu()) {
      detail::visit_floats(real.dtype(), [&](auto zero) {
        using T = decltype(zero);
        cpu::masked_gradient(static_cast<const T*>(real.data_ptr()),
                             cpu::fake_quantize_rows(real, self().axis_of(real)),
                             mask.data<std::uint8_t>(), static_cast<T*>(result.data_ptr()));
      });
    } else {
      cuda::masked_gradient(real, self().axis_of(real), mask, result);
    }
    std::vector<Tensor> results(context.input_count());
    results[0] = result.to(context.input_dtype(0));
    return results;
  }

 private:
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

struct FakeQuantizePerTensor final : StraightThrough<FakeQuantizePerTensor> {
  static constexpr std::string_view kName = "fake_quantize_per_tensor_affine";
  static constexpr ArgumentCount kArguments{1, 3};
  /// Left out where they are tensors: arguments 1 and 2.
  std::optional<double> scale;
  std::optional<std::int64_t> zero_point;

  FakeQuantizePerTensor() = default;
  FakeQuantizePerTensor(std::int64_t min, std::int64_t max) {
    quant_min = min;
    quant_max = max;
  }
  FakeQuantizePerTensor(double one_scale, std::int64_t one_zero_point, std::int64_t min,
                        std::int64_t max)
      : FakeQuantizePerTensor(min, max) {
    scale = one_scale;
    zero_point = one_zero_point;
  }

  ArgumentCount argument_count() const noexcept override { return ArgumentCount(scale ? 1 : 3); }
  void check(const Arguments& in) const {
    if (in.size() == 1) {
      QUANTA_CHECK(scale && zero_point, "{}: scale: expected scale and zero point, got none",
                   kName);
      check_zero_point(kName, *zero_point, quant_min, quant_max);
      QUANTA_CHECK(std::isfinite(*scale) && static_cast<float>(*scale) > 0.0F,
                   "{}: scale: expected a finite number > 0, got {}", kName, *scale);
      return;
    }
    check_plain(kName, "scale", in[1], 1);
    check_floating(kName, "scale", in[1]);
    check_plain(kName, "zero_point", in[2], 1);
  }
  static std::int64_t axis_of(const Tensor&) { return kAllChannels; }
  FakeQuantizeChannels channels(const Arguments& in) const {
    if (in.size() == 1) {
      return cpu::fake_quantize_channels({static_cast<float>(*scale)},
                                         {static_cast<float>(*zero_point)}, quant_min, quant_max);
    }
    return cpu::fake_quantize_channels(floats_of(in[1]), floats_of(in[2]), quant_min, quant_max);
  }
  cuda::FakeQuantizeChannelsOf channels_on_device(const Arguments& in) const {
    if (in.size() == 1) {
      return {static_cast<float>(*scale), static_cast<float>(*zero_point), quant_min, quant_max};
    }
    return {in[1], in[2], quant_min, quant_max};
  }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = FakeQuantizePerTensor;
    static constexpr std::array kTable{attribute<Self, &Self::scale>("scale"),
                                       attribute<Self, &Self::zero_point>("zero_point"),
                                       attribute<Self, &Self::quant_min>("quant_min"),
                                       attribute<Self, &Self::quant_max>("quant_max"),
                                       attribute<Self, &Self::keeps_mask>("keeps_mask")};
    return kTable;
  }
};

struct FakeQuantizePerChannel final : StraightThrough<FakeQuantizePerChannel> {
  static constexpr std::string_view kName = "fake_quantize_per_channel_affine";
  static constexpr ArgumentCount kArguments{3};
  std::int64_t axis = 0;

  FakeQuantizePerChannel() = default;
  FakeQuantizePerChannel(std::int64_t channel_axis, std::int64_t min, std::int64_t max)
      : axis(channel_axis) {
    quant_min = min;
    quant_max = max;
  }

  void check(const Arguments& in) const {
    const std::int64_t count = in[0].size(axis_of(in[0]));
    check_plain(kName, "scale", in[1], count);
    check_floating(kName, "scale", in[1]);
    check_plain(kName, "zero_point", in[2], count);
  }
  std::int64_t axis_of(const Tensor& x) const { return wrap_dim(axis, x.dim(), kName, "axis"); }
  FakeQuantizeChannels channels(const Arguments& in) const {
    check_zero_points(in[2]);
    FakeQuantizeChannels channels =
        cpu::fake_quantize_channels(floats_of(in[1]), floats_of(in[2]), quant_min, quant_max);
    channels.float_zero_point = in[2].is_floating_point();
    return channels;
  }
  cuda::FakeQuantizeChannelsOf channels_on_device(const Arguments& in) const {
    check_zero_points(in[2]);
    cuda::FakeQuantizeChannelsOf channels(in[1], in[2], quant_min, quant_max);
    channels.qparams.float_zero_point = in[2].is_floating_point();
    return channels;
  }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = FakeQuantizePerChannel;
    static constexpr std::array kTable{attribute<Self, &Self::axis>("axis"),
                                       attribute<Self, &Self::quant_min>("quant_min"),
                                       attribute<Self, &Self::quant_max>("quant_max"),
                                       attribute<Self, &Self::keeps_mask>("keeps_mask")};
    return kTable;
  }

 private:
  // Those of a device are copied to the host for it.
  void check_zero_points(const Tensor& zero_points) const {
    if (zero_points.is_floating_point()) return;
    for (const std::int64_t one : zero_points.to(DType::Int64).to_int64_vector()) {
      check_zero_point(kName, one, quant_min, quant_max);
    }
  }
};

// Learned scale and zero point -------------------------------------------------------------------

enum class Direction : bool { Forward, Backward };

Tensor from_doubles(const std::vector<double>& values, double factor, const Dims& sizes,
                    DType dtype) {
  const Tensor result = Tensor::empty(sizes, DType::Float64);
  auto* data = static_cast<double*>(result.data_ptr());
  for (std::size_t i = 0; i < values.size(); ++i) data[i] = values[i] * factor;
  return result.to(dtype);
}

// Arguments: x, scale, zero point. Derived has axis_of(x).
template <typename Derived>
struct Learnable : Op<Derived> {
  static constexpr ArgumentCount kArguments{3};
  std::int64_t quant_min = 0;
  std::int64_t quant_max = 255;
  double grad_factor = 1.0;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_x(Derived::kName, x);
    const std::int64_t axis = self().axis_of(x);
    const std::int64_t count = axis == kAllChannels ? 1 : x.size(axis);
    check_plain(Derived::kName, "scale", in[1], count);
    check_plain(Derived::kName, "zero_point", in[2], count);
    check_floating(Derived::kName, "scale", in[1]);
    check_floating(Derived::kName, "zero_point", in[2]);
    check_range(Derived::kName, quant_min, quant_max);
    infer_like(x, out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    cpu::fake_quantize_tensor(in[0], self().axis_of(in[0]),
                              channels(Direction::Forward, in[0], in[1], in[2]), out[0], nullptr);
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::fake_quantize_tensor(in[0], self().axis_of(in[0]),
                               {in[1], in[2], quant_min, quant_max, cuda::ZeroPointUse::Learned},
                               out[0], Tensor());
    return "fake_quantize_rows";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloating; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b111); }
  std::vector<Tensor> gradient(const BackwardContext& context) const override {
    const Tensor x = cpu::in_real(context.input(0));
    const MemoryFormat format = x.suggested_format();
    const Tensor dense = x.contiguous(format);
    const Tensor grad = cpu::in_real(context.grad()).contiguous(format);
    const Tensor x_grad = Tensor::empty(dense.sizes(), dense.dtype(), format, dense.device());
    if (!dense.device().is_cpu()) return gradient_on_device(context, dense, grad, x_grad);
    const FakeQuantizeChannels parameters =
        channels(Direction::Backward, x, context.input(1), context.input(2));
    std::vector<double> scale_grad(parameters.scale.size());
    std::vector<double> zero_point_grad(parameters.scale.size());
    detail::visit_floats(dense.dtype(), [&](auto zero) {
      using T = decltype(zero);
      cpu::learned_gradients(dense.data<T>(), grad.data<T>(),
                             cpu::fake_quantize_rows(dense, self().axis_of(x)), parameters,
                             static_cast<T*>(x_grad.data_ptr()), scale_grad.data(),
                             zero_point_grad.data());
    });
    return {
        x_grad.to(context.input_dtype(0)),
        from_doubles(scale_grad, grad_factor, context.input_sizes(1), context.input_dtype(1)),
        from_doubles(zero_point_grad, grad_factor, context.input_sizes(2), context.input_dtype(2))};
  }

 private:
  // Of the backward, per tensor, torch has another zero point than of the forward.
  bool is_shifted(Direction direction, const Tensor& x) const {
    return direction == Direction::Backward && self().axis_of(x) == kAllChannels;
  }
  std::vector<Tensor> gradient_on_device(const BackwardContext& context, const Tensor& x,
                                         const Tensor& grad, const Tensor& x_grad) const {
    const cuda::FakeQuantizeChannelsOf parameters(
        context.input(1), context.input(2), quant_min, quant_max,
        is_shifted(Direction::Backward, x) ? cuda::ZeroPointUse::LearnedBackward
                                           : cuda::ZeroPointUse::Learned);
    const auto sums = [&] {
      return Tensor::empty({parameters.count}, DType::Float64, MemoryFormat::Contiguous,
                           x.device());
    };
    const Tensor scale_grad = sums();
    const Tensor zero_point_grad = sums();
    cuda::learned_gradients(x, grad, self().axis_of(x), parameters, grad_factor, x_grad, scale_grad,
                            zero_point_grad);
    return {x_grad.to(context.input_dtype(0)),
            scale_grad.to(context.input_dtype(1)).reshape(context.input_sizes(1)),
            zero_point_grad.to(context.input_dtype(2)).reshape(context.input_sizes(2))};
  }
  FakeQuantizeChannels channels(Direction direction, const Tensor& x, const Tensor& scale,
                                const Tensor& zero_point) const {
    const auto min = static_cast<float>(quant_min);
    const auto max = static_cast<float>(quant_max);
    const bool shifted = is_shifted(direction, x);
    std::vector<float> zero_points = floats_of(zero_point);
    for (float& one : zero_points) {
      one = shifted ? math::learned_zero_point_backward(one, min, max)
                    : math::learned_zero_point(one, min, max);
    }
    return cpu::fake_quantize_channels(floats_of(scale), std::move(zero_points), quant_min,
                                       quant_max);
  }
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

struct LearnablePerTensor final : Learnable<LearnablePerTensor> {
  static constexpr std::string_view kName = "fake_quantize_learnable_per_tensor_affine";

  LearnablePerTensor() = default;
  LearnablePerTensor(std::int64_t min, std::int64_t max, double factor) {
    quant_min = min;
    quant_max = max;
    grad_factor = factor;
  }
  static std::int64_t axis_of(const Tensor&) { return kAllChannels; }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = LearnablePerTensor;
    static constexpr std::array kTable{attribute<Self, &Self::quant_min>("quant_min"),
                                       attribute<Self, &Self::quant_max>("quant_max"),
                                       attribute<Self, &Self::grad_factor>("grad_factor")};
    return kTable;
  }
};

struct LearnablePerChannel final : Learnable<LearnablePerChannel> {
  static constexpr std::string_view kName = "fake_quantize_learnable_per_channel_affine";
  std::int64_t axis = 0;

  LearnablePerChannel() = default;
  LearnablePerChannel(std::int64_t channel_axis, std::int64_t min, std::int64_t max, double factor)
      : axis(channel_axis) {
    quant_min = min;
    quant_max = max;
    grad_factor = factor;
  }
  std::int64_t axis_of(const Tensor& x) const { return wrap_dim(axis, x.dim(), kName, "axis"); }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = LearnablePerChannel;
    static constexpr std::array kTable{attribute<Self, &Self::axis>("axis"),
                                       attribute<Self, &Self::quant_min>("quant_min"),
                                       attribute<Self, &Self::quant_max>("quant_max"),
                                       attribute<Self, &Self::grad_factor>("grad_factor")};
    return kTable;
  }
};

}  // namespace

Tensor fake_quantize_per_tensor_affine(const Tensor& x, double scale, std::int64_t zero_point,
                                       std::int64_t quant_min, std::int64_t quant_max) {
  return run(FakeQuantizePerTensor{scale, zero_point, quant_min, quant_max}, x);
}

Tensor fake_quantize_per_tensor_affine(const Tensor& x, const Tensor& scale,
                                       const Tensor& zero_point, std::int64_t quant_min,
                                       std::int64_t quant_max) {
  return run(FakeQuantizePerTensor{quant_min, quant_max}, x, scale, zero_point);
}

Tensor fake_quantize_per_tensor_affine(const Tensor& x, const Tensor& scale,
                                       const Tensor& zero_point, const Tensor& fake_quant_enabled,
                                       std::int64_t quant_min, std::int64_t quant_max) {
  constexpr std::string_view kOp = FakeQuantizePerTensor::kName;
  check_x(kOp, x);
  check_plain(kOp, "fake_quant_enabled", fake_quant_enabled, 1);
  if (fake_quant_enabled.item() == 0.0) return x;
  return fake_quantize_per_tensor_affine(x, scale, zero_point, quant_min, quant_max);
}

Tensor fake_quantize_per_channel_affine(const Tensor& x, const Tensor& scale,
                                        const Tensor& zero_point, std::int64_t axis,
                                        std::int64_t quant_min, std::int64_t quant_max) {
  return run(FakeQuantizePerChannel{axis, quant_min, quant_max}, x, scale, zero_point);
}

Tensor fake_quantize_learnable_per_tensor_affine(const Tensor& x, const Tensor& scale,
                                                 const Tensor& zero_point, std::int64_t quant_min,
                                                 std::int64_t quant_max, double grad_factor) {
  return run(LearnablePerTensor{quant_min, quant_max, grad_factor}, x, scale, zero_point);
}

Tensor fake_quantize_learnable_per_channel_affine(const Tensor& x, const Tensor& scale,
                                                  const Tensor& zero_point, std::int64_t axis,
                                                  std::int64_t quant_min, std::int64_t quant_max,
                                                  double grad_factor) {
  return run(LearnablePerChannel{axis, quant_min, quant_max, grad_factor}, x, scale, zero_point);
}

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/fake_quantize.h";

Tensor sample_image(DType dtype) { return sample_tensor({2, 3, 5, 4}, dtype); }
Tensor sample_scales() { return Tensor::from_values({0.02F, 0.05F, 0.1F}); }

}  // namespace

void detail::add_fake_quantize(Catalogue& catalogue) {
  // With numbers, and for one dtype with tensors.
  catalogue.add(
      {.name = FakeQuantizePerTensor::kName, .header = kHeader, .dtypes = dtypes::kFloating},
      [](DType dtype) {
        if (dtype != DType::Float64) {
          return sample_call(FakeQuantizePerTensor{0.01, 120, 0, 255}, {sample_image(dtype)});
        }
        return sample_call(
            FakeQuantizePerTensor{0, 255},
            {sample_image(dtype), Tensor::scalar(0.01), Tensor::scalar(120, DType::Int64)});
      });
  catalogue.add(
      {.name = FakeQuantizePerChannel::kName, .header = kHeader, .dtypes = dtypes::kFloating},
      [](DType dtype) {
        return sample_call(
            FakeQuantizePerChannel{1, -16, 15},
            {sample_image(dtype), sample_scales(), Tensor::zeros({3}, DType::Int64)});
      });
  catalogue.add({.name = LearnablePerTensor::kName, .header = kHeader, .dtypes = dtypes::kFloating},
                [](DType dtype) {
                  return sample_call(
                      LearnablePerTensor{0, 255, 0.5},
                      {sample_image(dtype), Tensor::full({1}, 0.01), Tensor::full({1}, 119.7)});
                });
  catalogue.add(
      {.name = LearnablePerChannel::kName, .header = kHeader, .dtypes = dtypes::kFloating},
      [](DType dtype) {
        return sample_call(LearnablePerChannel{1, -16, 15, 0.5},
                           {sample_image(dtype), sample_scales(), Tensor::zeros({3})});
      });
}

}  // namespace quanta
