#pragma once

#include <memory>
#include <optional>
#include <string>

#include "quanta/observers/histogram.h"
#include "quanta/observers/qconfig.h"
#include "quanta/observers/uniform_observer.h"

// What throws says so. Many threads may share an observer (see observers/collector.h).

namespace quanta {

struct HistogramObserverOptions {
  std::int64_t bins = 2048;
  DType dtype = DType::QUInt8;
  QScheme qscheme = QScheme::PerTensorAffine;
  bool reduce_range = false;
  std::optional<std::int64_t> quant_min = std::nullopt;  ///< both bounds or none
  std::optional<std::int64_t> quant_max = std::nullopt;
  double eps = 1.1920928955078125e-07;  ///< the smallest scale
  bool is_dynamic = false;              ///< not supported, as in torch
};

void describe(HistogramObserverOptions& options, SettingFields& fields);

/// Counts values in `bins` equal bins between the smallest and the largest seen, and crops that
/// range where the expected squared error of quantizing becomes smallest. Per-tensor schemes only.
///
/// When a batch widens the range, the old counts are spread over the new bins (each old bin in 16
/// parts, each part to the bin its centre lies in), so the counts depend a little on the order of
/// batches. Infinite values are skipped; NaN throws ArgumentError. The arithmetic is that of torch
/// 2.5 and later: one histogram and range give torch's scale and zero point to the last bit (beyond
/// 32768 bins torch may sum on several threads). State: eps [1], histogram [bins], min_val [],
/// max_val [].
class HistogramObserver : public UniformObserver {
 public:
  using Options = HistogramObserverOptions;
  explicit HistogramObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "HistogramObserver"; }
  Settings settings() const override { return current_settings(options_); }

  DigestKind digests() const override { return DigestKind::Framed; }
  /// NaN throws ArgumentError. A digest holds a Float32 count for each bin.
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  void move_frame(const ValueRange& range) override;
  ObservedQParams calculate_qparams() const override;
  bool has_data() const override;
  void reset() override;
  /// The range becomes the union of both, exactly; the counts are added. When both saw the same
  /// range that is exactly what one observer of all the data would hold; otherwise counts are
  /// moved to the wider range first, as for a widening batch.
  void merge(const Collector& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;

  Tensor histogram() const;
  /// 0-d; +inf and -inf before data.
  Tensor min_val() const;
  Tensor max_val() const;

  /// The cropped range, which calculate_qparams turns into scale and zero point.
  struct Range {
    float min;
    float max;
  };
  /// Throws ArgumentError before any data.
  Range search_range() const;

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }
  /// What was counted so far.
  Histogram<float> counted() const;

 private:
  static void add(Histogram<float>& total, const Histogram<float>& batch);
  Histogram<float> no_counts() const;
  ValueRange joined(const ValueRange& range) const;  // under mutex_
  Range search(const Histogram<float>& histogram) const;

  Options options_;
  Histogram<float> seen_;  // guarded by mutex_
};

}  // namespace quanta
