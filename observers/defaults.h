#pragma once

#include "quanta/observers/qconfig.h"

// The observers that torch predefines, under its names. Each call gives an equal factory; a class's
// with_args makes others: HistogramObserver::with_args({.reduce_range = true}). Nothing here
// throws, and many threads may call it.

namespace quanta {

/// MinMaxObserver, QUInt8, codes 0..127.
ObserverFactory default_observer();
/// MinMaxObserver, QInt8, symmetric.
ObserverFactory default_weight_observer();
/// HistogramObserver, QUInt8, codes 0..127.
ObserverFactory default_histogram_observer();
/// PerChannelMinMaxObserver, QInt8, symmetric, axis 0.
ObserverFactory default_per_channel_weight_observer();
/// MinMaxObserver, QInt8, symmetric, codes -127..127, scale at least 2^-12.
ObserverFactory weight_observer_range_neg_127_to_127();
/// PerChannelMinMaxObserver, QInt8, symmetric, axis 0, codes -127..127, scale at least 2^-12.
ObserverFactory per_channel_weight_observer_range_neg_127_to_127();
/// PlaceholderObserver, QUInt8, codes 0..255, dynamic.
ObserverFactory default_dynamic_quant_observer();
/// PerChannelMinMaxObserver with float zero points, axis 0: QUInt8, or QUInt4x2.
ObserverFactory default_float_qparams_observer();
ObserverFactory default_float_qparams_observer_4bit();
/// FixedQParamsObserver for results in [-1, 1] (scale 2/256, zero point 128) and in [0, 1]
/// (scale 1/256, zero point 0), QUInt8.
ObserverFactory default_fixed_qparams_range_neg1to1_observer();
ObserverFactory default_fixed_qparams_range_0to1_observer();
/// RecordingObserver.
ObserverFactory default_debug_observer();
/// PlaceholderObserver, Float32.
ObserverFactory default_placeholder_observer();
/// ReuseInputObserver.
ObserverFactory default_reuse_input_observer();

// Fake quantizers for training.

/// FakeQuantize, MovingAverageMinMaxObserver, QUInt8 with reduce_range: codes 0..127.
ObserverFactory default_fake_quant();
/// FakeQuantize, MovingAverageMinMaxObserver, QInt8, symmetric.
ObserverFactory default_weight_fake_quant();
/// FakeQuantize that follows each batch (averaging constant 1), QUInt8, dynamic.
ObserverFactory default_dynamic_fake_quant();
/// FakeQuantize, MovingAveragePerChannelMinMaxObserver, QInt8, symmetric, axis 0.
ObserverFactory default_per_channel_weight_fake_quant();
/// FakeQuantize with float zero points, axis 0, averaging constant 1: QUInt8, or QUInt4x2.
ObserverFactory default_embedding_fake_quant();
ObserverFactory default_embedding_fake_quant_4bit();
/// FakeQuantize, HistogramObserver, QUInt8 with reduce_range: codes 0..127.
ObserverFactory default_histogram_fake_quant();
/// FusedMovingAvgObsFakeQuantize: QUInt8, codes 0..255.
ObserverFactory default_fused_act_fake_quant();
/// FusedMovingAvgObsFakeQuantize: QInt8, symmetric, per tensor or for each index along axis 0.
ObserverFactory default_fused_wt_fake_quant();
ObserverFactory default_fused_per_channel_wt_fake_quant();
/// The two forms for weights with codes -127..127 and eps 2^-12.
ObserverFactory fused_wt_fake_quant_range_neg_127_to_127();
ObserverFactory fused_per_channel_wt_fake_quant_range_neg_127_to_127();
/// FixedQParamsFakeQuantize for results in [-1, 1] and in [0, 1].
ObserverFactory default_fixed_qparams_range_neg1to1_fake_quant();
ObserverFactory default_fixed_qparams_range_0to1_fake_quant();

}  // namespace quanta
