#include "quanta/ops/rnn/cuda_kernels.h"

#include "quanta/ops/cuda/dynamic_numbers.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/gate_math.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {
namespace {

constexpr int kTile = QuantizeStatesParams::kTile;
constexpr int kChunk = GateWeight::kChunk;
constexpr int kTileChunk = kTile * kChunk;  // codes

/// 16 codes, which are loaded at once.
struct alignas(16) Codes16 {
  std::uint32_t words[4];
};

/// Adds the ranges of a warp's floats, which all of its threads call.
SIMT_DEVICE void add_to_range(StateRange* range, std::int32_t min, std::int32_t max) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const std::int32_t other_min = simt::shuffle_xor(min, mask);
    const std::int32_t other_max = simt::shuffle_xor(max, mask);
    min = other_min < min ? other_min : min;
    max = other_max > max ? other_max : max;
  }
  if (simt::thread() % 32 != 0) return;
  if (min < 0) simt::atomic_min(&range->min, min);
  if (max > 0) simt::atomic_max(&range->max, max);
}

struct AddStateRange {
  static constexpr const char* kName = "add_state_range";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = true;
  using Params = AddRangeParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    const std::int32_t bits = i < p.count ? ordered_bits(p.states[i]) : 0;
    add_to_range(p.range, bits, bits);
  }
};

/// How the states of a step are quantized.
struct StepNumbers {
  float scale;
  float inv_scale;
  std::int32_t zero_point;
};

SIMT_DEVICE StepNumbers numbers_of(const StepStates& states) {
  const float min = std::bit_cast<float>(ordered_bits(states.range->min));
  const float max = std::bit_cast<float>(ordered_bits(states.range->max));
  const math::QParams qparams = choose_dynamic(min, max, states.reduce_range);
  const auto scale = static_cast<float>(qparams.scale);
  return {scale, math::inverse_scale(scale), static_cast<std::int32_t>(qparams.zero_point)};
}

/// What one thread finds for its block. `shared` has room for StepNumbers.
SIMT_DEVICE StepNumbers block_numbers(const StepStates& states, unsigned char* shared) {
  auto* const numbers = reinterpret_cast<StepNumbers*>(shared);
  if (simt::thread() == 0) *numbers = numbers_of(states);
  simt::sync();
  return *numbers;
}

SIMT_DEVICE const float* state_row(const StepStates& states, std::int64_t row) {
  return (row < states.before_rows ? states.before : states.start) + row * states.depth;
}

/// Four codes of a tile: those with number i of the order in which a tile lies in memory. A reduced
/// range, too, is cut off beyond 255 only, as in torch.
SIMT_DEVICE std::uint32_t four_codes(const StepStates& states, const StepNumbers& numbers,
                                     std::int64_t first_row, int i) {
  constexpr int kFours = kChunk / 4;
  const std::int64_t row = first_row + i / kFours % kTile;
  const int first = i / (kFours * kTile) * kChunk + i % kFours * 4;
  if (row >= states.rows) return 0;
  const float* const x = state_row(states, row) + first;
  std::uint32_t codes = 0;
  for (int k = 0; k < 4 && first + k < states.depth; ++k) {
    const auto code = static_cast<std::uint32_t>(
        math::quantize(x[k], numbers.inv_scale, numbers.zero_point, 0, 255));
    codes |= code << (8 * k);
  }
  return codes;
}

struct QuantizeStates {
  static constexpr const char* kName = "quantize_states";
  static constexpr int kThreads = 256;
  static constexpr int kShared = sizeof(StepNumbers);
  static constexpr bool kTogether = true;
  using Params = QuantizeStatesParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const StepNumbers numbers = block_numbers(p.states, shared);
    const int of_tile = p.states.chunks * kTileChunk / 4;
    const std::int64_t i = simt::global_thread();
    if (i >= p.tiles * of_tile) return;
    simt::store(p.codes + i * 4,
                four_codes(p.states, numbers, i / of_tile * kTile, static_cast<int>(i % of_tile)));
  }
};

/// The state of a row and unit from its gates.
template <int kGates, typename Unit>
SIMT_DEVICE float new_state(StepKind kind, const Unit& unit) {
  const auto gate = [&](int index) { return unit.input(index) + unit.hidden(index); };
  if constexpr (kGates == 4) {
    float* const cell = unit.cell();
    const math::LstmUnit made = math::lstm_unit(gate(0), gate(1), gate(2), gate(3), *cell);
    *cell = made.cell;
    return made.hidden;
  } else if constexpr (kGates == 3) {
    return math::gru_unit(gate(0), gate(1), unit.input(2), unit.hidden(2), unit.before());
  } else {
    if (kind == StepKind::Projection) return unit.hidden(0);
    const float sum = gate(0);
    if (kind == StepKind::RnnTanh) return math::value_of(math::gate_tanh(sum));
    return sum < 0.0F ? 0.0F : sum;
  }
}

/// A block calculates 8 units of some tiles of rows. Its warps have a part of the depth each; one
/// thread then adds up the sums of a row and unit, and goes on with its gates.
template <int kGates, int kTiles>
struct GateStep {
  static constexpr const char* kName = "gate_step";
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kUnits = GateWeight::kUnits;
  static constexpr int kRows = kTiles * kTile;
  static constexpr int kWarpSums = kGates * kRows * kUnits;
  static constexpr int kSumBytes = kWarps * kWarpSums * 4;
  static constexpr int kOwnBytes =
      kTiles == 1 ? GateStepParams::kOwnChunks * kTileChunk : 0;  // of codes
  static constexpr int kNumbersAt = kSumBytes + kOwnBytes;
  static constexpr int kShared = kNumbersAt + static_cast<int>(sizeof(StepNumbers));
  static constexpr bool kTogether = true;
  using Params = GateStepParams;
  static_assert(kRows * kUnits <= kThreads);

  /// The tiles' codes; quantizes them if nobody has.
  static SIMT_DEVICE const std::uint8_t* codes_of(const Params& p, const StepNumbers& numbers,
                                                  unsigned char* own) {
    if (p.codes != nullptr) {
      return p.codes +
             static_cast<std::int64_t>(simt::block_y()) * kTiles * p.states.chunks * kTileChunk;
    }
    for (int i = simt::thread(); i < p.states.chunks * kTileChunk / 4; i += kThreads) {
      simt::store(own + i * 4, four_codes(p.states, numbers, 0, i));
    }
    simt::sync();
    return own;
  }

  /// Every lane has 16 codes of one row in a chunk, and 16 of another one 8 rows further on; of the
  /// weight it has 16 of one unit. Which of them meet as one product's depth is left to the order in
  /// which they lie: sums of integers have none.
  static SIMT_DEVICE void multiply(const Params& p, const std::uint8_t* codes,
                                   std::int32_t (&sums)[kTiles][kGates][4]) {
    const int lane = simt::thread() % 32;
    const int chunks = p.states.chunks;
    const std::int64_t of_gate = static_cast<std::int64_t>(p.weight.parts) * chunks;
    const std::int8_t* const weight =
        p.weight.codes + simt::block_x() * kGates * of_gate * (kUnits * kChunk) + lane * 16;
    for (int part = 0; part < p.weight.parts; ++part) {
      for (int chunk = simt::thread() / 32; chunk < chunks; chunk += kWarps) {
        Codes16 right[kGates];
        for (int gate = 0; gate < kGates; ++gate) {
          const std::int64_t at = gate * of_gate + part * chunks + chunk;
          right[gate] = simt::load<Codes16>(weight + at * (kUnits * kChunk));
        }
        Codes16 left[kTiles][2];
        for (int tile = 0; tile < kTiles; ++tile) {
          const std::uint8_t* const from = codes + (tile * chunks + chunk) * kTileChunk + lane * 16;
          left[tile][0] = simt::load<Codes16>(from);
          left[tile][1] = simt::load<Codes16>(from + kTileChunk / 2);
        }
        for (int half = 0; half < 2; ++half) {
          std::uint32_t a[kTiles][4];
          std::uint32_t b[kGates][2];
          for (int tile = 0; tile < kTiles; ++tile) {
            for (int e = 0; e < 4; ++e) a[tile][e] = left[tile][e % 2].words[half * 2 + e / 2];
          }
          for (int gate = 0; gate < kGates; ++gate) {
            for (int e = 0; e < 2; ++e) b[gate][e] = right[gate].words[half * 2 + e];
          }
          simt::multiply_u8s8(sums, a, b);
        }
      }
    }
  }

  /// To [warp][gate][row][unit].
  static SIMT_DEVICE void share(const std::int32_t (&sums)[kTiles][kGates][4], std::int32_t* all) {
    const int lane = simt::thread() % 32;
    std::int32_t* const mine = all + simt::thread() / 32 * kWarpSums;
    for (int tile = 0; tile < kTiles; ++tile) {
      for (int gate = 0; gate < kGates; ++gate) {
        for (int e = 0; e < 4; ++e) {
          const int row = tile * kTile + lane / 4 + e / 2 * 8;
          mine[(gate * kRows + row) * kUnits + lane % 4 * 2 + e % 2] = sums[tile][gate][e];
        }
      }
    }
  }

  /// A row and unit of the step.
  struct Unit {
    const Params& p;
    const StepNumbers& numbers;
    const std::int32_t* sums;  // the first warp's, of the first gate
    std::int64_t row;
    int unit;

    SIMT_DEVICE float input(int gate) const {
      return p.input_gates[(row * kGates + gate) * p.weight.units + unit];
    }
    // As cpu::SumsToFloats: integers that wrap, then floats one by one.
    SIMT_DEVICE float hidden(int gate) const {
      const int n = gate * p.weight.units + unit;
      std::uint32_t sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) {
        sum += static_cast<std::uint32_t>(sums[warp * kWarpSums + gate * kRows * kUnits]);
      }
      sum -= static_cast<std::uint32_t>(numbers.zero_point) *
             static_cast<std::uint32_t>(p.weight.sums[n]);
      const float value =
          static_cast<float>(static_cast<std::int32_t>(sum)) * (numbers.scale * p.weight.scales[n]);
      return p.weight.bias == nullptr ? value : value + p.weight.bias[n];
    }
    SIMT_DEVICE float before() const { return state_row(p.states, row)[unit]; }
    SIMT_DEVICE float* cell() const { return p.cell + row * p.weight.units + unit; }
  };

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const StepNumbers numbers = block_numbers(p.states, shared + kNumbersAt);
    const std::uint8_t* const codes = codes_of(p, numbers, shared + kSumBytes);
    auto* const all = reinterpret_cast<std::int32_t*>(shared);
    std::int32_t sums[kTiles][kGates][4] = {};
    multiply(p, codes, sums);
    share(sums, all);
    simt::sync();

    // Neighbours are units of one row.
    const int t = simt::thread();
    const Unit mine{p, numbers, all + t,
                    static_cast<std::int64_t>(simt::block_y()) * kRows + t / kUnits,
                    simt::block_x() * kUnits + t % kUnits};
    const bool is_real =
        t < kRows * kUnits && mine.row < p.states.rows && mine.unit < p.weight.units;
    std::int32_t bits = 0;
    if (is_real) {
      const float state = new_state<kGates>(p.kind, mine);
      const std::int64_t at = mine.row * p.weight.units + mine.unit;
      p.out[at] = state;
      if (mine.row < p.next_rows) {
        bits = ordered_bits(state);
      } else if (p.last != nullptr) {
        p.last[at] = state;
      }
    }
    if (p.next_range != nullptr) add_to_range(p.next_range, bits, bits);
  }
};

/// A thread for each row and unit.
template <int kGates>
struct FinishGates {
  static constexpr const char* kName = "finish_gates";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = FinishGatesParams;

  struct Unit {
    const Params& p;
    std::int64_t row;
    std::int64_t unit;
    SIMT_DEVICE float input(int gate) const {
      return p.input_gates[(row * kGates + gate) * p.units + unit];
    }
    SIMT_DEVICE float hidden(int gate) const {
      return p.hidden_gates[(row * kGates + gate) * p.units + unit];
    }
    SIMT_DEVICE float before() const {
      return (row < p.before_rows ? p.before : p.start)[row * p.units + unit];
    }
    SIMT_DEVICE float* cell() const { return p.cell + row * p.units + unit; }
  };

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.rows * p.units) return;
    p.out[i] = new_state<kGates>(p.kind, Unit{p, i / p.units, i % p.units});
  }
};

template <int kGates>
void start_step(Device device, const GateStepParams& params) {
  const int blocks = (params.weight.units + GateWeight::kUnits - 1) / GateWeight::kUnits;
  if (params.states.rows <= kTile) {
    return simt::launch<GateStep<kGates, 1>>(device, {blocks, 1, 1}, params);
  }
  constexpr int kRows = GateStep<kGates, 2>::kRows;
  simt::launch<GateStep<kGates, 2>>(
      device, {blocks, static_cast<int>((params.states.rows + kRows - 1) / kRows), 1}, params);
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void add_state_range(Device device, const AddRangeParams& params) {
  simt::launch<AddStateRange>(device, simt::grid_for(params.count), params);
}
void quantize_states(Device device, const QuantizeStatesParams& params) {
  simt::launch<QuantizeStates>(
      device, simt::grid_for(params.tiles * params.states.chunks * kTileChunk / 4), params);
}
void gate_step(Device device, const GateStepParams& params) {
  switch (params.kind) {
    case StepKind::Lstm:
      return start_step<4>(device, params);
    case StepKind::Gru:
      return start_step<3>(device, params);
    case StepKind::RnnTanh:
    case StepKind::RnnRelu:
    case StepKind::Projection:
      return start_step<1>(device, params);
  }
}

void finish_gates(Device device, const FinishGatesParams& params) {
  const simt::Grid grid = simt::grid_for(params.rows * params.units);
  switch (params.kind) {
    case StepKind::Lstm:
      return simt::launch<FinishGates<4>>(device, grid, params);
    case StepKind::Gru:
      return simt::launch<FinishGates<3>>(device, grid, params);
    case StepKind::RnnTanh:
    case StepKind::RnnRelu:
    case StepKind::Projection:
      return simt::launch<FinishGates<1>>(device, grid, params);
  }
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
