// The activations that look at more than one element or at the channel: prelu and softmax.

#include <algorithm>
#include <cmath>
#include <vector>

#include "quanta/ops/activation.h"
#include "quanta/ops/activation/gradient.h"
#include "quanta/ops/activation/softmax_gradient.h"
#include "quanta/ops/cpu/per_channel.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/cpu/softmax.h"
#include "quanta/ops/cpu/unary.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

// The weight as a tensor that broadcasts against x: one value, or one along dimension 1.
Tensor prelu_weight(std::string_view op, const Tensor& x, const Tensor& weight) {
  const std::int64_t channels = x.dim() < 2 ? 1 : x.size(1);
  QUANTA_CHECK(weight.numel() == 1 || (weight.dim() == 1 && weight.numel() == channels),
               "{}: weight: expected 1 value or {}, one for each index of dim 1 of x {}, got {}",
               op, channels, x.sizes(), weight.sizes());
  if (weight.numel() == 1) return weight.reshape({1});
  Dims sizes = Dims::filled(static_cast<std::size_t>(x.dim()), 1);
  sizes[1] = channels;
  return weight.reshape(sizes);
}

// In double precision for whom checks gradients; speed does not matter.
void softmax_row(const double* src, std::int64_t count, double* dst) {
  const double largest = *std::max_element(src, src + count);
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += dst[i] = std::exp(src[i] - largest);
  for (std::int64_t i = 0; i < count; ++i) dst[i] /= sum;
}
void softmax_row(const float* src, std::int64_t count, float* dst) {
  cpu::softmax_row(src, count, dst);
}

// softmax over the middle of [outer, length, inner].
template <typename T>
void softmax_rows(const T* src, T* dst, const cpu::ChannelLayout& layout) {
  const std::int64_t length = layout.channels;
  const std::int64_t step = layout.inner;
  const std::int64_t grain =
      std::max<std::int64_t>(1, cpu::kElementGrain / 8 / std::max<std::int64_t>(length, 1));
  if (step == 1) {
    parallel_for(layout.outer, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        softmax_row(src + row * length, length, dst + row * length);
      }
    });
    return;
  }
  // Rows that lie across memory are copied together, a cache line of neighbours at a time.
  constexpr std::int64_t kGroup = 16;
  const std::int64_t groups = (step + kGroup - 1) / kGroup;
  auto run = [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> rows(static_cast<std::size_t>(length * kGroup));
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t first = item % groups * kGroup;
      const std::int64_t offset = item / groups * length * step + first;
      const std::int64_t count = std::min(kGroup, step - first);
      for (std::int64_t i = 0; i < length; ++i) {
        for (std::int64_t k = 0; k < count; ++k) {
          rows[static_cast<std::size_t>(k * length + i)] = src[offset + i * step + k];
        }
      }
      for (std::int64_t k = 0; k < count; ++k) {
        T* row = rows.data() + k * length;
        softmax_row(row, length, row);
      }
      for (std::int64_t i = 0; i < length; ++i) {
        for (std::int64_t k = 0; k < count; ++k) {
          dst[offset + i * step + k] = rows[static_cast<std::size_t>(k * length + i)];
        }
      }
    }
  };
  parallel_for(layout.outer * groups, std::max<std::int64_t>(1, grain / kGroup), run);
}

// Both dense and of one memory order.
void softmax_to(const Tensor& x, const Tensor& out, std::int64_t axis) {
  const cpu::ChannelLayout layout(out, axis);
  detail::visit_floats(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    softmax_rows(static_cast<const T*>(x.data_ptr()), static_cast<T*>(out.data_ptr()), layout);
  });
}

}  // namespace

Tensor prelu(const Tensor& x, const Tensor& weight) {
  if (replay::is_recording()) {
    return replay::call(
        "prelu", [](const Tensor& a, const Tensor& b) { return prelu(a, b); }, x, weight);
  }
  OpScope scope("prelu");
  cpu::check_float_unary("prelu", x);
  scope.maps(x);
  QUANTA_CHECK(weight.defined() && weight.dtype() == x.dtype(),
               "prelu: weight: expected a {} tensor, got {}", x.dtype(),
               weight.defined() ? to_string(weight.dtype()) : "an undefined one");
  const Tensor slope = prelu_weight("prelu", x, weight);
  Tensor out = Tensor::empty(x.sizes(), x.dtype(), x.suggested_format());

  scope.kernel("scalar");
  detail::visit_floats(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cpu::broadcast_binary<T>(x, slope, out,
                             [](const T* values, const T* slopes, T* dst, std::int64_t count,
                                cpu::Rhs kind, cpu::Store) {
                               const std::int64_t step = kind == cpu::Rhs::Row ? 1 : 0;
                               for (std::int64_t i = 0; i < count; ++i) {
                                 dst[i] =
                                     values[i] > T{0} ? values[i] : slopes[i * step] * values[i];
                               }
                             });
  });
  if (!autograd::needs_grad(x, slope)) return out;
  return gradients::record_prelu(x, slope, std::move(out));
}

Tensor softmax(const Tensor& x, std::int64_t dim) {
  OpScope scope("softmax");
  cpu::check_float_unary("softmax", x);
  scope.maps(x);
  const std::int64_t axis = wrap_dim(dim, x.dim(), "softmax");
  const MemoryFormat format = x.suggested_format();
  Tensor out = Tensor::empty(x.sizes(), x.dtype(), format);
  if (x.dim() == 0) {
    out.fill_(1.0);
  } else if (x.numel() > 0) {
    scope.kernel("simd");
    const Tensor dense = x.contiguous(format);
    softmax_to(dense, out, axis);
    if (replay::is_recording()) {
      replay::record(
          {.op = "softmax",
           .inputs = {dense},
           .outputs = {out},
           .run = [axis](const replay::Frame& frame) { softmax_to(frame.in(), frame.out(), axis); },
           .in_place = true});
    }
  }
  if (!autograd::needs_grad(x)) return out;
  return gradients::record_softmax(x, std::move(out), axis);
}

namespace quantized {
namespace {

void prelu_int32(const QTensor& x, const QTensor& weight, const QTensor& out, std::int64_t one,
                 float multiplier) {
  const auto x_zero = std::int64_t{x.quantizer().zero_point};
  const auto weight_zero = std::int64_t{weight.quantizer().zero_point};
  const std::int64_t zero_point = out.quantizer().zero_point;
  cpu::broadcast_binary<std::int32_t>(
      x, weight, out,
      [&](const std::int32_t* codes, const std::int32_t* weights, std::int32_t* dst,
          std::int64_t count, cpu::Rhs kind, cpu::Store) {
        const std::int64_t step = kind == cpu::Rhs::Row ? 1 : 0;
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t difference = codes[i] - x_zero;
          const std::int64_t slope = difference > 0 ? one : weights[i * step] - weight_zero;
          dst[i] = math::requantize_qint32(cpu::saturating_product(difference, slope), multiplier,
                                           zero_point);
        }
      });
}

template <typename T>
void prelu_codes(const QTensor& x, const QTensor& weight, const QTensor& out,
                 const cpu::PReluArgs& args) {
  cpu::broadcast_binary<T>(
      x, weight, out,
      [&](const T* codes, const T* weights, T* dst, std::int64_t count, cpu::Rhs kind, cpu::Store) {
        cpu::prelu(codes, weights, dst, count, args, kind);
      },
      [&](const T* codes, const T* weights, T* dst, std::int64_t rows, std::int64_t channels) {
        cpu::prelu_channels(codes, weights, dst, rows, channels, args);
      });
}

void prelu_to(const QTensor& x, const QTensor& weight, const QTensor& out) {
  const cpu::ScalarQuantizer quantizer(out);
  const auto weight_zero = static_cast<std::int32_t>(weight.quantizer().zero_point);
  // What 1.0 is in the weight's own parameters (it saturates when they do not reach so far), so
  // that both sides have the same scale.
  const std::int32_t code_of_one = cpu::ScalarQuantizer(weight)(1.0F);
  const float multiplier = static_cast<float>(x.quantizer().scale) *
                           static_cast<float>(weight.quantizer().scale) * quantizer.inv_scale;
  if (x.dtype() == DType::QInt32) {
    prelu_int32(x, weight, out, std::int64_t{code_of_one} - weight_zero, multiplier);
    return;
  }
  cpu::PReluArgs args{static_cast<std::int32_t>(x.quantizer().zero_point), weight_zero,
                      code_of_one - weight_zero, quantizer.args()};
  args.out.inv_scale = multiplier;
  if (x.dtype() == DType::QUInt8) {
    prelu_codes<std::uint8_t>(x, weight, out, args);
  } else {
    prelu_codes<std::int8_t>(x, weight, out, args);
  }
}

}  // namespace

QTensor prelu(const QTensor& x, const QTensor& weight, double scale, std::int64_t zero_point) {
  constexpr std::string_view kOp = "quantized::prelu";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const QTensor& a, const QTensor& b) { return prelu(a, b, scale, zero_point); }, x,
        weight);
  }
  OpScope scope(kOp);
  cpu::check_per_tensor(kOp, "x", x);
  cpu::check_per_tensor(kOp, "weight", weight);
  scope.maps(x);
  QUANTA_CHECK(weight.dtype() == x.dtype(), "{}: weight: expected {} as x has, got {}", kOp,
               x.dtype(), weight.dtype());
  const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
  check_quantizer(kOp, quantizer, x.dtype(), x.sizes());
  const QTensor slope(prelu_weight(kOp, x, weight));
  QTensor out = QTensor::empty(x.sizes(), x.dtype(), quantizer, x.suggested_format());

  scope.kernel(x.dtype() == DType::QInt32 ? "scalar" : "simd");
  prelu_to(x, slope, out);
  return out;
}

namespace {

// Rows of `length` codes, through floats that stay in the L1 cache.
template <typename T>
void softmax_codes(const QTensor& x, const QTensor& out, std::int64_t length) {
  const auto* src = static_cast<const T*>(x.data_ptr());
  auto* dst = static_cast<T*>(out.data_ptr());
  const auto scale = static_cast<float>(x.quantizer().scale);
  const auto zero_point = static_cast<std::int32_t>(x.quantizer().zero_point);
  const cpu::QuantizeArgs args = cpu::ScalarQuantizer(out).args();
  const std::int64_t grain = std::max<std::int64_t>(1, cpu::kElementGrain / 8 / length);
  parallel_for(x.numel() / length, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(length));
    for (std::int64_t i = begin * length; i < end * length; i += length) {
      cpu::dequantize(src + i, row.data(), length, scale, zero_point, cpu::Store::Cached);
      cpu::softmax_row(row.data(), length, row.data());
      cpu::quantize(row.data(), dst + i, length, args, cpu::Store::Cached);
    }
  });
}

}  // namespace

QTensor softmax(const QTensor& x, std::int64_t dim, double scale, std::int64_t zero_point) {
  constexpr std::string_view kOp = "quantized::softmax";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const QTensor& a) { return softmax(a, dim, scale, zero_point); }, x);
  }
  OpScope scope(kOp);
  cpu::check_per_tensor(kOp, "x", x);
  scope.maps(x);
  const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
  check_quantizer(kOp, quantizer, x.dtype(), x.sizes());
  const std::int64_t axis = wrap_dim(dim, x.dim(), kOp);
  const bool in_rows = x.numel() > 0 && x.dim() > 0 && x.dtype() != DType::QInt32 &&
                       x.is_contiguous() && axis == x.dim() - 1;
  if (!in_rows) {
    scope.kernel("dequantize, softmax, quantize");
    return quantize_per_tensor(quanta::softmax(dequantize(x), dim), scale, zero_point, x.dtype());
  }
  scope.kernel("simd");
  QTensor out = QTensor::empty(x.sizes(), x.dtype(), quantizer, x.suggested_format());
  if (x.dtype() == DType::QUInt8) {
    softmax_codes<std::uint8_t>(x, out, x.size(-1));
  } else {
    softmax_codes<std::int8_t>(x, out, x.size(-1));
  }
  return out;
}

}  // namespace quantized
}  // namespace quanta
