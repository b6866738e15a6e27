#include "quanta/ops/rnn/gradient.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/rnn/cpu_kernels.h"
#include "quanta/ops/rnn/loop.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/parallel.h"

namespace quanta::recurrent {
namespace {

using detail::RecurrentStep;

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
  explicit BackwardLoop(const RecurrentBackward& call)
      : call_(call),
        kind_(call.kind),
        hidden_(call.hidden_size),
        gates_(gate_count(call.kind) * call.hidden_size),
        steps_(detail::steps_in_order(call.batch_sizes, call.order)),
        output_(call.output),
        kept_(call.kept),
        h_0_(call.h_0.contiguous()),
        width_(h_0_.sizes()[1]),
        for_output_(call.for_output.contiguous()),
        for_h_(call.for_h.clone(MemoryFormat::Contiguous)) {
    const std::int64_t total = output_.sizes()[0];
    for_x_ = empty({total, gates_});
    for_hidden_ = kind_ == RecurrentKind::Gru ? empty({total, gates_}) : for_x_;
    back_hidden_ = detail::hidden_function_back<T>(call.weight_hh.contiguous());
    if (kind_ == RecurrentKind::Gru) through_gates_ = empty(for_h_.sizes());
    if (kind_ == RecurrentKind::Lstm) {
      c_0_ = call.c_0.contiguous();
      for_c_ = call.for_c.clone(MemoryFormat::Contiguous);
    }
    if (call.weight_hr.defined()) {
      back_projection_ = detail::hidden_function_back<T>(call.weight_hr.contiguous());
      for_projected_ = empty({total, width_});
      for_unprojected_ = empty({h_0_.sizes()[0], hidden_});
    }
  }

  RecurrentGradients run() {
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) run_step(*step);
    Tensor for_weight, for_bias, for_projection;
    if (call_.needs_weight_hh) for_weight = matmul(for_hidden_.t(), h_before_steps());
    if (call_.needs_bias_hh) for_bias = autograd::sum_to_size(for_hidden_, {gates_});
    if (call_.needs_weight_hr) {
      // What was projected: the output gate times tanh(c').
      const Tensor unprojected =
          mul(kept_.narrow(1, 3 * hidden_, hidden_), kept_.narrow(1, 4 * hidden_, hidden_));
      for_projection = matmul(for_projected_.t(), unprojected);
    }
    return {for_x_, for_h_, for_c_, for_weight, for_bias, for_projection};
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

  const RecurrentBackward& call_;
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

RecurrentGradients recurrent_gradients(const RecurrentBackward& call) {
  return call.for_output.dtype() == DType::Float64 ? BackwardLoop<double>(call).run()
                                                   : BackwardLoop<float>(call).run();
}

}  // namespace quanta::recurrent
