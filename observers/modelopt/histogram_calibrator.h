#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/observers/histogram.h"
#include "quanta/observers/modelopt/calibrator.h"
#include "quanta/ops/block_quant.h"

// What throws says so. Many threads may share a calibrator (see observers/collector.h).

namespace quanta::modelopt {

enum class HistogramMethod : std::uint8_t { Entropy, Mse, Percentile };
/// "entropy", "mse" or "percentile"; throws ArgumentError for others.
HistogramMethod histogram_method_from_name(std::string_view name);

struct HistogramSearch {
  std::int64_t stride = 1;       ///< Entropy, Mse: bins from one candidate to the next
  std::int64_t start_bin = 128;  ///< Entropy, Mse: the first candidate
  double percentile = 99.99;     ///< Percentile: 0..100
};

/// Counts magnitudes of all that passes and finds the amax beyond which clipping pays, per tensor.
///
/// State: histogram Int64 [bins], bin_edges, min_val and max_val (the first and the last edge);
/// nothing before data.
class HistogramCalibrator : public Calibrator {
 public:
  /// How values are counted: as torch.histc does, from 0 on, or as numpy.histogram does, from the
  /// smallest magnitude of the first batch on.
  enum class Kind : std::uint8_t { Torch, Numpy };

  struct Options {
    NumBits num_bits{};
    /// Has to be empty: histograms are per tensor.
    Dims axis{};
    bool is_unsigned = false;
    std::int64_t num_bins = 2048;  ///< for the first batch; later ones add bins of the same width
    bool skip_zeros = false;
    Kind kind = Kind::Torch;
    /// What compute_amax() without arguments uses.
    HistogramMethod method = HistogramMethod::Entropy;
  };
  /// Throws ArgumentError for a number of bins outside 2..2^24, UnsupportedError for an axis.
  explicit HistogramCalibrator(Options options);

  std::string name() const override { return "HistogramCalibrator"; }
  Settings settings() const override { return settings_of(options_); }

  DigestKind digests() const override { return DigestKind::Framed; }
  /// Also throws ArgumentError for NaN and infinity, and for a magnitude so far beyond the first
  /// batch's that it takes more than 2^24 bins.
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool join(Digest& digest, const Digest& next) const override;
  void move_frame(const ValueRange& range) override;
  bool has_data() const override;
  void reset() override;
  /// Counts every bin of `other` at its centre, in bins as wide as this one's. Exact where the bins
  /// are the same.
  void merge(const Collector& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;
  Tensor compute_amax() const override { return compute_amax(options_.method); }

  /// The amax that a method finds, a scalar; undefined before any data.
  ///
  ///   Percentile   the lower edge of the first bin up to which that share of all values lies
  ///   Mse          the bin centre whose use as amax gives the least mean squared error of all
  ///                centres
  ///   Entropy      the edge that makes the clipped histogram and its quantized form most alike
  ///                (Kullback-Leibler), the last of equal ones; the first bin counts as much as the
  ///                second
  ///
  /// Throws ArgumentError for a stride, a first bin or a percentile that is out of range, for bits
  /// that the method does not know, and for a search of more than 2^32 steps, which would run for
  /// minutes: candidates times levels for Entropy, candidates times bins that are not empty for Mse.
  Tensor compute_amax(HistogramMethod method, const HistogramSearch& search = {}) const;

  /// Float32: the counts, and the bins' edges (one more, at times two). Undefined before any data.
  Tensor histogram() const;
  Tensor bin_edges() const;

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  using Counts = Histogram<std::int64_t>;
  /// As `seen` with more bins of the same width, up to `largest`.
  void grow(Counts& seen, float largest) const;
  /// `seen` with bins for magnitudes from `smallest` to `largest`.
  Counts with_bins_for(Counts seen, float smallest, float largest) const;

  Options options_;
  Counts seen_;  // guarded by mutex_
};
void describe(HistogramCalibrator::Options& options, SettingFields& fields);

/// How calibrate_weight chooses amax; Max is the largest magnitude itself.
enum class WeightMethod : std::uint8_t { Max, Mse, Percentile };
struct WeightCalibration {
  WeightMethod method = WeightMethod::Percentile;
  Dims axis{};
  double percentile = 99.99;
  std::int64_t num_bins = 2048;
  NumBits num_bits{};
};
/// For each index along `axis` of a weight: the histogram of its magnitudes (numpy's, from 0 to
/// their largest) and what the method makes of it. The result keeps the other axes with size 1 (no
/// axis: a scalar). Throws ArgumentError.
Tensor calibrate_weight(const Tensor& weight, const WeightCalibration& options = {});

}  // namespace quanta::modelopt
