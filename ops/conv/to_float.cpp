#include <array>

#include "quanta/ops/conv.h"
#include "quanta/ops/conv/families.h"
#include "quanta/ops/conv/geometry.h"
#include "quanta/ops/conv/packed.h"
#include "quanta/ops/conv_dynamic.h"
#include "quanta/ops/cpu/gemm/layer_floats.h"
#include "quanta/ops/detail/borrowed.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

// Convolutions of codes whose results are floats.

namespace quanta {
namespace conv {
namespace {

using quantized::ConvPackedParams;

/// What both share: `Derived` says where scale and zero point of x come from.
template <typename Derived>
struct ConvToFloatOperation : Op<Derived> {
  detail::Borrowed<ConvPackedParams> packed;

  ConvToFloatOperation() = default;
  explicit ConvToFloatOperation(const ConvPackedParams& params) : packed(params) {}

  void infer_floats(const Tensor& x, Results& out) const {
    const detail::ConvGeometry& geometry = checked_params(*packed).geometry;
    const cpu::ConvShape shape = detail::conv_shape(geometry, x.sizes());
    out.arrange(0, MemoryFormat::ChannelsLast);
    out.add(detail::conv_output_sizes(geometry, shape), DType::Float32, MemoryFormat::ChannelsLast);
  }

  std::string_view floats(const Tensor& x, float scale, std::int32_t zero_point,
                          const Tensor& out) const {
    const ConvPackedParams::Impl& params = packed->impl();
    const cpu::ConvShape shape = detail::conv_shape(params.geometry, x.sizes());
    const cpu::Int8Sums sums =
        params.kernel.sums(shape, zero_point, static_cast<const std::uint8_t*>(x.data_ptr()));
    cpu::layer_floats(sums, params.kernel.weight(), scale, out.numel() / shape.out_channels,
                      shape.out_channels, static_cast<float*>(out.data_ptr()));
    return sums.kernel;
  }

  std::string_view floats_on_cuda(const Tensor& x, const detail::DynamicCall& call,
                                  const Tensor& out) const {
    const ConvPackedParams::Impl& params = packed->impl();
    params.on_cuda.run_dynamic(x.device(), params.kernel.weight(),
                               detail::conv_shape(params.geometry, x.sizes()), call, x.device_ptr(),
                               reinterpret_cast<float*>(out.device_ptr()));
    return "multiply_codes";
  }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return detail::conv_work(in[0], packed->weight(), out[0], packed->is_transposed());
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr auto kTable = packed_attributes<Derived>();
    return kTable;
  }
};

struct ConvToFloat final : ConvToFloatOperation<ConvToFloat> {
  static constexpr std::string_view kName = "quantized::conv_to_float";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  using ConvToFloatOperation::ConvToFloatOperation;

  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "x", in[0], {DType::QUInt8});
    QUANTA_CHECK(!is_per_channel(in[0].impl()->quantizer.scheme),
                 "{}: x: expected a tensor quantized per tensor, got per channel", kName);
    infer_floats(in[0], out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Quantizer& quantizer = in[0].impl()->quantizer;
    return floats(in[0], static_cast<float>(quantizer.scale),
                  static_cast<std::int32_t>(quantizer.zero_point), out[0]);
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Quantizer& quantizer = in[0].impl()->quantizer;
    return floats_on_cuda(in[0],
                          {.src_scale = static_cast<float>(quantizer.scale),
                           .src_zero_point = static_cast<std::int32_t>(quantizer.zero_point)},
                          out[0]);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQUInt8; }
};

/// Arguments: codes, scale, zero point.
struct ConvOfCodes final : ConvToFloatOperation<ConvOfCodes> {
  static constexpr std::string_view kName = "conv_of_codes";
  static constexpr ArgumentCount kArguments{3};
  using ConvToFloatOperation::ConvToFloatOperation;

  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "codes", in[0], {DType::UInt8});
    require_tensor(kName, "scale", in[1], {DType::Float32});
    require_tensor(kName, "zero_point", in[2], {DType::UInt8});
    QUANTA_CHECK(in[1].numel() == 1 && in[2].numel() == 1,
                 "{}: scale: expected one element, as zero_point has", kName);
    infer_floats(in[0], out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return floats(in[0], *static_cast<const float*>(in[1].data_ptr()),
                  *static_cast<const std::uint8_t*>(in[2].data_ptr()), out[0]);
  }
  /// Nobody waits for the device: the kernel reads scale and zero point.
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return floats_on_cuda(
        in[0],
        {.src_scale_at = reinterpret_cast<const float*>(in[1].device_ptr()),
         .src_zero_point_at = reinterpret_cast<const std::uint8_t*>(in[2].device_ptr())},
        out[0]);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kUInt8; }
};

ConvPackedParams sample_params() {
  const QTensor weight(sample_tensor({6, 4, 3, 3}, DType::QInt8, 2));
  return {weight, sample_tensor({6}, DType::Float32, 3), {.padding = {1}}, 2};
}

}  // namespace

void add_to_float(Catalogue& catalogue) {
  catalogue.add(
      {.name = ConvToFloat::kName, .header = kHeader, .dtypes = dtypes::kQUInt8}, [](DType dtype) {
        return sample_call(ConvToFloat(sample_params()), {sample_tensor({2, 4, 5, 5}, dtype)});
      });
  catalogue.add(
      {.name = ConvOfCodes::kName, .header = "quanta/ops/conv_dynamic.h", .dtypes = dtypes::kUInt8},
      [](DType dtype) {
        return sample_call(ConvOfCodes(sample_params()),
                           {sample_tensor({2, 4, 5, 5}, dtype), Tensor::scalar(0.05),
                            Tensor::scalar(3.0, DType::UInt8)});
      });
}

}  // namespace conv

Tensor quantized::conv_to_float(const QTensor& x, const ConvPackedParams& packed) {
  const std::int64_t spatial = conv::checked_params(packed).geometry.spatial;
  const conv::ConvToFloat operation(packed);
  return detail::with_batch(spatial, x, [&](const Tensor& batch) { return run(operation, batch); });
}

Tensor quantized::conv_of_codes(const Tensor& codes, const Tensor& scale, const Tensor& zero_point,
                                const ConvPackedParams& packed) {
  const std::int64_t spatial = conv::checked_params(packed).geometry.spatial;
  const conv::ConvOfCodes operation(packed);
  return detail::with_batch(spatial, codes, [&](const Tensor& batch) {
    return run(operation, batch, scale, zero_point);
  });
}

}  // namespace quanta
