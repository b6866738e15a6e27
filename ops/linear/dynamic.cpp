#include "quanta/ops/linear_dynamic.h"

#include "quanta/ops/detail/packed_linear.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta::quantized {
namespace {

constexpr float kMaxHalf = 65504.0F;

/// A result of sizes [..., N] that `run(x, rows, out)` fills; `run` owns what it needs. A weight
/// takes `weight_item` bytes.
template <typename Run>
Tensor run_rows(std::string_view op, const Tensor& x, std::int64_t in_features,
                std::int64_t out_features, std::size_t weight_item, Run run) {
  OpScope scope(op);
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  QUANTA_CHECK(x.dtype() == DType::Float32, "{}: x: expected Float32, got {}{}", op, x.dtype(),
               x.is_quantized() ? " (dynamic layers take float activations)" : "");
  QUANTA_CHECK(x.dim() >= 1 && x.sizes().back() == in_features,
               "{}: x: expected a last dimension of {} features, got sizes {}", op, in_features,
               x.sizes());
  autograd::require_no_grad(op, x);
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] = out_features;
  Tensor out = Tensor::empty(sizes);
  scope.work([&]() -> OpWork {
    const auto weights = static_cast<std::size_t>(in_features * out_features);
    return {.multiply_adds = x.numel() * out_features,
            .bytes = static_cast<std::int64_t>(x.nbytes() + out.nbytes() + weights * weight_item)};
  });
  if (out.numel() > 0) {
    const Tensor input = x.contiguous();
    const auto run_on = [run, in_features](const Tensor& from, const Tensor& to) {
      return run(static_cast<const float*>(from.data_ptr()), from.numel() / in_features,
                 static_cast<float*>(to.data_ptr()));
    };
    scope.kernel(run_on(input, out));
    if (replay::is_recording()) {
      replay::record(
          {.op = op, .inputs = {input}, .outputs = {out}, .run = [run_on](const replay::Frame& f) {
             run_on(f.in(), f.out());
           }});
    }
  }
  return out;
}

Tensor run_int8(std::string_view op, const Tensor& x, const LinearPackedParams& packed,
                ReduceRange reduce_range, Fusion fusion) {
  QUANTA_CHECK(packed.defined(),
               "{}: packed: expected packed parameters, got empty LinearPackedParams", op);
  const LinearPackedParams::Impl& impl = packed.impl();
  return run_rows(op, x, impl.kernel.in_features(), impl.kernel.out_features(), 1,
                  [packed, reduce_range, fusion](const float* src, std::int64_t rows, float* out) {
                    return cpu::linear_dynamic_rows(src, rows, packed.impl(), reduce_range, fusion,
                                                    out);
                  });
}

const LinearPackedParamsFp16::Impl& checked_impl(std::string_view op,
                                                 const LinearPackedParamsFp16& packed) {
  QUANTA_CHECK(packed.defined(),
               "{}: packed: expected packed parameters, got empty LinearPackedParamsFp16", op);
  return packed.impl();
}

Tensor run_fp16(std::string_view op, const Tensor& x, const LinearPackedParamsFp16& packed,
                Fusion fusion) {
  const LinearPackedParamsFp16::Impl& impl = checked_impl(op, packed);
  return run_rows(op, x, impl.in_features, impl.out_features, 2,
                  [packed, fusion](const float* src, std::int64_t rows, float* out) {
                    return cpu::linear_dynamic_fp16_rows(src, rows, packed.impl(), fusion, out);
                  });
}

/// A Float16 copy; what is too large for it becomes the largest number, not infinity. NaN stays.
Tensor saturated_half(const Tensor& weight) {
  if (weight.dtype() == DType::Float16) return weight.clone(MemoryFormat::Contiguous);
  const Tensor saturated = weight.clone(MemoryFormat::Contiguous);
  auto* values = static_cast<float*>(saturated.data_ptr());
  for (std::int64_t i = 0; i < saturated.numel(); ++i) {
    values[i] = math::clamp(values[i], -kMaxHalf, kMaxHalf);
  }
  return saturated.to(DType::Float16);
}

}  // namespace

Tensor linear_dynamic(const Tensor& x, const LinearPackedParams& packed, ReduceRange reduce_range) {
  return run_int8("linear_dynamic", x, packed, reduce_range, Fusion::None);
}

Tensor linear_relu_dynamic(const Tensor& x, const LinearPackedParams& packed,
                           ReduceRange reduce_range) {
  return run_int8("linear_relu_dynamic", x, packed, reduce_range, Fusion::ReLU);
}

LinearPackedParamsFp16::LinearPackedParamsFp16(const Tensor& weight, const Tensor& bias) {
  constexpr std::string_view kOp = "linear_prepack_fp16";
  QUANTA_CHECK(weight.defined(), "{}: weight: expected a tensor, got an undefined one", kOp);
  QUANTA_CHECK(weight.dtype() == DType::Float32 || weight.dtype() == DType::Float16,
               "{}: weight: expected Float32 or Float16, got {}", kOp, weight.dtype());
  QUANTA_CHECK(weight.dim() == 2 && weight.numel() > 0,
               "{}: weight: expected sizes [N, K] of 1 or more, got {}", kOp, weight.sizes());
  if (bias.defined()) {
    QUANTA_CHECK(bias.dtype() == DType::Float32, "{}: bias: expected Float32, got {}", kOp,
                 bias.dtype());
    QUANTA_CHECK(bias.dim() == 1 && bias.size(0) == weight.size(0),
                 "{}: bias: expected one number for each of {} output features, got sizes {}", kOp,
                 weight.size(0), bias.sizes());
  }
  impl_ = std::make_shared<Impl>(saturated_half(weight),
                                 bias.defined() ? bias.clone(MemoryFormat::Contiguous) : bias);
}

Tensor LinearPackedParamsFp16::weight() const {
  return checked_impl("LinearPackedParamsFp16", *this).weight();
}

const Tensor& LinearPackedParamsFp16::bias() const {
  return checked_impl("LinearPackedParamsFp16", *this).bias;
}

Tensor linear_dynamic_fp16(const Tensor& x, const LinearPackedParamsFp16& packed) {
  return run_fp16("linear_dynamic_fp16", x, packed, Fusion::None);
}

Tensor linear_relu_dynamic_fp16(const Tensor& x, const LinearPackedParamsFp16& packed) {
  return run_fp16("linear_relu_dynamic_fp16", x, packed, Fusion::ReLU);
}

}  // namespace quanta::quantized
