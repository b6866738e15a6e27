#include <utility>

#include "quanta/ops/detail/packed_linear.h"
#include "quanta/ops/linear/dynamic_fused.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta::quantized::detail {
namespace {

using Weights = std::vector<LinearPackedParams>;

std::int64_t in_features(const Weights& weights) {
  return weights.front().impl().kernel.in_features();
}

void check(std::string_view op, const Tensor& x, const Weights& weights) {
  QUANTA_CHECK(!weights.empty(), "{}: packed: expected at least one weight, got none", op);
  for (const LinearPackedParams& packed : weights) {
    QUANTA_CHECK(packed.defined(),
                 "{}: packed: expected packed parameters, got empty LinearPackedParams", op);
    QUANTA_CHECK(packed.impl().kernel.in_features() == in_features(weights),
                 "{}: packed: expected {} features for every weight, got {}", op,
                 in_features(weights), packed.impl().kernel.in_features());
  }
  QUANTA_CHECK(x.defined() && x.dtype() == DType::Float32,
               "{}: x: expected a Float32 tensor, got {}", op,
               x.defined() ? to_string(x.dtype()) : "an undefined one");
  QUANTA_CHECK(x.dim() >= 1 && x.sizes().back() == in_features(weights),
               "{}: x: expected a last dimension of {} features, got sizes {}", op,
               in_features(weights), x.sizes());
  autograd::require_no_grad(op, x);
}

Tensor result_of(const Tensor& x, const LinearPackedParams& packed) {
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] = packed.impl().kernel.out_features();
  return Tensor::empty(sizes);
}

/// What stays the same from call to call.
struct Call {
  Weights weights;
  ReduceRange reduce_range;
  cpu::GemmEnd end = cpu::GemmEnd::None;

  /// `addend` may be undefined. Tensors are contiguous.
  std::string_view run(const Tensor& x, const Tensor& addend, const Tensor* outs) const {
    std::vector<cpu::LinearDynamicTarget> targets;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      targets.push_back({&weights[i].impl(), static_cast<float*>(outs[i].data_ptr())});
    }
    const cpu::LinearTail tail{
        end, addend.defined() ? static_cast<const float*>(addend.data_ptr()) : nullptr};
    return cpu::linear_dynamic_rows(static_cast<const float*>(x.data_ptr()),
                                    x.numel() / in_features(weights), targets, reduce_range, tail);
  }
};

OpWork work_of(const Tensor& x, const Tensor& addend, const std::vector<Tensor>& outs) {
  OpWork work;
  work.bytes = static_cast<std::int64_t>(x.nbytes() + (addend.defined() ? addend.nbytes() : 0));
  for (const Tensor& out : outs) {
    work.multiply_adds += x.numel() * out.sizes().back();
    work.bytes += static_cast<std::int64_t>(out.nbytes()) + x.sizes().back() * out.sizes().back();
  }
  return work;
}

std::vector<Tensor> run(std::string_view op, const Tensor& x, const Tensor& addend, Call call) {
  OpScope scope(op);
  check(op, x, call.weights);
  std::vector<Tensor> outs;
  for (const LinearPackedParams& packed : call.weights) outs.push_back(result_of(x, packed));
  if (addend.defined()) {
    QUANTA_CHECK(addend.dtype() == DType::Float32 && addend.sizes() == outs[0].sizes(),
                 "{}: addend: expected Float32 {}, got {} {}", op, outs[0].sizes(), addend.dtype(),
                 addend.sizes());
    autograd::require_no_grad(op, addend);
  }
  scope.work([&] { return work_of(x, addend, outs); });
  if (x.numel() == 0) return outs;

  const Tensor input = x.contiguous();
  const Tensor added = addend.defined() ? addend.contiguous() : addend;
  scope.kernel(call.run(input, added, outs.data()));
  if (replay::is_recording()) {
    std::vector<Tensor> inputs{input};
    if (added.defined()) inputs.push_back(added);
    const bool adds = added.defined();
    replay::record({.op = op,
                    .inputs = std::move(inputs),
                    .outputs = outs,
                    .run = [call = std::move(call), adds](const replay::Frame& f) {
                      call.run(f.in(0), adds ? f.in(1) : Tensor(), f.outputs);
                    }});
  }
  return outs;
}

}  // namespace

Tensor linear_gelu_dynamic(const Tensor& x, const LinearPackedParams& packed,
                           ReduceRange reduce_range) {
  return run("linear_gelu_dynamic", x, {}, {{packed}, reduce_range, cpu::GemmEnd::Gelu})[0];
}

Tensor linear_add_dynamic(const Tensor& x, const LinearPackedParams& packed,
                          ReduceRange reduce_range, const Tensor& addend) {
  return run("linear_add_dynamic", x, addend, {{packed}, reduce_range})[0];
}

std::vector<Tensor> linear_each_dynamic(const Tensor& x,
                                        std::span<const LinearPackedParams* const> packed,
                                        ReduceRange reduce_range) {
  Weights weights;
  for (const LinearPackedParams* one : packed) weights.push_back(*one);
  return run("linear_each_dynamic", x, {}, {std::move(weights), reduce_range});
}

}  // namespace quanta::quantized::detail
