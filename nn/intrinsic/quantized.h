#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/quantized/norm.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Quantized forms of the fused modules of nn::intrinsic. State and errors are those of the
/// nn::quantized modules that they derive from.
namespace quanta::nn::intrinsic::quantized {

/// ConvReLU1d, ConvReLU2d and ConvReLU3d; N is the number of spatial dimensions.
template <int N>
class ConvReLU : public nn::quantized::Conv<N> {
 public:
  using nn::quantized::Conv<N>::Conv;
  static std::shared_ptr<Module> from_float(const Module& module);
  static std::shared_ptr<Module> from_reference(const nn::reference::Conv<N>& module, double scale,
                                                std::int64_t zero_point);
  Tensor forward(const Tensor& x) const override;
};
using ConvReLU1d = ConvReLU<1>;
using ConvReLU2d = ConvReLU<2>;
using ConvReLU3d = ConvReLU<3>;
extern template class ConvReLU<1>;
extern template class ConvReLU<2>;
extern template class ConvReLU<3>;

/// ConvAdd2d: conv(x) + accum, `conv->forward(x, accum)`; both QUInt8. ConvAddReLU2d: the relu of
/// that. A `Float`, the float class of that name, too, so that it fits into that one's slot. State
/// as of nn::quantized::Conv2d.
template <typename Float>
class ConvAdd : public Float {
 public:
  double scale = 1.0;
  std::int64_t zero_point = 0;

  ConvAdd(const ConvOptions& options, const QTensor& weight, const Tensor& bias, double scale = 1.0,
          std::int64_t zero_point = 0);
  static std::shared_ptr<Module> from_float(const Module& module);

  const QTensor& weight() const { return packed_.weight(); }
  const Tensor& bias() const { return packed_.bias(); }
  const quanta::quantized::ConvPackedParams& packed() const noexcept { return packed_; }
  std::string type_name() const override;
  std::string extra_repr() const override;

 protected:
  Tensor run(const Tensor& x, const Tensor& accum) const override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  quanta::quantized::ConvPackedParams packed_;
};
using ConvAdd2d = ConvAdd<intrinsic::ConvAdd2d>;
using ConvAddReLU2d = ConvAdd<intrinsic::ConvAddReLU2d>;
extern template class ConvAdd<intrinsic::ConvAdd2d>;
extern template class ConvAdd<intrinsic::ConvAddReLU2d>;

class LinearReLU : public nn::quantized::Linear {
 public:
  using Linear::Linear;
  static std::shared_ptr<Module> from_float(const Module& module);
  static std::shared_ptr<Module> from_reference(const nn::reference::Linear& module, double scale,
                                                std::int64_t zero_point);
  Tensor forward(const Tensor& x) const override;
};

class LinearLeakyReLU : public nn::quantized::Linear {
 public:
  LinearLeakyReLU(const QTensor& weight, const Tensor& bias, double negative_slope,
                  double scale = 1.0, std::int64_t zero_point = 0)
      : Linear(weight, bias, scale, zero_point), negative_slope_(negative_slope) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  static std::shared_ptr<Module> from_reference(const nn::reference::Linear& module,
                                                double negative_slope, double scale,
                                                std::int64_t zero_point);
  double negative_slope() const noexcept { return negative_slope_; }
  Tensor forward(const Tensor& x) const override;

 private:
  double negative_slope_;
};

class LinearTanh : public nn::quantized::Linear {
 public:
  using Linear::Linear;
  static std::shared_ptr<Module> from_float(const Module& module);
  static std::shared_ptr<Module> from_reference(const nn::reference::Linear& module, double scale,
                                                std::int64_t zero_point);
  Tensor forward(const Tensor& x) const override;
};

/// BNReLU2d and BNReLU3d; N is the number of spatial dimensions.
template <int N>
class BNReLU : public nn::quantized::BatchNorm<N> {
 public:
  using nn::quantized::BatchNorm<N>::BatchNorm;
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
};
using BNReLU2d = BNReLU<2>;
using BNReLU3d = BNReLU<3>;
extern template class BNReLU<2>;
extern template class BNReLU<3>;

}  // namespace quanta::nn::intrinsic::quantized
