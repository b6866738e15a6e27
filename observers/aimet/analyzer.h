#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/observers/collector.h"
#include "quanta/observers/histogram.h"
#include "quanta/observers/value_range.h"
#include "quanta/runtime/dims.h"
#include "quanta/runtime/tensor.h"

namespace quanta::aimet {

/// The ends of a quantizer's range, Float32 of the analyzer's shape.
struct Range {
  Tensor min;
  Tensor max;
};

/// The smallest scale: min(2^-23, 0.01 / num_steps).
float minimum_scale(std::int64_t num_steps);

/// Gathers statistics over batches and says which range suits a quantizer of that shape: one entry
/// for all elements that share a scale (see AffineOptions::block_size). Many threads may share one
/// (see Collector).
class EncodingAnalyzer : public Collector {
 public:
  const Dims& shape() const noexcept { return shape_; }
  const Dims& block_size() const noexcept { return block_size_; }

  /// The range from what was seen. Throws ArgumentError: num_steps <= 0, nothing seen.
  Range compute_range(std::int64_t num_steps, bool symmetric) const;
  /// The range from `x` alone; what was seen before stays as it is.
  Range compute_range_of(const Tensor& x, std::int64_t num_steps, bool symmetric) const;
  std::shared_ptr<EncodingAnalyzer> clone() const {
    return std::static_pointer_cast<EncodingAnalyzer>(copy());
  }
  /// One of the same kind and settings for other sizes, without statistics. Throws UnsupportedError
  /// for a class that does not say how (of_shape), ArgumentError for sizes that cannot be.
  std::shared_ptr<EncodingAnalyzer> with_shape(const Dims& shape, const Dims& block_size) const;

 protected:
  /// Throws ArgumentError for sizes that are not > 0, and for blocks of another rank.
  EncodingAnalyzer(Dims shape, Dims block_size);
  EncodingAnalyzer(const EncodingAnalyzer&) = default;
  virtual Range range_of_data(std::int64_t num_steps, bool symmetric) const = 0;
  /// What with_shape gives, or null.
  virtual std::shared_ptr<EncodingAnalyzer> of_shape(const Dims& shape,
                                                     const Dims& block_size) const;

  Dims shape_;
  Dims block_size_;
};

/// The running minimum and maximum, widened to include 0 and to be at least num_steps minimum
/// scales wide; symmetric ranges are made so that both ends are whole steps of one scale.
///
/// State: min_val and max_val of the shape; nothing before data.
class MinMaxAnalyzer final : public EncodingAnalyzer {
 public:
  explicit MinMaxAnalyzer(const Dims& shape = {}, const Dims& block_size = {});
  explicit MinMaxAnalyzer(std::initializer_list<std::int64_t> shape, const Dims& block_size = {})
      : MinMaxAnalyzer(Dims(shape), block_size) {}
  std::string name() const override { return "MinMaxAnalyzer"; }
  Settings settings() const override;

  DigestKind digests() const override { return DigestKind::Alone; }
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool join(Digest& digest, const Digest& next) const override;
  bool has_data() const override;
  void reset() override;
  /// Exact: the same as if this analyzer had seen both.
  void merge(const Collector& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }
  std::shared_ptr<EncodingAnalyzer> of_shape(const Dims& shape,
                                             const Dims& block_size) const override;
  Range range_of_data(std::int64_t num_steps, bool symmetric) const override;

 private:
  ValueRange seen_;  // guarded by mutex_
};

struct HistogramAnalyzerOptions {
  Dims shape{};
  Dims block_size{};
  std::int64_t num_bins = 2048;
  /// How much wider than the first batch's range a histogram may become (>= 1).
  double growth_limit = std::numeric_limits<double>::infinity();
};
void describe(HistogramAnalyzerOptions& options, SettingFields& fields);

/// Keeps a histogram for each entry of the shape; later batches widen it. Infinite values count in
/// the first and the last bin, NaN is skipped.
///
/// State: histogram [shape, num_bins], bin_edges [shape, num_bins + 1], min_val, max_val,
/// growth_min and growth_max of the shape; nothing before data.
class HistogramAnalyzer : public EncodingAnalyzer {
 public:
  DigestKind digests() const override { return DigestKind::Framed; }
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool join(Digest& digest, const Digest& next) const override;
  void move_frame(const ValueRange& range) override;
  bool has_data() const override;
  void reset() override;
  /// The counts of both over the union of their ranges. When both have the same range that is what
  /// one analyzer of all batches would hold.
  void merge(const Collector& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;
  /// In row-major order of the shape; empty before any data.
  std::vector<Histogram<float>> histograms() const;

 protected:
  using Options = HistogramAnalyzerOptions;
  /// Throws ArgumentError: num_bins < 1, growth_limit < 1.
  HistogramAnalyzer(std::string_view name, const Options& options);
  HistogramAnalyzer(const HistogramAnalyzer&) = default;
  /// The range of one entry.
  struct Ends {
    float min;
    float max;
  };
  virtual Ends ends_of(const Histogram<float>& histogram, std::int64_t num_steps,
                       bool symmetric) const = 0;
  Range range_of_data(std::int64_t num_steps, bool symmetric) const final;

 private:
  struct Entry {
    Histogram<float> histogram;
    float left;  ///< how far it may grow
    float right;
  };
  /// With the range of the finite values of a batch; nothing is counted yet.
  Entry first(Ends ends) const;
  void grow(Entry& entry, const Ends& ends) const;
  void add(Entry& entry, const Entry& other) const;
  void widen(Histogram<float>& histogram, float low, float high) const;
  /// `entries` with bins for a batch of this range.
  std::vector<Entry> with_bins_for(std::vector<Entry> entries, const ValueRange& batch) const;

  std::int64_t num_bins_;
  double growth_limit_;
  std::vector<Entry> entries_;  // guarded by mutex_
};

struct PercentileAnalyzerOptions {
  HistogramAnalyzerOptions histogram{};
  double percentile = 100.0;  ///< 50..100
};
void describe(PercentileAnalyzerOptions& options, SettingFields& fields);

/// Cuts off the outermost values: the range between the (100 - p)th and the p-th percentile.
class PercentileAnalyzer final : public HistogramAnalyzer {
 public:
  using Options = PercentileAnalyzerOptions;
  /// Throws ArgumentError for a percentile outside 50..100.
  explicit PercentileAnalyzer(const Options& options = {});
  std::string name() const override { return "PercentileAnalyzer"; }
  Settings settings() const override { return settings_of(options_); }
  double percentile() const noexcept { return options_.percentile; }
  /// For later calls of compute_range; no other thread may use the analyzer meanwhile.
  void set_percentile(double percentile);

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }
  std::shared_ptr<EncodingAnalyzer> of_shape(const Dims& shape,
                                             const Dims& block_size) const override;
  Ends ends_of(const Histogram<float>& histogram, std::int64_t num_steps,
               bool symmetric) const override;

 private:
  Options options_;
};

struct SqnrAnalyzerOptions {
  HistogramAnalyzerOptions histogram{};
  std::int64_t asymmetric_delta_candidates = 17;
  std::int64_t symmetric_delta_candidates = 101;
  std::int64_t offset_candidates = 21;
  double gamma = 3.0;  ///< how much more clipping counts than rounding
  double p = 2.0;      ///< the power of the error
  /// 512 bins that grow at most threefold: AIMET's TF-enhanced scheme.
  static SqnrAnalyzerOptions tf_enhanced(const Dims& shape = {}, const Dims& block_size = {});
};
void describe(SqnrAnalyzerOptions& options, SettingFields& fields);

/// Tries scales and offsets and takes those with the least quantization noise over the histogram.
class SqnrAnalyzer final : public HistogramAnalyzer {
 public:
  using Options = SqnrAnalyzerOptions;
  /// Throws ArgumentError: fewer than 2 delta or 3 offset candidates, gamma or p that is not > 0.
  explicit SqnrAnalyzer(const Options& options = {});
  std::string name() const override { return "SqnrAnalyzer"; }
  Settings settings() const override { return settings_of(options_); }

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }
  std::shared_ptr<EncodingAnalyzer> of_shape(const Dims& shape,
                                             const Dims& block_size) const override;
  Ends ends_of(const Histogram<float>& histogram, std::int64_t num_steps,
               bool symmetric) const override;

 private:
  Options options_;
};

}  // namespace quanta::aimet
