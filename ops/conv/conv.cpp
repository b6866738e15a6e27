#include "quanta/ops/conv.h"

#include <array>
#include <cmath>
#include <utility>

#include "quanta/ops/conv/cpu_float.h"
#include "quanta/ops/conv/cpu_int8.h"
#include "quanta/ops/conv/geometry.h"
#include "quanta/ops/conv/gradient.h"
#include "quanta/ops/conv/products.h"
#include "quanta/ops/cpu/gemm/sums_to_codes.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_memory.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

using detail::ConvGeometry;

ConvTransposeOptions with_output_padding(const ConvOptions& options) {
  return {options.stride, options.padding, Dims{0}, options.dilation, options.groups};
}

void check_weight(std::string_view op, const Tensor& weight, DType dtype) {
  QUANTA_CHECK(weight.defined(), "{}: weight: expected a tensor, got an undefined one", op);
  QUANTA_CHECK(weight.dtype() == dtype, "{}: weight: expected {}, got {}", op, dtype,
               weight.dtype());
}

/// A copy that nobody else can write to.
Tensor own(const Tensor& x) { return x.defined() ? x.clone(MemoryFormat::Contiguous) : x; }

/// Of weights with items of `weight_item` bytes. The border counts as if it were multiplied too.
OpWork conv_work(const cpu::ConvShape& shape, const Tensor& x, const Tensor& out,
                 std::size_t weight_item) {
  const std::int64_t window = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const std::int64_t each = shape.transposed ? x.numel() * (shape.out_channels / shape.groups)
                                             : out.numel() * (shape.in_channels / shape.groups);
  const auto weights =
      static_cast<std::size_t>(shape.out_channels * shape.in_channels / shape.groups * window);
  return {.multiply_adds = each * window,
          .bytes = static_cast<std::int64_t>(x.nbytes() + out.nbytes() + weights * weight_item)};
}

struct FloatConv {
  FloatConv(const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& options,
            std::int64_t spatial, bool transposed, cpu::FloatEpilogue epilogue)
      : geometry(detail::conv_geometry(weight, bias, options, spatial, transposed)),
        kernel(weight.contiguous(), bias.defined() ? bias.contiguous() : bias, geometry.shape,
               geometry.kernel_rank(), epilogue) {
    for (std::size_t i = 0; transposed && i < geometry.options.stride.size(); ++i) {
      QUANTA_SUPPORTED(geometry.options.output_padding[i] < geometry.options.stride[i],
                       "{}: output_padding: expected less than the stride {} (all that the CPU "
                       "supports), got {}",
                       geometry.op, geometry.options.stride, geometry.options.output_padding);
    }
  }

  std::string_view run(const cpu::ConvShape& shape, const Tensor& input, const Tensor& out) const {
    return kernel.run(shape, static_cast<const float*>(input.data_ptr()),
                      static_cast<float*>(out.data_ptr()));
  }

  ConvGeometry geometry;
  cpu::ConvFloat kernel;
};

Tensor run_float(const std::shared_ptr<const FloatConv>& conv, const Tensor& x) {
  const ConvGeometry& geometry = conv->geometry;
  OpScope scope(geometry.op);
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", geometry.op);
  QUANTA_CHECK(x.dtype() == DType::Float32, "{}: x: expected Float32, got {}{}", geometry.op,
               x.dtype(), x.is_quantized() ? " (is a DeQuantStub missing?)" : "");
  const cpu::ConvShape shape = detail::conv_shape(geometry, x.sizes());
  Tensor out = Tensor::empty(detail::conv_output_sizes(geometry, shape), DType::Float32,
                             MemoryFormat::ChannelsLast);
  scope.work([&] { return conv_work(shape, x, out, sizeof(float)); });
  if (out.numel() > 0) {
    const Tensor input = detail::conv_input(geometry, x);
    scope.kernel(conv->run(shape, input, out));
    if (replay::is_recording()) {
      replay::record({.op = geometry.op,
                      .inputs = {input},
                      .outputs = {out},
                      .run = [conv, shape](const replay::Frame& frame) {
                        conv->run(shape, frame.in(), frame.out());
                      }});
    }
  }
  return detail::conv_result(geometry, x, std::move(out));
}

// For proofs of gradients: plain loops.
Tensor double_conv(const ConvGeometry& geometry, const Tensor& x, const Tensor& weight,
                   const Tensor& bias) {
  OpScope scope(geometry.op);
  QUANTA_CHECK(x.defined() && x.dtype() == DType::Float64,
               "{}: x: expected Float64 as the weight has, got {}", geometry.op,
               x.defined() ? to_string(x.dtype()) : "an undefined tensor");
  const cpu::ConvShape shape = detail::conv_shape(geometry, x.sizes());
  Tensor out = Tensor::zeros(detail::conv_output_sizes(geometry, shape), DType::Float64);
  if (bias.defined()) {
    Dims channels = Dims::filled(static_cast<std::size_t>(geometry.spatial) + 1, 1);
    channels[0] = shape.out_channels;
    out.copy_(bias.reshape(channels));
  }
  const Tensor input = x.contiguous();
  const Tensor weights = weight.contiguous();
  double* sums = out.mutable_data<double>();
  detail::for_each_conv_product(shape, [&](std::int64_t s, std::int64_t w, std::int64_t d) {
    sums[d] += input.data<double>()[s] * weights.data<double>()[w];
  });
  scope.kernel("scalar");
  return x.dim() == geometry.spatial + 1 ? out.squeeze(0) : out;
}

Tensor float_conv(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const ConvTransposeOptions& options, std::int64_t spatial, bool transposed) {
  if (replay::is_recording()) {
    return replay::call(
        detail::conv_name(spatial, transposed),
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return float_conv(a, b, c, options, spatial, transposed);
        },
        x, weight, bias);
  }
  if (autograd::needs_grad(x, weight, bias)) {
    Tensor y = [&] {
      const autograd::NoGradGuard guard;
      return float_conv(x, weight, bias, options, spatial, transposed);
    }();
    return gradients::record_conv(
        std::move(y), x, weight, bias,
        detail::conv_geometry(weight, bias, options, spatial, transposed));
  }
  if (weight.defined() && weight.dtype() == DType::Float64) {
    return double_conv(detail::conv_geometry(weight, bias, options, spatial, transposed), x, weight,
                       bias);
  }
  check_weight(detail::conv_name(spatial, transposed), weight, DType::Float32);
  return run_float(std::make_shared<const FloatConv>(weight, bias, options, spatial, transposed,
                                                     cpu::FloatEpilogue::None),
                   x);
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options) {
  return float_conv(x, weight, bias, with_output_padding(options), 1, false);
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options) {
  return float_conv(x, weight, bias, with_output_padding(options), 2, false);
}
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ConvOptions& options) {
  return float_conv(x, weight, bias, with_output_padding(options), 3, false);
}
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  return float_conv(x, weight, bias, options, 1, true);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  return float_conv(x, weight, bias, options, 2, true);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  return float_conv(x, weight, bias, options, 3, true);
}

struct PackedConv::Impl : FloatConv {
  using FloatConv::FloatConv;
};

PackedConv::PackedConv(const Tensor& weight, const Tensor& bias, const ConvOptions& options,
                       std::int64_t spatial, Fusion fusion) {
  check_weight(detail::conv_name(spatial, false), weight, DType::Float32);
  impl_ = std::make_shared<Impl>(
      own(weight), own(bias), with_output_padding(options), spatial, false,
      fusion == Fusion::ReLU ? cpu::FloatEpilogue::ReLU : cpu::FloatEpilogue::None);
}

Tensor PackedConv::operator()(const Tensor& x) const {
  QUANTA_CHECK(defined(), "conv: weight: expected a packed weight, got an empty PackedConv");
  if (x.defined()) autograd::require_no_grad("conv (packed)", x);
  return run_float(impl_, x);
}

namespace quantized {
namespace {

struct OpNames {
  std::string_view plain, relu, add, add_relu;
};

// For verbose lines.
const OpNames& op_names(const ConvGeometry& geometry) {
  static constexpr std::array<OpNames, 3> kNames{{
      {"quantized::conv1d", "quantized::conv1d_relu", "quantized::conv1d_add",
       "quantized::conv1d_add_relu"},
      {"quantized::conv2d", "quantized::conv2d_relu", "quantized::conv2d_add",
       "quantized::conv2d_add_relu"},
      {"quantized::conv3d", "quantized::conv3d_relu", "quantized::conv3d_add",
       "quantized::conv3d_add_relu"},
  }};
  static constexpr std::array<OpNames, 3> kTransposedNames{{
      {"quantized::conv_transpose1d", "quantized::conv_transpose1d_relu",
       "quantized::conv_transpose1d_add", "quantized::conv_transpose1d_add_relu"},
      {"quantized::conv_transpose2d", "quantized::conv_transpose2d_relu",
       "quantized::conv_transpose2d_add", "quantized::conv_transpose2d_add_relu"},
      {"quantized::conv_transpose3d", "quantized::conv_transpose3d_relu",
       "quantized::conv_transpose3d_add", "quantized::conv_transpose3d_add_relu"},
  }};
  const auto i = static_cast<std::size_t>(geometry.spatial - 1);
  return geometry.shape.transposed ? kTransposedNames[i] : kNames[i];
}

}  // namespace

struct ConvPackedParams::Impl {
  Impl(const QTensor& weight, const Tensor& bias, const ConvTransposeOptions& options,
       std::int64_t spatial, bool transposed)
      : geometry(detail::conv_geometry(weight, bias, options, spatial, transposed)),
        kernel(cpu::QuantizedWeight(QTensor(detail::unshared(weight)), own(bias),
                                    geometry.shape.out_channels),
               geometry.shape, geometry.kernel_rank()) {}

  ConvGeometry geometry;
  cpu::ConvInt8 kernel;
};

namespace {

void check_quantized_weight(std::string_view op, const QTensor& weight, bool transposed,
                            std::int64_t groups) {
  check_weight(op, weight, DType::QInt8);
  if (!weight.is_per_channel()) return;
  QUANTA_CHECK(weight.qscheme() == QScheme::PerChannelAffine,
               "{}: weight: expected integer zero points, got {}", op, weight.qscheme());
  // The output channels' axis: torch weights are [O, C/groups, ...], transposed [C, O/groups, ...].
  const std::int64_t axis = transposed ? 1 : 0;
  QUANTA_CHECK(weight.q_per_channel_axis() == axis,
               "{}: weight: expected QInt8 quantized along axis {}, got {} along axis {}", op, axis,
               weight.dtype(), weight.q_per_channel_axis());
  QUANTA_SUPPORTED(!transposed || groups == 1,
                   "{}: weight: expected QInt8 quantized per tensor (per channel is supported for "
                   "groups 1 only), got per channel with groups {}",
                   op, groups);
}

const ConvPackedParams::Impl& checked_params(const ConvPackedParams& packed) {
  QUANTA_CHECK(packed.defined(),
               "conv: packed: expected packed parameters, got empty ConvPackedParams");
  return packed.impl();
}

// Everything about the arguments that is not a size.
cpu::CallQParams checked_call(std::string_view op, const QTensor& x, double scale,
                              std::int64_t zero_point) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  QUANTA_CHECK(x.dtype() == DType::QUInt8, "{}: x: expected QUInt8, got {}{}", op, x.dtype(),
               x.is_quantized() ? "" : " (is a QuantStub missing?)");
  QUANTA_CHECK(!x.is_per_channel(), "{}: x: expected a tensor quantized per tensor, got {}", op,
               x.qscheme());
  check_quantizer(op, Quantizer::per_tensor(scale, zero_point), DType::QUInt8, x.sizes());
  const Quantizer& quantizer = x.quantizer();
  return {static_cast<float>(quantizer.scale), static_cast<std::int32_t>(quantizer.zero_point),
          static_cast<float>(scale), static_cast<std::int32_t>(zero_point)};
}

QTensor conv_codes(const QTensor& x, const ConvPackedParams& packed, double scale,
                   std::int64_t zero_point, cpu::SumOutput output) {
  const ConvPackedParams::Impl& params = checked_params(packed);
  const ConvGeometry& geometry = params.geometry;
  const OpNames& names = op_names(geometry);
  OpScope scope(output == cpu::SumOutput::CodesReLU ? names.relu : names.plain);
  const cpu::CallQParams qparams = checked_call(geometry.op, x, scale, zero_point);
  const cpu::ConvShape shape = detail::conv_shape(geometry, x.sizes());

  QTensor out = QTensor::empty(detail::conv_output_sizes(geometry, shape), scale, zero_point,
                               DType::QUInt8, MemoryFormat::ChannelsLast);
  scope.work([&] { return conv_work(shape, x, out, 1); });
  if (out.numel() > 0) {
    const Tensor input = detail::conv_input(geometry, x);
    scope.kernel(params.kernel.codes(shape, qparams, output,
                                     static_cast<const std::uint8_t*>(input.data_ptr()),
                                     static_cast<std::uint8_t*>(out.data_ptr())));
    if (replay::is_recording()) {
      const auto with_table = [packed, shape, qparams,
                               output](std::shared_ptr<const cpu::CodeTable> table) {
        return
            [packed, shape, qparams, output, table = std::move(table)](const replay::Frame& frame) {
              packed.impl().kernel.codes(
                  shape, qparams, output, static_cast<const std::uint8_t*>(frame.in().data_ptr()),
                  static_cast<std::uint8_t*>(frame.out().data_ptr()), table.get());
            };
      };
      replay::record({.op = output == cpu::SumOutput::CodesReLU ? names.relu : names.plain,
                      .inputs = {input},
                      .outputs = {out},
                      .run = with_table(nullptr),
                      .with_table = with_table});
    }
  }
  return QTensor(detail::conv_result(geometry, x, std::move(out)));
}

QTensor conv_added(const QTensor& x, const QTensor& accum, const ConvPackedParams& packed,
                   double scale, std::int64_t zero_point, cpu::FloatStep step) {
  const ConvPackedParams::Impl& params = checked_params(packed);
  const ConvGeometry& geometry = params.geometry;
  const OpNames& names = op_names(geometry);
  OpScope scope(step == cpu::FloatStep::ReLU ? names.add_relu : names.add);
  const cpu::CallQParams qparams = checked_call(geometry.op, x, scale, zero_point);
  const cpu::ConvShape shape = detail::conv_shape(geometry, x.sizes());
  const Dims sizes = detail::conv_output_sizes(geometry, shape);
  QUANTA_CHECK(accum.defined() && accum.dtype() == DType::QUInt8 && !accum.is_per_channel(),
               "{}: accum: expected QUInt8 quantized per tensor, got {}", geometry.op,
               accum.defined() ? to_string(accum.dtype()) : "an undefined tensor");
  Dims expected = sizes;
  if (x.dim() == geometry.spatial + 1) expected.erase(0);
  QUANTA_CHECK(accum.sizes() == expected, "{}: accum: expected sizes {}, got {}", geometry.op,
               expected, accum.sizes());

  QTensor out = QTensor::empty(sizes, scale, zero_point, DType::QUInt8, MemoryFormat::ChannelsLast);
  scope.work([&] {
    OpWork work = conv_work(shape, x, out, 1);
    work.bytes += static_cast<std::int64_t>(accum.nbytes());
    return work;
  });
  if (out.numel() > 0) {
    const Tensor input = detail::conv_input(geometry, x);
    const Tensor addend = detail::conv_input(geometry, accum);
    const auto run = [packed, shape, qparams, step](const Tensor& src, const Tensor& added,
                                                    const Tensor& dst) {
      const cpu::ConvInt8& kernel = packed.impl().kernel;
      const cpu::Int8Sums sums = kernel.sums(shape, qparams.src_zero_point,
                                             static_cast<const std::uint8_t*>(src.data_ptr()));
      const Quantizer& quantizer = added.impl()->quantizer;
      const cpu::QuantizedAddend term{static_cast<const std::uint8_t*>(added.data_ptr()),
                                      static_cast<float>(quantizer.scale),
                                      static_cast<std::int32_t>(quantizer.zero_point)};
      cpu::sums_to_codes(sums, kernel.weight(), qparams, {step}, &term,
                         dst.numel() / shape.out_channels, shape.out_channels,
                         static_cast<std::uint8_t*>(dst.data_ptr()));
      return sums.kernel;
    };
    scope.kernel(run(input, addend, out));
    if (replay::is_recording()) {
      replay::record({.op = step == cpu::FloatStep::ReLU ? names.add_relu : names.add,
                      .inputs = {input, addend},
                      .outputs = {out},
                      .run = [run](const replay::Frame& frame) {
                        run(frame.in(0), frame.in(1), frame.out());
                      }});
    }
  }
  return QTensor(detail::conv_result(geometry, x, std::move(out)));
}

}  // namespace

ConvPackedParams::ConvPackedParams(const QTensor& weight, const Tensor& bias,
                                   const ConvOptions& options, std::int64_t spatial) {
  check_quantized_weight(detail::conv_name(spatial, false), weight, false, options.groups);
  impl_ = std::make_shared<Impl>(weight, bias, with_output_padding(options), spatial, false);
}

ConvPackedParams ConvPackedParams::transposed(const QTensor& weight, const Tensor& bias,
                                              const ConvTransposeOptions& options,
                                              std::int64_t spatial) {
  check_quantized_weight(detail::conv_name(spatial, true), weight, true, options.groups);
  ConvPackedParams result;
  result.impl_ = std::make_shared<Impl>(weight, bias, options, spatial, true);
  return result;
}

const QTensor& ConvPackedParams::weight() const {
  return checked_params(*this).kernel.weight().weight();
}
const Tensor& ConvPackedParams::bias() const {
  return checked_params(*this).kernel.weight().bias();
}
std::int64_t ConvPackedParams::spatial() const { return checked_params(*this).geometry.spatial; }
bool ConvPackedParams::is_transposed() const {
  return checked_params(*this).geometry.shape.transposed;
}
const ConvTransposeOptions& ConvPackedParams::options() const {
  return checked_params(*this).geometry.options;
}

QTensor conv(const QTensor& x, const ConvPackedParams& packed, double scale,
             std::int64_t zero_point) {
  return conv_codes(x, packed, scale, zero_point, cpu::SumOutput::Codes);
}

QTensor conv_relu(const QTensor& x, const ConvPackedParams& packed, double scale,
                  std::int64_t zero_point) {
  return conv_codes(x, packed, scale, zero_point, cpu::SumOutput::CodesReLU);
}

QTensor conv_add(const QTensor& x, const QTensor& accum, const ConvPackedParams& packed,
                 double scale, std::int64_t zero_point) {
  return conv_added(x, accum, packed, scale, zero_point, cpu::FloatStep::None);
}

QTensor conv_add_relu(const QTensor& x, const QTensor& accum, const ConvPackedParams& packed,
                      double scale, std::int64_t zero_point) {
  return conv_added(x, accum, packed, scale, zero_point, cpu::FloatStep::ReLU);
}

}  // namespace quantized
}  // namespace quanta
