#include "quanta/nn/models/detail/conv_norm.h"

#include <algorithm>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "quanta/nn/activation.h"

namespace quanta::nn::models::detail {

std::int64_t make_divisible(double value) {
  constexpr std::int64_t kDivisor = 8;
  const auto rounded =
      static_cast<std::int64_t>(value + static_cast<double>(kDivisor) / 2.0) / kDivisor * kDivisor;
  const std::int64_t result = std::max(kDivisor, rounded);
  return static_cast<double>(result) < 0.9 * value ? result + kDivisor : result;
}

std::shared_ptr<Module> same_conv(Conv2dOptions options) {
  options.padding = {(options.kernel_size[0] - 1) / 2 * options.dilation[0]};
  options.bias = false;
  return make_module<Conv2d>(options);
}

std::shared_ptr<Sequential> conv_norm_activation(const Conv2dOptions& conv, BatchNorm2dOptions norm,
                                                 std::shared_ptr<Module> activation) {
  norm.num_features = conv.out_channels;
  auto sequence = make_module<Sequential>();
  sequence->push_back(same_conv(conv));
  sequence->push_back(make_module<BatchNorm2d>(norm));
  if (activation != nullptr) sequence->push_back(std::move(activation));
  return sequence;
}

std::vector<std::vector<std::string>> conv_norm_groups(const Module& model) {
  std::vector<std::vector<std::string>> groups;
  for (const Module::NamedModule& entry : model.named_modules()) {
    const auto* sequence = dynamic_cast<const Sequential*>(entry.module);
    if (sequence == nullptr) continue;
    for (std::size_t i = 0; i + 1 < sequence->size(); ++i) {
      const Module& first = (*sequence)[i];
      const Module& second = (*sequence)[i + 1];
      if (typeid(first) != typeid(Conv2d) || typeid(second) != typeid(BatchNorm2d)) continue;
      const std::string prefix = entry.path + ".";
      std::vector<std::string> group{prefix + std::to_string(i), prefix + std::to_string(i + 1)};
      if (i + 2 < sequence->size()) {
        const Module& third = (*sequence)[i + 2];
        if (typeid(third) == typeid(ReLU)) group.push_back(prefix + std::to_string(i + 2));
      }
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

void read_unused_skip_add(StateReader& reader) {
  reader.find("skip_add.scale");
  reader.find("skip_add.zero_point");
  // The states of torch's observers and fake quantizers, those of the observer within included.
  for (const std::string_view name :
       {"eps", "min_val", "max_val", "histogram", "scale", "zero_point", "fake_quant_enabled",
        "observer_enabled", "static_enabled", "learning_enabled"}) {
    const std::string suffix = "activation_post_process." + std::string(name);
    reader.find("skip_add." + suffix);
    reader.find("skip_add.activation_post_process." + suffix);
  }
}

}  // namespace quanta::nn::models::detail
