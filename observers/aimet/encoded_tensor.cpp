#include "quanta/observers/aimet/encoded_tensor.h"

#include <ostream>
#include <utility>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/indexing.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::aimet {

EncodedTensor::EncodedTensor(Tensor tensor, Kind kind, EncodingPtr encoding)
    : tensor_(std::move(tensor)), kind_(kind), encoding_(std::move(encoding)) {
  QUANTA_CHECK(kind_ == Kind::Plain || (tensor_.defined() && tensor_.is_floating_point()),
               "{}: tensor: expected a floating tensor, got {}", type_name(),
               tensor_.defined() ? to_string(tensor_.dtype()) : "an undefined one");
  QUANTA_CHECK(kind_ != Kind::Plain || encoding_ == nullptr,
               "Tensor: encoding: expected none for a plain tensor, got one that is {}",
               encoding_->mapping());
}

QuantizedTensor EncodedTensor::from_qtensor(const QTensor& q) {
  EncodingPtr encoding = AffineEncoding::from_quantizer(q);
  return {q.int_repr_view().to(DType::Float32), std::move(encoding)};
}

QTensor EncodedTensor::to_qtensor() const {
  const auto* affine = dynamic_cast<const AffineEncoding*>(&required_encoding("to_qtensor"));
  QUANTA_CHECK(affine != nullptr,
               "EncodedTensor.to_qtensor: encoding: expected an affine one, got {}",
               encoding_->mapping());
  return aimet::to_qtensor(quantize().tensor(), *affine);
}

std::string_view EncodedTensor::type_name() const noexcept {
  switch (kind_) {
    case Kind::Plain:
      return "Tensor";
    case Kind::Quantized:
      return "QuantizedTensor";
    case Kind::Dequantized:
      break;
  }
  return "DequantizedTensor";
}

const Encoding& EncodedTensor::required_encoding(std::string_view op) const {
  QUANTA_CHECK(encoding_ != nullptr, "EncodedTensor.{}: encoding: expected one, got a {} without",
               op, type_name());
  return *encoding_;
}

QuantizedTensor EncodedTensor::quantize() const {
  const Encoding& encoding = required_encoding("quantize");
  return {kind_ == Kind::Quantized ? tensor_ : encoding.quantize(tensor_), encoding_};
}

DequantizedTensor EncodedTensor::dequantize() const {
  const Encoding& encoding = required_encoding("dequantize");
  return {kind_ == Kind::Dequantized ? tensor_ : encoding.dequantize(tensor_), encoding_};
}

Tensor EncodedTensor::quantized_repr() const {
  const DType dtype = required_encoding("quantized_repr").integer_dtype();
  return quantize().tensor().detach().to(dtype);
}

EncodedTensor EncodedTensor::clone() const { return with(tensor_.clone()); }

EncodedTensor EncodedTensor::detach() const { return with(tensor_.detach()); }

EncodedTensor EncodedTensor::contiguous() const { return with(tensor_.contiguous()); }

EncodedTensor EncodedTensor::to(DType dtype) const {
  Tensor converted = tensor_.to(dtype);
  if (!quanta::is_floating_point(dtype)) return converted;
  return with(std::move(converted));
}

EncodedTensor EncodedTensor::as_view(Tensor moved) const {
  const bool stays = encoding_ != nullptr && encoding_->granularity() == "pertensor";
  return {std::move(moved), kind_, stays ? encoding_ : nullptr};
}

EncodedTensor EncodedTensor::mul(double factor) const {
  Tensor product = mul_scalar(tensor_, factor);
  if (kind_ != Kind::Dequantized || encoding_ == nullptr) return product;
  EncodingPtr scaled = encoding_->scaled_by(factor);
  if (scaled == nullptr) return product;
  return {std::move(product), kind_, std::move(scaled)};
}

EncodedTensor EncodedTensor::div(double divisor) const {
  Tensor quotient = quanta::div(tensor_, Tensor::scalar(divisor, tensor_.dtype()));
  if (kind_ != Kind::Dequantized || encoding_ == nullptr) return quotient;
  EncodingPtr scaled = encoding_->scaled_by(1.0 / divisor);
  if (scaled == nullptr) return quotient;
  return {std::move(quotient), kind_, std::move(scaled)};
}

EncodedTensor& EncodedTensor::add_(double value) {
  autograd::require_changeable("EncodedTensor.add_", tensor_);
  tensor_.copy_(add_scalar(tensor_, value));
  encoding_ = nullptr;
  return *this;
}

// Types ------------------------------------------------------------------------------------------

QuantizedTensor::QuantizedTensor(EncodedTensor tensor) : EncodedTensorOf(std::move(tensor)) {
  QUANTA_CHECK(kind() == Kind::Quantized, "QuantizedTensor: tensor: expected codes, got a {}",
               type_name());
}

DequantizedTensor::DequantizedTensor(EncodedTensor tensor) : EncodedTensorOf(std::move(tensor)) {
  QUANTA_CHECK(kind() == Kind::Dequantized,
               "DequantizedTensor: tensor: expected values on a grid, got a {}", type_name());
}

std::string to_string(const EncodedTensor& x) {
  const std::string text = quanta::to_string(x.tensor());
  if (x.kind() == EncodedTensor::Kind::Plain) return text;
  // Lines after the first stand below the opening bracket.
  constexpr std::size_t kTensor = std::string_view("tensor").size();
  const std::string margin(x.type_name().size() - kTensor, ' ');
  std::string result(x.type_name());
  for (const char c : std::string_view(text).substr(kTensor)) {
    result += c;
    if (c == '\n') result += margin;
  }
  return result;
}

std::ostream& operator<<(std::ostream& stream, const EncodedTensor& x) {
  return stream << to_string(x);
}

EncodedTensor embedding(const Tensor& indices, const EncodedTensor& weight) {
  const Tensor& table = weight.tensor();
  QUANTA_CHECK(table.defined() && table.dim() >= 1,
               "embedding: weight: expected at least one dimension, got {}",
               table.defined() ? to_string(table.sizes()) : "an undefined tensor");
  const Tensor flat = indices.reshape({indices.numel()}).to(DType::Int64);
  Dims sizes = indices.sizes();
  for (std::size_t d = 1; d < table.sizes().size(); ++d) sizes.push_back(table.sizes()[d]);
  const Tensor values = index_select(table, 0, flat).reshape(sizes);
  const auto* affine = dynamic_cast<const AffineEncoding*>(weight.encoding().get());
  if (affine == nullptr) return weight.as_view(values);
  const Tensor& scale = affine->scale();
  const bool by_rows = scale.dim() == table.dim() && scale.dim() > 0 && scale.size(0) > 1;
  if (!by_rows) return {values, weight.kind(), weight.encoding()};

  const std::int64_t block = table.size(0) / scale.size(0);
  Tensor scale_rows = Tensor::empty({flat.numel()}, DType::Int64);
  const auto* from = flat.contiguous().data<std::int64_t>();
  auto* to = scale_rows.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < flat.numel(); ++i) to[i] = from[i] / block;
  Dims scale_sizes = indices.sizes();
  AffineEncodingOptions options{
      affine->symmetric(), {}, affine->zero_point_shift(), affine->producer()};
  const Dims& blocks = affine->block_size();
  if (!blocks.empty()) options.block_size = Dims::filled(indices.sizes().size(), -1);
  for (std::size_t d = 1; d < scale.sizes().size(); ++d) {
    scale_sizes.push_back(scale.sizes()[d]);
    if (!blocks.empty()) options.block_size.push_back(blocks[d]);
  }
  return {values, weight.kind(),
          std::make_shared<AffineEncoding>(
              index_select(scale, 0, scale_rows).reshape(scale_sizes),
              index_select(affine->offset(), 0, scale_rows).reshape(scale_sizes), affine->grid(),
              options)};
}

}  // namespace quanta::aimet
