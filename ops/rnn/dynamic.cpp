#include "quanta/ops/rnn_dynamic.h"

#include <utility>

#include "quanta/ops/detail/packed_linear.h"
#include "quanta/ops/rnn/cpu_int8.h"
#include "quanta/ops/rnn/cuda_steps.h"
#include "quanta/runtime/check.h"

namespace quanta::quantized {
namespace {

class Int8Product final : public HiddenProduct, public quanta::detail::CudaCodeProduct {
 public:
  Int8Product(LinearPackedParams packed, ReduceRange reduce_range)
      : packed_(std::move(packed)), reduce_range_(reduce_range) {}
  std::int64_t in_features() const noexcept override { return packed_.impl().kernel.in_features(); }
  std::int64_t out_features() const noexcept override {
    return packed_.impl().kernel.out_features();
  }
  void operator()(const float* h, std::int64_t rows, float* out) const override {
    cpu::linear_dynamic_rows(h, rows, packed_.impl(), reduce_range_, Fusion::None, out);
  }
  bool run_layer(const detail::LayerSteps& layer) const override {
    const bool has_kernel = layer.kind == RecurrentKind::Lstm || layer.kind == RecurrentKind::Gru;
    if (!has_kernel || layer.sequences > cpu::kMaxStepRows) return false;
    const auto weight = packed_.impl().gate_panels(gate_count(layer.kind));
    cpu::run_gate_layer({.weight = weight.get(),
                         .kind = layer.kind,
                         .reduce_range = reduce_range_,
                         .steps = layer.steps,
                         .sequences = layer.sequences,
                         .input_gates = layer.input_gates,
                         .output = layer.output,
                         .h = layer.h,
                         .cell = layer.cell});
    return true;
  }
  const quanta::detail::CudaProduct* on_cuda() const noexcept override { return this; }
  cuda::GateWeight weight_on(Device device, std::int64_t gates) const override {
    return packed_.impl().gates_on_cuda.on(device, packed_.impl().kernel.weight(), gates);
  }
  bool reduces_range() const noexcept override { return reduce_range_ == ReduceRange::Yes; }

 private:
  LinearPackedParams packed_;
  ReduceRange reduce_range_;
};

class Float16Product final : public HiddenProduct, public quanta::detail::CudaFloatProduct {
 public:
  explicit Float16Product(LinearPackedParamsFp16 packed) : packed_(std::move(packed)) {}
  std::int64_t in_features() const noexcept override { return packed_.impl().in_features; }
  std::int64_t out_features() const noexcept override { return packed_.impl().out_features; }
  void operator()(const float* h, std::int64_t rows, float* out) const override {
    cpu::linear_dynamic_fp16_rows(h, rows, packed_.impl(), Fusion::None, out);
  }
  const quanta::detail::CudaProduct* on_cuda() const noexcept override { return this; }
  void multiply(Device device, const float* h, std::int64_t rows, float* out) const override {
    packed_.impl().on_cuda.run([this] { return quanta::detail::float_weight_of(packed_); }, false,
                               {.device = device, .rows = rows, .x = h, .y = out});
  }

 private:
  LinearPackedParamsFp16 packed_;
};

}  // namespace

std::shared_ptr<const HiddenProduct> dynamic_hidden_product(const LinearPackedParams& packed,
                                                            ReduceRange reduce_range) {
  QUANTA_CHECK(packed.defined(),
               "dynamic_hidden_product: packed: expected a packed weight, got none");
  QUANTA_CHECK(!packed.impl().kernel.weight().has_integer_bias(),
               "dynamic_hidden_product: packed: expected a Float32 bias, got an integer one");
  return std::make_shared<Int8Product>(packed, reduce_range);
}

std::shared_ptr<const HiddenProduct> dynamic_hidden_product(const LinearPackedParamsFp16& packed) {
  QUANTA_CHECK(packed.defined(),
               "dynamic_hidden_product: packed: expected a packed weight, got none");
  return std::make_shared<Float16Product>(packed);
}

}  // namespace quanta::quantized
