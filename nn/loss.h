#pragma once

#include <string>

#include "quanta/nn/module.h"
#include "quanta/ops/loss.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

/// What the losses share: `loss->forward(output, target)`, or `loss(output, target)` for a loss
/// that is no child of a module. See ops/loss.h for the formulas, shapes and errors.
class Loss : public Module {
 public:
  /// Like ConvAdd2d, a call with several inputs runs no forward hooks.
  Tensor forward(const Tensor& input, const Tensor& target) const;
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return forward(input, target);
  }
  /// Throws UnsupportedError: a loss needs a target.
  [[noreturn]] Tensor forward(const Tensor& input) const override;

 protected:
  virtual Tensor run(const Tensor& input, const Tensor& target) const = 0;
};

class MSELoss : public Loss {
 public:
  explicit MSELoss(Reduction reduction = Reduction::Mean) : reduction_(reduction) {}

 private:
  Tensor run(const Tensor& input, const Tensor& target) const override;
  Reduction reduction_;
};

class L1Loss : public Loss {
 public:
  explicit L1Loss(Reduction reduction = Reduction::Mean) : reduction_(reduction) {}

 private:
  Tensor run(const Tensor& input, const Tensor& target) const override;
  Reduction reduction_;
};

class SmoothL1Loss : public Loss {
 public:
  /// Throws ArgumentError for beta < 0.
  explicit SmoothL1Loss(Reduction reduction = Reduction::Mean, double beta = 1.0);

 private:
  Tensor run(const Tensor& input, const Tensor& target) const override;
  Reduction reduction_;
  double beta_;
};

class BCEWithLogitsLoss : public Loss {
 public:
  /// Buffers; may be undefined.
  Tensor weight;
  Tensor pos_weight;

  explicit BCEWithLogitsLoss(const BinaryLossOptions& options = {});

 private:
  Tensor run(const Tensor& input, const Tensor& target) const override;
  Reduction reduction_;
};

/// The loss of log-probabilities (LogSoftmax) against class indices.
class NLLLoss : public Loss {
 public:
  /// A buffer [C]; may be undefined.
  Tensor weight;

  /// Throws ArgumentError for label_smoothing, which CrossEntropyLoss has.
  explicit NLLLoss(const ClassLossOptions& options = {});

 private:
  Tensor run(const Tensor& input, const Tensor& target) const override;
  ClassLossOptions options_;
};

/// The loss of scores against class indices or probabilities.
class CrossEntropyLoss : public Loss {
 public:
  /// A buffer [C]; may be undefined.
  Tensor weight;

  /// Throws ArgumentError for label_smoothing outside [0, 1].
  explicit CrossEntropyLoss(const ClassLossOptions& options = {});

 private:
  Tensor run(const Tensor& input, const Tensor& target) const override;
  ClassLossOptions options_;
};

}  // namespace quanta::nn
