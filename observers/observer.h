#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quanta/observers/collector.h"
#include "quanta/runtime/tensor.h"

namespace quanta {

/// What calculate_qparams answers. Per tensor: Float32 [1] and Int64 [1]; per channel: Float32 [C]
/// and Int64 [C] (float qparams: Float32 [C]).
struct ObservedQParams {
  Tensor scale;
  Tensor zero_point;
};

/// Watches the tensors that pass and says which scale and zero point suit them. Also the base of
/// fake quantizers, which change what passes. Sits in a module as `activation_post_process`.
///
/// Many threads may share one (see Collector).
class Observer : public Collector {
 public:
  /// Notes what passes and returns it (fake quantizers: its fake-quantized form). Observers that
  /// only mark a place let anything pass; others throw what update throws.
  virtual Tensor forward(const Tensor& x);
  /// Throws UnsupportedError where the class has none (Placeholder, Recording, Noop observers).
  /// Before any data: scale 1, zero point 0, as in torch; ask has_data() first. Throws ArgumentError
  /// naming the observer where the scale would be NaN or infinite, of which torch says nothing.
  virtual ObservedQParams calculate_qparams() const = 0;
  /// torch's name of reset().
  void reset_min_max_vals() { reset(); }
  std::shared_ptr<Observer> clone() const { return std::static_pointer_cast<Observer>(copy()); }

  DType dtype() const noexcept { return dtype_; }
  QScheme qscheme() const noexcept { return qscheme_; }
  bool is_dynamic() const noexcept { return is_dynamic_; }
  /// The range of codes after reduce_range or the custom bounds.
  std::int64_t quant_min() const noexcept { return range_.min; }
  std::int64_t quant_max() const noexcept { return range_.max; }
  /// The channel axis of per-channel observers, else 0.
  virtual std::int64_t ch_axis() const noexcept { return 0; }
  /// Tensors that are trained with the network, by the names they have in the state.
  virtual std::vector<std::pair<std::string, Tensor>> named_parameters() const { return {}; }
  /// Takes these in their places, in the order of named_parameters(): their copies on a device.
  virtual void replace_parameters(std::span<const Tensor> parameters) {
    static_cast<void>(parameters);
  }

 protected:
  Observer() = default;
  Observer(const Observer&) = default;

  DType dtype_ = DType::QUInt8;
  QScheme qscheme_ = QScheme::PerTensorAffine;
  bool is_dynamic_ = false;
  IntRange range_{0, 255};
};

/// Quantizes `x` (Float32) with the parameters that the observer calculated (per tensor, per
/// channel along observer.ch_axis(), or float qparams); codes are clamped to the observer's range.
/// Throws ArgumentError when the observer saw no data or its parameters cannot be used (NaN or
/// infinite scale), UnsupportedError for a dtype other than QInt8, QUInt8, QInt32 and QUInt4x2.
QTensor quantize_with(const Tensor& x, const Observer& observer);

}  // namespace quanta
