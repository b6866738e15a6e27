#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"
#include "value.h"

namespace quanta::conform {

/// Keeps the order of keys: activations are listed in the order of execution.
using Json = nlohmann::ordered_json;

/// A suite or case that does not follow the format; the text says where.
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What `compare` of a case allows.
struct Tolerance {
  std::int64_t max_int_diff = 0;
  double min_exact = 1.0;
  double rtol = 0.0;
  double atol = 0.0;
  /// Bounds for the floats beyond the share min_exact (suites in seeds/ only); negative: none.
  double loose_rtol = -1.0;
  double loose_atol = -1.0;
};

/// One case with its tensors loaded into memory of their own.
class Case {
 public:
  std::string id;
  std::string op;
  Json attrs;
  Object inputs;
  Value expected;  ///< an Object
  Tolerance tolerance;
  std::filesystem::path folder;  ///< where the suite is, for files that attrs name

  // Attributes; all throw FormatError for a missing or unsuitable one.
  /// Given and not null.
  bool has_attr(std::string_view name) const;
  const Json& attr(std::string_view name) const;
  double number(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  bool flag(std::string_view name, bool otherwise) const;
  std::string text(std::string_view name) const;
  /// A number or a list of numbers; null stands for -1 (keep the size).
  Dims dims(std::string_view name) const;
  /// The default when the attribute is not given or null.
  Dims dims(std::string_view name, const Dims& otherwise) const;
  DType dtype(std::string_view name = "dtype") const;

  // Inputs.
  bool has_input(std::string_view name) const;
  /// Throws FormatError when there is no such tensor.
  Tensor tensor(std::string_view name) const;
  /// Undefined when it is null or not given.
  Tensor optional_tensor(std::string_view name) const;
  QTensor qtensor(std::string_view name) const;
  std::vector<Tensor> tensors(std::string_view name) const;
  const Object& object(std::string_view name) const;

  /// `x` in the memory order that the attribute memory_format asks for.
  Tensor x() const;
  QTensor qx() const;
  /// The same for any tensor of the case.
  Tensor in_memory_format(const Tensor& tensor) const;
};

/// A number or list of numbers as Dims; null entries become -1.
Dims dims_from_json(const Json& json);
/// By torch's name. Throws FormatError.
DType dtype_from_json(const std::string& name);

/// A suite's cases and tensors.
class Suite {
 public:
  /// Reads <stem>.json and <stem>.safetensors. Throws FormatError or FileError.
  static Suite read(const std::filesystem::path& json_path);

  const std::string& name() const noexcept { return name_; }
  std::size_t size() const noexcept { return cases_.size(); }
  std::string id(std::size_t index) const;
  std::string op(std::size_t index) const;
  /// Resolves the case's references. Throws FormatError.
  Case load(std::size_t index) const;

 private:
  Value resolve(const Json& ref) const;
  Tensor resolve_tensor(const Json& ref) const;
  const Tensor& stored(const std::string& name) const;

  std::string name_;
  std::filesystem::path folder_;
  Json cases_;
  StateDict tensors_;
};

}  // namespace quanta::conform
