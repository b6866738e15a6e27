#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/nn/quantized/module.h"
#include "quanta/nn/reference.h"
#include "quanta/ops/linear.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized {

/// x QUInt8 [..., in_features]; the result is QUInt8 [..., out_features]. The weight is packed
/// once, when it is set.
///
/// State under torch's names: `scale`, `zero_point`, `_packed_params._packed_params/0` (weight) and
/// `/1` (bias, absent without one). Files of older versions, with `weight` and `bias` there or one
/// level up, load as well.
class Linear : public OutputQuantized {
 public:
  /// `weight` QInt8 [out_features, in_features], per tensor or per channel along axis 0; `bias`
  /// Float32 [out_features] or undefined.
  Linear(const QTensor& weight, const Tensor& bias, double scale = 1.0,
         std::int64_t zero_point = 0);
  static std::shared_ptr<Module> from_float(const Module& module);
  static std::shared_ptr<Module> from_reference(const reference::Linear& module, double scale,
                                                std::int64_t zero_point);

  const QTensor& weight() const { return packed_.weight(); }
  const Tensor& bias() const { return packed_.bias(); }
  /// Packs again. Throws ArgumentError for other sizes or dtypes.
  void set_weight_bias(const QTensor& weight, const Tensor& bias);
  const quanta::quantized::LinearPackedParams& packed() const noexcept { return packed_; }

  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 protected:
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  quanta::quantized::LinearPackedParams packed_;
};

}  // namespace quanta::nn::quantized
