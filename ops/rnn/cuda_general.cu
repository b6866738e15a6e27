#include "quanta/ops/rnn/cuda_general.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

struct MakeResetGates {
  static constexpr const char* kName = "make_reset_gates";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ResetGatesParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.rows * p.units) return;
    const std::int64_t row = i / p.units;
    const std::int64_t unit = i - row * p.units;
    const float* const x = p.input_gates + row * 3 * p.units + unit;
    const float* const product = p.hidden_gates + row * 2 * p.units + unit;
    p.update[i] = p.function(x[0] + product[0]);
    p.reset[i] = p.function(x[p.units] + product[p.units]) * p.state[i];
  }
};

// A thread for each unit of each sequence.
struct FinishGeneralStep {
  static constexpr const char* kName = "finish_general_step";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = GeneralStepParams;

  struct Unit {
    const Params& p;
    std::int64_t row;
    std::int64_t unit;

    SIMT_DEVICE float input(int gate, int gates) const {
      return p.input_gates[(row * gates + gate) * p.units + unit];
    }
    SIMT_DEVICE float hidden(int gate, int gates) const {
      return p.hidden_gates[(row * gates + gate) * p.units + unit];
    }
    SIMT_DEVICE float sum(int gate, int gates) const {
      return input(gate, gates) + hidden(gate, gates);
    }
    /// The sum with what the gate sees of a cell.
    SIMT_DEVICE float look(float sum, int which, float cell) const {
      if (p.peephole == nullptr) return sum;
      return sum + p.peephole[which * p.units + unit] * cell;
    }
    SIMT_DEVICE std::int64_t at() const { return row * p.units + unit; }
  };

  static SIMT_DEVICE float gru(const Unit& u) {
    const Params& p = u.p;
    float update = 0.0F;
    float candidate = 0.0F;
    if (p.step == GeneralStep::GruResetBefore) {
      update = p.update[u.at()];
      candidate = u.input(2, 3) + u.hidden(0, 1);
    } else {
      update = p.functions[0](u.sum(0, 3));
      candidate = u.input(2, 3) + p.functions[0](u.sum(1, 3)) * u.hidden(2, 3);
    }
    candidate = p.functions[1](candidate);
    return (1.0F - update) * candidate + update * p.state[u.at()];
  }

  static SIMT_DEVICE float lstm(const Unit& u) {
    const Params& p = u.p;
    float* const cell = p.cell + u.at();
    const float before = *cell;
    const float input = p.functions[0](u.look(u.sum(0, 4), 0, before));
    const float forget =
        p.input_forget ? 1.0F - input : p.functions[0](u.look(u.sum(2, 4), 2, before));
    const float candidate = p.functions[1](u.sum(3, 4));
    const float next = forget * before + input * candidate;
    const float output = p.functions[0](u.look(u.sum(1, 4), 1, next));
    *cell = next;
    return p.functions[2](next) * output;
  }

  static SIMT_DEVICE float new_state(const Unit& u) {
    switch (u.p.step) {
      case GeneralStep::Rnn:
        return u.p.functions[0](u.sum(0, 1));
      case GeneralStep::GruResetBefore:
      case GeneralStep::GruResetBehind:
        return gru(u);
      case GeneralStep::Lstm:
        break;
    }
    return lstm(u);
  }

  static SIMT_DEVICE bool is_over(const Params& p, std::int64_t row) {
    if (p.lengths == nullptr) return false;
    const std::int64_t length = p.is_long ? static_cast<const std::int64_t*>(p.lengths)[row]
                                          : static_cast<const std::int32_t*>(p.lengths)[row];
    return p.time >= length;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.rows * p.units) return;
    const std::int64_t row = i / p.units;
    if (is_over(p, row)) {
      p.output[i] = 0.0F;
      return;
    }
    const float state = new_state({p, row, i - row * p.units});
    p.state[i] = state;
    p.output[i] = state;
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void make_reset_gates(Device device, const ResetGatesParams& params) {
  simt::launch<MakeResetGates>(device, simt::grid_for(params.rows * params.units), params);
}
void finish_general_step(Device device, const GeneralStepParams& params) {
  simt::launch<FinishGeneralStep>(device, simt::grid_for(params.rows * params.units), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
