#pragma once

#include <memory>
#include <optional>

#include "quanta/observers/min_max_observer.h"

namespace quanta {

struct AffineQuantizedMSEObserverOptions {
  DType dtype = DType::QUInt8;
  QScheme qscheme = QScheme::PerTensorAffine;
  std::int64_t ch_axis = 0;  ///< of the per-channel schemes
  std::int64_t steps = 100;  ///< how many ranges are tried
  bool run_once = false;     ///< only the first tensor is searched
  bool reduce_range = false;
  std::optional<std::int64_t> quant_min = std::nullopt;  ///< both bounds or none
  std::optional<std::int64_t> quant_max = std::nullopt;
  double eps = 1.1920928955078125e-07;  ///< the smallest scale
};

void describe(AffineQuantizedMSEObserverOptions& options, SettingFields& fields);

/// Chooses the symmetric range that loses least when it quantizes a tensor: outliers are cut off
/// where that pays. With m = max |x|, of all of x or of each channel, it tries
///
///   t_i = m / steps * i,   i = 1 .. steps
///   loss_i = mean((fake_quantize(x; qparams of -t_i .. t_i) - x)^2)
///
/// and the range becomes that of the first t_i whose loss is the smallest; it stays min .. max of x
/// where no loss is below 1e9. NaN and infinity throw ArgumentError. As torchao's observer of this name, with granularity
/// PerTensor or PerAxis(ch_axis); the search is that of Outlier Suppression (Wei et al.,
/// arXiv:2209.13325). Scale and zero point follow from the range as in MinMaxObserver.
///
/// Each tensor starts anew: the result is that of the last one, or with run_once of the first one.
/// Takes integer zero points only (no PerChannelAffineFloatQParams). An update costs `steps` fake
/// quantizations of the tensor: it suits weights and a few batches. State: that of RangeObserver.
/// Many threads may share one (see Collector).
class AffineQuantizedMSEObserver : public RangeObserver {
 public:
  using Options = AffineQuantizedMSEObserverOptions;
  /// Throws ArgumentError for fewer than one step, and what MinMaxObserver throws.
  explicit AffineQuantizedMSEObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "AffineQuantizedMSEObserver"; }
  Settings settings() const override { return current_settings(options_); }

  /// Throws UnsupportedError: the search takes all values of a tensor.
  void set_batch_reduction(BatchReduction reduction) override;
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool join(Digest& digest, const Digest& next) const override;
  /// Throws UnsupportedError: which tensor counts depends on the order.
  void merge(const Collector& other) override;

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Options options_;
};

}  // namespace quanta
