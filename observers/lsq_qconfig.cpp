#include "quanta/observers/lsq_qconfig.h"

#include <cstdint>

#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/runtime/check.h"

namespace quanta {

QConfig lsq_qconfig(const LsqOptions& options) {
  QUANTA_CHECK(options.weight_bits >= 2 && options.weight_bits <= 8,
               "lsq_qconfig: weight_bits: expected 2..8, got {}", options.weight_bits);
  QUANTA_CHECK(options.activation_bits >= 2 && options.activation_bits <= 8,
               "lsq_qconfig: activation_bits: expected 2..8, got {}", options.activation_bits);
  const std::int64_t half = std::int64_t{1} << (options.weight_bits - 1);
  const ObserverFactory weight =
      options.per_channel
          ? PerChannelMinMaxObserver::with_args({.dtype = DType::QInt8,
                                                 .qscheme = QScheme::PerChannelSymmetric,
                                                 .quant_min = -half,
                                                 .quant_max = half - 1})
          : MinMaxObserver::with_args({.dtype = DType::QInt8,
                                       .qscheme = QScheme::PerTensorSymmetric,
                                       .quant_min = -half,
                                       .quant_max = half - 1});
  const ObserverFactory activation = MovingAverageMinMaxObserver::with_args(
      {.dtype = DType::QUInt8,
       .qscheme = QScheme::PerTensorAffine,
       .quant_min = 0,
       .quant_max = (std::int64_t{1} << options.activation_bits) - 1});
  return {LearnableFakeQuantize::with_args({.observer = activation, .use_grad_scaling = true}),
          LearnableFakeQuantize::with_args(
              {.observer = weight, .use_grad_scaling = true, .mean_magnitude_start = true})};
}

}  // namespace quanta
