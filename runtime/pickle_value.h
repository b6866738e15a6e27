#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta {

/// What a pickle can hold: None, bool, int, float, str, tensors, lists, tuples, dicts, dtypes, and
/// script objects (their type name and state).
class PickleValue {
 public:
  struct None {
    bool operator==(const None&) const = default;
  };
  /// An integer beyond 64 bits, as decimal digits.
  struct BigInt {
    std::string digits;
  };
  struct Sequence {
    enum class Kind : std::uint8_t { List, Tuple, Set } kind = Kind::List;
    std::vector<PickleValue> items;
  };
  /// Insertion order kept; keys are strings, ints or whatever else the pickle used.
  struct Dict {
    std::vector<std::pair<PickleValue, PickleValue>> items;
  };
  /// A script object: type name ("__torch__.torch.classes.rnn.CellParamsBase") and its state.
  struct Object {
    std::string type;
    std::shared_ptr<PickleValue> state;
  };
  struct TensorValue {
    Tensor tensor;
    bool requires_grad = false;
  };
  using Variant = std::variant<None, bool, std::int64_t, BigInt, double, std::string, TensorValue,
                               Sequence, Dict, DType, QScheme, Object>;

  PickleValue() = default;
  PickleValue(Variant value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  const Variant& get() const noexcept { return value_; }
  Variant& get() noexcept { return value_; }
  template <typename T>
  const T* get_if() const noexcept {
    return std::get_if<T>(&value_);
  }

 private:
  Variant value_;
};

}  // namespace quanta
