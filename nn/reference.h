#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "quanta/nn/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/module.h"

// Constructors and calls throw ArgumentError for what does not fit, from_float for weights with NaN or
// infinity as well. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Float modules that carry the parameters with which their weight is to be quantized, and that
/// compute with the weight as quantizing leaves it: what a backend's own quantized modules are made
/// from (see from_reference in nn/quantized). torch.ao.nn.quantized.reference.
namespace quanta::nn::reference {

/// How a weight is quantized. Scale (floating) and zero point (integer; floating for float qparams)
/// hold one element per tensor, or one for each index along `axis` per channel.
struct WeightQParams {
  QScheme qscheme = QScheme::PerTensorAffine;
  DType dtype = DType::QInt8;
  Tensor scale{};
  Tensor zero_point{};
  std::int64_t axis = 0;

  /// What an observer calculated; symmetric schemes become affine ones, as tensors have no other.
  /// Throws ArgumentError for one that saw no data.
  static WeightQParams from_observer(const Observer& observer);

  /// These parameters with an affine scheme in the place of a symmetric one.
  WeightQParams affine() const;
  /// The weight quantized. Throws ArgumentError if it does not suit the parameters, or holds NaN or
  /// infinity.
  QTensor quantize(const Tensor& weight) const;
  /// The weight quantized and dequantized again, what forward computes with: it is not looked at for
  /// NaN each time. Throws ArgumentError if it does not suit the parameters.
  Tensor rounded(const Tensor& weight) const;
  /// Saves the parameters as `<name>_scale`, `<name>_zero_point` and `<name>_axis`.
  void save(StateDict& state, const std::string& name) const;
  /// Changes this object, a part of the module that reads, on commit. Notes a problem for
  /// parameters that do not suit the weight, and for a new weight with NaN or infinity.
  void load(StateReader& reader, const std::string& name, const Tensor& weight);
};

/// What the reference modules share. State: `weight`, `bias` (if any), `weight_scale`,
/// `weight_zero_point` and, per channel, `weight_axis`. (torch's `weight_qscheme` and
/// `weight_dtype` are no tensors: those of the module stay.)
class ReferenceModule : public Module {
 public:
  /// Float32, not quantized; sizes as in the float module.
  Tensor weight;
  /// Float32, or undefined.
  Tensor bias;

  const WeightQParams& weight_qparams() const noexcept { return qparams_; }
  /// The weight quantized. Throws ArgumentError if it does not suit the parameters, or holds NaN or
  /// infinity.
  QTensor get_quantized_weight() const;
  /// The weight quantized and dequantized again: what forward computes with.
  Tensor get_weight() const;

  /// "QuantizedLinear(Reference)", as torch prints.
  std::string type_name() const override;
  std::string extra_repr() const override { return repr_; }

 protected:
  /// Copies of weight and bias; `repr` is the float module's. Throws ArgumentError for parameters
  /// that do not suit the weight.
  ReferenceModule(const Tensor& weight, const Tensor& bias, const WeightQParams& qparams,
                  std::string repr);
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  WeightQParams qparams_;
  std::string repr_;
};

class Linear : public ReferenceModule {
 public:
  Linear(const nn::Linear& source, const WeightQParams& qparams);
  static std::shared_ptr<Linear> from_float(const nn::Linear& source, const WeightQParams& qparams);
  const LinearOptions& options() const noexcept { return options_; }
  Tensor forward(const Tensor& x) const override;

 private:
  LinearOptions options_;
};

/// What Conv1d, Conv2d and Conv3d share.
class ConvNd : public ReferenceModule {
 public:
  const ConvNdOptions& options() const noexcept { return options_; }
  std::int64_t spatial() const noexcept { return spatial_; }
  Tensor forward(const Tensor& x) const override;

 protected:
  ConvNd(const nn::ConvNd& source, const WeightQParams& qparams);

 private:
  ConvNdOptions options_;
  std::int64_t spatial_;
};

/// Conv1d, Conv2d and Conv3d; N is the number of spatial dimensions.
template <int N>
class Conv : public ConvNd {
 public:
  Conv(const nn::Conv<N>& source, const WeightQParams& qparams) : ConvNd(source, qparams) {}
  static std::shared_ptr<Conv> from_float(const nn::Conv<N>& source, const WeightQParams& qparams);
};
using Conv1d = Conv<1>;
using Conv2d = Conv<2>;
using Conv3d = Conv<3>;
extern template class Conv<1>;
extern template class Conv<2>;
extern template class Conv<3>;

/// What the transposed convolutions share; per channel along axis 1.
class ConvTransposeNd : public ReferenceModule {
 public:
  const ConvTransposeNdOptions& options() const noexcept { return options_; }
  std::int64_t spatial() const noexcept { return spatial_; }
  Tensor forward(const Tensor& x) const override;

 protected:
  ConvTransposeNd(const nn::ConvTransposeNd& source, const WeightQParams& qparams);

 private:
  ConvTransposeNdOptions options_;
  std::int64_t spatial_;
};

/// ConvTranspose1d, ConvTranspose2d and ConvTranspose3d; N is the number of spatial dimensions.
template <int N>
class ConvTranspose : public ConvTransposeNd {
 public:
  ConvTranspose(const nn::ConvTranspose<N>& source, const WeightQParams& qparams)
      : ConvTransposeNd(source, qparams) {}
  static std::shared_ptr<ConvTranspose> from_float(const nn::ConvTranspose<N>& source,
                                                   const WeightQParams& qparams);
};
using ConvTranspose1d = ConvTranspose<1>;
using ConvTranspose2d = ConvTranspose<2>;
using ConvTranspose3d = ConvTranspose<3>;
extern template class ConvTranspose<1>;
extern template class ConvTranspose<2>;
extern template class ConvTranspose<3>;

/// A float Embedding whose rows are as quantizing leaves them. State as of ReferenceModule.
class Embedding : public nn::Embedding {
 public:
  Embedding(const nn::Embedding& source, const WeightQParams& qparams);
  static std::shared_ptr<Embedding> from_float(const nn::Embedding& source,
                                               const WeightQParams& qparams);

  const WeightQParams& weight_qparams() const noexcept { return qparams_; }
  /// See ReferenceModule.
  QTensor get_quantized_weight() const;
  Tensor get_weight() const;
  Tensor forward(const Tensor& indices) const override;
  std::string type_name() const override { return "QuantizedEmbedding(Reference)"; }

 protected:
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  WeightQParams qparams_;
};

/// A float EmbeddingBag, of any mode, whose rows are as quantizing leaves them. State as of
/// ReferenceModule.
class EmbeddingBag : public nn::EmbeddingBag {
 public:
  EmbeddingBag(const nn::EmbeddingBag& source, const WeightQParams& qparams);
  static std::shared_ptr<EmbeddingBag> from_float(const nn::EmbeddingBag& source,
                                                  const WeightQParams& qparams);

  const WeightQParams& weight_qparams() const noexcept { return qparams_; }
  QTensor get_quantized_weight() const;
  Tensor get_weight() const;
  std::string type_name() const override { return "QuantizedEmbeddingBag(Reference)"; }

 protected:
  Tensor run(const Tensor& indices, const Tensor& offsets,
             const Tensor& per_sample_weights) const override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  WeightQParams qparams_;
};

}  // namespace quanta::nn::reference
