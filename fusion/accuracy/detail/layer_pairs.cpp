#include "quanta/fusion/accuracy/detail/layer_pairs.h"

#include "quanta/runtime/check.h"

namespace quanta::accuracy {

std::vector<LayerPair> layer_pairs(const std::vector<ChannelChain>& chains) {
  std::vector<LayerPair> pairs;
  for (const ChannelChain& chain : chains) {
    if (!chain.source.layer || !chain.is_closed || chain.uses.size() != 1) continue;
    pairs.push_back({*chain.source.layer, chain.uses[0].layer, &chain});
  }
  return pairs;
}

void throw_no_pairs(std::string_view op, const std::vector<ChannelChain>& chains) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> reasons;
  for (const ChannelChain& chain : chains) {
    if (!chain.source.layer || reasons.size() == kShown) continue;
    std::string taken = chain.open_at;
    if (chain.is_closed) {
      taken = chain.uses.size() > 1 ? fmt::format("{} layers", chain.uses.size())
                                    : std::string("a layer behind a ReLU6");
    }
    reasons.push_back(fmt::format("what '{}' gives is taken by {}", chain.source.path, taken));
  }
  throw ArgumentError(fmt::format(
      "{}: model: expected layers that alone take each other's results, with batch norms fused "
      "(fuse_modules), got none{}{}",
      op, reasons.empty() ? "" : ": ", fmt::join(reasons, "; ")));
}

}  // namespace quanta::accuracy
