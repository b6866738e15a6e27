#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

/// Quantization parameters. Plain values: threads may share what none of them changes.
namespace quanta {

/// How codes map to real numbers, named as in torch. A tensor carries one of the affine ones; the
/// symmetric ones configure observers.
enum class QScheme : std::uint8_t {
  PerTensorAffine,
  PerTensorSymmetric,
  PerChannelAffine,
  PerChannelSymmetric,
  PerChannelAffineFloatQParams,
};

/// "PerTensorAffine", ...
std::string_view to_string(QScheme scheme);
/// "per_tensor_affine", ...
std::string_view torch_name(QScheme scheme);
/// By torch's name (a leading "torch." is allowed); throws ArgumentError for an unknown one.
QScheme qscheme_from_torch_name(std::string_view name);

constexpr bool is_per_channel(QScheme scheme) noexcept {
  return scheme == QScheme::PerChannelAffine || scheme == QScheme::PerChannelSymmetric ||
         scheme == QScheme::PerChannelAffineFloatQParams;
}

/// Scales and zero points of a per-channel tensor; immutable once shared.
/// PerChannelAffine uses `zero_points`, PerChannelAffineFloatQParams `float_zero_points`
/// (and scales that are float32 numbers).
struct ChannelQParams {
  std::vector<double> scales;
  std::vector<std::int64_t> zero_points;
  std::vector<float> float_zero_points;
  bool operator==(const ChannelQParams&) const = default;
};

/// The quantization parameters of one tensor: a small value. Scales keep torch's double, the
/// arithmetic uses their float32 rounding.
struct Quantizer {
  QScheme scheme = QScheme::PerTensorAffine;
  double scale = 1.0;                             ///< per tensor
  std::int64_t zero_point = 0;                    ///< per tensor
  std::int64_t axis = 0;                          ///< per channel
  std::shared_ptr<const ChannelQParams> channel;  ///< per channel

  static Quantizer per_tensor(double scale, std::int64_t zero_point) {
    return {QScheme::PerTensorAffine, scale, zero_point, 0, nullptr};
  }
  static Quantizer per_channel(std::vector<double> scales, std::vector<std::int64_t> zero_points,
                               std::int64_t axis);
  static Quantizer per_channel_float_qparams(std::vector<float> scales,
                                             std::vector<float> zero_points, std::int64_t axis);

  /// Same scheme and bit-equal parameters (per channel: the axis too).
  bool operator==(const Quantizer& other) const;
};

}  // namespace quanta
