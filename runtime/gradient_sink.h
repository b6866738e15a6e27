#pragma once

#include <span>

#include "quanta/runtime/tensor.h"

namespace quanta::autograd {

/// Takes leaves' gradients while a backward is still on its way, each as soon as nothing can be added
/// to it any more: to send them off, or to use and free them. See backward(). For one backward at a
/// time, on its thread; what its functions throw comes out of that.
class GradientSink {
 public:
  virtual ~GradientSink() = default;

  /// Called before anything goes back, with the leaves that the output was calculated from, in the
  /// order in which they will be complete. Gives the gradient to start with.
  virtual double begin(std::span<const Tensor> leaves) = 0;
  /// The gradient of this backward for a leaf, as the leaf's hooks leave it. True: it is the sink's;
  /// false: backward adds it to the leaf's grad(). A leaf that gets no gradient is left out.
  virtual bool take(const Tensor& leaf, const Tensor& gradient) = 0;
};

/// Tensor::backward of an output with one element, with a sink. What the sink has taken when
/// something throws stays taken; otherwise gradients and tape are as they were then. Throws
/// ArgumentError as Tensor::backward does.
void backward(const Tensor& output, GradientSink& sink);

}  // namespace quanta::autograd
