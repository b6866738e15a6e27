#include "quanta/ops/rnn.h"

#include <algorithm>
#include <utility>

#include "quanta/ops/cpu/linear_float.h"
#include "quanta/ops/cpu/rnn_kernels.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

constexpr std::string_view kOp = "recurrent_steps";

class FloatProduct final : public HiddenProduct {
 public:
  FloatProduct(Tensor weight, Tensor bias)
      : kernel_(std::move(weight), std::move(bias), cpu::FloatEpilogue::None) {}
  void operator()(const float* h, std::int64_t rows, float* out) const override {
    kernel_.run(rows, h, out);
  }

 private:
  cpu::LinearFloat kernel_;
};

void check_matrix(std::string_view argument, const Tensor& x, std::int64_t rows,
                  std::int64_t columns) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", kOp, argument);
  const Dims sizes{rows, columns};
  QUANTA_CHECK(x.dtype() == DType::Float32 && x.sizes() == sizes,
               "{}: {}: expected Float32 {}, got {} {}", kOp, argument, sizes, x.dtype(),
               x.sizes());
}

// The sum of the batch sizes.
std::int64_t check_batch_sizes(std::span<const std::int64_t> batch_sizes) {
  QUANTA_CHECK(!batch_sizes.empty(), "{}: batch_sizes: expected at least one step, got none", kOp);
  std::int64_t sum = 0;
  std::int64_t last = batch_sizes[0];
  for (const std::int64_t size : batch_sizes) {
    QUANTA_CHECK(size >= 0 && size <= last,
                 "{}: batch_sizes: expected numbers >= 0 that do not grow, got {} after {}", kOp,
                 size, last);
    last = size;
    sum += size;
  }
  return sum;
}

float* floats(const Tensor& x) { return static_cast<float*>(x.data_ptr()); }

/// The buffers of one call and what happens in a step.
class StepLoop {
 public:
  StepLoop(const RecurrentSteps& steps, RecurrentResult& result)
      : steps_(steps),
        hidden_(steps.hidden_size),
        gates_(gate_count(steps.kind) * steps.hidden_size),
        result_(result),
        hidden_gates_(Tensor::empty({steps.batch_sizes[0], gates_})) {
    if (steps.projection != nullptr) {
      unprojected_ = Tensor::empty({steps.batch_sizes[0], hidden_});
    }
  }

  /// The first `rows` sequences take one step; their new h goes to `output` as well.
  void step(const float* input_gates, std::int64_t rows, float* output) const {
    float* h = floats(result_.h_n);
    (*steps_.hidden)(h, rows, floats(hidden_gates_));
    float* new_h = steps_.projection == nullptr ? h : floats(unprojected_);
    // 512 units take one to two microseconds.
    const std::int64_t grain = std::max<std::int64_t>(1, 2048 / hidden_);
    parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) gates(input_gates, new_h, i);
    });
    if (steps_.projection != nullptr) (*steps_.projection)(new_h, rows, h);
    std::copy_n(h, rows * result_.h_n.sizes()[1], output);
  }

 private:
  void gates(const float* input_gates, float* new_h, std::int64_t i) const {
    cpu::GateRow row{input_gates + i * gates_, floats(hidden_gates_) + i * gates_,
                     new_h + i * hidden_, hidden_};
    switch (steps_.kind) {
      case RecurrentKind::RnnTanh:
        return cpu::rnn_tanh_gates(row);
      case RecurrentKind::RnnRelu:
        return cpu::rnn_relu_gates(row);
      case RecurrentKind::Gru:
        return cpu::gru_gates(row);
      case RecurrentKind::Lstm:
        row.state = floats(result_.c_n) + i * hidden_;
        return cpu::lstm_gates(row, new_h + i * hidden_);
    }
  }

  const RecurrentSteps& steps_;
  std::int64_t hidden_, gates_;
  const RecurrentResult& result_;
  Tensor hidden_gates_, unprojected_;
};

void run_forward(const StepLoop& loop, std::span<const std::int64_t> batch_sizes,
                 std::int64_t gates, const float* input_gates, std::int64_t width, float* output) {
  for (const std::int64_t rows : batch_sizes) {
    if (rows == 0) return;
    loop.step(input_gates, rows, output);
    input_gates += rows * gates;
    output += rows * width;
  }
}

// Sequences join as the steps grow wider: until then their rows of the state hold h_0 and c_0.
void run_reverse(const StepLoop& loop, std::span<const std::int64_t> batch_sizes,
                 std::int64_t gates, const float* gates_end, std::int64_t width,
                 float* output_end) {
  for (std::size_t step = batch_sizes.size(); step-- > 0;) {
    const std::int64_t rows = batch_sizes[step];
    if (rows == 0) continue;
    gates_end -= rows * gates;
    output_end -= rows * width;
    loop.step(gates_end, rows, output_end);
  }
}

}  // namespace

std::int64_t gate_count(RecurrentKind kind) {
  switch (kind) {
    case RecurrentKind::RnnTanh:
    case RecurrentKind::RnnRelu:
      return 1;
    case RecurrentKind::Lstm:
      return 4;
    case RecurrentKind::Gru:
      return 3;
  }
  return 0;
}

std::shared_ptr<const HiddenProduct> float_hidden_product(const Tensor& weight,
                                                          const Tensor& bias) {
  constexpr std::string_view kProduct = "float_hidden_product";
  QUANTA_CHECK(weight.defined() && weight.dtype() == DType::Float32 && weight.dim() == 2 &&
                   weight.numel() > 0,
               "{}: weight: expected Float32 [N, K], got {} {}", kProduct,
               weight.defined() ? to_string(weight.dtype()) : "undefined",
               weight.defined() ? weight.sizes() : Dims{});
  QUANTA_CHECK(!bias.defined() ||
                   (bias.dtype() == DType::Float32 && bias.sizes() == Dims{weight.sizes()[0]}),
               "{}: bias: expected Float32 [{}], got {} {}", kProduct, weight.sizes()[0],
               bias.dtype(), bias.sizes());
  return std::make_shared<FloatProduct>(
      weight.clone(MemoryFormat::Contiguous),
      bias.defined() ? bias.clone(MemoryFormat::Contiguous) : bias);
}

RecurrentResult recurrent_steps(const RecurrentSteps& steps, const Tensor& input_gates,
                                const Tensor& h_0, const Tensor& c_0) {
  OpScope scope(kOp);
  QUANTA_CHECK(steps.hidden_size >= 1, "{}: hidden_size: expected at least 1, got {}", kOp,
               steps.hidden_size);
  QUANTA_CHECK(steps.hidden != nullptr, "{}: hidden: expected a product, got none", kOp);
  const bool is_lstm = steps.kind == RecurrentKind::Lstm;
  QUANTA_CHECK(is_lstm || steps.projection == nullptr,
               "{}: projection: expected none but for Lstm, got one", kOp);
  const std::int64_t total = check_batch_sizes(steps.batch_sizes);
  const std::int64_t batch = steps.batch_sizes[0];
  const std::int64_t gates = gate_count(steps.kind) * steps.hidden_size;
  check_matrix("input_gates", input_gates, total, gates);
  QUANTA_CHECK(h_0.defined() && h_0.dim() == 2, "{}: h_0: expected [{}, output size], got {}", kOp,
               batch, h_0.defined() ? h_0.sizes() : Dims{});
  const std::int64_t width = steps.projection == nullptr ? steps.hidden_size : h_0.sizes()[1];
  check_matrix("h_0", h_0, batch, width);
  if (is_lstm) check_matrix("c_0", c_0, batch, steps.hidden_size);

  RecurrentResult result{Tensor::empty({total, width}), h_0.clone(MemoryFormat::Contiguous), {}};
  if (is_lstm) result.c_n = c_0.clone(MemoryFormat::Contiguous);
  if (total == 0) return result;
  const Tensor input = input_gates.contiguous();
  const StepLoop loop(steps, result);
  if (steps.order == StepOrder::Forward) {
    run_forward(loop, steps.batch_sizes, gates, floats(input), width, floats(result.output));
  } else {
    run_reverse(loop, steps.batch_sizes, gates, floats(input) + total * gates, width,
                floats(result.output) + total * width);
  }
  return result;
}

}  // namespace quanta
