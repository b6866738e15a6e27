#include "quanta/fusion/accuracy/batch_norm_statistics.h"

#include <cmath>
#include <memory>

#include "quanta/nn/norm.h"

namespace quanta {

BatchNormStatistics batch_norm_statistics(const nn::Module& net, const FusionGroups& groups) {
  BatchNormStatistics statistics;
  for (const std::vector<std::string>& group : groups) {
    for (std::size_t i = 1; i < group.size(); ++i) {
      const std::shared_ptr<nn::Module> module = net.get_submodule(group[i]);
      const auto* norm = dynamic_cast<const nn::BatchNormNd*>(module.get());
      if (norm == nullptr || !norm->weight.defined() || !norm->bias.defined()) continue;
      ChannelStatistics& channels = statistics.layers[group[0]];
      channels.mean = norm->bias.to_float_vector();
      channels.deviation = norm->weight.to_float_vector();
      for (float& gamma : channels.deviation) gamma = std::abs(gamma);
    }
  }
  return statistics;
}

}  // namespace quanta
