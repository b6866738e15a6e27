#include "quanta/ops/linear.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "quanta/ops/cpu/onednn/linear_float.h"
#include "quanta/ops/cuda/matrices.h"
#include "quanta/ops/detail/cuda_floats.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/fusion.h"
#include "quanta/ops/detail/pointwise_gradient.h"
#include "quanta/ops/linear/rows.h"
#include "quanta/ops/matmul.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace linear_layers {
namespace {

cpu::LinearFloat packed_floats(const Tensor& weight, const Tensor& bias, Fusion fusion) {
  return {weight.contiguous(), bias.defined() ? bias.contiguous() : bias,
          fusion == Fusion::ReLU ? cpu::FloatEpilogue::ReLU : cpu::FloatEpilogue::None};
}

std::string_view multiply_floats(const cpu::LinearFloat& kernel, const Tensor& x,
                                 const Tensor& out) {
  return kernel.run(x.numel() / kernel.in_features(), static_cast<const float*>(x.data_ptr()),
                    static_cast<float*>(out.data_ptr()));
}

/// For proofs of gradients.
void multiply_doubles(const Tensor& x, const Tensor& weight, const Tensor& bias, Fusion fusion,
                      const Tensor& out) {
  const Tensor product = matmul(x.reshape({-1, weight.sizes()[1]}), weight.t());
  const Tensor added = bias.defined() ? bias.contiguous() : Tensor::zeros({1}, DType::Float64);
  const auto* sums = product.data<double>();
  const auto* terms = added.data<double>();
  auto* dst = out.mutable_data<double>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const double value = bias.defined() ? sums[i] + terms[i % added.numel()] : sums[i];
    dst[i] = fusion == Fusion::ReLU ? std::max(value, 0.0) : value;
  }
}

/// What all tensors of a call with this weight have to be.
DType dtype_of_call(const Tensor& weight) {
  if (!weight.defined()) return DType::Float32;
  QUANTA_SUPPORTED(!detail::is_float_of_16_bits(weight.dtype()) || weight.device().is_cuda(),
                   "linear: weight: expected Float32 or Float64 on the CPU, got {}, which a CUDA "
                   "device takes",
                   weight.dtype());
  const bool is_taken = weight.dtype() == DType::Float64 || detail::is_float_of_cuda(weight);
  return is_taken ? weight.dtype() : DType::Float32;
}

/// x [..., K], weight [N, K] and bias [N] (may be undefined).
struct Linear final : Op<Linear> {
  static constexpr std::string_view kName = "linear";
  static constexpr ArgumentCount kArguments{3};
  Fusion fusion = Fusion::None;
  /// Of the weight and bias of every call on the CPU. Null: packed in each call.
  std::shared_ptr<const cpu::LinearFloat> packed;

  void infer(const Arguments& in, Results& out) const override {
    if (packed != nullptr) {
      return infer(in[0], DType::Float32, packed->in_features(), packed->out_features(), out);
    }
    const DType dtype = dtype_of_call(in[1]);
    check_weight(in[1], in[2], dtype);
    infer(in[0], dtype, in[1].sizes()[1], in[1].sizes()[0], out);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (packed != nullptr) return multiply_floats(*packed, in[0], out[0]);
    if (in[0].dtype() == DType::Float64) {
      multiply_doubles(in[0], in[1], in[2], fusion, out[0]);
      return "scalar";
    }
    return multiply_floats(packed_floats(in[1], in[2], fusion), in[0], out[0]);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Dims& sizes = in[1].sizes();
    return cuda::multiply(
        in[0].view({-1, sizes[1]}), in[1].t(),
        {.bias = in[2].defined() ? in[2].contiguous() : in[2], .relu = fusion == Fusion::ReLU},
        out[0].view({-1, sizes[0]}));
  }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return linear_work(in[0], out[0], in[1].nbytes());
  }

  GradientUse gradient_use(std::uint64_t) const override {
    return GradientUse::of(0b11, fusion == Fusion::ReLU ? 1 : 0);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor x = context.input(0);
    const Tensor weight = context.input(1);
    Tensor of_sums = context.grad();
    if (fusion == Fusion::ReLU) {
      of_sums = detail::through_gate(of_sums, context.output(), 0.0,
                                     std::numeric_limits<double>::infinity());
    }
    const Tensor rows = of_sums.reshape({-1, weight.sizes()[0]});
    std::vector<Tensor> results(3);
    if (context.needs(0)) results[0] = matmul(rows, weight).view(x.sizes());
    if (context.needs(1)) results[1] = matmul(rows.t(), x.reshape({-1, x.sizes().back()}));
    if (context.needs(2)) results[2] = autograd::sum_to_size(rows, {weight.sizes()[0]});
    return results;
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<Linear, &Linear::fusion>("fusion"),
        read_only_attribute<Linear, [](const Linear& linear) { return linear.packed; }>("packed")};
    return kTable;
  }

 private:
  static void infer(const Tensor& x, DType dtype, std::int64_t in_features,
                    std::int64_t out_features, Results& out) {
    QUANTA_CHECK(x.defined(), "linear: x: expected a tensor, got an undefined one");
    QUANTA_CHECK(x.dtype() == dtype, "linear: x: expected {}{}, got {}{}", dtype,
                 dtype == DType::Float32 ? "" : " as the weight has", x.dtype(),
                 x.is_quantized() ? " (is a DeQuantStub missing?)" : "");
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(output_sizes(kName, x, in_features, out_features), dtype);
  }
};

}  // namespace
}  // namespace linear_layers

using linear_layers::Linear;

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return run(Linear{}, x, weight, bias);
}

struct PackedLinear::Impl {
  Linear operation;
  Tensor weight, bias;  // copies that nobody else can write to
};

PackedLinear::PackedLinear(const Tensor& weight, const Tensor& bias, Fusion fusion) {
  const DType dtype = linear_layers::dtype_of_call(weight);
  linear_layers::check_weight(weight, bias, dtype);
  const autograd::NoGradGuard no_grad;
  Impl impl;
  impl.weight = weight.clone(MemoryFormat::Contiguous);
  if (bias.defined()) impl.bias = bias.clone(MemoryFormat::Contiguous);
  impl.operation.fusion = fusion;
  if (dtype == DType::Float32 && weight.device().is_cpu()) {
    impl.operation.packed = std::make_shared<const cpu::LinearFloat>(
        impl.weight, impl.bias,
        fusion == Fusion::ReLU ? cpu::FloatEpilogue::ReLU : cpu::FloatEpilogue::None);
  }
  impl_ = std::make_shared<Impl>(std::move(impl));
}

Tensor PackedLinear::operator()(const Tensor& x) const {
  QUANTA_CHECK(defined(), "linear: weight: expected a packed weight, got an empty PackedLinear");
  return run(impl_->operation, x, impl_->weight, impl_->bias);
}

Tensor PackedLinear::operator()(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
  QUANTA_CHECK(defined(), "linear: weight: expected a packed weight, got an empty PackedLinear");
  return run(impl_->operation, x, weight, bias);
}

void detail::add_linears(Catalogue& catalogue) {
  catalogue.add({.name = Linear::kName, .header = "quanta/ops/linear.h", .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  return sample_call(
                      Linear{}, {sample_tensor({2, 3, 4}, dtype), sample_tensor({5, 4}, dtype, 2),
                                 sample_tensor({5}, dtype, 3)});
                });
  linear_layers::add_quantized(catalogue);
  linear_layers::add_dynamic(catalogue);
  linear_layers::add_to_float(catalogue);
  linear_layers::add_weight_only(catalogue);
}

}  // namespace quanta
