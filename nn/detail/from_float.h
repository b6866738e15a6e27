#pragma once

// Private: what the from_float functions of the quantized modules share.

#include <cstdint>
#include <string_view>
#include <typeinfo>

#include "quanta/nn/module.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::detail {

/// The module as a T. Throws ArgumentError `op: module: expected ..., got ...`.
template <typename T>
const T& expect_module(std::string_view op, const Module& module, std::string_view wanted) {
  const auto* typed = dynamic_cast<const T*>(&module);
  QUANTA_CHECK(typed != nullptr, "{}: module: expected {}, got {}", op, wanted, module.type_name());
  return *typed;
}

struct OutputParams {
  double scale = 1.0;
  std::int64_t zero_point = 0;
  DType dtype = DType::QUInt8;
};

/// Scale, zero point and dtype from the observer of the module's output. Throws ArgumentError
/// without qconfig or observer, before it saw data, and for a dtype that no activation can have.
OutputParams output_params(std::string_view op, const Module& module);
/// The same of an observer.
OutputParams output_params(std::string_view op, const Observer& observer);

/// output_params of a module whose kernels write QUInt8 only. Throws UnsupportedError for another
/// dtype.
OutputParams quint8_output_params(std::string_view op, const Module& module);

/// Throws ArgumentError `op: weight: ...` for a weight that holds NaN or infinity: it is kept and
/// loaded as it is, but never quantized.
void require_finite_weight(std::string_view op, const Tensor& weight);
/// A weight as the observer quantizes it once it has seen it. Throws ArgumentError.
QTensor quantize_with_observer(std::string_view op, Observer& observer, const Tensor& weight);

/// The float weight, quantized by a fresh observer of the module's qconfig, whose dtype has to be
/// `dtype`. Throws ArgumentError.
QTensor quantize_weight(std::string_view op, const Module& module, const Tensor& weight,
                        DType dtype = DType::QInt8);
/// quantize_weight for weights that have one scale. Throws ArgumentError with `reason` for a
/// per-channel observer.
QTensor quantize_weight_per_tensor(std::string_view op, const Module& module, const Tensor& weight,
                                   std::string_view reason, DType dtype = DType::QInt8);

}  // namespace quanta::nn::detail
