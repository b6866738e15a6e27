// Fake quantization in training, forward and backward, beside the machine's copy speed.

#include "op_bench.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/runtime/autograd.h"

namespace quanta::bench {
namespace {

const Dims kImages{64, 64, 56, 56};

/// Every element is read and written once forward and once backward.
double bytes_of_step() { return 4.0 * 4.0 * static_cast<double>(product(kImages)); }

template <typename Op>
void add_step(const std::string& name, MemoryFormat format, double bytes, Op op) {
  add_benchmark(name, {.bytes = bytes}, [=] {
    const Tensor x = float_input(kImages).contiguous(format);
    x.set_requires_grad();
    const Tensor grad = float_input(kImages).contiguous(format);
    return std::pair{[op, x, grad] {
                       const Tensor inputs[] = {x};
                       const Tensor outputs[] = {op(x)};
                       const Tensor grads[] = {grad};
                       autograd::grad(outputs, inputs, {.grad_outputs = grads});
                     },
                     nullptr};
  });
}

void add_fake_quantize() {
  const auto per_tensor = [](const Tensor& x) {
    return fake_quantize_per_tensor_affine(x, kScale, kZeroPoint, 0, 127);
  };
  const Tensor scales = Tensor::full({64}, kScale);
  const Tensor zero_points = Tensor::full({64}, 0.0, DType::Int32);
  const auto per_channel = [=](const Tensor& x) {
    return fake_quantize_per_channel_affine(x, scales, zero_points, 1, -128, 127);
  };
  const double bytes = bytes_of_step();
  add_step("fake_quantize/per_tensor/forward+backward", MemoryFormat::Contiguous, bytes,
           per_tensor);
  add_step("fake_quantize/per_channel/forward+backward", MemoryFormat::Contiguous, bytes,
           per_channel);
  add_step("fake_quantize/per_channel/channels_last/forward+backward", MemoryFormat::ChannelsLast,
           bytes, per_channel);
  // Observing reads the tensor once more.
  const std::shared_ptr<Observer> fused = default_fused_act_fake_quant()();
  add_step("fake_quantize/fused_observer/forward+backward", MemoryFormat::Contiguous, 1.25 * bytes,
           [fused](const Tensor& x) { return fused->forward(x); });
  const Tensor scale = Tensor::full({1}, kScale);
  const Tensor zero_point = Tensor::zeros({1});
  scale.set_requires_grad();
  add_step("fake_quantize/learnable/forward+backward", MemoryFormat::Contiguous, 1.25 * bytes,
           [=](const Tensor& x) {
             return fake_quantize_learnable_per_tensor_affine(x, scale, zero_point, -128, 127);
           });
}

const Family kFakeQuantize(add_fake_quantize);

}  // namespace
}  // namespace quanta::bench
