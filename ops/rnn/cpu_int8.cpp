#include "quanta/ops/rnn/cpu_int8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "quanta/ops/cpu/gemm/gemm_int8.h"
#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/team.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cpu {
namespace {

/// Threads that can have a part of a layer.
constexpr int kMaxTeam = 16;

using Rows = std::array<FloatRange, kMaxStepRows>;

/// How many threads pay. The meeting at each step's end takes about half a microsecond; a thread is
/// worth it when it reads several times the bytes that the L2 cache gives in that time.
int threads_for_layer(const GateLayer& layer) {
  constexpr std::int64_t kBytes = 128 * 1024;
  const std::int64_t bytes = layer.weight->codes.count() * layer.weight->codes.panel_bytes();
  // More rows multiply each byte of the weight more often.
  const std::int64_t most = bytes * (3 + layer.sequences) / 4 / kBytes;
  return static_cast<int>(
      std::clamp<std::int64_t>(std::min(most, layer.weight->blocks()), 1, kMaxTeam));
}

/// One call: what its threads share. The ranges of a step's new states are written before the
/// threads meet and read after; the next step's go to the other half.
class LayerRun {
 public:
  explicit LayerRun(const GateLayer& layer) : layer_(layer), weight_(*layer.weight) {
    for (std::int64_t row = 0; row < layer.sequences; ++row) {
      first_ranges_[static_cast<std::size_t>(row)] =
          float_range(layer.h + row * weight_.depth, weight_.depth);
    }
  }

  void operator()(const detail::Team& team) noexcept;
  /// Undefined unless a state was not finite: then the steps have stopped.
  const FloatRange& refused() const noexcept { return refused_; }
  bool stopped() const noexcept { return stopped_; }

 private:
  struct Codes {
    std::uint8_t* data;
    std::int64_t stride;
    std::array<std::int32_t, kMaxStepRows> sums;
  };
  /// Quantizes the states of a step with the range of all its rows.
  void quantize_states(GateStep& step, const float* const* before, const FloatRange& range,
                       Codes& codes) const;
  FloatRange range_of_rows(const Rows& ranges, std::int64_t rows) const;

  const GateLayer& layer_;
  const GatePanels& weight_;
  Rows first_ranges_;
  std::array<std::array<Rows, kMaxTeam>, 2> parts_;
  FloatRange refused_{};
  bool stopped_ = false;
};

FloatRange LayerRun::range_of_rows(const Rows& ranges, std::int64_t rows) const {
  FloatRange all = ranges[0];
  for (std::int64_t row = 1; row < rows; ++row) {
    all = joined_range(all, ranges[static_cast<std::size_t>(row)]);
  }
  return all;
}

void LayerRun::quantize_states(GateStep& step, const float* const* before, const FloatRange& range,
                               Codes& codes) const {
  math::ChooseOptions options;
  options.reduce_range = layer_.reduce_range == quantized::ReduceRange::Yes;
  const math::QParams qparams = math::choose_qparams(range.min, range.max, 0, 255, options);
  step.scale = static_cast<float>(qparams.scale);
  step.zero_point = static_cast<std::int32_t>(qparams.zero_point);
  // A reduced range, too, is cut off beyond 255 only, as in torch.
  const QuantizeArgs args{math::inverse_scale(step.scale), step.zero_point, 0, 255, 255};
  for (std::int64_t row = 0; row < step.rows; ++row) {
    std::uint8_t* dst = codes.data + row * codes.stride;
    quantize(before[row], dst, weight_.depth, args, Store::Cached);
    if (!weight_.zero_points.empty()) {
      codes.sums[static_cast<std::size_t>(row)] =
          std::accumulate(dst, dst + weight_.depth, std::int32_t{0});
    }
  }
}

void LayerRun::operator()(const detail::Team& team) noexcept {
  const std::int64_t begin = weight_.blocks() * team.rank() / team.size();
  const std::int64_t end = weight_.blocks() * (team.rank() + 1) / team.size();
  const std::int64_t hidden = weight_.hidden;

  Codes codes{nullptr, round_up(weight_.depth, kCodeRowAlignment), {}};
  const std::int64_t bytes = layer_.sequences * codes.stride;
  codes.data = reinterpret_cast<std::uint8_t*>(
      onednn::thread_buffer(onednn::Buffer::Padded, static_cast<std::size_t>(bytes)));
  std::memset(codes.data, 0, static_cast<std::size_t>(bytes));

  std::array<const float*, kMaxStepRows> before;
  for (std::int64_t row = 0; row < layer_.sequences; ++row) {
    before[static_cast<std::size_t>(row)] = layer_.h + row * hidden;
  }
  Rows ranges = first_ranges_;
  std::array<RangeLanes, kMaxStepRows> lanes;
  const bool reduced = layer_.reduce_range == quantized::ReduceRange::Yes;
  GateStep step{.weight = &weight_,
                .kind = layer_.kind,
                .code_bits = reduced ? CodeBits::Seven : CodeBits::Eight,
                .rows = 0,
                .codes = codes.data,
                .stride = codes.stride,
                .scale = 1.0F,
                .zero_point = 0,
                .code_sums = codes.sums.data(),
                .input_gates = nullptr,
                .before = before.data(),
                .h = nullptr,
                .cell = layer_.cell,
                .ranges = lanes.data()};
  std::size_t half = 0;
  for (const detail::RecurrentStep& now : layer_.steps) {
    const FloatRange range = range_of_rows(ranges, now.rows);
    if (!std::isfinite(range.min) || !std::isfinite(range.max)) {
      // Every thread sees the same and stops.
      if (team.rank() == 0) {
        refused_ = range;
        stopped_ = true;
      }
      return;
    }
    step.rows = now.rows;
    step.input_gates = layer_.input_gates + now.first * weight_.gates * hidden;
    step.h = layer_.output + now.first * hidden;
    quantize_states(step, before.data(), range, codes);
    for (std::int64_t row = 0; row < now.rows; ++row)
      lanes[static_cast<std::size_t>(row)] = RangeLanes();
    gate_step(step, begin, end);

    auto& parts = parts_[half];
    for (std::int64_t row = 0; row < now.rows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      parts[static_cast<std::size_t>(team.rank())][r] = lanes[r].all();
      before[r] = step.h + row * hidden;
    }
    team.barrier();
    for (std::int64_t row = 0; row < now.rows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      ranges[r] = parts[0][r];
      for (int rank = 1; rank < team.size(); ++rank) {
        ranges[r] = joined_range(ranges[r], parts[static_cast<std::size_t>(rank)][r]);
      }
    }
    half = 1 - half;
  }
  if (team.rank() != 0) return;
  for (std::int64_t row = 0; row < layer_.sequences; ++row) {
    const float* last = before[static_cast<std::size_t>(row)];
    if (last != layer_.h + row * hidden) std::copy_n(last, hidden, layer_.h + row * hidden);
  }
}

}  // namespace

void run_gate_layer(const GateLayer& layer) {
  LayerRun run(layer);
  detail::run_team(threads_for_layer(layer), run);
  // The text is that of linear_dynamic, whose product this is.
  QUANTA_CHECK(!run.stopped(), "linear_dynamic: x: expected finite values, got a range of {}..{}",
               run.refused().min, run.refused().max);
}

}  // namespace quanta::cpu
