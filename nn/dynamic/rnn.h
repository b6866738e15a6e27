#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quanta/nn/dynamic/gate_weight.h"
#include "quanta/nn/dynamic/module.h"
#include "quanta/nn/rnn.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Recurrent layers whose weights are QInt8 or Float16 and whose activations stay Float32. With
/// QInt8 weights each product quantizes its input anew: the product with the whole input sequence
/// has one scale and zero point, those with the hidden states one for each step.
///
/// They derive from the float layers, so that calls with a state work as before the swap. Layers
/// without bias work (torch refuses them), projections do not: UnsupportedError.
namespace quanta::nn::quantized::dynamic {

/// Below which name of a layer's state those of its weights number N stand: "N.param/4" of
/// `_all_weight_values`.
std::string gate_weights_name(std::size_t number);

/// What LSTM and GRU share; Float is nn::LSTM or nn::GRU.
///
/// State under torch's names, N = layer * directions + direction:
/// `_all_weight_values.N.param/4/0/0` (weight_ih), `/4/0/1` (bias_ih), `/4/1/0` (weight_hh),
/// `/4/1/1` (bias_hh), and where codes use 8 bits `/3/0` (Int64 0). Files of torch hold the biases
/// a second time at `/1/0` and `/1/1`. A file decides between QInt8 and Float16.
template <typename Float>
class DynamicLayer : public Float, public DynamicModule {
 public:
  /// The weights QInt8 or Float16.
  RecurrentWeights weights(std::int64_t layer, std::int64_t direction = 0) const override;
  /// QInt8 or Float16.
  DType weight_dtype() const { return weights_[0].hh.dtype(); }
  std::string type_name() const override;

 protected:
  using StepsOutput = typename Float::StepsOutput;

  /// `weights` in the order of N above. Throws ArgumentError for other numbers or sizes than the
  /// options say.
  DynamicLayer(const RecurrentOptions& options, std::vector<GateWeights> weights);
  StepsOutput run_layer(std::int64_t layer, std::int64_t direction, const Tensor& x,
                        std::span<const std::int64_t> batch_sizes, const Tensor& h,
                        const Tensor& c) const override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  std::size_t layer_index(std::int64_t layer, std::int64_t direction) const;

  std::vector<GateWeights> weights_;
};

extern template class DynamicLayer<nn::LSTM>;
extern template class DynamicLayer<nn::GRU>;

class LSTM : public DynamicLayer<nn::LSTM> {
 public:
  LSTM(const RecurrentOptions& options, std::vector<GateWeights> weights)
      : DynamicLayer(options, std::move(weights)) {}
  /// Takes an nn::LSTM whose qconfig observes weights as QInt8 (per tensor, or per channel along
  /// axis 0) or Float16. Throws ArgumentError, UnsupportedError for a projection.
  static std::shared_ptr<Module> from_float(const Module& module);
};

class GRU : public DynamicLayer<nn::GRU> {
 public:
  GRU(const RecurrentOptions& options, std::vector<GateWeights> weights)
      : DynamicLayer(options, std::move(weights)) {}
  /// Takes an nn::GRU; otherwise the same as LSTM::from_float.
  static std::shared_ptr<Module> from_float(const Module& module);
};

}  // namespace quanta::nn::quantized::dynamic
