#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quanta/observers/qconfig.h"
#include "quanta/observers/uniform_observer.h"

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

/// For ops whose result has a range known beforehand (sigmoid, tanh): constant scale and zero
/// point, whatever passes. State: scale Float32 [1], zero_point Int32 [1].
class FixedQParamsObserver : public Observer {
 public:
  using Options = FixedQParamsObserverOptions;
  /// Throws ArgumentError for a scale that is not finite and > 0, or bounds outside which the zero
  /// point lies.
  explicit FixedQParamsObserver(const Options& options);
  static ObserverFactory with_args(const Options& options);
  std::string name() const override { return "FixedQParamsObserver"; }
  std::shared_ptr<Observer> clone() const override;

  Tensor forward(const Tensor& x) override { return x; }
  ObservedQParams calculate_qparams() const override;
  bool has_data() const override { return true; }
  /// Changes nothing; throws ArgumentError when the parameters differ.
  void merge(const Observer& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;

 private:
  struct State {
    float scale;
    std::int64_t zero_point;
    bool operator==(const State&) const = default;
  };
  State state() const;
  static void check(std::string_view op, const State& state, IntRange range);

  mutable ObserverMutex mutex_;
  State state_;  // guarded by mutex_
};

/// Says how something is to be quantized without watching it: dynamic quantization and float16.
/// Without bounds the range is that of the dtype, 0..0 for a floating one.
class PlaceholderObserver : public Observer {
 public:
  using Options = PlaceholderObserverOptions;
  explicit PlaceholderObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "PlaceholderObserver"; }
  std::shared_ptr<Observer> clone() const override;

  Tensor forward(const Tensor& x) override { return x; }
  /// Throws UnsupportedError: there is nothing to calculate from.
  ObservedQParams calculate_qparams() const override;
  bool has_data() const override { return false; }
  void merge(const Observer& other) override;
};

/// Keeps a copy of every tensor that passes, for debugging.
class RecordingObserver : public Observer {
 public:
  using Options = RecordingObserverOptions;
  explicit RecordingObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "RecordingObserver"; }
  std::shared_ptr<Observer> clone() const override;

  Tensor forward(const Tensor& x) override;
  /// Throws UnsupportedError.
  ObservedQParams calculate_qparams() const override;
  bool has_data() const override { return false; }
  /// Forgets the tensors.
  void reset_min_max_vals() override;
  /// Appends the tensors of `other`.
  void merge(const Observer& other) override;
  std::vector<Tensor> get_tensor_value() const;

 private:
  mutable ObserverMutex mutex_;
  std::vector<Tensor> tensors_;  // guarded by mutex_
};

/// Does nothing; stands where nothing is to be quantized.
class NoopObserver : public Observer {
 public:
  using Options = NoopObserverOptions;
  explicit NoopObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "NoopObserver"; }
  std::shared_ptr<Observer> clone() const override;

  Tensor forward(const Tensor& x) override { return x; }
  /// Throws UnsupportedError.
  ObservedQParams calculate_qparams() const override;
  bool has_data() const override { return false; }
  void merge(const Observer& other) override;
};

/// Marks an op whose result takes over the parameters of its input (graph mode).
class ReuseInputObserver : public Observer {
 public:
  ReuseInputObserver() = default;
  static ObserverFactory with_args();
  std::string name() const override { return "ReuseInputObserver"; }
  std::shared_ptr<Observer> clone() const override;

  Tensor forward(const Tensor& x) override { return x; }
  /// Throws UnsupportedError.
  ObservedQParams calculate_qparams() const override;
  bool has_data() const override { return false; }
  void merge(const Observer& other) override;
};

}  // namespace quanta
