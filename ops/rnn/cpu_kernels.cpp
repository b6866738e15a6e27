#include "quanta/ops/rnn/cpu_kernels.h"

#include <cstddef>

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/rnn/cpu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/rnn/cpu_gate_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

using Tag = GateTag;
using Vector = GateVector;

// NaN fails the comparison and passes through, as in torch.
HWY_INLINE Vector relu(Vector x) {
  const auto zero = hn::Zero(Tag());
  return hn::IfThenElse(hn::Lt(x, zero), zero, x);
}

template <class Lanes>
HWY_INLINE Vector gate_sum(const Lanes& lanes, const GateRow<float>& row, std::int64_t i) {
  return hn::Add(lanes.load(row.x + i), lanes.load(row.h + i));
}

template <bool kKeep>
struct LstmStep {
  const GateRow<float>& row;
  float* out;
  template <class Lanes>
  HWY_INLINE void operator()(const Lanes& lanes, std::int64_t i) const {
    const std::int64_t n = row.hidden;
    const auto input = sigmoid(gate_sum(lanes, row, i));
    const auto forget = sigmoid(gate_sum(lanes, row, n + i));
    const auto cell = tanh(gate_sum(lanes, row, 2 * n + i));
    const auto output = sigmoid(gate_sum(lanes, row, 3 * n + i));
    const auto c = lstm_cell(input, forget, cell, lanes.load(row.state + i));
    const auto shown = tanh(c);
    if constexpr (kKeep) {
      lanes.store(input.value(), row.kept + i);
      lanes.store(forget.value(), row.kept + n + i);
      lanes.store(cell.value(), row.kept + 2 * n + i);
      lanes.store(output.value(), row.kept + 3 * n + i);
      lanes.store(shown.value(), row.kept + 4 * n + i);
      lanes.store(c, row.kept + 5 * n + i);
    }
    lanes.store(c, row.state + i);
    lanes.store(product(output, shown), out + i);
  }
};

template <bool kKeep>
struct GruStep {
  const GateRow<float>& row;
  template <class Lanes>
  HWY_INLINE void operator()(const Lanes& lanes, std::int64_t i) const {
    const std::int64_t n = row.hidden;
    const auto reset = sigmoid(gate_sum(lanes, row, i)).value();
    const auto update = sigmoid(gate_sum(lanes, row, n + i)).value();
    const auto hidden = lanes.load(row.h + 2 * n + i);
    const auto candidate = gru_candidate(lanes.load(row.x + 2 * n + i), hidden, reset);
    if constexpr (kKeep) {
      lanes.store(reset, row.kept + i);
      lanes.store(update, row.kept + n + i);
      lanes.store(candidate, row.kept + 2 * n + i);
      lanes.store(hidden, row.kept + 3 * n + i);
    }
    lanes.store(gru_state(lanes.load(row.state + i), candidate, update), row.state + i);
  }
};

struct RnnTanhStep {
  const GateRow<float>& row;
  template <class Lanes>
  HWY_INLINE void operator()(const Lanes& lanes, std::int64_t i) const {
    lanes.store(tanh(gate_sum(lanes, row, i)).value(), row.state + i);
  }
};

struct RnnReluStep {
  const GateRow<float>& row;
  template <class Lanes>
  HWY_INLINE void operator()(const Lanes& lanes, std::int64_t i) const {
    lanes.store(relu(gate_sum(lanes, row, i)), row.state + i);
  }
};

// Gradients through sigmoid and tanh, whose result is y.
HWY_INLINE Vector back_sigmoid(Vector gradient, Vector y) {
  return hn::Mul(hn::Mul(gradient, y), hn::Sub(hn::Set(Tag(), 1.0F), y));
}
HWY_INLINE Vector back_tanh(Vector gradient, Vector y) {
  return hn::Mul(gradient, hn::Sub(hn::Set(Tag(), 1.0F), hn::Mul(y, y)));
}

struct LstmBack {
  const GateGradient<float>& row;
  template <class Lanes>
  HWY_INLINE void operator()(const Lanes& lanes, std::int64_t i) const {
    const std::int64_t n = row.hidden;
    const auto input = lanes.load(row.kept + i);
    const auto forget = lanes.load(row.kept + n + i);
    const auto cell = lanes.load(row.kept + 2 * n + i);
    const auto output = lanes.load(row.kept + 3 * n + i);
    const auto shown = lanes.load(row.kept + 4 * n + i);
    const auto for_h = lanes.load(row.for_h + i);
    const auto for_c = hn::Add(lanes.load(row.for_c + i), back_tanh(hn::Mul(for_h, output), shown));
    lanes.store(back_sigmoid(hn::Mul(for_c, cell), input), row.for_x + i);
    lanes.store(back_sigmoid(hn::Mul(for_c, lanes.load(row.before + i)), forget),
                row.for_x + n + i);
    lanes.store(back_tanh(hn::Mul(for_c, input), cell), row.for_x + 2 * n + i);
    lanes.store(back_sigmoid(hn::Mul(for_h, shown), output), row.for_x + 3 * n + i);
    lanes.store(hn::Mul(for_c, forget), row.for_c + i);
  }
};

struct GruBack {
  const GateGradient<float>& row;
  template <class Lanes>
  HWY_INLINE void operator()(const Lanes& lanes, std::int64_t i) const {
    const std::int64_t n = row.hidden;
    const auto reset = lanes.load(row.kept + i);
    const auto update = lanes.load(row.kept + n + i);
    const auto candidate = lanes.load(row.kept + 2 * n + i);
    const auto hidden = lanes.load(row.kept + 3 * n + i);
    const auto for_h = lanes.load(row.for_h + i);
    const auto kept_part = hn::Mul(for_h, update);
    const auto for_candidate = back_tanh(hn::Sub(for_h, kept_part), candidate);
    const auto for_reset = back_sigmoid(hn::Mul(for_candidate, hidden), reset);
    const auto difference = hn::Sub(lanes.load(row.before + i), candidate);
    const auto for_update = back_sigmoid(hn::Mul(for_h, difference), update);
    lanes.store(for_reset, row.for_x + i);
    lanes.store(for_update, row.for_x + n + i);
    lanes.store(for_candidate, row.for_x + 2 * n + i);
    lanes.store(for_reset, row.for_hidden + i);
    lanes.store(for_update, row.for_hidden + n + i);
    lanes.store(hn::Mul(for_candidate, reset), row.for_hidden + 2 * n + i);
    lanes.store(kept_part, row.for_h + i);
  }
};

struct RnnTanhBack {
  const GateGradient<float>& row;
  template <class Lanes>
  HWY_INLINE void operator()(const Lanes& lanes, std::int64_t i) const {
    lanes.store(back_tanh(lanes.load(row.for_h + i), lanes.load(row.h + i)), row.for_x + i);
  }
};

struct RnnReluBack {
  const GateGradient<float>& row;
  template <class Lanes>
  HWY_INLINE void operator()(const Lanes& lanes, std::int64_t i) const {
    const auto open = hn::Gt(lanes.load(row.h + i), hn::Zero(Tag()));
    lanes.store(hn::IfThenElseZero(open, lanes.load(row.for_h + i)), row.for_x + i);
  }
};

struct SigmoidStep {
  const float* src;
  float* dst;
  template <class Lanes>
  HWY_INLINE void operator()(const Lanes& lanes, std::int64_t i) const {
    lanes.store(sigmoid(lanes.load(src + i)).value(), dst + i);
  }
};

struct TanhStep {
  const float* src;
  float* dst;
  template <class Lanes>
  HWY_INLINE void operator()(const Lanes& lanes, std::int64_t i) const {
    lanes.store(tanh(lanes.load(src + i)).value(), dst + i);
  }
};

void LstmGates(const GateRow<float>& row, float* out) {
  if (row.kept == nullptr) return for_vectors(0, row.hidden, LstmStep<false>{row, out});
  for_vectors(0, row.hidden, LstmStep<true>{row, out});
}
void GruGates(const GateRow<float>& row) {
  if (row.kept == nullptr) return for_vectors(0, row.hidden, GruStep<false>{row});
  for_vectors(0, row.hidden, GruStep<true>{row});
}
void RnnTanhGates(const GateRow<float>& row) { for_vectors(0, row.hidden, RnnTanhStep{row}); }
void RnnReluGates(const GateRow<float>& row) { for_vectors(0, row.hidden, RnnReluStep{row}); }
void LstmGradient(const GateGradient<float>& row) { for_vectors(0, row.hidden, LstmBack{row}); }
void GruGradient(const GateGradient<float>& row) { for_vectors(0, row.hidden, GruBack{row}); }
void RnnTanhGradient(const GateGradient<float>& row) {
  for_vectors(0, row.hidden, RnnTanhBack{row});
}
void RnnReluGradient(const GateGradient<float>& row) {
  for_vectors(0, row.hidden, RnnReluBack{row});
}
void SigmoidRow(const float* src, std::int64_t count, float* dst) {
  for_vectors(0, count, SigmoidStep{src, dst});
}
void TanhRow(const float* src, std::int64_t count, float* dst) {
  for_vectors(0, count, TanhStep{src, dst});
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(LstmGates);
HWY_EXPORT(GruGates);
HWY_EXPORT(RnnTanhGates);
HWY_EXPORT(RnnReluGates);
HWY_EXPORT(LstmGradient);
HWY_EXPORT(GruGradient);
HWY_EXPORT(RnnTanhGradient);
HWY_EXPORT(RnnReluGradient);
HWY_EXPORT(SigmoidRow);
HWY_EXPORT(TanhRow);

void lstm_gates(const GateRow<float>& row, float* out) {
  HWY_DYNAMIC_DISPATCH(LstmGates)(row, out);
}
void gru_gates(const GateRow<float>& row) { HWY_DYNAMIC_DISPATCH(GruGates)(row); }
void rnn_tanh_gates(const GateRow<float>& row) { HWY_DYNAMIC_DISPATCH(RnnTanhGates)(row); }
void rnn_relu_gates(const GateRow<float>& row) { HWY_DYNAMIC_DISPATCH(RnnReluGates)(row); }
void lstm_gradient(const GateGradient<float>& row) { HWY_DYNAMIC_DISPATCH(LstmGradient)(row); }
void gru_gradient(const GateGradient<float>& row) { HWY_DYNAMIC_DISPATCH(GruGradient)(row); }
void rnn_tanh_gradient(const GateGradient<float>& row) {
  HWY_DYNAMIC_DISPATCH(RnnTanhGradient)(row);
}
void rnn_relu_gradient(const GateGradient<float>& row) {
  HWY_DYNAMIC_DISPATCH(RnnReluGradient)(row);
}
void sigmoid_row(const float* src, std::int64_t count, float* dst) {
  HWY_DYNAMIC_DISPATCH(SigmoidRow)(src, count, dst);
}
void tanh_row(const float* src, std::int64_t count, float* dst) {
  HWY_DYNAMIC_DISPATCH(TanhRow)(src, count, dst);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
