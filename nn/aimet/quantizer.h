#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/observers/aimet/analyzer.h"
#include "quanta/observers/aimet/encoded_tensor.h"
#include "quanta/observers/aimet/encoding.h"

namespace quanta::aimet {

class Quantizer;

/// Gathers statistics while it lives: every forward of the quantizer adds to them, and is itself
/// calculated with the range of its batch alone. At its end the range of all batches is written;
/// without any, nothing changes.
///
///   {
///     const CalibrationScope scope = quantizer.compute_encodings();
///     for (const Tensor& batch : batches) quantizer(batch);
///   }
///
/// When an exception is on its way the range stays as it was. Otherwise the destructor throws what
/// finish() throws, so a scope is a local variable: one that a container or another object holds is
/// ended by finish() or cancel().
class CalibrationScope {
 public:
  ~CalibrationScope() noexcept(false);
  CalibrationScope(CalibrationScope&& other) noexcept;
  CalibrationScope& operator=(CalibrationScope&&) = delete;
  /// Works out the range that finish() then writes without an error; what comes later does not
  /// count. Whether there is one: not when no data came to a quantizer that needs some. Throws as
  /// finish(), and the scope goes on.
  bool gather();
  /// Ends the scope before its time. Throws what the analyzer throws, and ArgumentError for a range
  /// of a shape or dtype that the quantizer cannot have, and for one end of a quantizer by scale
  /// and offset that has no range; the range is as it was before then.
  void finish();
  /// Ends the scope and leaves the range as it was.
  void cancel() noexcept;

 private:
  friend class Quantizer;
  explicit CalibrationScope(Quantizer* quantizer);

  Quantizer* quantizer_;  // null once it has ended
  int exceptions_;        // on their way when it began
  std::optional<Range> range_{};
};

/// Base of AIMET's quantizers, which are modules: children of a network, whose parameters are
/// trained with the others.
///
///   struct Layer : nn::Module {
///     nn::Child<nn::Linear> fc;
///     nn::Child<aimet::QuantizeDequantize> weight, output;
///     ...
///     Tensor forward(const Tensor& x) const override {
///       return output(linear(x, weight(fc->weight), fc->bias));
///     }
///   };
///
/// Statistics are on the CPU, and so is what follows from the parameters, with gradients, wherever
/// those are; what passes may be on any device. One thread at a time while calibrating or changing
/// parameters; a calibrated quantizer may be used from many threads at once.
///
/// State: the parameters, and what AIMET calls the extra state as tensors of numbers. Loading takes
/// over blocks and settings too; parameters of other sizes by load_state_and_shape alone. An
/// analyzer keeps its kind when it gets other blocks or another shape.
class Quantizer : public nn::Module {
 public:
  Quantizer& operator=(const Quantizer&) = delete;

  const Dims& shape() const noexcept { return shape_; }
  const Dims& block_size() const noexcept { return block_size_; }
  /// Whether there is a range to quantize with.
  virtual bool is_initialized() const = 0;
  /// The encoding that forward uses, or null before it is initialized: AIMET's get_encodings.
  virtual EncodingPtr encoding() const = 0;
  EncodingPtr get_encodings() const { return encoding(); }
  /// The tensor of operator(). Throws ArgumentError before it is initialized, but for an empty x,
  /// which is returned.
  Tensor forward(const Tensor& x) const final;
  using nn::Module::operator();
  /// The module's call (hooks, forward) with the encoding of this very call. Throws as forward.
  EncodedTensor operator()(const Tensor& x) const;

  /// Begins to gather statistics; what was gathered before is dropped. Throws ArgumentError while
  /// another scope lives.
  [[nodiscard]] CalibrationScope compute_encodings();
  /// Gathers statistics for the time that `run` takes. Throws what `run` throws, and as
  /// CalibrationScope::finish.
  void compute_encodings(const std::function<void()>& run);
  bool is_calibrating() const noexcept { return calibrating_; }
  /// Why the last calibration may be bad: a range with infinities, NaN or near the dtype's limits.
  /// Empty when there is nothing to say.
  const std::string& warning() const noexcept { return warning_; }
  /// Null where calibration does nothing.
  const std::shared_ptr<EncodingAnalyzer>& analyzer() const noexcept { return analyzer_; }
  /// Goes on with an analyzer of the other's kind and settings; where either has none nothing
  /// changes. Throws ArgumentError while a scope lives, UnsupportedError for an analyzer that
  /// cannot have this quantizer's sizes.
  void use_analyzer_of(const Quantizer& other);

  /// As AIMET prints it: `QuantizeDequantize(shape=(8, 2), block_size=(-1, 4), qmin=-128, ...)`.
  std::string to_string() const { return type_name() + "(" + extra_repr() + ")"; }
  /// With tensors and an analyzer of its own, without statistics.
  virtual std::shared_ptr<Quantizer> clone() const = 0;
  /// The state of any quantizer of this class below `prefix`: takes over shape and parametrization
  /// as well. Throws ArgumentError for missing, unexpected and unsuitable entries, UnsupportedError
  /// for an analyzer that cannot have the shape, and leaves everything as it was then.
  void load_state_and_shape(const StateDict& state, const std::string& prefix);
  /// As it was made, without a range, but with today's settings and sizes.
  virtual void forget_range() = 0;
  /// Takes these in the places of its parameters, in the order of named_parameters(): copies of
  /// them on a device. Throws ArgumentError for another number of them.
  void replace_parameters(std::span<const Tensor> parameters);

 protected:
  Quantizer(Dims shape, Dims block_size, std::shared_ptr<EncodingAnalyzer> analyzer);
  /// A copy has an analyzer of its own, without statistics, and no scope.
  Quantizer(const Quantizer& other);

  virtual std::string_view name() const = 0;
  std::string type_name() const override { return std::string(name()); }
  /// Whether a scope gathers anything.
  virtual bool can_calibrate() const { return analyzer_ != nullptr; }
  virtual Range range_of_batch(const Tensor& x) const = 0;
  virtual Range range_of_all() const = 0;
  /// The encoding of a batch while the statistics are gathered.
  virtual EncodingPtr encoding_of(const Range& range) const = 0;
  virtual void take_range(const Range& range) = 0;
  /// Throws where take_range would throw for a range of the right shape.
  virtual void require_writable() const {}
  virtual EncodedTensor apply(const Tensor& x, const EncodingPtr& encoding) const = 0;
  /// Takes these in the places of its parameters.
  virtual void put_parameters(std::span<const Tensor> parameters) { static_cast<void>(parameters); }
  /// Gets the shape that the parameters of a state have; their values follow.
  virtual void make_room_for(const StateDict& state) = 0;
  /// What loading puts in the place of the analyzer. Throws UnsupportedError for one that cannot
  /// have these sizes.
  std::shared_ptr<EncodingAnalyzer> analyzer_for(const Dims& shape, const Dims& block_size) const;

  Dims shape_;
  Dims block_size_;
  std::shared_ptr<EncodingAnalyzer> analyzer_;

 private:
  friend class CalibrationScope;
  friend void compute_encodings(nn::Module& model, const std::function<void()>& run);
  EncodedTensor result_of(const Tensor& x) const;
  std::optional<Range> gathered() const;
  // Float32 of the quantizer's shape on the CPU, whatever an analyzer gives.
  Range fitted(const Range& range) const;
  void take_gathered(const Range& range);
  void begin_calibration();

  bool calibrating_ = false;
  std::string warning_;
};

/// Gathers statistics of every quantizer below for the time that `run` takes; `model` itself may be
/// one. All of them get their range, or, when something throws, none. Throws what `run` throws,
/// ArgumentError where a quantizer gathers already, and as CalibrationScope::finish. For one thread
/// at a time while nobody else calls the model.
void compute_encodings(nn::Module& model, const std::function<void()>& run);

}  // namespace quanta::aimet
