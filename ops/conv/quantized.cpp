#include <array>
#include <utility>

#include "quanta/ops/conv.h"
#include "quanta/ops/conv/families.h"
#include "quanta/ops/conv/geometry.h"
#include "quanta/ops/conv/packed.h"
#include "quanta/ops/cpu/gemm/sums_to_codes.h"
#include "quanta/ops/cpu/lookup.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/detail/borrowed.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/fusion.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_memory.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace conv {

const QuantizedNames& quantized_names(std::int64_t spatial, bool transposed) {
  static constexpr std::array<QuantizedNames, 3> kNames{{
      {"quantized::conv1d", "quantized::conv1d_relu", "quantized::conv1d_add",
       "quantized::conv1d_add_relu"},
      {"quantized::conv2d", "quantized::conv2d_relu", "quantized::conv2d_add",
       "quantized::conv2d_add_relu"},
      {"quantized::conv3d", "quantized::conv3d_relu", "quantized::conv3d_add",
       "quantized::conv3d_add_relu"},
  }};
  static constexpr std::array<QuantizedNames, 3> kTransposedNames{{
      {"quantized::conv_transpose1d", "quantized::conv_transpose1d_relu",
       "quantized::conv_transpose1d_add", "quantized::conv_transpose1d_add_relu"},
      {"quantized::conv_transpose2d", "quantized::conv_transpose2d_relu",
       "quantized::conv_transpose2d_add", "quantized::conv_transpose2d_add_relu"},
      {"quantized::conv_transpose3d", "quantized::conv_transpose3d_relu",
       "quantized::conv_transpose3d_add", "quantized::conv_transpose3d_add_relu"},
  }};
  const auto i = static_cast<std::size_t>(spatial - 1);
  return transposed ? kTransposedNames[i] : kNames[i];
}

namespace {

void check_quantized_weight(std::string_view op, const QTensor& weight, bool transposed,
                            std::int64_t groups) {
  QUANTA_CHECK(weight.defined(), "{}: weight: expected a tensor, got an undefined one", op);
  QUANTA_CHECK(weight.dtype() == DType::QInt8, "{}: weight: expected {}, got {}", op, DType::QInt8,
               weight.dtype());
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

using quantized::ConvPackedParams;

/// What convolutions of codes share: `Derived` names itself and calculates.
template <typename Derived>
struct QuantizedConvOperation : Op<Derived> {
  static constexpr bool kWorksByRows = true;
  detail::Borrowed<ConvPackedParams> packed;
  double scale = 1.0;
  std::int64_t zero_point = 0;
  Fusion fusion = Fusion::None;
  /// Codes of the result are looked up in it. May be null.
  std::shared_ptr<const ByteTable> table;

  QuantizedConvOperation() = default;
  QuantizedConvOperation(const ConvPackedParams& params, double scale_out,
                         std::int64_t zero_point_out, Fusion fused)
      : packed(params), scale(scale_out), zero_point(zero_point_out), fusion(fused) {}

  std::string_view name() const noexcept override {
    if (!packed->defined()) return "quantized::conv";
    return static_cast<const Derived&>(*this).name_of(packed->impl().names);
  }

  /// Checks x, and adds the result.
  void infer_codes(const Tensor& x, Results& out) const {
    infer_codes(x, Quantizer::per_tensor(scale, zero_point), out);
  }
  void infer_codes(const Tensor& x, const Quantizer& quantizer, Results& out) const {
    const detail::ConvGeometry& geometry = checked_params(*packed).geometry;
    const std::string_view op = geometry.op;
    QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
    QUANTA_CHECK(x.dtype() == DType::QUInt8, "{}: x: expected QUInt8, got {}{}", op, x.dtype(),
                 x.is_quantized() ? "" : " (is a QuantStub missing?)");
    const QScheme scheme = x.impl()->quantizer.scheme;
    QUANTA_CHECK(!is_per_channel(scheme), "{}: x: expected a tensor quantized per tensor, got {}",
                 op, scheme);
    check_quantizer(op, quantizer, DType::QUInt8, x.sizes());
    const cpu::ConvShape shape = detail::conv_shape(geometry, x.sizes());
    out.arrange(0, MemoryFormat::ChannelsLast);
    out.add(detail::conv_output_sizes(geometry, shape), DType::QUInt8, quantizer,
            MemoryFormat::ChannelsLast);
  }

  cpu::CallQParams call_qparams(const Tensor& x) const {
    const Quantizer& quantizer = x.impl()->quantizer;
    return {static_cast<float>(quantizer.scale), static_cast<std::int32_t>(quantizer.zero_point),
            static_cast<float>(scale), static_cast<std::int32_t>(zero_point)};
  }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    OpWork work = detail::conv_work(in[0], packed->weight(), out[0], packed->is_transposed());
    for (std::size_t i = 1; i < in.size(); ++i) {
      work.bytes += static_cast<std::int64_t>(in[i].nbytes());
    }
    return work;
  }

  /// Checks the codes that are added to the result, which `out` has.
  void infer_addend(const Tensor& accum, Results& out) const {
    const std::string_view op = packed->impl().geometry.op;
    QUANTA_CHECK(accum.defined() && accum.dtype() == DType::QUInt8 &&
                     !is_per_channel(accum.impl()->quantizer.scheme),
                 "{}: accum: expected QUInt8 quantized per tensor, got {}", op,
                 accum.defined() ? to_string(accum.dtype()) : "an undefined tensor");
    QUANTA_CHECK(accum.sizes() == out[0].sizes(), "{}: accum: expected sizes {}, got {}", op,
                 out[0].sizes(), accum.sizes());
    out.arrange(1, MemoryFormat::ChannelsLast);
  }

  std::string_view run_codes(const Tensor& x, const Tensor& out,
                             const cpu::CodeAddend& addend) const {
    const ConvPackedParams::Impl& params = packed->impl();
    return params.kernel.codes(
        detail::conv_shape(params.geometry, x.sizes()), call_qparams(x),
        fusion == Fusion::ReLU ? cpu::SumOutput::CodesReLU : cpu::SumOutput::Codes,
        static_cast<const std::uint8_t*>(x.data_ptr()), static_cast<std::uint8_t*>(out.data_ptr()),
        {table.get(), addend});
  }

  /// The same on a CUDA device; `call` but for what the operation knows.
  std::string_view run_on_cuda(const Tensor& x, const Tensor& out, detail::ProductCall call) const {
    const ConvPackedParams::Impl& params = packed->impl();
    call.qparams = call_qparams(x);
    call.table = table.get();
    params.on_cuda.run(x.device(), params.kernel.weight(),
                       detail::conv_shape(params.geometry, x.sizes()), call, x.device_ptr(),
                       out.device_ptr());
    return "multiply_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQUInt8; }

  std::span<const std::byte> weight_memory() const noexcept override {
    return packed->defined() ? packed->impl().kernel.packed_memory() : std::span<const std::byte>();
  }

  std::shared_ptr<const Operation> with_table(
      std::shared_ptr<const ByteTable> looked_up) const override {
    auto result = std::make_shared<Derived>(static_cast<const Derived&>(*this));
    result->table = std::move(looked_up);
    return result;
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr auto kTable = packed_attributes<Derived>(
        attribute<Derived, &Derived::scale>("scale"),
        attribute<Derived, &Derived::zero_point>("zero_point"),
        attribute<Derived, &Derived::fusion>("fusion"),
        read_only_attribute<Derived, [](const Derived& op) { return op.table; }>("table"));
    return kTable;
  }
};

struct QuantizedConv final : QuantizedConvOperation<QuantizedConv> {
  static constexpr ArgumentCount kArguments{1};
  using QuantizedConvOperation::QuantizedConvOperation;

  std::string_view name_of(const QuantizedNames& names) const noexcept {
    return fusion == Fusion::ReLU ? names.relu : names.plain;
  }
  void infer(const Arguments& in, Results& out) const override { infer_codes(in[0], out); }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return run_codes(in[0], out[0], {});
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return run_on_cuda(in[0], out[0], {.relu = fusion == Fusion::ReLU});
  }
  std::shared_ptr<const Operation> with_sum(const PlanUse::CodeSum& sum,
                                            const Quantizer& to) const override;
};

/// What a plan makes of a convolution and a quantized::add behind it: the codes of the convolution,
/// quantized with `scale` and `zero_point`, and those of the second argument are added as
/// quantized::add does it.
struct QuantizedConvThenAdd final : QuantizedConvOperation<QuantizedConvThenAdd> {
  static constexpr ArgumentCount kArguments{2};
  double sum_scale = 1.0;
  std::int64_t sum_zero_point = 0;
  bool sum_relu = false;

  using QuantizedConvOperation::QuantizedConvOperation;

  std::string_view name_of(const QuantizedNames& names) const noexcept {
    return fusion == Fusion::ReLU ? names.relu : names.plain;
  }
  void infer(const Arguments& in, Results& out) const override {
    infer_codes(in[0], Quantizer::per_tensor(sum_scale, sum_zero_point), out);
    infer_addend(in[1], out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const cpu::ScalarDequantizer left(scale, zero_point);
    const cpu::ScalarDequantizer right(in[1]);
    cpu::ScalarQuantizer to_code(sum_scale, sum_zero_point, DType::QUInt8);
    if (sum_relu) to_code.min = to_code.zero_point;
    return run_codes(in[0], out[0],
                     {static_cast<const std::uint8_t*>(in[1].data_ptr()),
                      {left.scale, left.offset, right.scale, right.offset, to_code.args()}});
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const cpu::ScalarDequantizer own(scale, zero_point);
    const cpu::ScalarDequantizer other(in[1]);
    const cpu::ScalarQuantizer to_code(sum_scale, sum_zero_point, DType::QUInt8);
    detail::ProductCall call{.relu = fusion == Fusion::ReLU};
    call.addend.codes = reinterpret_cast<const std::uint8_t*>(in[1].device_ptr());
    call.addend.scale = other.scale;
    call.addend.offset = other.offset;
    call.addend.own_scale = own.scale;
    call.addend.own_offset = own.offset;
    call.addend.inv_scale = to_code.inv_scale;
    call.addend.out_zero_point = to_code.zero_point;
    call.addend.low = sum_relu ? to_code.zero_point : to_code.min;
    return run_on_cuda(in[0], out[0], call);
  }
  static std::span<const AttributeInfo> attribute_table() {
    using This = QuantizedConvThenAdd;
    static constexpr auto kTable = packed_attributes<This>(
        attribute<This, &This::scale>("scale"), attribute<This, &This::zero_point>("zero_point"),
        attribute<This, &This::fusion>("fusion"), attribute<This, &This::sum_scale>("sum_scale"),
        attribute<This, &This::sum_zero_point>("sum_zero_point"),
        attribute<This, &This::sum_relu>("sum_relu"),
        read_only_attribute<This, [](const This& op) { return op.table; }>("table"));
    return kTable;
  }
};

std::shared_ptr<const Operation> QuantizedConv::with_sum(const PlanUse::CodeSum& sum,
                                                         const Quantizer& to) const {
  if (table != nullptr) return nullptr;
  auto result = std::make_shared<QuantizedConvThenAdd>(*packed, scale, zero_point, fusion);
  result->packed = packed;
  result->sum_scale = to.scale;
  result->sum_zero_point = to.zero_point;
  result->sum_relu = sum.relu;
  return result;
}

/// The sum of the convolution and the second argument, in float.
struct QuantizedConvAdd final : QuantizedConvOperation<QuantizedConvAdd> {
  static constexpr ArgumentCount kArguments{2};
  using QuantizedConvOperation::QuantizedConvOperation;

  std::string_view name_of(const QuantizedNames& names) const noexcept {
    return fusion == Fusion::ReLU ? names.add_relu : names.add;
  }
  void infer(const Arguments& in, Results& out) const override {
    infer_codes(in[0], out);
    infer_addend(in[1], out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const ConvPackedParams::Impl& params = packed->impl();
    const cpu::ConvShape shape = detail::conv_shape(params.geometry, in[0].sizes());
    const cpu::CallQParams qparams = call_qparams(in[0]);
    const cpu::Int8Sums sums = params.kernel.sums(
        shape, qparams.src_zero_point, static_cast<const std::uint8_t*>(in[0].data_ptr()));
    const Quantizer& quantizer = in[1].impl()->quantizer;
    const cpu::QuantizedAddend addend{static_cast<const std::uint8_t*>(in[1].data_ptr()),
                                      static_cast<float>(quantizer.scale),
                                      static_cast<std::int32_t>(quantizer.zero_point)};
    auto* codes = static_cast<std::uint8_t*>(out[0].data_ptr());
    const cpu::FloatStep step =
        fusion == Fusion::ReLU ? cpu::FloatStep::ReLU : cpu::FloatStep::None;
    cpu::sums_to_codes(sums, params.kernel.weight(), qparams, {step}, &addend,
                       out[0].numel() / shape.out_channels, shape.out_channels, codes);
    if (table != nullptr) cpu::parallel_lookup(codes, codes, out[0].numel(), *table);
    return sums.kernel;
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Quantizer& quantizer = in[1].impl()->quantizer;
    detail::ProductCall call{.end = cuda::ProductEnd::Float};
    if (fusion == Fusion::ReLU) call.function = cuda::ProductFunction::ReLU;
    call.addend.codes = reinterpret_cast<const std::uint8_t*>(in[1].device_ptr());
    call.addend.scale = static_cast<float>(quantizer.scale);
    call.addend.zero_point = static_cast<std::int32_t>(quantizer.zero_point);
    return run_on_cuda(in[0], out[0], call);
  }
};

QTensor conv_codes(const QTensor& x, const ConvPackedParams& packed, double scale,
                   std::int64_t zero_point, Fusion fusion) {
  const std::int64_t spatial = checked_params(packed).geometry.spatial;
  const QuantizedConv operation(packed, scale, zero_point, fusion);
  return QTensor(
      detail::with_batch(spatial, x, [&](const Tensor& batch) { return run(operation, batch); }));
}

QTensor conv_added(const QTensor& x, const QTensor& accum, const ConvPackedParams& packed,
                   double scale, std::int64_t zero_point, Fusion fusion) {
  const std::int64_t spatial = checked_params(packed).geometry.spatial;
  const QuantizedConvAdd operation(packed, scale, zero_point, fusion);
  return QTensor(detail::with_batch(spatial, x, [&](const Tensor& batch) {
    const bool is_same_rank = !accum.defined() || batch.dim() == x.dim();
    return is_same_rank ? run(operation, batch, accum) : run(operation, batch, accum.unsqueeze(0));
  }));
}

}  // namespace
}  // namespace conv

namespace quantized {

ConvPackedParams::Impl::Impl(const QTensor& weight, const Tensor& bias,
                             const ConvTransposeOptions& options, std::int64_t spatial,
                             bool transposed)
    : geometry(detail::conv_geometry(weight, bias, options, spatial, transposed)),
      kernel(cpu::QuantizedWeight(QTensor(detail::unshared(weight)),
                                  bias.defined() ? bias.clone(MemoryFormat::Contiguous) : bias,
                                  geometry.shape.out_channels),
             geometry.shape, geometry.kernel_rank()),
      names(conv::quantized_names(spatial, transposed)) {}

ConvPackedParams::ConvPackedParams(const QTensor& weight, const Tensor& bias,
                                   const ConvOptions& options, std::int64_t spatial) {
  conv::check_quantized_weight(detail::conv_name(spatial, false), weight, false, options.groups);
  impl_ =
      std::make_shared<Impl>(weight, bias, detail::with_output_padding(options), spatial, false);
}

ConvPackedParams ConvPackedParams::transposed(const QTensor& weight, const Tensor& bias,
                                              const ConvTransposeOptions& options,
                                              std::int64_t spatial) {
  conv::check_quantized_weight(detail::conv_name(spatial, true), weight, true, options.groups);
  ConvPackedParams result;
  result.impl_ = std::make_shared<Impl>(weight, bias, options, spatial, true);
  return result;
}

const QTensor& ConvPackedParams::weight() const {
  return conv::checked_params(*this).kernel.weight().weight();
}
const Tensor& ConvPackedParams::bias() const {
  return conv::checked_params(*this).kernel.weight().bias();
}
std::int64_t ConvPackedParams::spatial() const {
  return conv::checked_params(*this).geometry.spatial;
}
bool ConvPackedParams::is_transposed() const {
  return conv::checked_params(*this).geometry.shape.transposed;
}
const ConvTransposeOptions& ConvPackedParams::options() const {
  return conv::checked_params(*this).geometry.options;
}

QTensor conv(const QTensor& x, const ConvPackedParams& packed, double scale,
             std::int64_t zero_point) {
  return conv::conv_codes(x, packed, scale, zero_point, Fusion::None);
}

QTensor conv_relu(const QTensor& x, const ConvPackedParams& packed, double scale,
                  std::int64_t zero_point) {
  return conv::conv_codes(x, packed, scale, zero_point, Fusion::ReLU);
}

QTensor conv_add(const QTensor& x, const QTensor& accum, const ConvPackedParams& packed,
                 double scale, std::int64_t zero_point) {
  return conv::conv_added(x, accum, packed, scale, zero_point, Fusion::None);
}

QTensor conv_add_relu(const QTensor& x, const QTensor& accum, const ConvPackedParams& packed,
                      double scale, std::int64_t zero_point) {
  return conv::conv_added(x, accum, packed, scale, zero_point, Fusion::ReLU);
}

}  // namespace quantized

// The catalogue --------------------------------------------------------------------------------

namespace conv {
namespace {

constexpr double kScale = 0.3;
constexpr std::int64_t kZeroPoint = 90;

template <std::int64_t kSpatial, bool kTransposed>
ConvPackedParams sample_params() {
  Dims sizes{4, 4};
  for (std::int64_t i = 0; i < kSpatial; ++i) sizes.push_back(3);
  const QTensor weight(sample_tensor(sizes, DType::QInt8, 2));
  const Tensor bias = sample_tensor({4}, DType::Float32, 3);
  if (kTransposed) return ConvPackedParams::transposed(weight, bias, {.stride = {2}}, kSpatial);
  return {weight, bias, {.padding = {1}}, kSpatial};
}

template <std::int64_t kSpatial>
Tensor sample_image(DType dtype) {
  Dims sizes{2, 4};
  for (std::int64_t i = 0; i < kSpatial; ++i) sizes.push_back(5);
  return sample_tensor(sizes, dtype);
}

template <std::int64_t kSpatial, bool kTransposed, Fusion kFusion>
void add_conv(Catalogue& catalogue) {
  const QuantizedNames& names = quantized_names(kSpatial, kTransposed);
  catalogue.add({.name = kFusion == Fusion::ReLU ? names.relu : names.plain,
                 .header = kHeader,
                 .dtypes = dtypes::kQUInt8},
                [](DType dtype) {
                  return sample_call(QuantizedConv(sample_params<kSpatial, kTransposed>(), kScale,
                                                   kZeroPoint, kFusion),
                                     {sample_image<kSpatial>(dtype)});
                });
}

template <Fusion kFusion>
void add_conv_add(Catalogue& catalogue) {
  const QuantizedNames& names = quantized_names(2, false);
  catalogue.add({.name = kFusion == Fusion::ReLU ? names.add_relu : names.add,
                 .header = kHeader,
                 .dtypes = dtypes::kQUInt8},
                [](DType dtype) {
                  return sample_call(
                      QuantizedConvAdd(sample_params<2, false>(), kScale, kZeroPoint, kFusion),
                      {sample_image<2>(dtype), sample_tensor({2, 4, 5, 5}, dtype, 4)});
                });
}

}  // namespace

void add_quantized(Catalogue& catalogue) {
  add_conv<1, false, Fusion::None>(catalogue);
  add_conv<2, false, Fusion::None>(catalogue);
  add_conv<3, false, Fusion::None>(catalogue);
  add_conv<1, false, Fusion::ReLU>(catalogue);
  add_conv<2, false, Fusion::ReLU>(catalogue);
  add_conv<3, false, Fusion::ReLU>(catalogue);
  add_conv<1, true, Fusion::None>(catalogue);
  add_conv<2, true, Fusion::None>(catalogue);
  add_conv<3, true, Fusion::None>(catalogue);
  add_conv_add<Fusion::None>(catalogue);
  add_conv_add<Fusion::ReLU>(catalogue);
}

}  // namespace conv
}  // namespace quanta
