#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "quanta/runtime/dims.h"
#include "quanta/runtime/tensor.h"

namespace quanta::aimet {

/// The ends of a quantizer's range, Float32 of the analyzer's shape.
struct Range {
  Tensor min;
  Tensor max;
};

/// min(2^-23, 0.01 / num_steps): scales are at least that.
float minimum_scale(std::int64_t num_steps);

/// Gathers statistics over batches and says which range suits a quantizer of that shape: one entry
/// for all elements that share a scale (see AffineOptions::block_size). Floating tensors; empty
/// ones change nothing.
class EncodingAnalyzer {
 public:
  virtual ~EncodingAnalyzer() = default;
  EncodingAnalyzer& operator=(const EncodingAnalyzer&) = delete;

  const Dims& shape() const noexcept { return shape_; }
  const Dims& block_size() const noexcept { return block_size_; }

  /// Takes in a batch. Throws ArgumentError when it cannot be reduced to the shape.
  virtual void update(const Tensor& x) = 0;
  virtual void reset() = 0;
  virtual bool has_data() const = 0;
  /// The range from what was seen. Throws ArgumentError: num_steps <= 0, nothing seen.
  Range compute_range(std::int64_t num_steps, bool symmetric) const;
  /// The range from `x` alone; what was seen before stays as it is.
  Range compute_range_of(const Tensor& x, std::int64_t num_steps, bool symmetric) const;
  virtual std::unique_ptr<EncodingAnalyzer> clone() const = 0;

 protected:
  EncodingAnalyzer(Dims shape, Dims block_size);
  EncodingAnalyzer(const EncodingAnalyzer&) = default;
  virtual std::string_view name() const = 0;
  virtual Range range_of_data(std::int64_t num_steps, bool symmetric) const = 0;

  Dims shape_;
  Dims block_size_;
};

/// The running minimum and maximum, widened to include 0 and to be at least num_steps minimum
/// scales wide; symmetric ranges are made so that both ends are whole steps of one scale.
class MinMaxAnalyzer final : public EncodingAnalyzer {
 public:
  explicit MinMaxAnalyzer(const Dims& shape = {}, const Dims& block_size = {});

  void update(const Tensor& x) override;
  void reset() override;
  bool has_data() const override { return !min_.empty(); }
  std::unique_ptr<EncodingAnalyzer> clone() const override;

 protected:
  std::string_view name() const override { return "MinMaxAnalyzer"; }
  Range range_of_data(std::int64_t num_steps, bool symmetric) const override;

 private:
  std::vector<float> min_;
  std::vector<float> max_;
};

/// The values of one entry of the shape, as counts in bins of equal width.
struct AnalyzerHistogram {
  std::vector<float> counts;
  std::vector<float> edges;  ///< one more than counts
  float min = 0.0F;
  float max = 0.0F;
};

struct HistogramAnalyzerOptions {
  Dims shape{};
  Dims block_size{};
  std::int64_t num_bins = 2048;
  /// How much wider than the first batch's range a histogram may become (>= 1).
  double growth_limit = std::numeric_limits<double>::infinity();
};

/// Keeps a histogram for each entry of the shape; later batches widen it.
class HistogramAnalyzer : public EncodingAnalyzer {
 public:
  void update(const Tensor& x) override;
  void reset() override { entries_.clear(); }
  bool has_data() const override { return !entries_.empty(); }
  /// In row-major order of the shape; empty before any data.
  std::vector<AnalyzerHistogram> histograms() const;

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
  virtual Ends ends_of(const AnalyzerHistogram& histogram, std::int64_t num_steps,
                       bool symmetric) const = 0;
  Range range_of_data(std::int64_t num_steps, bool symmetric) const final;

 private:
  struct Entry {
    AnalyzerHistogram histogram;
    float left;  ///< how far it may grow
    float right;
  };
  void merge(Entry& entry, const std::vector<float>& values) const;
  Entry first(const std::vector<float>& values) const;

  std::int64_t num_bins_;
  double growth_limit_;
  std::vector<Entry> entries_;
};

struct PercentileAnalyzerOptions {
  HistogramAnalyzerOptions histogram{};
  double percentile = 100.0;  ///< 50..100
};

/// Cuts off the outermost values: the range between the (100 - p)th and the p-th percentile.
class PercentileAnalyzer final : public HistogramAnalyzer {
 public:
  using Options = PercentileAnalyzerOptions;
  /// Throws ArgumentError for a percentile outside 50..100.
  explicit PercentileAnalyzer(const Options& options = {});
  std::unique_ptr<EncodingAnalyzer> clone() const override;
  double percentile() const noexcept { return percentile_; }
  /// For later calls of compute_range.
  void set_percentile(double percentile);

 protected:
  std::string_view name() const override { return "PercentileAnalyzer"; }
  Ends ends_of(const AnalyzerHistogram& histogram, std::int64_t num_steps,
               bool symmetric) const override;

 private:
  double percentile_;
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

/// Tries scales and offsets and takes those with the least quantization noise over the histogram.
class SqnrAnalyzer final : public HistogramAnalyzer {
 public:
  using Options = SqnrAnalyzerOptions;
  /// Throws ArgumentError: fewer than 2 delta or 3 offset candidates, gamma or p that is not > 0.
  explicit SqnrAnalyzer(const Options& options = {});
  std::unique_ptr<EncodingAnalyzer> clone() const override;

 protected:
  std::string_view name() const override { return "SqnrAnalyzer"; }
  Ends ends_of(const AnalyzerHistogram& histogram, std::int64_t num_steps,
               bool symmetric) const override;

 private:
  Options options_;
};

}  // namespace quanta::aimet
