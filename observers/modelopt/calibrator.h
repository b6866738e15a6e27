#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/observers/modelopt/reduce.h"
#include "quanta/runtime/tensor.h"

namespace quanta::modelopt {

/// Gathers statistics of the tensors that pass and turns them into amax. Not for several threads at
/// once.
class Calibrator {
 public:
  virtual ~Calibrator() = default;
  Calibrator& operator=(const Calibrator&) = delete;

  /// "MaxCalibrator", ...
  virtual std::string name() const = 0;
  /// Empty tensors change nothing. Throws ArgumentError for what is not floating point.
  virtual void collect(const Tensor& x) = 0;
  /// Undefined before any data.
  virtual Tensor compute_amax() const = 0;
  virtual void reset() = 0;
  virtual std::unique_ptr<Calibrator> clone() const = 0;

 protected:
  Calibrator() = default;
  Calibrator(const Calibrator&) = default;
};

/// The largest magnitude of everything, for each index along the kept axes (none: one for all).
class MaxCalibrator : public Calibrator {
 public:
  enum class Track : bool { Nothing, EveryAmax };
  explicit MaxCalibrator(Dims axis = {}, Track track = Track::Nothing)
      : axis_(axis), track_(track) {}

  std::string name() const override { return "MaxCalibrator"; }
  /// Also throws ArgumentError for NaN or infinity, and when the shape of amax changes.
  void collect(const Tensor& x) override;
  Tensor compute_amax() const override { return amax_; }
  void reset() override;
  std::unique_ptr<Calibrator> clone() const override;
  /// The amax of each collect, with Track::EveryAmax.
  const std::vector<Tensor>& amaxs() const noexcept { return amaxs_; }

 private:
  Dims axis_;
  Track track_;
  Tensor amax_;
  std::vector<Tensor> amaxs_;
};

/// Quantizes and dequantizes a tensor with some amax.
using QuantFunction = std::function<Tensor(const Tensor& x, const Tensor& amax)>;

/// Tries multiples of an initial amax and keeps, for each index along the kept axes, the one with
/// the least sum of squared errors (the first of equal ones).
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
  MseCalibrator(Tensor initial_amax, Options options);

  std::string name() const override { return "MseCalibrator"; }
  /// Throws ArgumentError without a quantization function.
  void collect(const Tensor& x) override;
  Tensor compute_amax() const override;
  void reset() override { losses_ = {}; }
  std::unique_ptr<Calibrator> clone() const override;
  /// Float32 [candidates, elements of amax] ([candidates] for one); undefined before any data.
  Tensor losses() const;

 protected:
  /// The amax of candidate `i`.
  virtual Tensor candidate(std::size_t i) const;
  std::size_t candidates() const noexcept { return multipliers_.size(); }
  bool has_data() const noexcept { return !losses_.empty(); }
  MseCalibrator(Tensor initial_amax, Options options, std::vector<float> multipliers);

  Tensor initial_amax_;
  std::vector<float> multipliers_;

 private:
  Options options_;
  std::vector<std::vector<double>> losses_;  // by candidate
};

/// The form for NVFP4 blocks: the candidates of every block are those that its float8 scale can
/// hold, global_amax * v / 448 for the 126 positive E4M3 numbers v.
class NvFp4MseCalibrator : public MseCalibrator {
 public:
  /// `initial_amax` has the sizes of the blocks' amax; `global_amax` one element.
  NvFp4MseCalibrator(const Tensor& initial_amax, const Tensor& global_amax, Options options);

  std::string name() const override { return "NvFp4MseCalibrator"; }
  /// Throws ArgumentError when it is called again without reset().
  void collect(const Tensor& x) override;
  std::unique_ptr<Calibrator> clone() const override;

 protected:
  Tensor candidate(std::size_t i) const override;

 private:
  Tensor global_amax_;
};

/// A value to subtract before quantizing, so that what is left lies around 0.
class BiasCalibrator {
 public:
  enum class Method : std::uint8_t { Mean, MaxMin };
  /// "mean" or "max_min"; throws ArgumentError for others.
  static Method method_from_name(std::string_view name);

  /// `axis`: the axes that are averaged over (kept with size 1).
  BiasCalibrator(Method method, Dims axis) : method_(method), axis_(axis) {}

  /// Throws ArgumentError when the shape of the bias changes.
  void collect(const Tensor& x);
  /// Mean: the average of the batches' means. MaxMin: the middle between the largest and the
  /// smallest element. Undefined before any data.
  Tensor compute_bias() const;
  void reset();

 private:
  Method method_;
  Dims axis_;
  std::int64_t batches_ = 0;
  Tensor mean_, min_, max_;
};

}  // namespace quanta::modelopt
