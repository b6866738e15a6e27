#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/observers/collector.h"
#include "quanta/observers/modelopt/reduce.h"
#include "quanta/observers/value_range.h"
#include "quanta/runtime/tensor.h"

namespace quanta::modelopt {

/// Gathers statistics of the tensors that pass and turns them into amax. Many threads may share one
/// (see Collector).
class Calibrator : public Collector {
 public:
  /// ModelOpt's name of update().
  void collect(const Tensor& x) { update(x); }
  /// Undefined before any data.
  virtual Tensor compute_amax() const = 0;
  std::shared_ptr<Calibrator> clone() const { return std::static_pointer_cast<Calibrator>(copy()); }

 protected:
  Calibrator() = default;
  Calibrator(const Calibrator&) = default;
};

/// The largest magnitude of everything, for each index along the kept axes (none: one for all).
///
/// State: amax, and amaxs [batches, amax] with Track::EveryAmax; nothing before data.
class MaxCalibrator : public Calibrator {
 public:
  enum class Track : bool { Nothing, EveryAmax };
  explicit MaxCalibrator(Dims axis = {}, Track track = Track::Nothing)
      : axis_(axis), track_(track) {}
  std::string name() const override { return "MaxCalibrator"; }
  Settings settings() const override;

  DigestKind digests() const override { return DigestKind::Alone; }
  /// Also throws ArgumentError for NaN or infinity, and (absorb) when the shape of amax changes.
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool has_data() const override;
  void reset() override;
  /// Exact: the same as if this calibrator had seen both. Throws ArgumentError when the shapes of
  /// amax differ.
  void merge(const Collector& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;
  Tensor compute_amax() const override;
  /// The amax of each batch, with Track::EveryAmax.
  std::vector<Tensor> amaxs() const;

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  void take(const Tensor& amax, std::string_view what);

  Dims axis_;
  Track track_;
  // Guarded by mutex_. Tensors are replaced, never written to: whoever asked for amax before keeps
  // what was true then.
  Tensor amax_;
  std::vector<Tensor> amaxs_;
};

/// Quantizes and dequantizes a tensor with some amax.
using QuantFunction = std::function<Tensor(const Tensor& x, const Tensor& amax)>;

/// Tries multiples of an initial amax and keeps, for each index along the kept axes, the one with
/// the least sum of squared errors (the first of equal ones).
///
/// State: initial_amax, and losses Float64 [candidates, elements of amax] once there is data. The
/// quantization function is no part of it.
class MseCalibrator : public Calibrator {
 public:
  struct Options {
    Dims axis{};
    double step_size = 0.1;
    double start_multiplier = 0.25;
    double stop_multiplier = 4.0;
    QuantFunction quant_func{};
  };
  /// Throws ArgumentError unless 0 < start <= stop, step > 0.
  MseCalibrator(const Tensor& initial_amax, const Options& options);
  std::string name() const override { return "MseCalibrator"; }
  Settings settings() const override;

  DigestKind digests() const override { return DigestKind::Alone; }
  /// Throws ArgumentError without a quantization function.
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool has_data() const override;
  void reset() override;
  /// Adds the errors. Throws ArgumentError for another initial amax.
  void merge(const Collector& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;
  Tensor compute_amax() const override;
  /// Float32 [candidates, elements of amax] ([candidates] for one); undefined before any data.
  Tensor losses() const;

 protected:
  MseCalibrator(const Tensor& initial_amax, Options options, std::vector<float> multipliers);
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

  /// The amax of candidate `i`. Called with the lock.
  virtual Tensor candidate(std::size_t i) const;
  /// Throws ArgumentError where more data may not follow. Called with the lock.
  virtual void check_more() const {}
  std::size_t candidates() const noexcept { return multipliers_.size(); }
  bool has_losses() const noexcept { return !losses_.empty(); }

  Options options_;
  std::vector<float> multipliers_;
  Tensor initial_amax_;  // guarded by mutex_

 private:
  std::vector<std::vector<double>> losses_;  // by candidate; guarded by mutex_
};

void describe(MseCalibrator::Options& options, SettingFields& fields);

/// The form for NVFP4 blocks: the candidates of every block are those that its float8 scale can
/// hold, global_amax * v / 448 for the 126 positive E4M3 numbers v.
///
/// State: global_amax beside that of MseCalibrator.
class NvFp4MseCalibrator : public MseCalibrator {
 public:
  /// `initial_amax` has the sizes of the blocks' amax; `global_amax` one element. Throws
  /// ArgumentError.
  NvFp4MseCalibrator(const Tensor& initial_amax, const Tensor& global_amax, Options options);
  /// Sees one tensor between resets: update throws ArgumentError for a second one, and merge where
  /// both have data.
  std::string name() const override { return "NvFp4MseCalibrator"; }

  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }
  Tensor candidate(std::size_t i) const override;
  void check_more() const override;

 private:
  Tensor global_amax_;  // guarded by mutex_
};

/// A value to subtract before quantizing, so that what is left lies around 0.
///
/// State: batches, and mean, min_val and max_val of the bias's shape; nothing before data.
class BiasCalibrator : public Collector {
 public:
  enum class Method : std::uint8_t { Mean, MaxMin };
  /// "mean" or "max_min"; throws ArgumentError for others.
  static Method method_from_name(std::string_view name);

  /// `axis`: the axes that are averaged over (kept with size 1). None: all of them, and the bias is
  /// one number, a scalar.
  BiasCalibrator(Method method, Dims axis) : method_(method), axis_(axis) {}
  std::string name() const override { return "BiasCalibrator"; }
  Settings settings() const override;

  DigestKind digests() const override { return DigestKind::Alone; }
  Digest digest(const Tensor& x) const override;
  /// Throws ArgumentError when the shape of the bias changes.
  bool absorb(const Digest& digest) override;
  /// ModelOpt's name of update().
  void collect(const Tensor& x) { update(x); }
  bool has_data() const override;
  void reset() override;
  /// Weighs the means by the number of batches. Throws ArgumentError when the shapes differ.
  void merge(const Collector& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;
  /// Mean: the average of the batches' means. MaxMin: the middle between the largest and the
  /// smallest element. Undefined before any data.
  Tensor compute_bias() const;
  std::shared_ptr<BiasCalibrator> clone() const {
    return std::static_pointer_cast<BiasCalibrator>(copy());
  }

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  struct Seen {
    std::int64_t batches = 0;
    Dims shape{};
    std::vector<float> mean;
    ValueRange range;
  };
  void add(const Seen& batch, std::string_view what);

  Method method_;
  Dims axis_;
  Seen seen_;  // guarded by mutex_
};

}  // namespace quanta::modelopt
