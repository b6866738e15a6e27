#include "quanta/fusion/accuracy/detail/linear_groups.h"

#include <algorithm>
#include <set>

#include "quanta/runtime/check.h"

namespace quanta::accuracy {

std::vector<ChannelChain> linear_groups(const std::vector<ChannelChain>& chains,
                                        const std::vector<WeightedLayer>& layers) {
  std::vector<ChannelChain> groups;
  std::set<std::size_t> taken;
  for (const ChannelChain& chain : chains) {
    const bool is_linear = std::ranges::all_of(chain.uses, [&](const ChannelUse& use) {
      return layers[use.layer].kind == WeightedLayer::Kind::Linear;
    });
    // The factors of a product would both be scaled for what takes it.
    const bool is_taken = std::ranges::any_of(
        chain.uses, [&](const ChannelUse& use) { return taken.contains(use.layer); });
    if (!chain.is_closed || !is_linear || is_taken || chain.passes("relu6")) continue;
    for (const ChannelUse& use : chain.uses) taken.insert(use.layer);
    groups.push_back(chain);
  }
  return groups;
}

std::vector<ChannelChain> linear_groups(const std::vector<ChannelChain>& chains,
                                        const std::vector<WeightedLayer>& layers,
                                        std::string_view op) {
  std::vector<ChannelChain> groups = linear_groups(chains, layers);
  if (!groups.empty()) return groups;
  constexpr std::size_t kShown = 4;
  std::vector<std::string> reasons;
  for (const ChannelChain& chain : chains) {
    if (reasons.size() == kShown) break;
    reasons.push_back(fmt::format("what '{}' gives is taken by {}", chain.source.path,
                                  chain.is_closed ? "other layers or a ReLU6" : chain.open_at));
  }
  throw ArgumentError(
      fmt::format("{}: model: expected linear layers that alone take what a norm or a layer gives, "
                  "got none{}{}",
                  op, reasons.empty() ? "" : ": ", fmt::join(reasons, "; ")));
}

std::vector<float> largest_by_source(const ChannelChain& chain, const ChannelUse& use,
                                     const std::vector<float>& of_inputs) {
  std::vector<float> largest(static_cast<std::size_t>(chain.source.channels), 0.0F);
  for (std::size_t i = 0; i < use.channels.size(); ++i) {
    float& most = largest[static_cast<std::size_t>(use.channels[i])];
    most = std::max(most, of_inputs[i]);
  }
  return largest;
}

}  // namespace quanta::accuracy
