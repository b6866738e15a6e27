#include "quanta/ops/rnn/cuda_steps.h"

#include <algorithm>
#include <optional>

#include "quanta/ops/cuda/library.h"
#include "quanta/ops/rnn/cuda_kernels.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::detail {
namespace {

constexpr std::int64_t kTile = cuda::QuantizeStatesParams::kTile;

cuda::StepKind kind_of(RecurrentKind kind) {
  switch (kind) {
    case RecurrentKind::RnnTanh:
      return cuda::StepKind::RnnTanh;
    case RecurrentKind::RnnRelu:
      return cuda::StepKind::RnnRelu;
    case RecurrentKind::Lstm:
      return cuda::StepKind::Lstm;
    case RecurrentKind::Gru:
      return cuda::StepKind::Gru;
  }
  return {};
}

// Even, as a block may have two.
std::int64_t tiles_of(std::int64_t rows) { return round_up(ceil_div(rows, kTile), 2); }

bool quantizes_itself(const cuda::StepStates& states) {
  return states.rows <= cuda::GateStepParams::kOwnRows &&
         states.chunks <= cuda::GateStepParams::kOwnChunks;
}

// The first step of a layer in reverse order has the fewest sequences.
std::int64_t sequences_of(const CudaLayer& layer) {
  return std::max(layer.steps.front().rows, layer.steps.back().rows);
}

cuda::Buffer floats(Device device, std::int64_t count) {
  return {device, static_cast<std::size_t>(count) * sizeof(float)};
}

struct WeightSizes {
  std::int64_t gates, units, depth;
};

/// A product of a layer: its weight, and memory for the codes of a step.
class Product {
 public:
  Product(Device device, const CudaCodeProduct& product, const WeightSizes& sizes,
          std::int64_t sequences)
      : device_(device),
        weight_(product.weight_on(device, sizes.gates)),
        reduces_range_(product.reduces_range()) {
    QUANTA_CHECK(weight_.units == sizes.units && weight_.depth == sizes.depth,
                 "recurrent_steps: hidden: expected {} gates of a weight [{}, {}], got [{}, {}]",
                 sizes.gates, sizes.units, sizes.depth, weight_.units, weight_.depth);
    if (quantizes_itself(states(sequences))) return;
    codes_ = cuda::Buffer(device, static_cast<std::size_t>(tiles_of(sequences) * weight_.chunks *
                                                           kTile * cuda::GateWeight::kChunk));
  }

  cuda::StepStates states(std::int64_t rows) const {
    return {.rows = rows,
            .depth = weight_.depth,
            .chunks = weight_.chunks,
            .reduce_range = reduces_range_};
  }
  /// Starts the step with these states.
  void run(cuda::GateStepParams step) const {
    step.weight = weight_;
    if (!quantizes_itself(step.states)) {
      step.codes = codes_.as<std::uint8_t>();
      cuda::quantize_states(device_, {.states = step.states,
                                      .tiles = tiles_of(step.states.rows),
                                      .codes = codes_.as<std::uint8_t>()});
    }
    cuda::gate_step(device_, step);
  }

 private:
  Device device_;
  cuda::GateWeight weight_;
  bool reduces_range_;
  cuda::Buffer codes_;
};

/// The ranges of the states that products start from, all 0 at first: one for each step, and as many
/// for projections.
class Ranges {
 public:
  Ranges(Device device, std::size_t count) : ranges_(device, count * sizeof(cuda::StateRange)) {
    cuda::driver(device).fill(ranges_.as<void>(), 0, ranges_.bytes());
  }
  cuda::StateRange* operator[](std::size_t i) const { return ranges_.as<cuda::StateRange>() + i; }

 private:
  cuda::Buffer ranges_;
};

}  // namespace

void run_cuda_layer(Device device, const CudaLayer& layer,
                    const CudaProducts<CudaCodeProduct>& products) {
  const std::int64_t gates = gate_count(layer.kind);
  const std::int64_t width = layer.output_size;
  const std::size_t count = layer.steps.size();
  const std::int64_t sequences = sequences_of(layer);
  const Product hidden(device, *products.hidden, {gates, layer.hidden_size, width}, sequences);
  std::optional<Product> projection;
  cuda::Buffer unprojected;
  if (products.projection != nullptr) {
    projection.emplace(device, *products.projection, WeightSizes{1, width, layer.hidden_size},
                       sequences);
    unprojected = floats(device, sequences * layer.hidden_size);
  }
  const Ranges ranges(device, products.projection != nullptr ? 2 * count : count);

  for (std::size_t i = 0; i < count; ++i) {
    const RecurrentStep& now = layer.steps[i];
    if (now.rows > now.before_rows) {
      cuda::add_state_range(device, {.states = layer.h_0 + now.before_rows * width,
                                     .count = (now.rows - now.before_rows) * width,
                                     .range = ranges[i]});
    }
    const bool is_last = i + 1 == count;
    const std::int64_t next_rows = is_last ? 0 : std::min(layer.steps[i + 1].rows, now.rows);
    float* const output = layer.output + now.first * width;

    cuda::GateStepParams step;
    step.kind = kind_of(layer.kind);
    step.states = hidden.states(now.rows);
    step.states.before = layer.output + now.before_first * width;
    step.states.start = layer.h_0;
    step.states.before_rows = now.before_rows;
    step.states.range = ranges[i];
    step.input_gates = layer.input_gates + now.first * gates * layer.hidden_size;
    step.cell = layer.cell;
    step.out = output;
    step.next_rows = next_rows;
    step.next_range = is_last ? nullptr : ranges[i + 1];
    step.last = layer.h_n;
    if (!projection) {
      hidden.run(step);
      continue;
    }
    cuda::GateStepParams project = step;
    step.out = unprojected.as<float>();
    step.next_rows = now.rows;
    step.next_range = ranges[count + i];
    step.last = nullptr;
    hidden.run(step);
    project.kind = cuda::StepKind::Projection;
    project.states = projection->states(now.rows);
    project.states.before = unprojected.as<float>();
    project.states.before_rows = now.rows;
    project.states.range = ranges[count + i];
    projection->run(project);
  }
}

void CudaLibraryProduct::multiply(Device device, const float* h, std::int64_t rows,
                                  float* out) const {
  cuda::FloatProduct product;
  product.rows = rows;
  product.columns = n_;
  product.depth = k_;
  product.lhs.stride = k_;
  product.rhs = {.stride = k_, .transposed = true};
  product.out.stride = n_;
  product.has_bias = bias_ != nullptr;
  cuda::multiply_floats(device, product, {.lhs = h, .rhs = weight_, .bias = bias_, .out = out});
}

void run_cuda_layer(Device device, const CudaLayer& layer,
                    const CudaProducts<CudaFloatProduct>& products) {
  const std::int64_t gates = gate_count(layer.kind) * layer.hidden_size;
  const std::int64_t width = layer.output_size;
  const std::int64_t sequences = sequences_of(layer);
  const cuda::Buffer hidden_gates = floats(device, sequences * gates);
  cuda::Buffer unprojected;
  if (products.projection != nullptr) {
    unprojected = floats(device, sequences * layer.hidden_size);
  }
  const std::size_t count = layer.steps.size();
  for (std::size_t i = 0; i < count; ++i) {
    const RecurrentStep& now = layer.steps[i];
    const float* const before = layer.output + now.before_first * width;
    float* const output = layer.output + now.first * width;
    // Sequences that join have their states elsewhere.
    const std::int64_t known = std::min(now.before_rows, now.rows);
    if (known > 0) products.hidden->multiply(device, before, known, hidden_gates.as<float>());
    if (now.rows > known) {
      products.hidden->multiply(device, layer.h_0 + known * width, now.rows - known,
                                hidden_gates.as<float>() + known * gates);
    }
    float* const made = products.projection != nullptr ? unprojected.as<float>() : output;
    cuda::finish_gates(device, {.kind = kind_of(layer.kind),
                                .rows = now.rows,
                                .units = layer.hidden_size,
                                .input_gates = layer.input_gates + now.first * gates,
                                .hidden_gates = hidden_gates.as<float>(),
                                .before = before,
                                .start = layer.h_0,
                                .before_rows = known,
                                .cell = layer.cell,
                                .out = made});
    if (products.projection != nullptr) {
      products.projection->multiply(device, made, now.rows, output);
    }
    const std::int64_t next_rows = i + 1 == count ? 0 : std::min(layer.steps[i + 1].rows, now.rows);
    if (next_rows == now.rows) continue;
    cuda::driver(device).copy_on_device(
        layer.h_n + next_rows * width, output + next_rows * width,
        static_cast<std::size_t>((now.rows - next_rows) * width) * sizeof(float));
  }
}

}  // namespace quanta::detail
