#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>

#include "quanta/observers/aimet/encoding.h"
#include "quanta/runtime/tensor.h"

namespace quanta::aimet {

class QuantizedTensor;
class DequantizedTensor;

/// A tensor that may know how it was quantized, the base of QuantizedTensor (codes, in a floating
/// dtype) and DequantizedTensor (the values that the codes stand for). A small value: a Tensor,
/// what kind it is, and the encoding. Functions whose result can be of several kinds give this.
///
///   DequantizedTensor y = quantizer(x);
///   QuantizedTensor q = y.quantize();            // nothing is lost
///   Tensor codes = q.quantized_repr();           // Int8
///   EncodedTensor z = y.reshape({-1}).mul(2.0);  // still Dequantized
///   Tensor plain = relu(y);                      // any op takes it as a Tensor and gives a Tensor
///
/// What becomes of the encoding is written at each function. Kind and encoding stay apart: an
/// object can be Dequantized and have lost its encoding. Functions throw what the Tensor's function
/// of that name throws; threads may share an object that none of them changes.
class EncodedTensor {
 public:
  enum class Kind : std::uint8_t { Plain, Quantized, Dequantized };

  EncodedTensor() = default;
  /// A plain tensor.
  EncodedTensor(Tensor tensor)
      : tensor_(std::move(tensor)) {}  // NOLINT(google-explicit-constructor)
  /// Throws ArgumentError for a tensor that is not floating unless it is Plain, and for a Plain one
  /// with an encoding.
  EncodedTensor(Tensor tensor, Kind kind, EncodingPtr encoding);

  /// The codes of `q` with its parameters.
  static QuantizedTensor from_qtensor(const QTensor& q);
  /// The codes as a QTensor with the same parameters. Throws ArgumentError without an affine
  /// encoding, and where QTensor cannot hold it (see aimet::to_qtensor).
  QTensor to_qtensor() const;

  const Tensor& tensor() const noexcept { return tensor_; }
  operator const Tensor&() const noexcept {
    return tensor_;
  }  // NOLINT(google-explicit-constructor)
  Kind kind() const noexcept { return kind_; }
  /// "Tensor", "QuantizedTensor", "DequantizedTensor".
  std::string_view type_name() const noexcept;
  const EncodingPtr& encoding() const noexcept { return encoding_; }
  bool has_encoding() const noexcept { return encoding_ != nullptr; }

  /// Codes and values: each returns the object itself where it is of that kind already, so that
  /// quantize() of a dequantized tensor and back loses nothing. Throw ArgumentError without an
  /// encoding.
  QuantizedTensor quantize() const;
  DequantizedTensor dequantize() const;
  /// quantize() in the grid's integer dtype.
  Tensor quantized_repr() const;

  // Kind and encoding stay.
  EncodedTensor clone() const;
  EncodedTensor detach() const;
  EncodedTensor contiguous() const;
  /// Another floating dtype (the encoding itself is not converted); others give a plain tensor.
  EncodedTensor to(DType dtype) const;

  // The kind stays; the encoding stays if it is per tensor.
  EncodedTensor view(const Dims& sizes) const { return as_view(tensor_.view(sizes)); }
  EncodedTensor reshape(const Dims& sizes) const { return as_view(tensor_.reshape(sizes)); }
  EncodedTensor flatten(std::int64_t start = 0, std::int64_t end = -1) const {
    return as_view(tensor_.flatten(start, end));
  }
  EncodedTensor permute(const Dims& order) const { return as_view(tensor_.permute(order)); }
  EncodedTensor transpose(std::int64_t dim0, std::int64_t dim1) const {
    return as_view(tensor_.transpose(dim0, dim1));
  }
  EncodedTensor select(std::int64_t dim, std::int64_t index) const {
    return as_view(tensor_.select(dim, index));
  }
  EncodedTensor slice(std::int64_t dim, std::int64_t start, std::int64_t end,
                      std::int64_t step = 1) const {
    return as_view(tensor_.slice(dim, start, end, step));
  }
  EncodedTensor expand(const Dims& sizes) const { return as_view(tensor_.expand(sizes)); }
  EncodedTensor squeeze(std::int64_t dim) const { return as_view(tensor_.squeeze(dim)); }
  EncodedTensor unsqueeze(std::int64_t dim) const { return as_view(tensor_.unsqueeze(dim)); }
  /// The result of any other function that only moves or repeats elements of this tensor (gather,
  /// index_select, flip, ...).
  EncodedTensor as_view(Tensor moved) const;

  /// A dequantized tensor keeps its kind, and its scale follows (see AffineEncoding::scaled_by;
  /// where that is impossible the result is plain). Other kinds give a plain result.
  EncodedTensor mul(double factor) const;
  EncodedTensor div(double divisor) const;

  /// Adds to the elements in place. Such a change loses the encoding, but not the kind. Throws
  /// ArgumentError for a tensor that requires a gradient.
  EncodedTensor& add_(double value);

 private:
  EncodedTensor with(Tensor tensor) const { return {std::move(tensor), kind_, encoding_}; }
  const Encoding& required_encoding(std::string_view op) const;

  Tensor tensor_;
  Kind kind_ = Kind::Plain;
  EncodingPtr encoding_;
};

/// AIMET's name of the base.
using QuantizedTensorBase = EncodedTensor;

/// As torch prints the tensor, under the name of its kind: "DequantizedTensor([-1.,  0.5000])".
std::string to_string(const EncodedTensor& x);
std::ostream& operator<<(std::ostream& stream, const EncodedTensor& x);

/// What a kind of encoded tensors has in common: functions that keep the kind give the type.
template <typename Self>
class EncodedTensorOf : public EncodedTensor {
 public:
  Self clone() const { return Self(EncodedTensor::clone()); }
  Self detach() const { return Self(EncodedTensor::detach()); }
  Self contiguous() const { return Self(EncodedTensor::contiguous()); }
  Self view(const Dims& sizes) const { return Self(EncodedTensor::view(sizes)); }
  Self reshape(const Dims& sizes) const { return Self(EncodedTensor::reshape(sizes)); }
  Self flatten(std::int64_t start = 0, std::int64_t end = -1) const {
    return Self(EncodedTensor::flatten(start, end));
  }
  Self permute(const Dims& order) const { return Self(EncodedTensor::permute(order)); }
  Self transpose(std::int64_t dim0, std::int64_t dim1) const {
    return Self(EncodedTensor::transpose(dim0, dim1));
  }
  Self select(std::int64_t dim, std::int64_t index) const {
    return Self(EncodedTensor::select(dim, index));
  }
  Self slice(std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const {
    return Self(EncodedTensor::slice(dim, start, end, step));
  }
  Self expand(const Dims& sizes) const { return Self(EncodedTensor::expand(sizes)); }
  Self squeeze(std::int64_t dim) const { return Self(EncodedTensor::squeeze(dim)); }
  Self unsqueeze(std::int64_t dim) const { return Self(EncodedTensor::unsqueeze(dim)); }
  Self as_view(Tensor moved) const { return Self(EncodedTensor::as_view(std::move(moved))); }

 protected:
  explicit EncodedTensorOf(EncodedTensor tensor) : EncodedTensor(std::move(tensor)) {}
};

/// Codes in a floating dtype, with the encoding that says what they stand for.
class QuantizedTensor final : public EncodedTensorOf<QuantizedTensor> {
 public:
  /// Throws ArgumentError for codes that are not floating. Null: an encoding that was lost.
  QuantizedTensor(Tensor codes, EncodingPtr encoding)
      : EncodedTensorOf({std::move(codes), Kind::Quantized, std::move(encoding)}) {}
  /// Throws ArgumentError for another kind.
  explicit QuantizedTensor(EncodedTensor tensor);
};

/// Values on the grid of the encoding.
class DequantizedTensor final : public EncodedTensorOf<DequantizedTensor> {
 public:
  /// Throws ArgumentError for values that are not floating. Null: an encoding that was lost.
  DequantizedTensor(Tensor values, EncodingPtr encoding)
      : EncodedTensorOf({std::move(values), Kind::Dequantized, std::move(encoding)}) {}
  /// Throws ArgumentError for another kind.
  explicit DequantizedTensor(EncodedTensor tensor);
};

/// Rows of a quantized weight [N, ...], as embedding lookup takes them: sizes of `indices` (Int64
/// or Int32), then the rest of the weight's. Scales and offsets of an affine encoding follow the
/// rows where axis 0 carries several.
EncodedTensor embedding(const Tensor& indices, const EncodedTensor& weight);

}  // namespace quanta::aimet
