#include "quanta/ops/rnn.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/onednn/linear_float.h"
#include "quanta/ops/rnn/cpu_kernels.h"
#include "quanta/ops/rnn/gradient.h"
#include "quanta/ops/rnn/loop.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/recorder.h"
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

void check_tensor(std::string_view argument, const Tensor& x, DType dtype, const Dims& sizes) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", kOp, argument);
  QUANTA_CHECK(x.dtype() == dtype && x.sizes() == sizes, "{}: {}: expected {} {}, got {} {}", kOp,
               argument, dtype, sizes, x.dtype(), x.sizes());
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
    // Beyond any tensor: no input_gates fit then.
    sum += std::min(size, std::numeric_limits<std::int64_t>::max() - sum);
  }
  return sum;
}

template <typename T>
T* numbers(const Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

/// The products of a call, W_hh h + b_hh and that of a projection if there is one.
template <typename T>
struct Products {
  detail::HiddenFunction<T> hidden, projection;
  /// What may run the steps by itself, or null.
  const HiddenProduct* layer = nullptr;
  /// Hears which of the two happened; may be null.
  OpScope* scope = nullptr;
};

/// The buffers of one call and what happens in a step.
template <typename T>
class StepLoop {
 public:
  StepLoop(const RecurrentSteps& steps, const Products<T>& products, const Tensor& input_gates,
           const RecurrentResult& result, const Tensor& kept)
      : steps_(steps),
        products_(products),
        hidden_(steps.hidden_size),
        gates_(gate_count(steps.kind) * steps.hidden_size),
        width_(result.h_n.sizes()[1]),
        result_(result),
        input_gates_(input_gates),
        kept_(kept) {}

  /// Sequences that join later, as in Reverse order, have h_0 and c_0 in their rows until then;
  /// those that have ended keep their state.
  void run() {
    const std::vector<detail::RecurrentStep> order =
        detail::steps_in_order(steps_.batch_sizes, steps_.order);
    if constexpr (std::is_same_v<T, float>) {
      if (products_.layer != nullptr && run_layer(order)) return told("quanta:layer");
    }
    make_buffers();
    for (const detail::RecurrentStep& step : order) run_step(step);
    told("quanta:steps");
  }

 private:
  void told(std::string_view kernel) const {
    if (products_.scope != nullptr) products_.scope->kernel(kernel);
  }

  bool run_layer(std::span<const detail::RecurrentStep> order) const {
    return products_.layer->run_layer({.kind = steps_.kind,
                                       .hidden_size = hidden_,
                                       .steps = order,
                                       .sequences = steps_.batch_sizes[0],
                                       .input_gates = numbers<float>(input_gates_),
                                       .output = numbers<float>(result_.output),
                                       .h = numbers<float>(result_.h_n),
                                       .cell = numbers<float>(result_.c_n)});
  }

  void make_buffers() {
    const std::int64_t sequences = steps_.batch_sizes[0];
    hidden_gates_ = Tensor::empty({sequences, gates_}, input_gates_.dtype());
    if (products_.projection) {
      unprojected_ = Tensor::empty({sequences, hidden_}, input_gates_.dtype());
    }
  }

  void run_step(const detail::RecurrentStep& step) const {
    T* h = numbers<T>(result_.h_n);
    products_.hidden(h, step.rows, numbers<T>(hidden_gates_));
    T* new_h = products_.projection ? numbers<T>(unprojected_) : h;
    parallel_for(step.rows, detail::sequences_per_thread(hidden_),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) gates(step.first + i, i, new_h);
                 });
    if (products_.projection) products_.projection(new_h, step.rows, h);
    std::copy_n(h, step.rows * width_, numbers<T>(result_.output) + step.first * width_);
  }

  // Sequence i, whose step is `row` of all.
  void gates(std::int64_t row, std::int64_t i, T* new_h) const {
    T* state = new_h + i * hidden_;
    cpu::GateRow<T> gates{numbers<T>(input_gates_) + row * gates_,
                          numbers<T>(hidden_gates_) + i * gates_, state, hidden_};
    if (kept_.defined()) gates.kept = numbers<T>(kept_) + row * kept_.sizes()[1];
    switch (steps_.kind) {
      case RecurrentKind::RnnTanh:
        return cpu::rnn_tanh_gates(gates);
      case RecurrentKind::RnnRelu:
        return cpu::rnn_relu_gates(gates);
      case RecurrentKind::Gru:
        return cpu::gru_gates(gates);
      case RecurrentKind::Lstm:
        gates.state = numbers<T>(result_.c_n) + i * hidden_;
        return cpu::lstm_gates(gates, state);
    }
  }

  const RecurrentSteps& steps_;
  const Products<T>& products_;
  std::int64_t hidden_, gates_, width_;
  const RecurrentResult& result_;
  const Tensor &input_gates_, &kept_;
  Tensor hidden_gates_, unprojected_;
};

enum class Projects : bool { No, Yes };

void check_call(const RecurrentSteps& steps, Projects projects, const Tensor& input_gates,
                const Tensor& h_0, const Tensor& c_0, DType dtype) {
  QUANTA_CHECK(steps.hidden_size >= 1, "{}: hidden_size: expected at least 1, got {}", kOp,
               steps.hidden_size);
  const bool is_lstm = steps.kind == RecurrentKind::Lstm;
  QUANTA_CHECK(is_lstm || projects == Projects::No,
               "{}: projection: expected none but for Lstm, got one", kOp);
  const std::int64_t total = check_batch_sizes(steps.batch_sizes);
  const std::int64_t batch = steps.batch_sizes[0];
  check_tensor("input_gates", input_gates, dtype,
               {total, gate_count(steps.kind) * steps.hidden_size});
  QUANTA_CHECK(h_0.defined() && h_0.dim() == 2, "{}: h_0: expected [{}, output size], got {}", kOp,
               batch, h_0.defined() ? h_0.sizes() : Dims{});
  const std::int64_t width = projects == Projects::No ? steps.hidden_size : h_0.sizes()[1];
  check_tensor("h_0", h_0, dtype, {batch, width});
  if (is_lstm) check_tensor("c_0", c_0, dtype, {batch, steps.hidden_size});
}

void check_weights(const RecurrentSteps& steps, const StepWeights& weights, const Tensor& h_0,
                   DType dtype) {
  const std::int64_t rows = gate_count(steps.kind) * steps.hidden_size;
  check_tensor("weight_hh", weights.weight_hh, dtype, {rows, h_0.sizes()[1]});
  if (weights.bias_hh.defined()) check_tensor("bias_hh", weights.bias_hh, dtype, {rows});
  if (weights.weight_hr.defined()) {
    check_tensor("weight_hr", weights.weight_hr, dtype, {h_0.sizes()[1], steps.hidden_size});
  }
}

// What a loop reads: dense; c is undefined but for Lstm.
struct LoopInput {
  Tensor gates, h, c;
};

template <typename T>
void run_loop_into(const RecurrentSteps& steps, const Products<T>& products, const LoopInput& input,
                   const RecurrentResult& result, const Tensor& kept) {
  std::copy_n(numbers<T>(input.h), input.h.numel(), numbers<T>(result.h_n));
  if (input.c.defined()) std::copy_n(numbers<T>(input.c), input.c.numel(), numbers<T>(result.c_n));
  if (result.output.numel() == 0) return;
  StepLoop<T>(steps, products, input.gates, result, kept).run();
}

Products<float> products_of(const RecurrentSteps& steps, OpScope* scope) {
  const auto product = [](const HiddenProduct* packed) -> detail::HiddenFunction<float> {
    if (packed == nullptr) return {};
    return [packed](const float* h, std::int64_t rows, float* out) { (*packed)(h, rows, out); };
  };
  return {product(steps.hidden), product(steps.projection),
          steps.projection == nullptr ? steps.hidden : nullptr, scope};
}

// The steps with packed weights again, for quanta::freeze.
class RecordedLoop {
 public:
  explicit RecordedLoop(const RecurrentSteps& steps)
      : batch_sizes_(steps.batch_sizes.begin(), steps.batch_sizes.end()),
        steps_(steps),
        hidden_(shared(steps.hidden)),
        projection_(shared(steps.projection)) {}

  void operator()(const replay::Frame& frame) const {
    RecurrentSteps steps = steps_;
    steps.batch_sizes = batch_sizes_;
    const bool is_lstm = steps.kind == RecurrentKind::Lstm;
    run_loop_into<float>(steps, products_of(steps, nullptr),
                         {frame.in(0), frame.in(1), is_lstm ? frame.in(2) : Tensor()},
                         {frame.out(0), frame.out(1), is_lstm ? frame.out(2) : Tensor()}, {});
  }

 private:
  static std::shared_ptr<const HiddenProduct> shared(const HiddenProduct* product) {
    if (product == nullptr) return nullptr;
    std::shared_ptr<const HiddenProduct> owner = product->weak_from_this().lock();
    QUANTA_SUPPORTED(owner != nullptr,
                     "freeze: {}: hidden: expected a product in a shared_ptr, got another", kOp);
    return owner;
  }

  std::vector<std::int64_t> batch_sizes_;
  RecurrentSteps steps_;
  std::shared_ptr<const HiddenProduct> hidden_, projection_;
};

void record_loop(const RecurrentSteps& steps, const LoopInput& input,
                 const RecurrentResult& result) {
  if (result.output.numel() == 0) return;
  replay::ClosureStep step{.op = kOp,
                    .inputs = {input.gates, input.h},
                    .outputs = {result.output, result.h_n},
                    .run = RecordedLoop(steps)};
  if (input.c.defined()) {
    step.inputs.push_back(input.c);
    step.outputs.push_back(result.c_n);
  }
  replay::record(std::move(step));
}

// Checked arguments; `kept` is undefined where no gradient is asked for.
template <typename T>
RecurrentResult run_loop(const RecurrentSteps& steps, const Products<T>& products,
                         const Tensor& input_gates, const Tensor& h_0, const Tensor& c_0,
                         const Tensor& kept) {
  const DType dtype = h_0.dtype();
  const LoopInput input{input_gates.detach().contiguous(), h_0.detach().contiguous(),
                        steps.kind == RecurrentKind::Lstm ? c_0.detach().contiguous() : Tensor()};
  RecurrentResult result{Tensor::empty({input_gates.sizes()[0], h_0.sizes()[1]}, dtype),
                         Tensor::empty(h_0.sizes(), dtype),
                         {}};
  if (input.c.defined()) result.c_n = Tensor::empty(c_0.sizes(), dtype);
  run_loop_into<T>(steps, products, input, result, kept);
  if constexpr (std::is_same_v<T, float>) {
    if (replay::is_recording()) record_loop(steps, input, result);
  }
  return result;
}

template <typename T>
RecurrentResult run_weights(const RecurrentSteps& steps, const StepWeights& weights,
                            const Tensor& input_gates, const Tensor& h_0, const Tensor& c_0,
                            const Tensor& kept) {
  const auto dense = [](const Tensor& x) { return x.defined() ? x.detach().contiguous() : x; };
  Products<T> products{detail::hidden_function<T>(dense(weights.weight_hh), dense(weights.bias_hh)),
                       {}};
  if (weights.weight_hr.defined()) {
    products.projection = detail::hidden_function<T>(dense(weights.weight_hr), {});
  }
  return run_loop<T>(steps, products, input_gates, h_0, c_0, kept);
}

// Of the products in all steps. Weights are left out of the bytes: they are read once for each step
// unless a cache holds them.
OpWork steps_work(const RecurrentSteps& steps, Projects projects, const Tensor& input_gates,
                  const RecurrentResult& result) {
  const std::int64_t width = result.output.sizes()[1];
  const std::int64_t gates = gate_count(steps.kind);
  const std::int64_t columns = (projects == Projects::Yes ? gates + 1 : gates) * steps.hidden_size;
  return {.multiply_adds = input_gates.sizes()[0] * width * columns,
          .bytes = static_cast<std::int64_t>(input_gates.nbytes() + result.output.nbytes())};
}

RecurrentResult recorded_call(const RecurrentSteps& steps, const StepWeights& weights,
                              const Tensor& input_gates, const Tensor& h_0, const Tensor& c_0) {
  const auto run = [steps, sizes = std::vector(steps.batch_sizes.begin(), steps.batch_sizes.end())](
                       const Tensor& gates, const Tensor& h, const Tensor& c, const Tensor& hh,
                       const Tensor& bias, const Tensor& hr) {
    RecurrentSteps again = steps;
    again.batch_sizes = sizes;
    RecurrentResult result = recurrent_steps(again, {hh, bias, hr}, gates, h, c);
    return std::vector{result.output, result.h_n, result.c_n};
  };
  const std::vector<Tensor> parts = replay::call(kOp, run, input_gates, h_0, c_0, weights.weight_hh,
                                                 weights.bias_hh, weights.weight_hr);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace

bool HiddenProduct::run_layer(const detail::LayerSteps& /*layer*/) const { return false; }

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
  const Projects projects = steps.projection != nullptr ? Projects::Yes : Projects::No;
  check_call(steps, projects, input_gates, h_0, c_0, DType::Float32);
  QUANTA_CHECK(steps.hidden != nullptr, "{}: hidden: expected a product, got none", kOp);
  autograd::require_no_grad("recurrent_steps (packed)", input_gates, h_0, c_0);
  RecurrentResult result =
      run_loop<float>(steps, products_of(steps, &scope), input_gates, h_0, c_0, {});
  scope.work([&] { return steps_work(steps, projects, input_gates, result); });
  return result;
}

RecurrentResult recurrent_steps(const RecurrentSteps& steps, const StepWeights& weights,
                                const Tensor& input_gates, const Tensor& h_0, const Tensor& c_0) {
  if (replay::is_recording()) return recorded_call(steps, weights, input_gates, h_0, c_0);
  OpScope scope(kOp);
  const Projects projects = weights.weight_hr.defined() ? Projects::Yes : Projects::No;
  const DType dtype = input_gates.defined() && input_gates.dtype() == DType::Float64
                          ? DType::Float64
                          : DType::Float32;
  check_call(steps, projects, input_gates, h_0, c_0, dtype);
  check_weights(steps, weights, h_0, dtype);
  const bool records = autograd::needs_grad(input_gates, weights.weight_hh, weights.bias_hh,
                                            weights.weight_hr, h_0, c_0);
  const std::int64_t kept_width = detail::kept_numbers(steps.kind) * steps.hidden_size;
  Tensor kept;
  if (records && kept_width > 0) kept = Tensor::empty({input_gates.sizes()[0], kept_width}, dtype);
  const auto run = dtype == DType::Float64 ? run_weights<double> : run_weights<float>;
  RecurrentResult result = run(steps, weights, input_gates, h_0, c_0, kept);
  scope.work([&] { return steps_work(steps, projects, input_gates, result); });
  if (records) {
    gradients::record_recurrent_steps(result, kept, steps, weights, input_gates, h_0, c_0);
  }
  return result;
}

}  // namespace quanta
