#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quanta/observers/qconfig.h"
#include "quanta/observers/uniform_observer.h"

// What throws says so. Many threads may share an observer (see observers/collector.h).

namespace quanta {

struct FixedQParamsObserverOptions {
  double scale = 1.0;
  std::int64_t zero_point = 0;
  DType dtype = DType::QUInt8;
  QScheme qscheme = QScheme::PerTensorAffine;
  std::int64_t quant_min = 0;
  std::int64_t quant_max = 255;
  bool is_dynamic = false;  ///< not supported, as in torch
};

struct PlaceholderObserverOptions {
  DType dtype = DType::Float32;
  QScheme qscheme = QScheme::PerTensorAffine;
  std::optional<std::int64_t> quant_min = std::nullopt;  ///< both bounds or none
  std::optional<std::int64_t> quant_max = std::nullopt;
  bool is_dynamic = false;
};

struct RecordingObserverOptions {
  DType dtype = DType::QUInt8;
};

struct NoopObserverOptions {
  DType dtype = DType::Float16;
};

struct ReuseInputObserverOptions {};

void describe(FixedQParamsObserverOptions& options, SettingFields& fields);
void describe(PlaceholderObserverOptions& options, SettingFields& fields);
void describe(RecordingObserverOptions& options, SettingFields& fields);
void describe(NoopObserverOptions& options, SettingFields& fields);
void describe(ReuseInputObserverOptions& options, SettingFields& fields);

/// Gives constant scale and zero point, whatever passes: for ops whose result has a range known
/// beforehand (sigmoid, tanh). State: scale Float32 [1], zero_point Int32 [1].
class FixedQParamsObserver : public Observer {
 public:
  using Options = FixedQParamsObserverOptions;
  /// Throws ArgumentError for a scale that is not finite and > 0, or bounds outside which the zero
  /// point lies.
  explicit FixedQParamsObserver(const Options& options);
  static ObserverFactory with_args(const Options& options);
  std::string name() const override { return "FixedQParamsObserver"; }
  Settings settings() const override;

  DigestKind digests() const override { return DigestKind::Alone; }
  /// Anything passes.
  Digest digest(const Tensor& /*x*/) const override { return {.passed = true}; }
  bool absorb(const Digest& /*digest*/) override { return true; }
  bool join(Digest& /*digest*/, const Digest& /*next*/) const override { return true; }
  ObservedQParams calculate_qparams() const override;
  bool has_data() const override { return true; }
  /// Nothing to forget: the parameters stay.
  void reset() override {}
  /// Changes nothing; throws ArgumentError when the parameters differ.
  void merge(const Collector& other) override { require_same_kind(other); }
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Options options_;  // guarded by mutex_
};

/// Base of the observers that only mark a place: they calculate nothing, and anything passes.
class MarkingObserver : public Observer {
 public:
  DigestKind digests() const override { return DigestKind::Alone; }
  Digest digest(const Tensor& /*x*/) const override { return {.passed = true}; }
  bool absorb(const Digest& /*digest*/) override { return true; }
  bool join(Digest& /*digest*/, const Digest& /*next*/) const override { return true; }
  /// Throws UnsupportedError: there is nothing to calculate from.
  ObservedQParams calculate_qparams() const override;
  bool has_data() const override { return false; }
  void reset() override {}
  void merge(const Collector& other) override { require_same_kind(other); }

 protected:
  /// The codes are those that the dtype has, 0..0 for a floating one.
  explicit MarkingObserver(DType dtype);
};

/// Says how something is to be quantized without watching it: dynamic quantization and float16.
/// Without bounds the range is that of the dtype, 0..0 for a floating one.
class PlaceholderObserver : public MarkingObserver {
 public:
  using Options = PlaceholderObserverOptions;
  /// Throws ArgumentError for bounds that observer_range refuses.
  explicit PlaceholderObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "PlaceholderObserver"; }
  Settings settings() const override { return settings_of(options_); }

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Options options_;
};

/// Keeps a copy of every tensor that passes, for debugging.
class RecordingObserver : public MarkingObserver {
 public:
  using Options = RecordingObserverOptions;
  explicit RecordingObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "RecordingObserver"; }
  Settings settings() const override { return settings_of(options_); }

  /// Throws ArgumentError for an undefined tensor.
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool join(Digest& /*digest*/, const Digest& /*next*/) const override { return false; }
  /// The tensors, which are no part of the state.
  void save_gathered(StateDict& state, const std::string& prefix) const override;
  void load_gathered(const StateDict& state, const std::string& prefix) override;
  /// Forgets the tensors.
  void reset() override;
  /// Appends the tensors of `other`.
  void merge(const Collector& other) override;
  std::vector<Tensor> get_tensor_value() const;

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Options options_;
  std::vector<Tensor> tensors_;  // guarded by mutex_
};

/// Does nothing; stands where nothing is to be quantized.
class NoopObserver : public MarkingObserver {
 public:
  using Options = NoopObserverOptions;
  explicit NoopObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "NoopObserver"; }
  Settings settings() const override { return settings_of(options_); }

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Options options_;
};

/// Marks an op whose result takes over the parameters of its input (graph mode).
class ReuseInputObserver : public MarkingObserver {
 public:
  using Options = ReuseInputObserverOptions;
  explicit ReuseInputObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "ReuseInputObserver"; }

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }
};

}  // namespace quanta
