#include "quanta/ops/rnn/gradient.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/rnn/cpu_kernels.h"
#include "quanta/ops/rnn/loop.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/parallel.h"

namespace quanta::gradients {
namespace {

using autograd::BackwardContext;
using detail::RecurrentStep;

// Places of the inputs, the outputs and the saved tensors on the tape.
enum Input : std::size_t { kGates, kWeightHh, kBiasHh, kWeightHr, kH0, kC0 };
enum Output : std::size_t { kOutput, kHn, kCn };
enum Saved : std::size_t { kSavedHh, kSavedHr, kSavedH0, kSavedC0, kSavedKept, kSavedOutput };

// What a call was, but for its tensors.
struct Call {
  RecurrentKind kind;
  std::int64_t hidden_size;
  std::vector<std::int64_t> batch_sizes;
  StepOrder order;
};

template <typename T>
T* numbers(const Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}

/// Runs the steps the other way round. `for_h` and `for_c` hold the gradients of the state: at
/// first of h_n and c_n, in the end of h_0 and c_0, as a sequence's rows are only touched by its
/// own steps.
template <typename T>
class BackwardLoop {
 public:
  BackwardLoop(const Call& call, const BackwardContext& context)
      : context_(context),
        kind_(call.kind),
        hidden_(call.hidden_size),
        gates_(gate_count(call.kind) * call.hidden_size),
        steps_(detail::steps_in_order(call.batch_sizes, call.order)),
        output_(context.saved(kSavedOutput)),
        kept_(context.saved(kSavedKept)),
        h_0_(context.saved(kSavedH0).contiguous()),
        width_(h_0_.sizes()[1]),
        for_output_(context.grad(kOutput).contiguous()),
        for_h_(context.grad(kHn).clone(MemoryFormat::Contiguous)) {
    const std::int64_t total = output_.sizes()[0];
    for_x_ = empty({total, gates_});
    for_hidden_ = kind_ == RecurrentKind::Gru ? empty({total, gates_}) : for_x_;
    back_hidden_ = detail::hidden_function_back<T>(context.saved(kSavedHh).contiguous());
    if (kind_ == RecurrentKind::Gru) through_gates_ = empty(for_h_.sizes());
    if (kind_ == RecurrentKind::Lstm) {
      c_0_ = context.saved(kSavedC0).contiguous();
      for_c_ = context.grad(kCn).clone(MemoryFormat::Contiguous);
    }
    const Tensor projection = context.saved(kSavedHr);
    if (projection.defined()) {
      back_projection_ = detail::hidden_function_back<T>(projection.contiguous());
      for_projected_ = empty({total, width_});
      for_unprojected_ = empty({h_0_.sizes()[0], hidden_});
    }
  }

  std::vector<Tensor> run() {
    for (const RecurrentStep& step : std::views::reverse(steps_)) run_step(step);
    Tensor for_weight, for_bias, for_projection;
    if (context_.needs(kWeightHh)) for_weight = matmul(for_hidden_.t(), h_before_steps());
    if (context_.needs(kBiasHh)) for_bias = autograd::sum_to_size(for_hidden_, {gates_});
    if (context_.needs(kWeightHr)) {
      // What was projected: the output gate times tanh(c').
      const Tensor unprojected =
          mul(kept_.narrow(1, 3 * hidden_, hidden_), kept_.narrow(1, 4 * hidden_, hidden_));
      for_projection = matmul(for_projected_.t(), unprojected);
    }
    return {for_x_, for_weight, for_bias, for_projection, for_h_, for_c_};
  }

 private:
  Tensor empty(const Dims& sizes) const { return Tensor::empty(sizes, output_.dtype()); }

  void run_step(const RecurrentStep& step) {
    T* for_h = numbers<T>(for_h_);
    const std::int64_t count = step.rows * width_;
    add_to(for_h, numbers<T>(for_output_) + step.first * width_, count);
    T* for_gates = for_h;
    if (for_projected_.defined()) {
      std::copy_n(for_h, count, numbers<T>(for_projected_) + step.first * width_);
      for_gates = numbers<T>(for_unprojected_);
      back_projection_(for_h, step.rows, for_gates);
    }
    parallel_for(step.rows, detail::sequences_per_thread(hidden_),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) gates(step, i, for_gates);
                 });
    const T* for_hidden = numbers<T>(for_hidden_) + step.first * gates_;
    if (kind_ != RecurrentKind::Gru) return back_hidden_(for_hidden, step.rows, for_h);
    back_hidden_(for_hidden, step.rows, numbers<T>(through_gates_));
    add_to(for_h, numbers<T>(through_gates_), count);
  }

  static void add_to(T* sum, const T* values, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) sum[i] += values[i];
  }

  void gates(const RecurrentStep& step, std::int64_t i, T* for_gates) const {
    const std::int64_t row = step.first + i;
    cpu::GateGradient<T> gradient{};
    gradient.hidden = hidden_;
    gradient.for_h = for_gates + i * hidden_;
    gradient.for_x = numbers<T>(for_x_) + row * gates_;
    if (kept_.defined()) gradient.kept = numbers<T>(kept_) + row * kept_.sizes()[1];
    switch (kind_) {
      case RecurrentKind::RnnTanh:
        gradient.h = numbers<T>(output_) + row * width_;
        return cpu::rnn_tanh_gradient(gradient);
      case RecurrentKind::RnnRelu:
        gradient.h = numbers<T>(output_) + row * width_;
        return cpu::rnn_relu_gradient(gradient);
      case RecurrentKind::Gru:
        gradient.before = h_before(step, i);
        gradient.for_hidden = numbers<T>(for_hidden_) + row * gates_;
        return cpu::gru_gradient(gradient);
      case RecurrentKind::Lstm:
        gradient.before = c_before(step, i);
        gradient.for_c = numbers<T>(for_c_) + i * hidden_;
        return cpu::lstm_gradient(gradient);
    }
  }

  // The state that sequence i had before the step.
  const T* h_before(const RecurrentStep& step, std::int64_t i) const {
    return i < step.before_rows ? numbers<T>(output_) + (step.before_first + i) * width_
                                : numbers<T>(h_0_) + i * width_;
  }
  const T* c_before(const RecurrentStep& step, std::int64_t i) const {
    if (i >= step.before_rows) return numbers<T>(c_0_) + i * hidden_;
    // The last of what a step kept.
    return numbers<T>(kept_) + (step.before_first + i + 1) * kept_.sizes()[1] - hidden_;
  }
  Tensor h_before_steps() const {
    const Tensor all = empty(output_.sizes());
    for (const RecurrentStep& step : steps_) {
      for (std::int64_t i = 0; i < step.rows; ++i) {
        std::copy_n(h_before(step, i), width_, numbers<T>(all) + (step.first + i) * width_);
      }
    }
    return all;
  }

  const BackwardContext& context_;
  RecurrentKind kind_;
  std::int64_t hidden_, gates_;
  std::vector<RecurrentStep> steps_;
  Tensor output_, kept_, h_0_, c_0_;
  std::int64_t width_;
  detail::HiddenFunction<T> back_hidden_, back_projection_;
  Tensor for_output_, for_h_, for_c_;
  Tensor for_x_, for_hidden_;  // gradients of the gates of all steps; one tensor but for a GRU
  Tensor through_gates_;       // GRU: the part of for_h_ of a step that came through the gates
  Tensor for_projected_;       // gradients of h of all steps, where it was projected
  Tensor for_unprojected_;     // and of the h of a step before that
};

}  // namespace

void record_recurrent_steps(const RecurrentResult& result, const Tensor& kept,
                            const RecurrentSteps& steps, const StepWeights& weights,
                            const Tensor& input_gates, const Tensor& h_0, const Tensor& c_0) {
  const std::array inputs{input_gates, weights.weight_hh, weights.bias_hh, weights.weight_hr, h_0,
                          c_0};
  const std::array outputs{result.output, result.h_n, result.c_n};
  const std::array saved{weights.weight_hh, weights.weight_hr, h_0, c_0, kept, result.output};
  const std::size_t count = result.c_n.defined() ? 3 : 2;
  const Call call{steps.kind,
                  steps.hidden_size,
                  {steps.batch_sizes.begin(), steps.batch_sizes.end()},
                  steps.order};
  autograd::record("recurrent_steps", inputs, std::span(outputs).first(count), saved,
                   [call](const BackwardContext& context) {
                     return context.grad(kOutput).dtype() == DType::Float64
                                ? BackwardLoop<double>(call, context).run()
                                : BackwardLoop<float>(call, context).run();
                   });
}

}  // namespace quanta::gradients
