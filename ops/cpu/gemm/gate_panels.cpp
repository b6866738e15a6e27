#include "quanta/ops/cpu/gemm/gate_panels.h"

#include <fmt/format.h>

#include <string>

namespace quanta::cpu {

GatePanels::GatePanels(const QuantizedWeight& weight, std::int64_t gate_count)
    : gates(gate_count),
      hidden(weight.weight().size(0) / gate_count),
      depth(weight.weight().size(1)) {
  const auto terms = static_cast<std::size_t>(blocks() * gates * kUnitBlock);
  scales.resize(terms);
  sums.resize(terms);
  bias.resize(terms);
  const ChannelTerms plain(weight);
  if (!plain.zero_points.empty()) zero_points.resize(terms);
  const Tensor& plain_bias = weight.bias();
  std::vector<std::int64_t> rows(terms, -1);
  for (std::int64_t n = 0; n < gates * hidden; ++n) {
    const std::int64_t gate = n / hidden;
    const std::int64_t unit = n % hidden;
    const auto from = static_cast<std::size_t>(n);
    const auto to = static_cast<std::size_t>((unit / kUnitBlock * gates + gate) * kUnitBlock +
                                             unit % kUnitBlock);
    rows[to] = n;
    scales[to] = plain.scales[from];
    sums[to] = plain.sums[from];
    if (!zero_points.empty()) zero_points[to] = plain.zero_points[from];
    if (plain_bias.defined()) bias[to] = static_cast<const float*>(plain_bias.data_ptr())[n];
  }
  const std::string order = fmt::format("of {} gates", gates);
  codes = pack_code_panels(weight.codes(), rows, depth, gates, {&weight.forms(), order});
}

}  // namespace quanta::cpu
