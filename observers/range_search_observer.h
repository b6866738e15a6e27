#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "quanta/observers/histogram_observer.h"

// What throws says so. Many threads may share an observer (see observers/collector.h).

namespace quanta {

/// How a range is found in a histogram; see RangeSearchObserver.
enum class RangeSearch : std::uint8_t { Mse, Percentile, Entropy };
/// "mse", "percentile" or "entropy"; throws ArgumentError for another name, listing them.
RangeSearch range_search_from_name(std::string_view name);

struct RangeSearchObserverOptions {
  RangeSearch method = RangeSearch::Mse;
  double percentile = 99.99;  ///< Percentile: how many of 100 values lie within
  std::int64_t bins = 2048;   ///< at least 256
  DType dtype = DType::QUInt8;
  QScheme qscheme = QScheme::PerTensorAffine;
  bool reduce_range = false;
  std::optional<std::int64_t> quant_min = std::nullopt;  ///< both bounds or none
  std::optional<std::int64_t> quant_max = std::nullopt;
  double eps = 1.1920928955078125e-07;  ///< the smallest scale
};

void describe(RangeSearchObserverOptions& options, SettingFields& fields);

/// Counts as HistogramObserver does, and crops the range of values by one of three methods, as
/// calibrators of other libraries do, for any per-tensor scheme of codes:
///
///   Mse         the range whose scale and zero point give the least sum of squared errors of the
///               bins' centres, each end of it in hundredths of what was seen: one end is searched
///               after the other until neither moves; symmetric schemes have one end
///   Percentile  so many of 100 values lie within, as many of the others below as above it (symmetric
///               schemes: of the magnitudes); the ends are those of bins, as in ONNX Runtime
///   Entropy     the magnitude that makes the clipped histogram of magnitudes and its quantized form
///               most alike (Kullback-Leibler, as in TensorRT and modelopt::HistogramCalibrator), and
///               no more than what was seen on either side
///
/// HistogramObserver's own search minimizes a norm of its own between whole bins. Scale and zero point
/// follow from the range as there. State and merging: as there. Throws as there, and ArgumentError for
/// fewer than 256 bins and a percentile outside of (0, 100].
class RangeSearchObserver final : public HistogramObserver {
 public:
  using Options = RangeSearchObserverOptions;
  explicit RangeSearchObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "RangeSearchObserver"; }
  Settings settings() const override { return current_settings(options_); }

  ObservedQParams calculate_qparams() const override;
  /// The cropped range. Throws ArgumentError before any data.
  Range search_range() const;

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Options options_;
};

struct RangeSearchScope {
  double percentile = 99.99;
  /// Weights as well, by mean squared error whatever the method of the activations:
  /// AffineQuantizedMSEObserver with the dtype, scheme and codes of the base's weight observer.
  bool weights = false;
};

/// A QConfig whose activations find their ranges by that method, and else have dtype, scheme and codes
/// as `base` says. Throws ArgumentError for an unknown method, and UnsupportedError where the base's
/// activation observer, or with `weights` its weight observer, is not one of value ranges with a
/// per-tensor scheme (weights: integer codes): fake quantizers, placeholders, fixed parameters.
///   auto int8 = quantize(net, x, data, {.qconfigs = qconfig_with_range_search("mse")});
QConfig qconfig_with_range_search(std::string_view method,
                                  const QConfig& base = get_default_qconfig(),
                                  const RangeSearchScope& scope = {});

}  // namespace quanta
