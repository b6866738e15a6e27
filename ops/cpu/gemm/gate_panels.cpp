#include "quanta/ops/cpu/gemm/gate_panels.h"

#include "quanta/ops/cpu/gemm/gemv_int8.h"

namespace quanta::cpu {
namespace {

/// As GatePanels says.
constexpr std::int64_t kReadable = 64;

}  // namespace

GatePanels::GatePanels(const QuantizedWeight& weight, std::int64_t gate_count)
    : gates(gate_count),
      hidden(weight.weight().size(0) / gate_count),
      depth(weight.weight().size(1)) {
  const std::int64_t groups = (depth + kPanelDepth - 1) / kPanelDepth;
  const std::int64_t group_bytes = gates * kUnitBlock * kPanelDepth;
  codes = Tensor::zeros({(blocks() * groups + kReadable / kPanelDepth) * group_bytes}, DType::Int8);
  const auto terms = static_cast<std::size_t>(blocks() * gates * kUnitBlock);
  scales.resize(terms);
  sums.resize(terms);
  bias.resize(terms);
  const ChannelTerms plain(weight);
  if (!plain.zero_points.empty()) zero_points.resize(terms);
  const Tensor& plain_bias = weight.bias();
  auto* dst = static_cast<std::int8_t*>(codes.data_ptr());
  for (std::int64_t n = 0; n < gates * hidden; ++n) {
    const std::int64_t block = n % hidden / kUnitBlock;
    const std::int64_t gate = n / hidden;
    const std::int64_t unit = n % hidden % kUnitBlock;
    for (std::int64_t k = 0; k < depth; ++k) {
      const std::int64_t group = (block * groups + k / kPanelDepth) * gates + gate;
      dst[(group * kUnitBlock + unit) * kPanelDepth + k % kPanelDepth] =
          weight.codes()[n * depth + k];
    }
    const auto from = static_cast<std::size_t>(n);
    const auto to = static_cast<std::size_t>((block * gates + gate) * kUnitBlock + unit);
    scales[to] = plain.scales[from];
    sums[to] = plain.sums[from];
    if (!zero_points.empty()) zero_points[to] = plain.zero_points[from];
    if (plain_bias.defined()) bias[to] = static_cast<const float*>(plain_bias.data_ptr())[n];
  }
}

}  // namespace quanta::cpu
