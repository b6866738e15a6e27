#pragma once

// Private: a layer as a product of matrices, and rows of it while data runs through a model.

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/fusion/simulate.h"
#include "quanta/nn/conv.h"
#include "quanta/runtime/random.h"

namespace quanta::accuracy {

/// For each group of channels and each position of the result,
///
///   results[group, position, :] = patches[group, position, :] * weights[group, :, :]^T (+ bias)
///
/// A position is one row of a linear layer's input, or one place of one image of a convolution's
/// result. Holds the layer's settings, none of its tensors.
class LayerMatrix {
 public:
  explicit LayerMatrix(const WeightedLayer& layer);

  std::int64_t groups() const noexcept { return groups_; }
  std::int64_t rows() const noexcept { return rows_; }        ///< output channels of a group
  std::int64_t columns() const noexcept { return columns_; }  ///< weights of an output channel

  /// A tensor of the weight's sizes as [groups, rows, columns], and back. Recorded on the tape.
  Tensor as_matrix(const Tensor& weight) const;
  Tensor as_weight(const Tensor& matrix) const;

  /// How many positions the result `y` of a call has.
  std::int64_t positions(const Tensor& y) const { return y.numel() / (groups_ * rows_); }
  /// What `positions` of a call's result are calculated from: [groups, positions, columns].
  /// Throws ArgumentError, naming the layer, for numbers that are not finite.
  Tensor patches(const Tensor& x, std::span<const std::int64_t> positions) const;
  /// The result `y` at these positions: [groups, positions, rows].
  Tensor results(const Tensor& y, std::span<const std::int64_t> positions) const;

 private:
  struct Window;
  Window window(const Tensor& x) const;
  void check_finite(const Tensor& x) const;

  std::string path_;
  WeightedLayer::Kind kind_;
  std::int64_t groups_, rows_, columns_;
  Dims weight_sizes_;
  nn::ConvNdOptions options_{};  // transposed convolutions use stride, padding and dilation
  Dims output_padding_{};
};

/// How many positions each call of a layer has, by the layers' paths.
struct CallSizes {
  std::vector<std::string> order;  ///< of the first calls
  std::map<std::string, std::vector<std::int64_t>> positions;
};
/// Runs the data once. Throws ArgumentError, naming `method` and the layer, where one is not called.
CallSizes sizes_of_calls(std::string_view method, nn::Module& model,
                         const std::vector<WeightedLayer>& layers, const Calibrate& run);

/// At most `count` positions of all calls, drawn without replacement; for each call those drawn, in
/// order.
using DrawnPositions = std::vector<std::vector<std::int64_t>>;
DrawnPositions draw_positions(const std::vector<std::int64_t>& calls, std::int64_t count,
                              Generator& generator);

/// Patches of a layer of `model` at those positions of its calls: [groups, positions, columns].
/// Throws ArgumentError, naming the layer, when the calls are others than those that were counted.
Tensor drawn_patches(nn::Module& model, const WeightedLayer& layer, const Calibrate& run,
                     const DrawnPositions& drawn);
/// Its results there: [groups, positions, rows].
Tensor drawn_results(nn::Module& model, const WeightedLayer& layer, const Calibrate& run,
                     const DrawnPositions& drawn);
/// Shows `see` all patches of a layer, [groups, at most `count`, columns] at a time.
void for_all_patches(nn::Module& model, const WeightedLayer& layer, const Calibrate& run,
                     std::int64_t count, const std::function<void(const Tensor&)>& see);

}  // namespace quanta::accuracy
