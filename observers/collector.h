#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "quanta/observers/digest.h"
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

/// Called with what a collector has taken in. A copy of the collector that holds it has none.
class DigestListener {
 public:
  using Function = std::function<void(const Digest&)>;

  DigestListener() = default;
  DigestListener(const DigestListener&) {}
  DigestListener& operator=(const DigestListener&) = delete;
  void set(Function function) { function_ = std::move(function); }
  explicit operator bool() const noexcept { return static_cast<bool>(function_); }
  void operator()(const Digest& digest) const {
    if (function_) function_(digest);
  }

 private:
  Function function_;
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
  ///
  /// It is absorb(digest(x)), again where another thread has moved the frame in between. A class that
  /// has no such halves overrides it, and leaves digests() at None.
  virtual void update(const Tensor& x);
  /// Whether there is something to calculate results from.
  virtual bool has_data() const = 0;
  /// Back to the state before any data.
  virtual void reset() = 0;
  /// Takes in what `other` saw, as if this one had seen it too. Throws ArgumentError for another
  /// class or other settings, UnsupportedError for classes whose result depends on the order of
  /// batches.
  virtual void merge(const Collector& other);

  // The halves of update(): looking at a tensor is most of the work and changes nothing, so that many
  // threads or processes share it; what they found is absorbed in the order of the tensors, and the
  // result is that of one collector that saw them all, to the last bit.

  virtual DigestKind digests() const { return DigestKind::None; }
  /// What update() would take in now; empty for an empty tensor. Throws what update throws, and
  /// UnsupportedError where there are no halves.
  virtual Digest digest(const Tensor& x) const;
  /// Takes in a digest of this class with these settings. False, and nothing has changed, when the
  /// frame is another than the digest was made in: the tensor has to be looked at again. Throws
  /// ArgumentError for what does not go with what was seen before, as update does; UnsupportedError
  /// where there are no halves.
  [[nodiscard]] virtual bool absorb(const Digest& digest);
  /// Puts `next`, which was absorbed right behind `digest`, into it where absorbing both at once
  /// gives the same bits; else false.
  [[nodiscard]] virtual bool join(Digest& digest, const Digest& next) const;
  /// Framed: moves the frame as a tensor with this Digest::range does, but counts nothing. Throws
  /// what absorb throws, UnsupportedError for other kinds.
  virtual void move_frame(const ValueRange& range);
  /// From now on each digest that update() has absorbed goes to `listener` as well (none: to nobody).
  /// No other thread may use the collector meanwhile.
  void set_listener(DigestListener::Function listener) { listener_.set(std::move(listener)); }

  /// All that was gathered, to go on with in another process: the state, and what that leaves out
  /// (recorded tensors, the calibrator within a quantizer). load_gathered throws as load_state.
  virtual void save_gathered(StateDict& state, const std::string& prefix) const;
  virtual void load_gathered(const StateDict& state, const std::string& prefix);

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

  [[noreturn]] void throw_without_digests(std::string_view function) const;

  mutable CollectorMutex mutex_;
  DigestListener listener_;
};

}  // namespace quanta
