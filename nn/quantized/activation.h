#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/nn/quantized/module.h"
#include "quanta/ops/activation.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized {

/// Keeps the input's scale and zero point, has none of its own. Not put in by convert, which keeps
/// nn::ReLU: that one takes codes too.
class ReLU : public Module {
 public:
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string type_name() const override { return "QuantizedReLU"; }
};

/// Keeps the input's scale and zero point, has none of its own.
class ReLU6 : public Module {
 public:
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string type_name() const override { return "QuantizedReLU6"; }
};

/// An identity: dropout does nothing to a trained network.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override { return x; }
  std::string type_name() const override { return "QuantizedDropout"; }
  std::string extra_repr() const override;

 private:
  double p_;
};

class Hardswish : public OutputQuantized {
 public:
  Hardswish(double scale, std::int64_t zero_point) : OutputQuantized(scale, zero_point) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
};

class LeakyReLU : public OutputQuantized {
 public:
  LeakyReLU(double scale, std::int64_t zero_point, double negative_slope = 0.01)
      : OutputQuantized(scale, zero_point), negative_slope_(negative_slope) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  double negative_slope_;
};

/// Base of the modules whose parameters torch does not save (ELU, Sigmoid, Softmax, PReLU). Here
/// they are saved like those of the others; files without them load too, if this module was
/// converted from a calibrated one (its scale and zero point are not 1 and 0).
class OutputQuantizedUnsaved : public OutputQuantized {
 protected:
  using OutputQuantized::OutputQuantized;
  void load_state(StateReader& reader) override;
};

class ELU : public OutputQuantizedUnsaved {
 public:
  ELU(double scale, std::int64_t zero_point, double alpha = 1.0)
      : OutputQuantizedUnsaved(scale, zero_point), alpha_(alpha) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  double alpha_;
};

/// With free output parameters; not put in by convert, which keeps nn::Sigmoid with its fixed ones.
class Sigmoid : public OutputQuantizedUnsaved {
 public:
  Sigmoid(double output_scale, std::int64_t output_zero_point)
      : OutputQuantizedUnsaved(output_scale, output_zero_point) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
};

class Softmax : public OutputQuantizedUnsaved {
 public:
  explicit Softmax(std::int64_t dim, double scale = 1.0, std::int64_t zero_point = 0)
      : OutputQuantizedUnsaved(scale, zero_point), dim_(dim) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  std::int64_t dim_;
};

// Those that torch has no quantized module for: there nn.GELU keeps its input's scale and the others
// fail on codes. Each result is quantize(function(dequantize(code))), looked up in a table of 256.

class GELU : public OutputQuantized {
 public:
  GELU(double scale, std::int64_t zero_point,
       GeluApproximation approximate = GeluApproximation::None)
      : OutputQuantized(scale, zero_point), approximate_(approximate) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  GeluApproximation approximate_;
};

class SiLU : public OutputQuantized {
 public:
  SiLU(double scale, std::int64_t zero_point) : OutputQuantized(scale, zero_point) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
};

class Mish : public OutputQuantized {
 public:
  Mish(double scale, std::int64_t zero_point) : OutputQuantized(scale, zero_point) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
};

class CELU : public OutputQuantized {
 public:
  CELU(double scale, std::int64_t zero_point, double alpha = 1.0)
      : OutputQuantized(scale, zero_point), alpha_(alpha) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  double alpha_;
};

class SELU : public OutputQuantized {
 public:
  SELU(double scale, std::int64_t zero_point) : OutputQuantized(scale, zero_point) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
};

class Softplus : public OutputQuantized {
 public:
  Softplus(double scale, std::int64_t zero_point, double beta = 1.0, double threshold = 20.0)
      : OutputQuantized(scale, zero_point), beta_(beta), threshold_(threshold) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  double beta_;
  double threshold_;
};

class Softsign : public OutputQuantized {
 public:
  Softsign(double scale, std::int64_t zero_point) : OutputQuantized(scale, zero_point) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
};

class LogSigmoid : public OutputQuantized {
 public:
  LogSigmoid(double scale, std::int64_t zero_point) : OutputQuantized(scale, zero_point) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
};

/// Along `dim`, so without a table.
class LogSoftmax : public OutputQuantized {
 public:
  LogSoftmax(std::int64_t dim, double scale, std::int64_t zero_point)
      : OutputQuantized(scale, zero_point), dim_(dim) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  std::int64_t dim_;
};

/// With free output parameters; not put in by convert, which keeps nn::Tanh with its fixed ones.
class Tanh : public OutputQuantized {
 public:
  Tanh(double scale, std::int64_t zero_point) : OutputQuantized(scale, zero_point) {}
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
};

/// The weight is per-tensor QUInt8, saved as `weight` (torch does not save it; files without it
/// load too). from_float needs a qconfig with a QUInt8 weight observer
/// (default_quint8_weight_qconfig).
///
/// As in torch the slope 1 of positive values is a code of the weight's range as well. When the
/// observer saw only slopes below 1, that code saturates and positive values come out scaled down:
/// give the qconfig a weight observer whose range holds 1 where that matters.
class PReLU : public OutputQuantizedUnsaved {
 public:
  /// `weight` has one value, or one for each channel. Throws ArgumentError.
  PReLU(const QTensor& weight, double scale, std::int64_t zero_point);
  static std::shared_ptr<Module> from_float(const Module& module);
  const QTensor& weight() const noexcept { return weight_; }
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 protected:
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  QTensor weight_;
};

}  // namespace quanta::nn::quantized
