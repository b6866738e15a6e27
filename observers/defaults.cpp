#include "quanta/observers/defaults.h"

#include "quanta/observers/fused_fake_quantize.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/other_observers.h"

namespace quanta {
namespace {

// The qnnpack and xnnpack weights' smallest scale, 2^-12.
constexpr double kSmallestWeightScale = 0.000244140625;

// Symmetric weights in training, codes quant_min..127.
MovingAverageMinMaxObserverOptions weight_options(std::int64_t quant_min) {
  return {.dtype = DType::QInt8,
          .qscheme = QScheme::PerTensorSymmetric,
          .quant_min = quant_min,
          .quant_max = 127};
}

MovingAveragePerChannelMinMaxObserverOptions channel_weight_options(std::int64_t quant_min) {
  return {.dtype = DType::QInt8,
          .qscheme = QScheme::PerChannelSymmetric,
          .quant_min = quant_min,
          .quant_max = 127};
}

}  // namespace

ObserverFactory default_observer() {
  return MinMaxObserver::with_args({.quant_min = 0, .quant_max = 127});
}

ObserverFactory default_weight_observer() {
  return MinMaxObserver::with_args({.dtype = DType::QInt8, .qscheme = QScheme::PerTensorSymmetric});
}

ObserverFactory default_histogram_observer() {
  return HistogramObserver::with_args({.quant_min = 0, .quant_max = 127});
}

ObserverFactory default_per_channel_weight_observer() {
  return PerChannelMinMaxObserver::with_args(
      {.dtype = DType::QInt8, .qscheme = QScheme::PerChannelSymmetric});
}

ObserverFactory weight_observer_range_neg_127_to_127() {
  return MinMaxObserver::with_args({.dtype = DType::QInt8,
                                    .qscheme = QScheme::PerTensorSymmetric,
                                    .quant_min = -127,
                                    .quant_max = 127,
                                    .eps = kSmallestWeightScale});
}

ObserverFactory per_channel_weight_observer_range_neg_127_to_127() {
  return PerChannelMinMaxObserver::with_args({.dtype = DType::QInt8,
                                              .qscheme = QScheme::PerChannelSymmetric,
                                              .quant_min = -127,
                                              .quant_max = 127,
                                              .eps = kSmallestWeightScale});
}

ObserverFactory default_dynamic_quant_observer() {
  return PlaceholderObserver::with_args(
      {.dtype = DType::QUInt8, .quant_min = 0, .quant_max = 255, .is_dynamic = true});
}

ObserverFactory default_float_qparams_observer() {
  return PerChannelMinMaxObserver::with_args(
      {.dtype = DType::QUInt8, .qscheme = QScheme::PerChannelAffineFloatQParams});
}

ObserverFactory default_float_qparams_observer_4bit() {
  return PerChannelMinMaxObserver::with_args(
      {.dtype = DType::QUInt4x2, .qscheme = QScheme::PerChannelAffineFloatQParams});
}

ObserverFactory default_fixed_qparams_range_neg1to1_observer() {
  return FixedQParamsObserver::with_args({.scale = 2.0 / 256.0, .zero_point = 128});
}

ObserverFactory default_fixed_qparams_range_0to1_observer() {
  return FixedQParamsObserver::with_args({.scale = 1.0 / 256.0, .zero_point = 0});
}

ObserverFactory default_debug_observer() { return RecordingObserver::with_args(); }
ObserverFactory default_placeholder_observer() { return PlaceholderObserver::with_args(); }
ObserverFactory default_reuse_input_observer() { return ReuseInputObserver::with_args(); }

ObserverFactory default_fake_quant() {
  return FakeQuantize::with_args(MovingAverageMinMaxObserver::with_args(
      {.reduce_range = true, .quant_min = 0, .quant_max = 255}));
}

ObserverFactory default_weight_fake_quant() {
  return FakeQuantize::with_args(MovingAverageMinMaxObserver::with_args(weight_options(-128)));
}

ObserverFactory default_dynamic_fake_quant() {
  return FakeQuantize::with_args(MovingAverageMinMaxObserver::with_args(
      {.averaging_constant = 1.0, .quant_min = 0, .quant_max = 255, .is_dynamic = true}));
}

ObserverFactory default_per_channel_weight_fake_quant() {
  return FakeQuantize::with_args(
      MovingAveragePerChannelMinMaxObserver::with_args(channel_weight_options(-128)));
}

ObserverFactory default_embedding_fake_quant() {
  return FakeQuantize::with_args(MovingAveragePerChannelMinMaxObserver::with_args(
      {.averaging_constant = 1.0,
       .qscheme = QScheme::PerChannelAffineFloatQParams,
       .quant_min = 0,
       .quant_max = 255}));
}

ObserverFactory default_embedding_fake_quant_4bit() {
  return FakeQuantize::with_args(MovingAveragePerChannelMinMaxObserver::with_args(
      {.averaging_constant = 1.0,
       .dtype = DType::QUInt4x2,
       .qscheme = QScheme::PerChannelAffineFloatQParams}));
}

ObserverFactory default_histogram_fake_quant() {
  return FakeQuantize::with_args(
      HistogramObserver::with_args({.reduce_range = true, .quant_min = 0, .quant_max = 255}));
}

ObserverFactory default_fused_act_fake_quant() {
  return FusedMovingAvgObsFakeQuantize::with_args(
      MovingAverageMinMaxObserver::with_args({.quant_min = 0, .quant_max = 255}));
}

ObserverFactory default_fused_wt_fake_quant() {
  return FusedMovingAvgObsFakeQuantize::with_args(
      MovingAverageMinMaxObserver::with_args(weight_options(-128)));
}

ObserverFactory default_fused_per_channel_wt_fake_quant() {
  return FusedMovingAvgObsFakeQuantize::with_args(
      MovingAveragePerChannelMinMaxObserver::with_args(channel_weight_options(-128)));
}

ObserverFactory fused_wt_fake_quant_range_neg_127_to_127() {
  MovingAverageMinMaxObserverOptions options = weight_options(-127);
  options.eps = kSmallestWeightScale;
  return FusedMovingAvgObsFakeQuantize::with_args(MovingAverageMinMaxObserver::with_args(options));
}

ObserverFactory fused_per_channel_wt_fake_quant_range_neg_127_to_127() {
  MovingAveragePerChannelMinMaxObserverOptions options = channel_weight_options(-127);
  options.eps = kSmallestWeightScale;
  return FusedMovingAvgObsFakeQuantize::with_args(
      MovingAveragePerChannelMinMaxObserver::with_args(options));
}

ObserverFactory default_fixed_qparams_range_neg1to1_fake_quant() {
  return FixedQParamsFakeQuantize::with_args(default_fixed_qparams_range_neg1to1_observer());
}

ObserverFactory default_fixed_qparams_range_0to1_fake_quant() {
  return FixedQParamsFakeQuantize::with_args(default_fixed_qparams_range_0to1_observer());
}

}  // namespace quanta
