#pragma once

#include <initializer_list>
#include <memory>
#include <typeindex>

#include "quanta/nn/container.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

/// Float modules that were joined by fuse_modules: sequences that are observed and converted as
/// one. All constructors take the parts and throw ArgumentError unless those are exactly of the
/// types that the name says. Parts are children "0", "1", "2".
namespace quanta::nn::intrinsic {

/// Base of all of them; prepare observes one as a unit and does not look inside.
class FusedModule : public Sequential {
 public:
  Tensor forward(const Tensor& x) const override;

 protected:
  FusedModule() = default;
  FusedModule(std::initializer_list<std::shared_ptr<Module>> parts,
              std::initializer_list<std::type_index> types);
  /// torch's fused modules are sequences that run the observer or fake quantizer of their result as
  /// their last part, before it takes the result once more: moving averages move twice.
  Tensor observed_inside(const Tensor& y) const;
  /// Part `index` if it is a T that can be merged with its neighbours: no hooks, eval mode.
  template <typename T>
  const T* mergeable_part(std::size_t index) const {
    const std::shared_ptr<Module>& part = ptr(index);
    if (!part->is_plain_call() || part->is_training()) return nullptr;
    return dynamic_cast<const T*>(part.get());
  }
};

/// Convolution and ReLU; in eval mode one step with a packed weight.
class ConvReLUNd : public FusedModule {
 public:
  Tensor forward(const Tensor& x) const override;

 protected:
  using FusedModule::FusedModule;
};

/// ConvReLU1d, ConvReLU2d and ConvReLU3d; N is the number of spatial dimensions, here and below.
template <int N>
class ConvReLU : public ConvReLUNd {
 public:
  ConvReLU(std::shared_ptr<Module> conv, std::shared_ptr<Module> relu);
};
using ConvReLU1d = ConvReLU<1>;
using ConvReLU2d = ConvReLU<2>;
using ConvReLU3d = ConvReLU<3>;
extern template class ConvReLU<1>;
extern template class ConvReLU<2>;
extern template class ConvReLU<3>;

/// Linear and ReLU; in eval mode one step with a packed weight.
class LinearReLU : public FusedModule {
 public:
  LinearReLU(std::shared_ptr<Module> linear, std::shared_ptr<Module> relu);
  Tensor forward(const Tensor& x) const override;
};

class LinearLeakyReLU : public FusedModule {
 public:
  LinearLeakyReLU(std::shared_ptr<Module> linear, std::shared_ptr<Module> leaky_relu);
};

class LinearTanh : public FusedModule {
 public:
  LinearTanh(std::shared_ptr<Module> linear, std::shared_ptr<Module> tanh);
};

template <int N>
class BNReLU : public FusedModule {
 public:
  BNReLU(std::shared_ptr<Module> batch_norm, std::shared_ptr<Module> relu);
};
using BNReLU2d = BNReLU<2>;
using BNReLU3d = BNReLU<3>;
extern template class BNReLU<2>;
extern template class BNReLU<3>;

/// conv(x) + accum. Called with two tensors, `conv->forward(x, accum)`; a call with one throws
/// UnsupportedError. The result is observed as a whole; forward hooks, which know one input only,
/// do not run. After convert an intrinsic::quantized::ConvAdd2d, which is a ConvAdd2d too, stands
/// in the slot, so that the call goes on working.
class ConvAdd2d : public FusedModule {
 public:
  explicit ConvAdd2d(std::shared_ptr<Module> conv);
  Tensor forward(const Tensor& x, const Tensor& accum) const;
  [[noreturn]] Tensor forward(const Tensor& x) const override;

 protected:
  ConvAdd2d() = default;
  using FusedModule::FusedModule;
  virtual Tensor run(const Tensor& x, const Tensor& accum) const;
};

/// relu(conv(x) + accum), otherwise as ConvAdd2d.
class ConvAddReLU2d : public ConvAdd2d {
 public:
  ConvAddReLU2d(std::shared_ptr<Module> conv, std::shared_ptr<Module> relu);

 protected:
  ConvAddReLU2d() = default;
  Tensor run(const Tensor& x, const Tensor& accum) const override;
};

// Not folded, for training with quantization in the loop.

template <int N>
class ConvBn : public FusedModule {
 public:
  ConvBn(std::shared_ptr<Module> conv, std::shared_ptr<Module> batch_norm);
};
using ConvBn1d = ConvBn<1>;
using ConvBn2d = ConvBn<2>;
using ConvBn3d = ConvBn<3>;
extern template class ConvBn<1>;
extern template class ConvBn<2>;
extern template class ConvBn<3>;

template <int N>
class ConvBnReLU : public FusedModule {
 public:
  ConvBnReLU(std::shared_ptr<Module> conv, std::shared_ptr<Module> batch_norm,
             std::shared_ptr<Module> relu);
};
using ConvBnReLU1d = ConvBnReLU<1>;
using ConvBnReLU2d = ConvBnReLU<2>;
using ConvBnReLU3d = ConvBnReLU<3>;
extern template class ConvBnReLU<1>;
extern template class ConvBnReLU<2>;
extern template class ConvBnReLU<3>;

class LinearBn1d : public FusedModule {
 public:
  LinearBn1d(std::shared_ptr<Module> linear, std::shared_ptr<Module> batch_norm);
};

}  // namespace quanta::nn::intrinsic
