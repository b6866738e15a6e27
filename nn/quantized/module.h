#pragma once

#include <cstdint>
#include <string>

#include "quanta/nn/module.h"

// A module may be called from many threads at once (see nn/module.h).

/// Modules on quantized tensors: what convert puts in the place of float ones. Their inputs are
/// per-tensor quantized; a float tensor is refused with ArgumentError (a QuantStub is missing).
/// Each has a `from_float` that makes it from an observed float module, as torch's does, and throws
/// ArgumentError when that module has another type, no qconfig, or an observer that saw no data.
/// `from_reference` makes one from a module of nn::reference, whose weight parameters are kept.
namespace quanta::nn::quantized {

/// Base of the modules whose result has a scale and zero point of their own, saved as `scale`
/// (0-d Float32) and `zero_point` (0-d Int64). Files may hold them with one dimension and in
/// other widths.
class OutputQuantized : public Module {
 public:
  double scale = 1.0;
  std::int64_t zero_point = 0;

  /// "QuantizedConv2d", as torch prints.
  std::string type_name() const override;

 protected:
  /// Throws ArgumentError unless scale is finite and > 0 and the zero point in the range, now and
  /// when a state is loaded. The default holds the codes of QUInt8 and of QInt8.
  OutputQuantized(double scale, std::int64_t zero_point, IntRange zero_points = {-128, 255});
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  IntRange zero_points_;
};

}  // namespace quanta::nn::quantized
