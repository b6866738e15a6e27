#include "quanta/ops/detail/cuda_gate_weight.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::detail {
namespace {

constexpr std::int64_t kUnits = cuda::GateWeight::kUnits;
constexpr std::int64_t kChunk = cuda::GateWeight::kChunk;

template <typename T>
cuda::Buffer upload(Device device, const std::vector<T>& values) {
  return {device, values.data(), values.size() * sizeof(T)};
}

int to_int(std::int64_t value) {
  QUANTA_SUPPORTED(value <= (std::int64_t{1} << 24),
                   "recurrent_steps: hidden: expected sizes up to 2^24 on a CUDA device, got {}",
                   value);
  return static_cast<int>(value);
}

std::int8_t part_of(std::int64_t value) {
  return static_cast<std::int8_t>(std::clamp<std::int64_t>(value, -128, 127));
}

// As how many int8 numbers, whose sum it is, a code less its zero point is multiplied.
int parts_of(std::int64_t value) {
  int parts = 1;
  for (std::int64_t rest = value - part_of(value); rest != 0; rest -= part_of(rest)) ++parts;
  return parts;
}

// Codes less their zero points, [gates * units, depth].
std::vector<std::int16_t> differences(const cpu::QuantizedWeight& weight) {
  const std::int64_t depth = weight.weight().size(1);
  const std::vector<std::int64_t>& zero_points = weight.zero_points();
  std::vector<std::int16_t> values(static_cast<std::size_t>(weight.weight().numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(depth);
    values[i] = static_cast<std::int16_t>(weight.codes()[i] -
                                          zero_points[zero_points.size() == 1 ? 0 : row]);
  }
  return values;
}

}  // namespace

CudaGateWeight::Packed CudaGateWeight::pack(Device device, const cpu::QuantizedWeight& weight,
                                            std::int64_t gates) {
  const std::int64_t units = weight.weight().size(0) / gates;
  const std::int64_t depth = weight.weight().size(1);
  const std::int64_t blocks = ceil_div(units, kUnits);
  const std::int64_t chunks = ceil_div(depth, kChunk);
  const std::vector<std::int16_t> values = differences(weight);
  Packed result;
  result.weight.units = to_int(units);
  result.weight.depth = to_int(depth);
  result.weight.chunks = to_int(chunks);
  for (const std::int16_t value : values) {
    result.weight.parts = std::max(result.weight.parts, parts_of(value));
  }
  const std::int64_t parts = result.weight.parts;
  std::vector<std::int8_t> codes(
      static_cast<std::size_t>(blocks * gates * parts * chunks * kUnits * kChunk));
  for (std::int64_t n = 0; n < gates * units; ++n) {
    const std::int64_t unit = n % units;
    const std::int64_t rows = (unit / kUnits * gates + n / units) * parts;
    for (std::int64_t k = 0; k < depth; ++k) {
      std::int64_t rest = values[static_cast<std::size_t>(n * depth + k)];
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t chunk = (rows + part) * chunks + k / kChunk;
        codes[static_cast<std::size_t>((chunk * kUnits + unit % kUnits) * kChunk + k % kChunk)] =
            part_of(rest);
        rest -= part_of(rest);
      }
    }
  }
  const cpu::ChannelTerms terms(weight);
  result.codes = upload(device, codes);
  result.scales = upload(device, terms.scales);
  result.sums = upload(device, terms.sums);
  if (weight.has_bias()) result.bias = upload(device, weight.real_bias(1.0F));
  result.weight.codes = result.codes.as<std::int8_t>();
  result.weight.scales = result.scales.as<float>();
  result.weight.sums = result.sums.as<std::int32_t>();
  result.weight.bias = result.bias.as<float>();
  return result;
}

cuda::GateWeight CudaGateWeight::on(Device device, const cpu::QuantizedWeight& weight,
                                    std::int64_t gates) {
  const std::lock_guard lock(mutex_);
  const std::pair key{device.index, gates};
  const auto known = packed_.find(key);
  if (known != packed_.end()) return known->second.weight;
  return packed_.emplace(key, pack(device, weight, gates)).first->second.weight;
}

}  // namespace quanta::detail
