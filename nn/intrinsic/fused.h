#pragma once

#include <initializer_list>
#include <memory>
#include <typeindex>

#include "quanta/nn/container.h"

/// Float modules that were joined by fuse_modules: sequences that are observed and converted as
/// one. All constructors take the parts and throw ArgumentError unless those are exactly of the
/// types that the name says. Parts are children "0", "1", "2".
namespace quanta::nn::intrinsic {

/// Base of all of them; prepare observes one as a unit and does not look inside.
class FusedModule : public Sequential {
 protected:
  FusedModule() = default;
  FusedModule(std::initializer_list<std::shared_ptr<Module>> parts,
              std::initializer_list<std::type_index> types);
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

class ConvReLU1d : public ConvReLUNd {
 public:
  ConvReLU1d(std::shared_ptr<Module> conv, std::shared_ptr<Module> relu);
};
class ConvReLU2d : public ConvReLUNd {
 public:
  ConvReLU2d(std::shared_ptr<Module> conv, std::shared_ptr<Module> relu);
};
class ConvReLU3d : public ConvReLUNd {
 public:
  ConvReLU3d(std::shared_ptr<Module> conv, std::shared_ptr<Module> relu);
};

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

class BNReLU2d : public FusedModule {
 public:
  BNReLU2d(std::shared_ptr<Module> batch_norm, std::shared_ptr<Module> relu);
};
class BNReLU3d : public FusedModule {
 public:
  BNReLU3d(std::shared_ptr<Module> batch_norm, std::shared_ptr<Module> relu);
};

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

class ConvBn1d : public FusedModule {
 public:
  ConvBn1d(std::shared_ptr<Module> conv, std::shared_ptr<Module> batch_norm);
};
class ConvBn2d : public FusedModule {
 public:
  ConvBn2d(std::shared_ptr<Module> conv, std::shared_ptr<Module> batch_norm);
};
class ConvBn3d : public FusedModule {
 public:
  ConvBn3d(std::shared_ptr<Module> conv, std::shared_ptr<Module> batch_norm);
};

class ConvBnReLU1d : public FusedModule {
 public:
  ConvBnReLU1d(std::shared_ptr<Module> conv, std::shared_ptr<Module> batch_norm,
               std::shared_ptr<Module> relu);
};
class ConvBnReLU2d : public FusedModule {
 public:
  ConvBnReLU2d(std::shared_ptr<Module> conv, std::shared_ptr<Module> batch_norm,
               std::shared_ptr<Module> relu);
};
class ConvBnReLU3d : public FusedModule {
 public:
  ConvBnReLU3d(std::shared_ptr<Module> conv, std::shared_ptr<Module> batch_norm,
               std::shared_ptr<Module> relu);
};

class LinearBn1d : public FusedModule {
 public:
  LinearBn1d(std::shared_ptr<Module> linear, std::shared_ptr<Module> batch_norm);
};

}  // namespace quanta::nn::intrinsic
