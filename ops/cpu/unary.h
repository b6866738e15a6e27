#pragma once

#include <string_view>

#include "quanta/ops/cpu/code_table.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/tensor.h"

// Private: the frame of ops that map each element on its own.

namespace quanta::cpu {

/// Float32, Float64 or a supported quantized tensor, else an error that names `op`.
inline void check_unary(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  if (x.is_quantized()) {
    check_per_tensor(op, "x", x);
  } else {
    QUANTA_SUPPORTED(detail::is_float32_or_64(x.dtype()),
                     "{}: x: expected Float32, Float64, QUInt8, QInt8 or QInt32 on the CPU, got {}",
                     op, x.dtype());
  }
}

/// For ops whose quantized form lives in namespace quantized.
inline void check_float_unary(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a Float32 tensor, got an undefined one", op);
  QUANTA_SUPPORTED(!x.is_quantized(),
                   "{}: x: expected Float32, got {}; quantized::{} takes the result's scale and "
                   "zero point",
                   op, x.dtype(), op);
  detail::check_floats(op, "x", x);
}

/// function(x) for each float or double, in several threads; for functions without a vector kernel.
/// It owns what it needs.
template <typename Function>
Tensor map_floats(std::string_view op, const Tensor& x, Function function) {
  const MemoryFormat format = x.suggested_format();
  Tensor out = Tensor::empty(x.sizes(), x.dtype(), format);
  const Tensor dense = x.contiguous(format);
  const auto run = [function](const Tensor& from, const Tensor& to) {
    detail::visit_floats(from.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto* src = static_cast<const T*>(from.data_ptr());
      auto* dst = static_cast<T*>(to.data_ptr());
      parallel_elements(from.numel(), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) dst[i] = function(src[i]);
      });
    });
  };
  run(dense, out);
  if (replay::is_recording()) {
    replay::record({.op = op,
                    .inputs = {dense},
                    .outputs = {out},
                    .run = [run](const replay::Frame& frame) { run(frame.in(), frame.out()); },
                    .in_place = true});
  }
  return out;
}

/// quantize(function(dequantize(code))) for each code, into new parameters.
template <typename Function>
QTensor map_quantized(std::string_view op, const QTensor& x, double scale, std::int64_t zero_point,
                      CodeFunction kind, Function function, double parameter0 = 0.0,
                      double parameter1 = 0.0, double parameter2 = 0.0) {
  if (replay::is_recording() && x.defined() && x.dtype() == DType::QInt32) {
    return replay::call(
        op,
        [=](const QTensor& t) {
          return map_quantized(op, t, scale, zero_point, kind, function, parameter0, parameter1,
                               parameter2);
        },
        x);
  }
  check_per_tensor(op, "x", x);
  const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
  check_quantizer(op, quantizer, x.dtype(), x.sizes());
  const MemoryFormat format = x.suggested_format();
  QTensor out = QTensor::empty(x.sizes(), x.dtype(), quantizer, format);
  const ScalarDequantizer to_float(x);
  const ScalarQuantizer to_code(out);
  const Quantizer& in = x.quantizer();
  map_codes(QTensor(x.contiguous(format)), out,
            {kind, x.dtype(), in.scale, in.zero_point, scale, zero_point, parameter0, parameter1,
             parameter2},
            [&](std::int32_t code) { return to_code(function(to_float(code))); });
  return out;
}

}  // namespace quanta::cpu
