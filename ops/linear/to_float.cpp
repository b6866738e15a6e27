#include <array>

#include "quanta/ops/cpu/gemm/layer_floats.h"
#include "quanta/ops/cpu/gemm/sums_to_floats.h"
#include "quanta/ops/detail/borrowed.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/packed_linear.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/linear/rows.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

// Linear layers of codes whose results are floats.

namespace quanta {
namespace linear_layers {
namespace {

using quantized::LinearPackedParams;

const LinearPackedParams::Impl& checked_weight(std::string_view op,
                                               const LinearPackedParams& packed) {
  QUANTA_CHECK(packed.defined(),
               "{}: packed: expected packed parameters, got empty LinearPackedParams", op);
  return packed.impl();
}

template <typename Derived>
struct LinearToFloatOperation : Op<Derived> {
  detail::Borrowed<LinearPackedParams> packed;

  LinearToFloatOperation() = default;
  explicit LinearToFloatOperation(const LinearPackedParams& params) : packed(params) {}

  void infer_floats(std::string_view op, const Tensor& x, Results& out) const {
    const cpu::LinearInt8& kernel = checked_weight(op, *packed).kernel;
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(output_sizes(op, x, kernel.in_features(), kernel.out_features()), DType::Float32);
  }
  std::string_view floats_on_cuda(const Tensor& x, const detail::DynamicCall& call,
                                  const Tensor& out) const {
    const cpu::LinearInt8& kernel = packed->impl().kernel;
    packed->impl().on_cuda.run_dynamic(x.device(), kernel.weight(),
                                       x.numel() / kernel.in_features(), call, x.device_ptr(),
                                       reinterpret_cast<float*>(out.device_ptr()));
    return "multiply_codes";
  }
  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return linear_work(in[0], out[0], packed->weight().nbytes());
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        read_only_attribute<Derived, [](const Derived& op) { return op.packed->weight(); }>(
            "weight"),
        read_only_attribute<Derived, [](const Derived& op) { return op.packed->bias(); }>("bias")};
    return kTable;
  }
};

struct LinearToFloat final : LinearToFloatOperation<LinearToFloat> {
  static constexpr std::string_view kName = "quantized::linear_to_float";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  using LinearToFloatOperation::LinearToFloatOperation;

  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "x", in[0], {DType::QUInt8});
    QUANTA_CHECK(!is_per_channel(in[0].impl()->quantizer.scheme),
                 "{}: x: expected a tensor quantized per tensor, got per channel", kName);
    infer_floats(kName, in[0], out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const cpu::LinearInt8& kernel = packed->impl().kernel;
    const Quantizer& quantizer = in[0].impl()->quantizer;
    const std::int64_t rows = in[0].numel() / kernel.in_features();
    const cpu::Int8Sums sums = kernel.sums(rows, static_cast<std::int32_t>(quantizer.zero_point),
                                           static_cast<const std::uint8_t*>(in[0].data_ptr()));
    cpu::layer_floats(sums, kernel.weight(), static_cast<float>(quantizer.scale), rows,
                      kernel.out_features(), static_cast<float*>(out[0].data_ptr()));
    return sums.kernel;
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

/// Arguments: codes, scale, zero point. The zero point changes from call to call, so that the
/// product does without it.
struct LinearOfCodes final : LinearToFloatOperation<LinearOfCodes> {
  static constexpr std::string_view kName = "linear_of_codes";
  static constexpr ArgumentCount kArguments{3};
  using LinearToFloatOperation::LinearToFloatOperation;

  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "codes", in[0], {DType::UInt8});
    require_tensor(kName, "scale", in[1], {DType::Float32});
    require_tensor(kName, "zero_point", in[2], {DType::UInt8});
    QUANTA_CHECK(in[1].numel() == 1 && in[2].numel() == 1,
                 "{}: scale: expected one element, as zero_point has", kName);
    infer_floats(kName, in[0], out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const cpu::LinearInt8& kernel = packed->impl().kernel;
    const std::int64_t rows = in[0].numel() / kernel.in_features();
    const std::int64_t channels = kernel.out_features();
    auto* dst = static_cast<float*>(out[0].data_ptr());
    const std::string_view name =
        kernel.products(rows, static_cast<const std::uint8_t*>(in[0].data_ptr()),
                        reinterpret_cast<std::int32_t*>(dst));
    const std::int32_t zero_point = *static_cast<const std::uint8_t*>(in[2].data_ptr());
    const cpu::ChannelTerms terms(kernel.weight());
    const Tensor& bias = kernel.weight().bias();
    const cpu::SumsToFloats args{
        .src_scale = *static_cast<const float*>(in[1].data_ptr()),
        .src_zero_point = zero_point,
        .scales = terms.scales.data(),
        .weight_sums = terms.sums.data(),
        .zero_points = nullptr,
        .src_sum = 0,
        .bias = bias.defined() ? static_cast<const float*>(bias.data_ptr()) : nullptr,
        .relu = false};
    for (std::int64_t row = 0; row < rows; ++row) {
      cpu::sums_to_floats(args, 0, channels, dst + row * channels);
    }
    return name;
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

LinearPackedParams sample_params() {
  const QTensor weight(sample_tensor({5, 4}, DType::QInt8, 2));
  return {weight, sample_tensor({5}, DType::Float32, 3)};
}

}  // namespace

void add_to_float(Catalogue& catalogue) {
  catalogue.add(
      {.name = LinearToFloat::kName, .header = "quanta/ops/linear.h", .dtypes = dtypes::kQUInt8},
      [](DType dtype) {
        return sample_call(LinearToFloat(sample_params()), {sample_tensor({3, 4}, dtype)});
      });
  catalogue.add({.name = LinearOfCodes::kName,
                 .header = "quanta/ops/linear_dynamic.h",
                 .dtypes = dtypes::kUInt8},
                [](DType dtype) {
                  return sample_call(LinearOfCodes(sample_params()),
                                     {sample_tensor({3, 4}, dtype), Tensor::scalar(0.05),
                                      Tensor::scalar(3.0, DType::UInt8)});
                });
}

}  // namespace linear_layers

Tensor quantized::linear_to_float(const QTensor& x, const LinearPackedParams& packed) {
  return run(linear_layers::LinearToFloat(packed), x);
}

Tensor quantized::linear_of_codes(const Tensor& codes, const Tensor& scale,
                                  const Tensor& zero_point, const LinearPackedParams& packed) {
  QUANTA_CHECK(
      !packed.defined() || !packed.bias().defined() || packed.bias().dtype() == DType::Float32,
      "linear_of_codes: packed: expected a Float32 bias, got an integer one");
  return run(linear_layers::LinearOfCodes(packed), codes, scale, zero_point);
}

}  // namespace quanta
