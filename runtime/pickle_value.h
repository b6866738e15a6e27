#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "quanta/runtime/tensor.h"

/// What PyTorch's files hold. Plain values: threads may share what none of them changes.
namespace quanta {

/// What a pickle can hold: None, bool, int, float, str, tensors, lists, tuples, sets, dicts,
/// dtypes, qschemes, objects of a few other types (their type name and state), and the class names
/// of all other objects.
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
    /// Attributes of an OrderedDict: {"_metadata": versions of the modules} of a state_dict. May be
    /// null.
    std::shared_ptr<PickleValue> state;
  };
  /// A script object: type name ("__torch__.torch.classes.rnn.CellParamsBase") and its state.
  /// Also "bytes" and "bytearray" (state: the bytes as a string), "complex" (a tuple of two
  /// floats), "torch.device" (a tuple of type and index) and "torch.layout" (its name).
  struct Object {
    std::string type;
    std::shared_ptr<PickleValue> state;
  };
  struct TensorValue {
    Tensor tensor;
    bool requires_grad = false;
  };
  /// What stands in the place of a Python object that Quanta does not know: its class, or the
  /// function that would make it ("argparse.Namespace", "numpy.core.multiarray.scalar"). What it
  /// is made of is not kept.
  struct Opaque {
    std::string type;
    bool is_module = false;  ///< a whole pickled torch.nn.Module
  };
  using Variant = std::variant<None, bool, std::int64_t, BigInt, double, std::string, TensorValue,
                               Sequence, Dict, DType, QScheme, Object, Opaque>;

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

/// Calls `visit` with the path of each value that is no list, tuple, set or dict, in the order of
/// the file. Paths join keys and positions with "/" ("optimizer/param_groups/0/lr"); keys of a
/// state_dict keep their dots; the path of a bare value is empty, members of a bare tuple are "/0",
/// "/1". The state of an object is walked below the object's path, after the object itself.
/// Throws ArgumentError for keys that are neither strings, numbers, bools nor None, and when the
/// paths take more than 256 MiB together.
void visit_leaves(
    const PickleValue& value,
    const std::function<void(const std::string& path, const PickleValue& leaf)>& visit);

}  // namespace quanta
