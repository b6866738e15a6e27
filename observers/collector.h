#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "quanta/observers/settings.h"
#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

namespace quanta {

/// A mutex of its own for every copy of the object that holds it.
class CollectorMutex : public std::mutex {
 public:
  CollectorMutex() = default;
  CollectorMutex(const CollectorMutex&) : std::mutex() {}
  CollectorMutex& operator=(const CollectorMutex&) = delete;
};

/// Gathers statistics of the tensors it is shown. What the statistics are good for is up to the
/// three families of collectors: torch's observers (Observer: scale and zero point), AIMET's
/// encoding analyzers (aimet::EncodingAnalyzer: a range), and ModelOpt's calibrators
/// (modelopt::Calibrator: amax; modelopt::BiasCalibrator: a bias).
///
/// Every member function may be called from many threads at once: calibration with several workers
/// shares one collector, or gives one to each of them and merges.
class Collector {
 public:
  virtual ~Collector() = default;
  Collector& operator=(const Collector&) = delete;

  /// The class's name, as in texts and files: "MinMaxObserver".
  virtual std::string name() const = 0;
  /// What it was made with (and what load_state put in place of that).
  virtual Settings settings() const { return {}; }

  /// Takes in a tensor of any floating dtype and memory order. Empty tensors change nothing. Throws
  /// ArgumentError for other dtypes, and for what the class cannot count or reduce to the shape of
  /// its statistics; what was gathered before is then as it was.
  virtual void update(const Tensor& x) = 0;
  /// Whether there is something to calculate results from.
  virtual bool has_data() const = 0;
  /// Back to the state before any data.
  virtual void reset() = 0;
  /// Takes in what `other` saw, as if this one had seen it too. Throws ArgumentError for another
  /// class or other settings, UnsupportedError for classes whose result depends on the order of
  /// batches.
  virtual void merge(const Collector& other);

  /// The statistics as tensors whose names begin with `prefix`.
  virtual void save_state(StateDict& state, const std::string& prefix) const;
  /// Takes over what save_state wrote. Throws ArgumentError `load_state_dict: <name>: ...` for a
  /// missing tensor, another shape, or numbers that cannot be; everything is then as it was.
  virtual void load_state(const StateDict& state, const std::string& prefix);

  std::shared_ptr<Collector> clone() const { return copy(); }

 protected:
  Collector() = default;
  Collector(const Collector&) = default;

  virtual std::shared_ptr<Collector> copy() const = 0;
  /// What copy() returns: a copy of `self`, made while no other thread changes it.
  template <typename T>
  static std::shared_ptr<Collector> copy_of(const T& self) {
    const std::lock_guard lock(self.mutex_);
    return std::make_shared<T>(self);
  }
  /// Throws ArgumentError unless `other` is of the same class and has the same settings.
  void require_same_kind(const Collector& other) const;
  /// Where the tensors may be that a class takes in.
  enum class Devices : bool { CpuOnly, All };
  /// Throws ArgumentError unless `x` is a floating tensor, and UnsupportedError for one on a device
  /// that the class cannot look at: nothing is copied in silence.
  void require_floating(const Tensor& x, Devices devices = Devices::CpuOnly) const;

  mutable CollectorMutex mutex_;
};

}  // namespace quanta
