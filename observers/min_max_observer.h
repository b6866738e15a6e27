#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quanta/observers/qconfig.h"
#include "quanta/observers/uniform_observer.h"
#include "quanta/observers/value_range.h"

// Constructors throw ArgumentError for settings that do not fit. Many threads may share an observer
// (see observers/collector.h).

namespace quanta {

struct MinMaxObserverOptions {
  DType dtype = DType::QUInt8;
  QScheme qscheme = QScheme::PerTensorAffine;
  bool reduce_range = false;
  std::optional<std::int64_t> quant_min = std::nullopt;  ///< both bounds or none
  std::optional<std::int64_t> quant_max = std::nullopt;
  double eps = 1.1920928955078125e-07;  ///< the smallest scale
  bool is_dynamic = false;
};

struct MovingAverageMinMaxObserverOptions {
  double averaging_constant = 0.01;
  DType dtype = DType::QUInt8;
  QScheme qscheme = QScheme::PerTensorAffine;
  bool reduce_range = false;
  std::optional<std::int64_t> quant_min = std::nullopt;
  std::optional<std::int64_t> quant_max = std::nullopt;
  double eps = 1.1920928955078125e-07;
  bool is_dynamic = false;  ///< only with averaging_constant 1
};

struct PerChannelMinMaxObserverOptions {
  std::int64_t ch_axis = 0;
  DType dtype = DType::QUInt8;
  QScheme qscheme = QScheme::PerChannelAffine;
  bool reduce_range = false;
  std::optional<std::int64_t> quant_min = std::nullopt;
  std::optional<std::int64_t> quant_max = std::nullopt;
  double eps = 1.1920928955078125e-07;
  bool is_dynamic = false;  ///< not supported, as in torch
};

struct MovingAveragePerChannelMinMaxObserverOptions {
  double averaging_constant = 0.01;
  std::int64_t ch_axis = 0;
  DType dtype = DType::QUInt8;
  QScheme qscheme = QScheme::PerChannelAffine;
  bool reduce_range = false;
  std::optional<std::int64_t> quant_min = std::nullopt;
  std::optional<std::int64_t> quant_max = std::nullopt;
  double eps = 1.1920928955078125e-07;
  bool is_dynamic = false;  ///< not supported, as in torch
};

void describe(MinMaxObserverOptions& options, SettingFields& fields);
void describe(MovingAverageMinMaxObserverOptions& options, SettingFields& fields);
void describe(PerChannelMinMaxObserverOptions& options, SettingFields& fields);
void describe(MovingAveragePerChannelMinMaxObserverOptions& options, SettingFields& fields);

/// What the min/max observers share: a smallest and a largest value, of all elements or of each
/// channel, in float32. Inputs may be of any floating dtype and memory order; NaN and infinity throw
/// ArgumentError. State: eps [1], min_val and max_val ([] or [C], [0] before data).
class RangeObserver : public UniformObserver {
 public:
  /// Makes the range of what is one batch everywhere out of this part's, in place: where the parts of
  /// a batch are with several observers that are to go on as one. Each calls it with every batch,
  /// with a range of as many entries; that of an empty part is +inf .. -inf.
  using BatchReduction = std::function<void(ValueRange& batch)>;
  /// From now on digest(), and so update(), gives the range that the reduction makes of a tensor's;
  /// what it throws comes out of these, and nothing has changed then. An empty function: the tensor's
  /// own again, as copies of this observer have it. Throws UnsupportedError for a class that does not
  /// rest on the tensors' ranges alone.
  virtual void set_batch_reduction(BatchReduction reduction);
  bool has_batch_reduction() const { return batch_reduction() != nullptr; }
  DigestKind digests() const override { return DigestKind::Alone; }
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool join(Digest& digest, const Digest& next) const override;
  ObservedQParams calculate_qparams() const override;
  bool has_data() const override;
  void reset() override;
  /// Exact: the same as if this observer had seen both. Moving averages throw UnsupportedError.
  void merge(const Collector& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  /// Per channel: takes over the number of channels; the old keys min_vals and max_vals will do.
  void load_state(const StateDict& state, const std::string& prefix) override;
  std::int64_t ch_axis() const noexcept override { return ch_axis_; }

  /// 0-d (+inf before data), or [C] ([0] before data).
  Tensor min_val() const;
  Tensor max_val() const;
  /// Goes on as if the data seen had this range: Float32 tensors of the sizes that min_val() has,
  /// per channel of any length. Throws ArgumentError for others.
  void set_range(const Tensor& min_val, const Tensor& max_val);

 protected:
  RangeObserver(std::string_view op, const UniformSettings& settings,
                std::optional<std::int64_t> ch_axis, std::optional<double> averaging_constant);

 private:
  friend class FusedMovingAvgObsFakeQuantize;
  // The reduction of one observer, not of its copies.
  struct Reduction {
    Reduction() = default;
    Reduction(const Reduction&) {}
    Reduction& operator=(const Reduction&) = delete;
    BatchReduction function;
  };
  BatchReduction batch_reduction() const;
  Tensor values(const std::vector<float>& values) const;
  void clear();
  bool is_empty() const;

  bool per_channel_;
  std::int64_t ch_axis_;
  std::optional<float> averaging_constant_;
  ValueRange seen_;      // guarded by mutex_
  Reduction reduction_;  // guarded by mutex_
};

/// The running minimum and maximum of everything seen. Per-tensor schemes only.
class MinMaxObserver : public RangeObserver {
 public:
  using Options = MinMaxObserverOptions;
  explicit MinMaxObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "MinMaxObserver"; }
  Settings settings() const override { return current_settings(options_); }

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Options options_;
};

/// A moving average of the batches' minima and maxima: v += averaging_constant * (batch - v); the
/// first batch sets them. Per-tensor schemes only.
class MovingAverageMinMaxObserver : public RangeObserver {
 public:
  using Options = MovingAverageMinMaxObserverOptions;
  explicit MovingAverageMinMaxObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "MovingAverageMinMaxObserver"; }
  Settings settings() const override { return current_settings(options_); }
  double averaging_constant() const noexcept { return options_.averaging_constant; }

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Options options_;
};

/// Running minimum and maximum of each index along ch_axis (negative counts from the end).
/// Per-channel schemes only. Every tensor must have the same number of channels.
class PerChannelMinMaxObserver : public RangeObserver {
 public:
  using Options = PerChannelMinMaxObserverOptions;
  explicit PerChannelMinMaxObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "PerChannelMinMaxObserver"; }
  Settings settings() const override { return current_settings(options_); }

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Options options_;
};

/// A moving average of minima and maxima for each channel.
class MovingAveragePerChannelMinMaxObserver : public RangeObserver {
 public:
  using Options = MovingAveragePerChannelMinMaxObserverOptions;
  explicit MovingAveragePerChannelMinMaxObserver(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});
  std::string name() const override { return "MovingAveragePerChannelMinMaxObserver"; }
  Settings settings() const override { return current_settings(options_); }
  double averaging_constant() const noexcept { return options_.averaging_constant; }

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Options options_;
};

}  // namespace quanta
