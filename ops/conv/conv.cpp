#include "quanta/ops/conv.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "quanta/ops/conv/cpu_float.h"
#include "quanta/ops/conv/cuda_float.h"
#include "quanta/ops/conv/families.h"
#include "quanta/ops/conv/geometry.h"
#include "quanta/ops/conv/gradient.h"
#include "quanta/ops/conv/products.h"
#include "quanta/ops/detail/cuda_floats.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/fusion.h"
#include "quanta/ops/detail/pointwise_gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace conv {
namespace {

using detail::ConvGeometry;

/// A weight and bias in the layout of the kernels.
struct PackedFloats {
  PackedFloats(ConvGeometry conv_geometry, const Tensor& weight, const Tensor& bias, Fusion fusion)
      : geometry(std::move(conv_geometry)),
        kernel(weight.contiguous(), bias.defined() ? bias.contiguous() : bias, geometry.shape,
               geometry.kernel_rank(),
               fusion == Fusion::ReLU ? cpu::FloatEpilogue::ReLU : cpu::FloatEpilogue::None) {}

  std::string_view run(const Tensor& x, const Tensor& out) const {
    return kernel.run(detail::conv_shape(geometry, x.sizes()),
                      static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()));
  }

  ConvGeometry geometry;
  cpu::ConvFloat kernel;
};

/// Plain loops, for proofs of gradients.
void convolve_doubles(const ConvGeometry& geometry, const Tensor& x, const Tensor& weight,
                      const Tensor& bias, Fusion fusion, const Tensor& out) {
  const cpu::ConvShape shape = detail::conv_shape(geometry, x.sizes());
  out.fill_(0.0);
  if (bias.defined()) {
    Dims channels = Dims::filled(static_cast<std::size_t>(geometry.spatial) + 1, 1);
    channels[0] = shape.out_channels;
    out.copy_(bias.reshape(channels));
  }
  const Tensor weights = weight.contiguous();
  double* sums = out.mutable_data<double>();
  detail::for_each_conv_product(shape, [&](std::int64_t s, std::int64_t w, std::int64_t d) {
    sums[d] += x.data<double>()[s] * weights.data<double>()[w];
  });
  if (fusion == Fusion::None) return;
  for (std::int64_t i = 0; i < out.numel(); ++i) sums[i] = std::max(sums[i], 0.0);
}

/// x [N, C, spatial...], weight and bias (may be undefined).
struct Conv final : Op<Conv> {
  static constexpr ArgumentCount kArguments{3};
  std::string_view op = "conv2d";
  std::int64_t spatial = 2;
  bool transposed = false;
  ConvTransposeOptions options;
  Fusion fusion = Fusion::None;
  /// Of the weight and bias of every call on the CPU. Null: packed in each call.
  std::shared_ptr<const PackedFloats> packed;

  Conv() = default;
  Conv(std::int64_t spatial_dimensions, bool is_transposed, ConvTransposeOptions conv_options)
      : op(detail::conv_name(spatial_dimensions, is_transposed)),
        spatial(spatial_dimensions),
        transposed(is_transposed),
        options(conv_options) {}

  std::string_view name() const noexcept override { return op; }

  /// Checks the weight and bias.
  ConvGeometry geometry(const Tensor& weight, const Tensor& bias) const {
    QUANTA_CHECK(weight.defined(), "{}: weight: expected a tensor, got an undefined one", op);
    const bool is_double = weight.dtype() == DType::Float64;
    QUANTA_SUPPORTED(!detail::is_float_of_16_bits(weight.dtype()) || weight.device().is_cuda(),
                     "{}: weight: expected Float32 or Float64 on the CPU, got {}, which a CUDA "
                     "device takes",
                     op, weight.dtype());
    QUANTA_CHECK(is_double || detail::is_float_of_cuda(weight) || weight.dtype() == DType::Float32,
                 "{}: weight: expected Float32, got {}", op, weight.dtype());
    ConvGeometry result = detail::conv_geometry(weight, bias, options, spatial, transposed);
    for (std::size_t i = 0; transposed && !is_double && i < result.options.stride.size(); ++i) {
      QUANTA_SUPPORTED(result.options.output_padding[i] < result.options.stride[i],
                       "{}: output_padding: expected less than the stride {} (all that the CPU "
                       "supports), got {}",
                       op, result.options.stride, result.options.output_padding);
    }
    return result;
  }

  void infer(const Arguments& in, Results& out) const override {
    if (packed != nullptr) return infer(packed->geometry, DType::Float32, in[0], out);
    const ConvGeometry checked = geometry(in[1], in[2]);
    infer(checked, in[1].dtype(), in[0], out);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (packed != nullptr) return packed->run(in[0], out[0]);
    ConvGeometry checked = detail::conv_geometry(in[1], in[2], options, spatial, transposed);
    if (in[0].dtype() == DType::Float64) {
      convolve_doubles(checked, in[0], in[1], in[2], fusion, out[0]);
      return "scalar";
    }
    return PackedFloats(std::move(checked), in[1], in[2], fusion).run(in[0], out[0]);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return cuda::convolve(detail::conv_geometry(in[1], in[2], options, spatial, transposed), in[0],
                          in[1], in[2], fusion, out[0]);
  }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return detail::conv_work(in[0], in[1], out[0], transposed);
  }

  GradientUse gradient_use(std::uint64_t) const override {
    return GradientUse::of(0b11, fusion == Fusion::ReLU ? 1 : 0);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    Tensor of_sums = context.grad();
    if (fusion == Fusion::ReLU) {
      of_sums = detail::through_gate(of_sums, context.output(), 0.0,
                                     std::numeric_limits<double>::infinity());
    }
    return conv_gradient(detail::conv_geometry(context.input(1), {}, options, spatial, transposed),
                         of_sums, context);
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<Conv, &Conv::options, &ConvTransposeOptions::stride>("stride"),
        attribute<Conv, &Conv::options, &ConvTransposeOptions::padding>("padding"),
        attribute<Conv, &Conv::options, &ConvTransposeOptions::output_padding>("output_padding"),
        attribute<Conv, &Conv::options, &ConvTransposeOptions::dilation>("dilation"),
        attribute<Conv, &Conv::options, &ConvTransposeOptions::groups>("groups"),
        attribute<Conv, &Conv::fusion>("fusion"),
        read_only_attribute<Conv, [](const Conv& conv) { return conv.packed; }>("packed")};
    return kTable;
  }

 private:
  void infer(const ConvGeometry& checked, DType dtype, const Tensor& x, Results& out) const {
    QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
    QUANTA_CHECK(x.dtype() == dtype, "{}: x: expected {}{}, got {}{}", op, dtype,
                 dtype == DType::Float32 ? "" : " as the weight has", x.dtype(),
                 x.is_quantized() ? " (is a DeQuantStub missing?)" : "");
    const MemoryFormat format =
        dtype == DType::Float64 ? MemoryFormat::Contiguous : MemoryFormat::ChannelsLast;
    const cpu::ConvShape shape = detail::conv_shape(checked, x.sizes());
    out.arrange(0, format);
    out.add(detail::conv_output_sizes(checked, shape), dtype, format);
  }
};

Tensor call(const Conv& operation, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return detail::with_batch(operation.spatial, x, [&](const Tensor& batch) {
    return run(operation, batch, weight, bias);
  });
}

}  // namespace
}  // namespace conv

using conv::Conv;
using detail::with_output_padding;

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options) {
  return call(Conv(1, false, with_output_padding(options)), x, weight, bias);
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options) {
  return call(Conv(2, false, with_output_padding(options)), x, weight, bias);
}
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options) {
  return call(Conv(3, false, with_output_padding(options)), x, weight, bias);
}
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  return call(Conv(1, true, options), x, weight, bias);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  return call(Conv(2, true, options), x, weight, bias);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  return call(Conv(3, true, options), x, weight, bias);
}

struct PackedConv::Impl {
  Conv operation;
  Tensor weight, bias;  // copies that nobody else can write to
};

PackedConv::PackedConv(const Tensor& weight, const Tensor& bias, const ConvOptions& options,
                       std::int64_t spatial, Fusion fusion) {
  Conv operation(spatial, false, with_output_padding(options));
  operation.fusion = fusion;
  detail::ConvGeometry geometry = operation.geometry(weight, bias);
  const autograd::NoGradGuard no_grad;
  const Tensor own_weight = weight.clone(MemoryFormat::Contiguous);
  const Tensor own_bias = bias.defined() ? bias.clone(MemoryFormat::Contiguous) : bias;
  if (weight.dtype() == DType::Float32 && weight.device().is_cpu()) {
    operation.packed = std::make_shared<const conv::PackedFloats>(std::move(geometry), own_weight,
                                                                  own_bias, fusion);
  }
  impl_ = std::make_shared<Impl>(Impl{std::move(operation), own_weight, own_bias});
}

Tensor PackedConv::operator()(const Tensor& x) const {
  QUANTA_CHECK(defined(), "conv: weight: expected a packed weight, got an empty PackedConv");
  return call(impl_->operation, x, impl_->weight, impl_->bias);
}

Tensor PackedConv::operator()(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
  QUANTA_CHECK(defined(), "conv: weight: expected a packed weight, got an empty PackedConv");
  return call(impl_->operation, x, weight, bias);
}

// The catalogue --------------------------------------------------------------------------------

namespace {

template <std::int64_t kSpatial, bool kTransposed>
void add_float(Catalogue& catalogue) {
  catalogue.add({.name = detail::conv_name(kSpatial, kTransposed),
                 .header = conv::kHeader,
                 .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  Dims x{2, 4}, weight{4, 2};
                  for (std::int64_t i = 0; i < kSpatial; ++i) x.push_back(5), weight.push_back(3);
                  Conv conv(kSpatial, kTransposed,
                            {.stride = {2}, .padding = {1}, .dilation = {1}, .groups = 2});
                  if (kTransposed) conv.options.output_padding = {1};
                  return sample_call(std::move(conv),
                                     {sample_tensor(x, dtype), sample_tensor(weight, dtype, 2),
                                      sample_tensor({4}, dtype, 3)});
                });
}

}  // namespace

void detail::add_convolutions(Catalogue& catalogue) {
  add_float<1, false>(catalogue);
  add_float<2, false>(catalogue);
  add_float<3, false>(catalogue);
  add_float<1, true>(catalogue);
  add_float<2, true>(catalogue);
  add_float<3, true>(catalogue);
  conv::add_quantized(catalogue);
  conv::add_dynamic(catalogue);
  conv::add_integer(catalogue);
  conv::add_to_float(catalogue);
}

}  // namespace quanta
