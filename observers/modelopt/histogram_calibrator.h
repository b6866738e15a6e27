#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/observers/modelopt/calibrator.h"
#include "quanta/ops/block_quant.h"

namespace quanta::modelopt {

enum class HistogramMethod : std::uint8_t { Entropy, Mse, Percentile };
/// "entropy", "mse" or "percentile"; throws ArgumentError for others.
HistogramMethod histogram_method_from_name(std::string_view name);

struct HistogramSearch {
  std::int64_t stride = 1;       ///< Entropy, Mse: of the candidates
  std::int64_t start_bin = 128;  ///< Entropy, Mse: the first of them
  double percentile = 99.99;     ///< Percentile: 0..100
};

/// Counts magnitudes of all that passes and finds the amax beyond which clipping pays, per tensor.
class HistogramCalibrator : public Calibrator {
 public:
  /// How values are counted: as torch.histc does, from 0 on, or as numpy.histogram does, from the
  /// smallest magnitude of the first batch on.
  enum class Kind : std::uint8_t { Torch, Numpy };

  struct Options {
    NumBits num_bits{};
    /// Has to be empty; UnsupportedError otherwise.
    Dims axis{};
    bool is_unsigned = false;
    std::int64_t num_bins = 2048;  ///< of the first batch; later ones add bins of the same width
    bool skip_zeros = false;
    Kind kind = Kind::Torch;
    /// What compute_amax() without arguments uses.
    HistogramMethod method = HistogramMethod::Entropy;
  };
  /// Throws ArgumentError, UnsupportedError.
  explicit HistogramCalibrator(Options options);

  std::string name() const override { return "HistogramCalibrator"; }
  void collect(const Tensor& x) override;
  Tensor compute_amax() const override { return compute_amax(options_.method); }
  void reset() override;
  std::unique_ptr<Calibrator> clone() const override;

  /// A scalar; undefined before any data.
  /// Percentile: the lower edge of the first bin up to which that share of all values lies.
  /// Mse: the bin centre whose use as amax gives the least mean squared error of all centres.
  /// Entropy: the edge that makes the clipped histogram and its quantized form most alike
  /// (Kullback-Leibler); the last of equal ones. The first bin counts as much as the second.
  /// Throws ArgumentError.
  Tensor compute_amax(HistogramMethod method, const HistogramSearch& search = {}) const;

  /// Float32: the counts, and the bins' edges (one more, at times two). Undefined before any data.
  Tensor histogram() const;
  Tensor bin_edges() const;

 private:
  void collect_torch(const std::vector<float>& values, float largest);
  void collect_numpy(const std::vector<float>& values, float largest);

  Options options_;
  std::vector<std::int64_t> counts_;
  std::vector<float> edges_;
};

/// For each index along `axis` of a weight: the histogram of its magnitudes (numpy's, from 0 to
/// their largest) and what the method makes of it; Max is the largest magnitude itself. The result
/// keeps the other axes with size 1 (no axis: a scalar). Throws ArgumentError.
enum class WeightMethod : std::uint8_t { Max, Mse, Percentile };
struct WeightCalibration {
  WeightMethod method = WeightMethod::Percentile;
  Dims axis{};
  double percentile = 99.99;
  std::int64_t num_bins = 2048;
  NumBits num_bits{};
};
Tensor calibrate_weight(const Tensor& weight, const WeightCalibration& options = {});

}  // namespace quanta::modelopt
