#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/observers/qconfig.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

namespace quanta::nn {

class StateReader;

/// What becomes of the calls in a module's own forward that have no int8 form by themselves:
/// operations on floats (`a + b`, `softmax(x, -1)`, `exp(x)`), and modules that are left in float.
/// A prepared model observes their results, each call by its place in forward; a converted one lets
/// add, mul, cat and matmul run on codes, and puts dequantize and quantize around all the others.
/// Such a call gives what it takes: without codes among its arguments it runs as it is.
///
/// Operations that keep the quantization of what they take (relu, pooling, reshaping) need nothing of
/// all that and are not in the list.
///
/// The calls have to be the same in every run. Calling a module is safe from many threads, observing
/// as well; what changes the list is for one thread at a time.
class ForwardCalls {
 public:
  /// One result of a call.
  struct Result {
    std::shared_ptr<Observer> observer;  ///< while the model is prepared; null: not observed
    double scale = 0.0;                  ///< 0: stays float
    std::int64_t zero_point = 0;
    DType dtype = DType::QUInt8;
  };
  /// A call that forward makes.
  struct Call {
    std::string name;  ///< "softmax"; "layer3" for a module that is left in float
    bool is_module = false;
    std::vector<Result> results{};
    /// Not finite, so that no scale fits: the results stay float.
    bool saw_infinite = false;
  };

  /// Notes calls as they come and observes their results with what `activation` makes.
  explicit ForwardCalls(ObserverFactory activation);
  /// What becomes of calls that are not in the list.
  enum class NewCalls : bool { Note, Ignore };
  /// With calls that were noted before.
  ForwardCalls(ObserverFactory activation, std::vector<Call> calls, NewCalls new_calls);
  /// Of a converted model.
  explicit ForwardCalls(std::vector<Call> calls);
  /// The calls of a converted list that has run, to be observed anew: those that had no codes to run
  /// on are not observed, and new ones are not noted.
  ForwardCalls(ObserverFactory activation, const ForwardCalls& converted);
  /// Observers are copied.
  ForwardCalls(const ForwardCalls& other);
  ForwardCalls& operator=(const ForwardCalls&) = delete;
  ~ForwardCalls() = default;

  bool is_observing() const noexcept { return static_cast<bool>(activation_); }
  NewCalls new_calls() const noexcept { return is_complete_ ? NewCalls::Ignore : NewCalls::Note; }
  /// What makes the observers; empty in a converted model.
  const ObserverFactory& activation() const noexcept { return activation_; }
  const std::vector<Call>& calls() const noexcept { return calls_; }
  /// How the call at this place of a converted model has run by now.
  enum class Ran : std::uint8_t {
    AsItIs,         ///< not at all, or without codes among its arguments
    OnCodes,        ///< in its form on codes
    BetweenFloats,  ///< in float, between dequantize and quantize
  };
  Ran how_it_ran(std::size_t place) const;

  /// The converted form: numbers in the places of observers. Throws ArgumentError for observers whose
  /// numbers cannot be used.
  std::shared_ptr<ForwardCalls> converted() const;

  /// In states: "call_0", and "call_0_1" for the second of several results.
  static std::string name_of(std::size_t place, std::size_t result, std::size_t count);
  std::vector<std::pair<std::string, std::shared_ptr<Observer>>> observers() const;
  /// "(call_0): softmax(scale=0.1, zero_point=3)", a line for each call with something to say.
  std::vector<std::string> to_strings() const;
  /// Scales and zero points of a converted model, as call_0.scale and call_0.zero_point.
  void save_state(StateDict& state, const std::string& prefix) const;
  /// What the state does not have stays as it is. For one thread at a time, while nobody calls the
  /// module.
  void load_state(StateReader& reader);

  using Forward = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

 private:
  friend class CallFrame;
  bool run(std::size_t& next, const Operation& operation, const Arguments& in, Results& out);
  std::vector<Tensor> run_module(std::size_t& next, const std::string& name,
                                 std::span<const Tensor> inputs, const Forward& forward);
  bool watches(const Operation& operation, const Arguments& in) const;
  void observe(std::size_t place, std::string_view name, bool is_module, std::span<Tensor> results);
  void make_forms();
  const Call* find(std::size_t place, std::string_view name) const;

  ObserverFactory activation_;
  bool is_complete_ = false;  // calls that are not in the list run as they are
  std::vector<Call> calls_;
  // Of a converted one, for each call: how it ran, and its form on codes, or null.
  std::unique_ptr<std::atomic<Ran>[]> ran_;
  std::vector<std::shared_ptr<const Operation>> forms_;
  mutable std::mutex mutex_;
};

/// The place in a module's forward that a thread has reached. See detail::PathScope.
class CallFrame final : public OpGuide {
 public:
  CallFrame() = default;
  explicit CallFrame(ForwardCalls* calls) : calls_(calls) {}

  bool guide(const Operation& operation, const Arguments& in, Results& out) override {
    return calls_->run(next_, operation, in, out);
  }
  /// The call of a module that is left in float.
  std::vector<Tensor> run_module(const std::string& name, std::span<const Tensor> inputs,
                                 const ForwardCalls::Forward& forward) {
    return calls_->run_module(next_, name, inputs, forward);
  }

 private:
  ForwardCalls* calls_ = nullptr;
  std::size_t next_ = 0;
};

}  // namespace quanta::nn
