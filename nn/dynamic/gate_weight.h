#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "quanta/nn/rnn.h"
#include "quanta/ops/rnn_dynamic.h"

// Reading and calling are safe from many threads at once.

namespace quanta::nn::quantized::dynamic {

using quanta::quantized::ReduceRange;

/// The weight [N, K] of a linear layer with its bias, packed once; that of a recurrent layer or
/// cell has N = gates * hidden.
class GateWeight {
 public:
  GateWeight() = default;
  /// `weight` QInt8 (per tensor, or per channel along axis 0), or Float32 or Float16, which becomes
  /// Float16; `bias` Float32 [N] or undefined. Throws ArgumentError for others.
  GateWeight(const Tensor& weight, const Tensor& bias);
  /// `weight` and `bias` of a float module as its qconfig says: a weight observer for QInt8 or
  /// Float16. Throws ArgumentError for another one or none.
  static GateWeight from_float(std::string_view op, const Module& module, const Tensor& weight,
                               const Tensor& bias);

  bool defined() const noexcept { return int8_.defined() || float16_.defined(); }
  /// QInt8 or Float16.
  DType dtype() const;
  Tensor weight() const;
  const Tensor& bias() const;
  /// Undefined for Float16.
  const quanta::quantized::LinearPackedParams& int8() const noexcept { return int8_; }

  /// x Float32 [..., K] to [..., N].
  Tensor operator()(const Tensor& x, ReduceRange reduce_range, Fusion fusion = Fusion::None) const;
  std::shared_ptr<const HiddenProduct> hidden_product(ReduceRange reduce_range) const;
  void save(StateDict& state, const std::string& weight_name, const std::string& bias_name) const;
  /// The file decides between QInt8 and Float16 and whether there is a bias; the sizes stay.
  /// Changes this object on commit.
  void load(StateReader& reader, const std::string& weight_name, const std::string& bias_name);
  /// Throws ArgumentError `what: expected sizes ..., got ...`.
  void check_sizes(std::string_view what, const Dims& sizes) const;

 private:
  quanta::quantized::LinearPackedParams int8_;
  quanta::quantized::LinearPackedParamsFp16 float16_;
};

/// The two weights of a layer and direction, or of a cell.
struct GateWeights {
  GateWeight ih, hh;

  RecurrentWeights unpacked() const;
  /// Under the names `weight_ih`, ... of the two (see save): the weight at `<name>/0`, the bias, if
  /// there is one, at `<name>/1`.
  void save(StateDict& state, const std::string& ih_name, const std::string& hh_name) const;
  /// The file decides between QInt8 and Float16 and whether there is a bias. Float32 weights, as
  /// torch writes for Float16, become Float16. Changes the two on commit.
  void load(StateReader& reader, const std::string& ih_name, const std::string& hh_name);
};

/// Int64 0 under `name` where codes use all 8 bits; nothing stands for the 7 bits of torch's
/// modules.
void save_reduce_range(StateDict& state, const std::string& name, ReduceRange reduce_range);
void load_reduce_range(StateReader& reader, const std::string& name, ReduceRange& reduce_range);

}  // namespace quanta::nn::quantized::dynamic
