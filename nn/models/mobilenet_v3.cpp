#include "quanta/nn/models/mobilenet_v3.h"

#include <memory>
#include <span>

#include "quanta/nn/models/detail/conv_norm.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::models {
namespace {

// As in the paper, not the defaults.
constexpr BatchNorm2dOptions kNorm{.eps = 0.001, .momentum = 0.01};

std::shared_ptr<Module> activation(bool hardswish) {
  if (hardswish) return make_module<Hardswish>();
  return make_module<ReLU>();
}

enum class After : bool { ReLU, Hardswish };
enum class Squeeze : bool { No, Yes };

// Tables 1 and 2 of "Searching for MobileNetV3"; those of the tail are halved or dilated on demand.
struct Row {
  std::int64_t in_channels, kernel_size, expanded, out_channels;
  Squeeze squeeze;
  After after;
  std::int64_t stride;
};

constexpr Row kLarge[] = {
    {16, 3, 16, 16, Squeeze::No, After::ReLU, 1},
    {16, 3, 64, 24, Squeeze::No, After::ReLU, 2},
    {24, 3, 72, 24, Squeeze::No, After::ReLU, 1},
    {24, 5, 72, 40, Squeeze::Yes, After::ReLU, 2},
    {40, 5, 120, 40, Squeeze::Yes, After::ReLU, 1},
    {40, 5, 120, 40, Squeeze::Yes, After::ReLU, 1},
    {40, 3, 240, 80, Squeeze::No, After::Hardswish, 2},
    {80, 3, 200, 80, Squeeze::No, After::Hardswish, 1},
    {80, 3, 184, 80, Squeeze::No, After::Hardswish, 1},
    {80, 3, 184, 80, Squeeze::No, After::Hardswish, 1},
    {80, 3, 480, 112, Squeeze::Yes, After::Hardswish, 1},
    {112, 3, 672, 112, Squeeze::Yes, After::Hardswish, 1},
    {112, 5, 672, 160, Squeeze::Yes, After::Hardswish, 2},
    {160, 5, 960, 160, Squeeze::Yes, After::Hardswish, 1},
    {160, 5, 960, 160, Squeeze::Yes, After::Hardswish, 1},
};
constexpr Row kSmall[] = {
    {16, 3, 16, 16, Squeeze::Yes, After::ReLU, 2},
    {16, 3, 72, 24, Squeeze::No, After::ReLU, 2},
    {24, 3, 88, 24, Squeeze::No, After::ReLU, 1},
    {24, 5, 96, 40, Squeeze::Yes, After::Hardswish, 2},
    {40, 5, 240, 40, Squeeze::Yes, After::Hardswish, 1},
    {40, 5, 240, 40, Squeeze::Yes, After::Hardswish, 1},
    {40, 5, 120, 48, Squeeze::Yes, After::Hardswish, 1},
    {48, 5, 144, 48, Squeeze::Yes, After::Hardswish, 1},
    {48, 5, 288, 96, Squeeze::Yes, After::Hardswish, 2},
    {96, 5, 576, 96, Squeeze::Yes, After::Hardswish, 1},
    {96, 5, 576, 96, Squeeze::Yes, After::Hardswish, 1},
};
// The tail starts at the last stride.
constexpr std::size_t kTailRows = 3;

// The rows of a network in numbers of channels as `options` want them.
std::vector<MobileNetV3BlockOptions> block_options(std::span<const Row> rows,
                                                   const MobileNetV3Options& options) {
  const auto channels = [&](std::int64_t count) {
    return detail::make_divisible(static_cast<double>(count) * options.width_mult);
  };
  std::vector<MobileNetV3BlockOptions> blocks;
  const std::size_t tail = rows.size() - kTailRows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    // The first block of the tail takes what comes before it and gives the tail's channels.
    const std::int64_t tail_divisor = options.reduced_tail ? 2 : 1;
    const std::int64_t divisor = i > tail ? tail_divisor : 1;
    const std::int64_t out_divisor = i >= tail ? tail_divisor : 1;
    blocks.push_back({.in_channels = channels(row.in_channels / divisor),
                      .expanded_channels = channels(row.expanded / divisor),
                      .out_channels = channels(row.out_channels / out_divisor),
                      .kernel_size = row.kernel_size,
                      .stride = row.stride,
                      .dilation = i >= tail && options.dilated ? 2 : 1,
                      .squeeze_excitation = row.squeeze == Squeeze::Yes,
                      .hardswish = row.after == After::Hardswish});
  }
  return blocks;
}

}  // namespace

MobileNetV3Block::MobileNetV3Block(const MobileNetV3BlockOptions& options) {
  const std::int64_t in = options.in_channels;
  const std::int64_t expanded = options.expanded_channels;
  const std::int64_t out = options.out_channels;
  register_module("block", block);
  if (expanded != in) {
    block->push_back(detail::conv_norm_activation(
        {.in_channels = in, .out_channels = expanded, .kernel_size = {1}}, kNorm,
        activation(options.hardswish)));
  }
  block->push_back(
      detail::conv_norm_activation({.in_channels = expanded,
                                    .out_channels = expanded,
                                    .kernel_size = {options.kernel_size},
                                    .stride = {options.dilation > 1 ? 1 : options.stride},
                                    .dilation = {options.dilation},
                                    .groups = expanded},
                                   kNorm, activation(options.hardswish)));
  if (options.squeeze_excitation) {
    const std::int64_t quarter = expanded / 4;
    const std::int64_t squeezed = detail::make_divisible(static_cast<double>(quarter));
    block->push_back(make_module<SqueezeExcitation>(expanded, squeezed));
  }
  block->push_back(detail::conv_norm_activation(
      {.in_channels = expanded, .out_channels = out, .kernel_size = {1}}, kNorm, nullptr));
  // A block whose stride became a dilation does not add either.
  if (options.stride == 1 && in == out) register_module("skip_add", skip_add);
}

Tensor MobileNetV3Block::forward(const Tensor& x) const {
  return skip_add ? skip_add->add(x, block(x)) : block(x);
}

void MobileNetV3Block::load_state(StateReader& reader) {
  if (!skip_add) detail::read_unused_skip_add(reader);
}

MobileNetV3::MobileNetV3(const MobileNetV3Options& options) {
  QUANTA_CHECK(options.width_mult > 0.0, "MobileNetV3: width_mult: expected more than 0, got {}",
               options.width_mult);
  const bool large = options.size == MobileNetV3Size::Large;
  const std::vector<MobileNetV3BlockOptions> blocks =
      block_options(large ? std::span<const Row>(kLarge) : std::span<const Row>(kSmall), options);
  register_module("features", features);
  features->push_back(detail::conv_norm_activation({.in_channels = 3,
                                                    .out_channels = blocks.front().in_channels,
                                                    .kernel_size = {3},
                                                    .stride = {2}},
                                                   kNorm, activation(true)));
  for (const MobileNetV3BlockOptions& block : blocks) {
    features->push_back(make_module<MobileNetV3Block>(block));
  }
  const std::int64_t last = 6 * blocks.back().out_channels;
  features->push_back(detail::conv_norm_activation(
      {.in_channels = blocks.back().out_channels, .out_channels = last, .kernel_size = {1}}, kNorm,
      activation(true)));
  register_module("avgpool", avgpool, Dims{1});
  const int full_hidden = large ? 1280 : 1024;
  const int base_hidden = options.reduced_tail ? full_hidden / 2 : full_hidden;
  const std::int64_t hidden =
      detail::make_divisible(static_cast<double>(base_hidden) * options.width_mult);
  register_module("classifier", classifier);
  classifier->push_back(
      make_module<Linear>(LinearOptions{.in_features = last, .out_features = hidden}));
  classifier->push_back(make_module<Hardswish>());
  classifier->push_back(make_module<Dropout>(options.dropout));
  classifier->push_back(make_module<Linear>(
      LinearOptions{.in_features = hidden, .out_features = options.num_classes}));
  register_module("quant", quant);
  register_module("dequant", dequant);
}

Tensor MobileNetV3::forward(const Tensor& x) const {
  return dequant(classifier(avgpool(features(quant(x))).flatten(1)));
}

MobileNetV3 mobilenet_v3_large(std::int64_t num_classes) {
  return MobileNetV3({.size = MobileNetV3Size::Large, .num_classes = num_classes});
}
MobileNetV3 mobilenet_v3_small(std::int64_t num_classes) {
  return MobileNetV3({.size = MobileNetV3Size::Small, .num_classes = num_classes});
}

std::vector<std::vector<std::string>> fusion_groups(const MobileNetV3& model) {
  std::vector<std::vector<std::string>> groups = detail::conv_norm_groups(model);
  for (const Module::NamedModule& entry : model.named_modules()) {
    if (dynamic_cast<const SqueezeExcitation*>(entry.module) == nullptr) continue;
    groups.push_back({entry.path + ".fc1", entry.path + ".activation"});
  }
  return groups;
}

}  // namespace quanta::nn::models
