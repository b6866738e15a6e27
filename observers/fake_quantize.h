#pragma once

#include <memory>
#include <string>

#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/observer.h"
#include "quanta/observers/qconfig.h"
#include "quanta/observers/uniform_observer.h"

namespace quanta {

/// Base of everything that puts a quantized form of a tensor in its place during training: any
/// function tensor -> tensor with a gradient, that can be switched off, with an observation beside
/// it that can be switched off as well. Sits in a module as its activation_post_process, or as the
/// fake quantizer of its weight.
///
/// forward() records on the tape. It may be called from many threads at once; which of them
/// observes first is then left to chance.
class FakeQuantizeBase : public Observer {
 public:
  /// Whether forward changes what passes (true at first), and whether it observes it (true at
  /// first).
  virtual void enable_fake_quant(bool on = true);
  void disable_fake_quant() { enable_fake_quant(false); }
  virtual void enable_observer(bool on = true);
  void disable_observer() { enable_observer(false); }
  bool is_fake_quant_enabled() const;
  virtual bool is_observer_enabled() const;

  /// The observer inside, or null.
  virtual std::shared_ptr<Observer> observer() const { return nullptr; }

  // forward changes what passes, whatever update does.
  Tensor forward(const Tensor& x) override = 0;

 protected:
  FakeQuantizeBase() = default;
  /// Copies the switches under the other's lock.
  FakeQuantizeBase(const FakeQuantizeBase& other);

  /// Writes fake_quant_enabled and observer_enabled ([1] of `dtype`).
  void save_switches(StateDict& state, const std::string& prefix, DType dtype) const;
  struct Switches {
    bool fake_quant = true;
    bool observer = true;
  };
  /// Reads them; throws ArgumentError for missing ones. observer_enabled may be missing where it
  /// stands for nothing.
  static Switches read_switches(const StateDict& state, const std::string& prefix,
                                bool observer_required = true);
  void set_switches(Switches switches);
  Switches switches() const;

 private:
  Switches switches_;  // guarded by mutex_
};

/// Observes what passes with an observer of any class, takes over its scale and zero point and
/// fake-quantizes with them (per tensor, or per channel along the observer's axis):
///
///   FakeQuantize fake(MovingAverageMinMaxObserver::with_args({.reduce_range = true}));
///   Tensor y = fake.forward(x);
///
/// Codes, dtype and scheme are the observer's; calculate_qparams() is its as well, so what convert
/// uses follows from it. Input: Float32, Float64, Float16 or BFloat16, on any device that the
/// observer takes; scale and zero point stay on the CPU, with a copy there. State as in torch:
/// fake_quant_enabled and observer_enabled UInt8 [1], scale Float32 and zero_point Int32 ([1] or
/// [C]; Float32 with float qparams), the observer's under `activation_post_process`.
class FakeQuantize : public FakeQuantizeBase {
 public:
  /// Throws ArgumentError for an empty factory, or an observer whose codes do not fit its dtype.
  explicit FakeQuantize(const ObserverFactory& observer = MovingAverageMinMaxObserver::with_args());
  static ObserverFactory with_args(
      const ObserverFactory& observer = MovingAverageMinMaxObserver::with_args());

  std::string name() const override { return "FakeQuantize"; }
  Settings settings() const override;
  Tensor forward(const Tensor& x) override;
  /// Observes as forward does with the observer enabled.
  void update(const Tensor& x) override;
  // As the observer's; scale and zero point follow what is absorbed.
  DigestKind digests() const override { return observer_->digests(); }
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool join(Digest& digest, const Digest& next) const override {
    return observer_->join(digest, next);
  }
  void move_frame(const ValueRange& range) override { observer_->move_frame(range); }
  ObservedQParams calculate_qparams() const override { return observer_->calculate_qparams(); }
  bool has_data() const override { return observer_->has_data(); }
  void reset() override { observer_->reset(); }
  /// What the observer's merge does; scale and zero point follow.
  void merge(const Collector& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  /// Scale and zero point take over the sizes of the state.
  void load_state(const StateDict& state, const std::string& prefix) override;
  std::int64_t ch_axis() const noexcept override { return observer_->ch_axis(); }
  std::shared_ptr<Observer> observer() const override { return observer_; }

  /// What the last forward used (1 and 0 before).
  Tensor scale() const;
  Tensor zero_point() const;

 protected:
  /// `op` names the class in messages.
  FakeQuantize(std::string_view op, const ObserverFactory& observer);
  FakeQuantize(const FakeQuantize& other);
  std::shared_ptr<Collector> copy() const override;

  struct QParams {
    Tensor scale;
    Tensor zero_point;
  };
  QParams qparams() const;
  /// On that device: copies that are kept until scale and zero point change, for one device.
  QParams qparams_on(Device device) const;
  /// Takes values as observers give them: zero points become Int32 unless they are floating.
  void set_qparams(const ObservedQParams& qparams);
  /// The dtype of the two switches in the state.
  virtual DType switch_dtype() const { return DType::UInt8; }

 private:
  std::shared_ptr<Observer> observer_;
  // Guarded by mutex_; the tensors are replaced, never written to.
  QParams qparams_;         // on the CPU, where observers calculate them
  mutable QParams copies_;  // of qparams_, on the device of the last input that was not there
};

/// FakeQuantize with a scale and zero point that never change: its observer is a
/// FixedQParamsObserver. For the results of sigmoid, tanh and their like.
class FixedQParamsFakeQuantize : public FakeQuantize {
 public:
  /// Throws ArgumentError for an observer of another class.
  explicit FixedQParamsFakeQuantize(const ObserverFactory& observer);
  static ObserverFactory with_args(const ObserverFactory& observer);

  std::string name() const override { return "FixedQParamsFakeQuantize"; }
  ObservedQParams calculate_qparams() const override;

 protected:
  FixedQParamsFakeQuantize(const FixedQParamsFakeQuantize&) = default;
  std::shared_ptr<Collector> copy() const override;
};

}  // namespace quanta
