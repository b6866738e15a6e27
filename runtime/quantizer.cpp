#include "quanta/runtime/quantizer.h"

#include <array>
#include <utility>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

struct QSchemeName {
  QScheme scheme;
  std::string_view name;
  std::string_view torch;
};

constexpr std::array kNames{
    QSchemeName{QScheme::PerTensorAffine, "PerTensorAffine", "per_tensor_affine"},
    QSchemeName{QScheme::PerTensorSymmetric, "PerTensorSymmetric", "per_tensor_symmetric"},
    QSchemeName{QScheme::PerChannelAffine, "PerChannelAffine", "per_channel_affine"},
    QSchemeName{QScheme::PerChannelSymmetric, "PerChannelSymmetric", "per_channel_symmetric"},
    QSchemeName{QScheme::PerChannelAffineFloatQParams, "PerChannelAffineFloatQParams",
                "per_channel_affine_float_qparams"},
};

}  // namespace

std::string_view to_string(QScheme scheme) {
  for (const QSchemeName& entry : kNames) {
    if (entry.scheme == scheme) return entry.name;
  }
  return "unknown scheme";
}

std::string_view torch_name(QScheme scheme) {
  for (const QSchemeName& entry : kNames) {
    if (entry.scheme == scheme) return entry.torch;
  }
  return "unknown scheme";
}

QScheme qscheme_from_torch_name(std::string_view name) {
  std::string_view stem = name;
  if (stem.starts_with("torch.")) stem.remove_prefix(6);
  for (const QSchemeName& entry : kNames) {
    if (entry.torch == stem) return entry.scheme;
  }
  throw ArgumentError(
      fmt::format("qscheme: expected per_tensor_affine, per_tensor_symmetric, per_channel_affine, "
                  "per_channel_symmetric or per_channel_affine_float_qparams, got '{}'",
                  name));
}

Quantizer Quantizer::per_channel(std::vector<double> scales, std::vector<std::int64_t> zero_points,
                                 std::int64_t axis) {
  auto channel = std::make_shared<ChannelQParams>();
  channel->scales = std::move(scales);
  channel->zero_points = std::move(zero_points);
  return {QScheme::PerChannelAffine, 1.0, 0, axis, std::move(channel)};
}

Quantizer Quantizer::per_channel_float_qparams(std::vector<float> scales,
                                               std::vector<float> zero_points, std::int64_t axis) {
  auto channel = std::make_shared<ChannelQParams>();
  channel->scales.assign(scales.begin(), scales.end());
  channel->float_zero_points = std::move(zero_points);
  return {QScheme::PerChannelAffineFloatQParams, 1.0, 0, axis, std::move(channel)};
}

bool Quantizer::operator==(const Quantizer& other) const {
  if (scheme != other.scheme) return false;
  if (!is_per_channel(scheme)) return scale == other.scale && zero_point == other.zero_point;
  if (axis != other.axis) return false;
  return channel == other.channel ||
         (channel != nullptr && other.channel != nullptr && *channel == *other.channel);
}

}  // namespace quanta
