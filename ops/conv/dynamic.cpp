#include <array>

#include "quanta/ops/conv/families.h"
#include "quanta/ops/conv/geometry.h"
#include "quanta/ops/conv/packed.h"
#include "quanta/ops/conv_dynamic.h"
#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/dynamic_codes.h"
#include "quanta/ops/detail/borrowed.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/reduce_range.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace conv {
namespace {

using quantized::ConvPackedParams;
using quantized::ReduceRange;

struct ConvDynamic final : Op<ConvDynamic> {
  static constexpr std::string_view kName = "conv_dynamic";
  static constexpr ArgumentCount kArguments{1};
  detail::Borrowed<ConvPackedParams> packed;
  ReduceRange reduce_range = ReduceRange::No;

  ConvDynamic() = default;
  ConvDynamic(const ConvPackedParams& params, ReduceRange range)
      : packed(params), reduce_range(range) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", kName);
    QUANTA_CHECK(x.dtype() == DType::Float32, "{}: x: expected Float32, got {}{}", kName, x.dtype(),
                 x.is_quantized() ? " (dynamic layers take float activations)" : "");
    const detail::ConvGeometry& geometry = checked_params(*packed).geometry;
    out.add(detail::conv_output_sizes(geometry, detail::conv_shape(geometry, x.sizes())),
            DType::Float32, MemoryFormat::ChannelsLast);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const math::QParams qparams =
        choose_qparams_per_tensor(in[0], reduce_range == ReduceRange::Yes);
    const double scale = qparams.scale;
    const QTensor codes =
        quantized::conv(quantize_per_tensor(in[0], scale, qparams.zero_point, DType::QUInt8),
                        *packed, scale, qparams.zero_point);
    const auto* src = static_cast<const std::uint8_t*>(codes.data_ptr());
    auto* dst = static_cast<float*>(out[0].data_ptr());
    const cpu::Store store = cpu::store_for(out[0].nbytes(), dst);
    cpu::parallel_elements(codes.numel(), [&](std::int64_t begin, std::int64_t end) {
      cpu::dequantize(src + begin, dst + begin, end - begin, static_cast<float>(scale),
                      static_cast<std::int32_t>(qparams.zero_point), store);
    });
    return "simd";
  }

  /// The product ends with the floats.
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const ConvPackedParams::Impl& params = packed->impl();
    const Tensor x = in[0].contiguous(MemoryFormat::ChannelsLast);
    const cuda::DynamicCodes codes(x.device(), reinterpret_cast<const float*>(x.device_ptr()),
                                   x.numel(), reduce_range == ReduceRange::Yes);
    params.on_cuda.run_dynamic(
        x.device(), params.kernel.weight(), detail::conv_shape(params.geometry, x.sizes()),
        {.src_scale_at = codes.scale(), .src_zero_point_at = codes.zero_point(), .on_grid = true},
        codes.codes(), reinterpret_cast<float*>(out[0].device_ptr()));
    return "multiply_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return detail::conv_work(in[0], packed->weight(), out[0], packed->is_transposed());
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr auto kTable = packed_attributes<ConvDynamic>(
        attribute<ConvDynamic, &ConvDynamic::reduce_range>("reduce_range"));
    return kTable;
  }
};

}  // namespace

void add_dynamic(Catalogue& catalogue) {
  catalogue.add(
      {.name = ConvDynamic::kName, .header = "quanta/ops/conv_dynamic.h", .dtypes = dtypes::kFloat},
      [](DType dtype) {
        const QTensor weight(sample_tensor({6, 4, 3, 3}, DType::QInt8, 2));
        const ConvPackedParams packed(weight, sample_tensor({6}, DType::Float32, 3),
                                      {.padding = {1}}, 2);
        return sample_call(ConvDynamic(packed, ReduceRange::Yes),
                           {sample_tensor({2, 4, 5, 5}, dtype)});
      });
}

}  // namespace conv

Tensor quantized::conv_dynamic(const Tensor& x, const ConvPackedParams& packed,
                               ReduceRange reduce_range) {
  const std::int64_t spatial = conv::checked_params(packed).geometry.spatial;
  const conv::ConvDynamic operation(packed, reduce_range);
  return detail::with_batch(spatial, x, [&](const Tensor& batch) { return run(operation, batch); });
}

}  // namespace quanta
