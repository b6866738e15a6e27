#pragma once

// Private: GPTQ's rounding, one column of a matrix after the other.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/fusion/simulate.h"

namespace quanta::accuracy {

/// 2 X X^T / positions of what a layer is given, for each group of its channels: [columns, columns],
/// see LayerMatrix. Products in float32, sums in float64. Throws ArgumentError where no data comes.
std::vector<std::vector<double>> input_hessians(nn::Module& model, const WeightedLayer& layer,
                                                const Calibrate& run);

struct GptqSettings {
  double percdamp = 0.01;
  bool act_order = false;
  std::int64_t block_size = 128;
};
/// Throws ArgumentError.
void check(const GptqSettings& settings);

/// The columns of a weight [rows, columns] in the order in which they are rounded.
class GptqColumns {
 public:
  /// Sets the columns of `weight` to 0 that no data reaches (their diagonal is 0). `path` is for
  /// errors: ArgumentError where the raised Hessian is not positive definite in float64.
  GptqColumns(std::span<const double> hessian, std::span<double> weight,
              const GptqSettings& settings, const std::string& path);

  std::size_t size() const noexcept { return order_.size(); }

  /// What becomes of a value: the one on the grid. Called from many threads, for different rows.
  using Round = std::function<double(std::size_t row, std::size_t column, double value)>;
  /// Rounds the columns `begin` .. `end` of the order and hands their errors to all that follow.
  void round(std::size_t begin, std::size_t end, std::span<double> weight,
             const Round& round) const;

 private:
  std::vector<std::size_t> order_;
  std::vector<double> upper_;  // U with U^T U = H^-1, in that order
  std::size_t block_size_ = 1;
};

/// Integer codes of a grid, and the float32 value that a code stands for, as kernels have it.
double code_of(double value, float scale, double zero_point, double low, double high);
double value_of(double code, float scale, double zero_point);

}  // namespace quanta::accuracy
