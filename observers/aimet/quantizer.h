#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "quanta/observers/aimet/analyzer.h"
#include "quanta/observers/aimet/encoded_tensor.h"
#include "quanta/observers/aimet/encoding.h"
#include "quanta/runtime/state_dict.h"

namespace quanta::aimet {

class Quantizer;

/// Gathers statistics while it lives: every forward of the quantizer adds to them, and is itself
/// calculated with the range of its batch alone. At its end the range of all batches is written;
/// without any, nothing changes.
///
///   {
///     const CalibrationScope scope = quantizer.compute_encodings();
///     for (const Tensor& batch : batches) quantizer.forward(batch);
///   }
///
/// When an exception is on its way the range stays as it was.
class CalibrationScope {
 public:
  ~CalibrationScope();
  CalibrationScope(CalibrationScope&& other) noexcept;
  CalibrationScope& operator=(CalibrationScope&&) = delete;
  /// Ends the scope before its time. What goes wrong is thrown here, while the destructor leaves
  /// the range as it was.
  void finish();

 private:
  friend class Quantizer;
  explicit CalibrationScope(Quantizer* quantizer);

  Quantizer* quantizer_;  // null once it has ended
  int exceptions_;        // on their way when it began
};

/// Base of AIMET's quantizers. Statistics and parameters, with their gradients, are on the CPU;
/// what follows from them is copied to the device of what passes. One thread at a time while
/// calibrating or changing parameters; a calibrated quantizer may be used from many threads at once.
class Quantizer {
 public:
  virtual ~Quantizer() = default;
  Quantizer& operator=(const Quantizer&) = delete;

  const Dims& shape() const noexcept { return shape_; }
  const Dims& block_size() const noexcept { return block_size_; }
  /// Whether there is a range to quantize with.
  virtual bool is_initialized() const = 0;
  /// The encoding that forward uses, or null before it is initialized.
  virtual EncodingPtr encoding() const = 0;
  /// Throws ArgumentError before it is initialized, but for an empty x, which is returned.
  EncodedTensor forward(const Tensor& x);
  EncodedTensor operator()(const Tensor& x) { return forward(x); }

  /// Begins to gather statistics; what was gathered before is dropped. Throws ArgumentError while
  /// another scope lives.
  [[nodiscard]] CalibrationScope compute_encodings();
  /// Gathers statistics for the time that `run` takes.
  void compute_encodings(const std::function<void()>& run);
  bool is_calibrating() const noexcept { return calibrating_; }
  /// Why the last calibration may be bad: a range with infinities, NaN or near the dtype's limits.
  /// Empty when there is nothing to say.
  const std::string& warning() const noexcept { return warning_; }
  /// Null where calibration does nothing.
  const std::shared_ptr<EncodingAnalyzer>& analyzer() const noexcept { return analyzer_; }

  /// As AIMET prints it: `QuantizeDequantize(shape=(8, 2), block_size=(-1, 4), qmin=-128, ...)`.
  virtual std::string to_string() const = 0;
  /// Parameters, and what AIMET calls the extra state, as tensors of numbers.
  virtual void save_state(StateDict& state, const std::string& prefix) const = 0;
  /// Takes over shape and settings too. Throws ArgumentError for missing or unsuitable entries and
  /// leaves everything as it was then.
  virtual void load_state(const StateDict& state, const std::string& prefix) = 0;
  virtual std::shared_ptr<Quantizer> clone() const = 0;

 protected:
  Quantizer(Dims shape, Dims block_size, std::shared_ptr<EncodingAnalyzer> analyzer);
  /// A copy has an analyzer of its own, without statistics, and no scope.
  Quantizer(const Quantizer& other);

  virtual std::string_view name() const = 0;
  /// Whether a scope gathers anything.
  virtual bool can_calibrate() const { return analyzer_ != nullptr; }
  virtual Range range_of_batch(const Tensor& x) const = 0;
  virtual Range range_of_all() const = 0;
  /// The encoding of a batch while the statistics are gathered.
  virtual EncodingPtr encoding_of(const Range& range) const = 0;
  virtual void take_range(const Range& range) = 0;
  virtual EncodedTensor apply(const Tensor& x, const EncodingPtr& encoding) const = 0;

  Dims shape_;
  Dims block_size_;
  std::shared_ptr<EncodingAnalyzer> analyzer_;

 private:
  friend class CalibrationScope;
  void end_calibration();

  bool calibrating_ = false;
  std::string warning_;
};

}  // namespace quanta::aimet
