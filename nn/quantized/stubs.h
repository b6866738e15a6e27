#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/nn/module.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized {

/// Float32 in, per-tensor quantized out. Saved as `scale` Float32 [1], `zero_point` Int64 [1].
class Quantize : public Module {
 public:
  double scale = 1.0;
  std::int64_t zero_point = 0;

  /// Throws ArgumentError for a dtype other than QUInt8, QInt8, QInt32, a scale that is not finite
  /// and > 0, and a zero point outside the dtype's range.
  Quantize(double scale, std::int64_t zero_point, DType dtype);
  /// Takes a QuantStub; parameters and dtype are its observer's. Throws ArgumentError as the
  /// from_float functions do.
  static std::shared_ptr<Module> from_float(const Module& module);

  DType dtype() const noexcept { return dtype_; }
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 protected:
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  DType dtype_;
};

/// Quantized in, Float32 out.
class DeQuantize : public Module {
 public:
  /// Takes a DeQuantStub. Throws ArgumentError for another module.
  static std::shared_ptr<Module> from_float(const Module& module);
  Tensor forward(const Tensor& x) const override;
};

}  // namespace quanta::nn::quantized
