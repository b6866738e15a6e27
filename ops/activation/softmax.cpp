#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "quanta/ops/activation.h"
#include "quanta/ops/activation/cpu_softmax_codes.h"
#include "quanta/ops/activation/cuda_softmax_gradient.h"
#include "quanta/ops/activation/families.h"
#include "quanta/ops/activation/pointwise.h"
#include "quanta/ops/activation/softmax_gradient.h"
#include "quanta/ops/cpu/per_channel.h"
#include "quanta/ops/cpu/softmax.h"
#include "quanta/ops/detail/cuda_softmax.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/exp_math.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace activation {
namespace {

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
  const std::int64_t groups = ceil_div(step, kGroup);
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

float exp_of(float x) { return math::exp_float(x); }
double exp_of(double x) { return std::exp(x); }

// log(sum of exp) is taken from what is left after the maximum, in double: a line's length does not
// cost digits then.
template <typename T>
void log_softmax_line(const T* src, T* dst, std::int64_t length, std::int64_t step) {
  T largest = -std::numeric_limits<T>::infinity();
  for (std::int64_t i = 0; i < length; ++i) largest = std::max(largest, src[i * step]);
  double sum = 0.0;
  for (std::int64_t i = 0; i < length; ++i) {
    sum += static_cast<double>(exp_of(src[i * step] - largest));
  }
  const T log_sum = static_cast<T>(std::log(sum));
  for (std::int64_t i = 0; i < length; ++i) dst[i * step] = src[i * step] - largest - log_sum;
}

// A line of neighbouring floats in vectors: softmax gives 1 / sum of exp at the maximum.
void log_softmax_row(const float* src, float* dst, std::int64_t length) {
  cpu::softmax_row(src, length, dst);
  const std::int64_t top = std::max_element(src, src + length) - src;
  const float largest = src[top];
  const float log_share = math::log_float(dst[top]);
  for (std::int64_t i = 0; i < length; ++i) dst[i] = src[i] - largest + log_share;
}
void log_softmax_row(const double* src, double* dst, std::int64_t length) {
  log_softmax_line(src, dst, length, 1);
}

template <typename T>
void log_softmax_lines(const Tensor& x, const Tensor& out, std::int64_t axis) {
  const cpu::ChannelLayout layout(out, axis);
  const auto* src = static_cast<const T*>(x.data_ptr());
  auto* dst = static_cast<T*>(out.data_ptr());
  const std::int64_t grain = std::max<std::int64_t>(1, 2048 / layout.channels);
  parallel_for(layout.outer * layout.inner, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t first =
          line / layout.inner * layout.channels * layout.inner + line % layout.inner;
      if (layout.inner == 1) {
        log_softmax_row(src + first, dst + first, layout.channels);
      } else {
        log_softmax_line(src + first, dst + first, layout.channels, layout.inner);
      }
    }
  });
}

// function(first row, row behind the last one) of rows of `length` codes, in several threads.
template <typename RowsFunction>
void for_rows_of_codes(const Tensor& x, std::int64_t length, RowsFunction&& function) {
  const std::int64_t grain = std::max<std::int64_t>(1, cpu::kElementGrain / 8 / length);
  parallel_for(x.numel() / length, grain, function);
}

// log_softmax through floats that stay in the L1 cache.
template <typename T>
void log_softmax_rows_of_codes(const QTensor& x, const QTensor& out, std::int64_t length) {
  const auto* src = static_cast<const T*>(x.data_ptr());
  auto* dst = static_cast<T*>(out.data_ptr());
  const auto scale = static_cast<float>(x.quantizer().scale);
  const auto zero_point = static_cast<std::int32_t>(x.quantizer().zero_point);
  const cpu::QuantizeArgs args = cpu::ScalarQuantizer(out).args();
  for_rows_of_codes(x, length, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(length));
    std::vector<float> result(static_cast<std::size_t>(length));
    for (std::int64_t i = begin * length; i < end * length; i += length) {
      cpu::dequantize(src + i, row.data(), length, scale, zero_point, cpu::Store::Cached);
      log_softmax_row(row.data(), result.data(), length);
      cpu::quantize(result.data(), dst + i, length, args, cpu::Store::Cached);
    }
  });
}

void softmax_rows_of_codes(const QTensor& x, const QTensor& out, std::int64_t length) {
  const auto* src = static_cast<const std::uint8_t*>(x.data_ptr());
  auto* dst = static_cast<std::uint8_t*>(out.data_ptr());
  const cpu::SoftmaxSource source{static_cast<float>(x.quantizer().scale),
                                  static_cast<std::int32_t>(x.quantizer().zero_point),
                                  x.dtype() == DType::QInt8};
  const cpu::QuantizeArgs args = cpu::ScalarQuantizer(out).args();
  for_rows_of_codes(x, length, [&](std::int64_t begin, std::int64_t end) {
    cpu::SoftmaxCodes& softmax = cpu::SoftmaxCodes::of_thread(source);
    for (std::int64_t i = begin * length; i < end * length; i += length) {
      softmax.row(src + i, length, args, dst + i);
    }
  });
}

// A line of numbers that lie `step` apart.
template <typename T>
struct Line {
  const T* gradient;
  const T* y;
  T* dst;
  std::int64_t count;
  std::int64_t step;
};

constexpr auto kSoftmaxSlopes = [](const auto& line) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < line.count * line.step; i += line.step) {
    sum += static_cast<double>(line.gradient[i]) * static_cast<double>(line.y[i]);
  }
  using T = std::decay_t<decltype(*line.dst)>;
  const auto mean = static_cast<T>(sum);
  for (std::int64_t i = 0; i < line.count * line.step; i += line.step) {
    line.dst[i] = line.y[i] * (line.gradient[i] - mean);
  }
};

constexpr auto kLogSoftmaxSlopes = [](const auto& line) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < line.count * line.step; i += line.step) {
    sum += static_cast<double>(line.gradient[i]);
  }
  using T = std::decay_t<decltype(*line.dst)>;
  const auto total = static_cast<T>(sum);
  for (std::int64_t i = 0; i < line.count * line.step; i += line.step) {
    line.dst[i] = line.gradient[i] - std::exp(line.y[i]) * total;
  }
};

template <typename Function>
Tensor map_lines(const Tensor& gradient, const Tensor& y, std::int64_t axis,
                 const Function& function) {
  const MemoryFormat format = y.suggested_format();
  const Tensor out = Tensor::empty(y.sizes(), y.dtype(), format);
  if (y.dim() == 0) return out.fill_(0.0);
  if (y.numel() == 0) return out;
  const Tensor from = gradient.contiguous(format);
  const Tensor values = y.contiguous(format);
  const cpu::ChannelLayout layout(out, axis);
  detail::visit_floats(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto* gradients = static_cast<const T*>(from.data_ptr());
    const auto* results = static_cast<const T*>(values.data_ptr());
    auto* dst = static_cast<T*>(out.data_ptr());
    parallel_for(layout.outer * layout.inner,
                 std::max<std::int64_t>(1, cpu::kElementGrain / layout.channels),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t item = begin; item < end; ++item) {
                     const std::int64_t first =
                         item / layout.inner * layout.channels * layout.inner + item % layout.inner;
                     function(Line<T>{gradients + first, results + first, dst + first,
                                      layout.channels, layout.inner});
                   }
                 });
  });
  return out;
}

// The same on a device.
Tensor slopes_on_cuda(cuda::SoftmaxKind kind, const Tensor& gradient, const Tensor& y,
                      std::int64_t axis) {
  const MemoryFormat format = y.suggested_format();
  const Tensor out = Tensor::empty(y.sizes(), y.dtype(), format, y.device());
  if (y.dim() == 0) return out.fill_(0.0);
  if (y.numel() == 0) return out;
  const Tensor from = gradient.contiguous(format);
  const Tensor values = y.contiguous(format);
  const cpu::ChannelLayout layout(out, axis);
  cuda::softmax_slopes(y.device(), {.kind = kind,
                                    .dtype = y.dtype(),
                                    .gradient = from.device_ptr(),
                                    .y = values.device_ptr(),
                                    .dst = out.device_ptr(),
                                    .lines = layout.outer * layout.inner,
                                    .length = layout.channels,
                                    .inner = layout.inner});
  return out;
}

Tensor log_softmax_gradient(const Tensor& gradient, const Tensor& y, std::int64_t axis) {
  if (y.device().is_cuda()) {
    return slopes_on_cuda(cuda::SoftmaxKind::LogSoftmax, gradient, y, axis);
  }
  return map_lines(gradient, y, axis, kLogSoftmaxSlopes);
}

// What softmax and log_softmax share. `dim` may count from the end.
template <typename Derived>
struct SoftmaxOperation : Op<Derived> {
  static constexpr ArgumentCount kArguments{1};
  std::int64_t dim = 0;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    static_cast<const Derived&>(*this).check(x);
    wrap_dim(dim, x.dim(), Derived::kName);
    const MemoryFormat format = x.suggested_format();
    out.arrange(0, format);
    out.add(x.sizes(), x.dtype(), format);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }
  PlanUse plan_use(const Arguments&, std::span<const Tensor>) const override {
    return {.in_place = true};
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0, 1); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Derived, &Derived::dim>("dim")};
    return kTable;
  }
};

struct Softmax final : SoftmaxOperation<Softmax> {
  static constexpr std::string_view kName = "softmax";
  static void check(const Tensor& x) { check_float_unary(kName, x); }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (in[0].dim() == 0) {
      out[0].fill_(1.0);
    } else {
      softmax_to(in[0], out[0], wrap_dim(dim, in[0].dim(), kName));
    }
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    if (in[0].dim() == 0) {
      out[0].fill_(1.0);
      return "fill_items";
    }
    return cuda::softmax(cuda::SoftmaxKind::Softmax, in[0], out[0],
                         wrap_dim(dim, in[0].dim(), kName));
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor y = context.output();
    return {softmax_gradient(context.grad(), y, wrap_dim(dim, y.dim(), kName))};
  }
};

struct LogSoftmax final : SoftmaxOperation<LogSoftmax> {
  static constexpr std::string_view kName = "log_softmax";
  static void check(const Tensor& x) { check_float_unary(kName, x); }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (in[0].dim() == 0) {
      out[0].fill_(0.0);
    } else {
      detail::visit_floats(in[0].dtype(), [&](auto zero) {
        log_softmax_lines<decltype(zero)>(in[0], out[0], wrap_dim(dim, in[0].dim(), kName));
      });
    }
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    if (in[0].dim() == 0) {
      out[0].fill_(0.0);
      return "fill_items";
    }
    return cuda::softmax(cuda::SoftmaxKind::LogSoftmax, in[0], out[0],
                         wrap_dim(dim, in[0].dim(), kName));
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor y = context.output();
    return {log_softmax_gradient(context.grad(), y, wrap_dim(dim, y.dim(), kName))};
  }
};

// What the two have in common on codes: quantize(function(dequantize(codes), dim)).
template <typename Derived>
struct SoftmaxOfCodes : Op<Derived> {
  static constexpr ArgumentCount kArguments{1};
  std::int64_t dim = 0;
  double scale = 1.0;
  std::int64_t zero_point = 0;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    cpu::check_per_tensor(Derived::kName, "x", x);
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer(Derived::kName, quantizer, x.dtype(), x.sizes());
    wrap_dim(dim, x.dim(), Derived::kName);
    const MemoryFormat format = MemoryFormat::Contiguous;  // as torch's on codes
    out.arrange(0, format);
    out.add(x.sizes(), x.dtype(), quantizer, format);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const bool in_rows = x.dim() > 0 && x.dtype() != DType::QInt32 && x.is_contiguous() &&
                         wrap_dim(dim, x.dim(), Derived::kName) == x.dim() - 1;
    if (!in_rows) {
      copy_result(quantize_per_tensor(Derived::of_floats(dequantize(QTensor(x)), dim), scale,
                                      zero_point, x.dtype()),
                  out[0]);
      return Derived::kSteps;
    }
    Derived::rows(QTensor(x), QTensor(out[0]));
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return cuda::softmax(Derived::kOnCuda, in[0], out[0],
                         wrap_dim(dim, in[0].dim(), Derived::kName));
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Derived, &Derived::dim>("dim"),
                                       attribute<Derived, &Derived::scale>("scale"),
                                       attribute<Derived, &Derived::zero_point>("zero_point")};
    return kTable;
  }
};

struct QuantizedSoftmax final : SoftmaxOfCodes<QuantizedSoftmax> {
  static constexpr std::string_view kName = "quantized::softmax";
  static constexpr std::string_view kSteps = "dequantize, softmax, quantize";
  static constexpr auto kOnCuda = cuda::SoftmaxKind::Softmax;
  static Tensor of_floats(const Tensor& x, std::int64_t axis) { return quanta::softmax(x, axis); }
  static void rows(const QTensor& x, const QTensor& out) {
    softmax_rows_of_codes(x, out, x.size(-1));
  }
};

struct QuantizedLogSoftmax final : SoftmaxOfCodes<QuantizedLogSoftmax> {
  static constexpr std::string_view kName = "quantized::log_softmax";
  static constexpr std::string_view kSteps = "dequantize, log_softmax, quantize";
  static constexpr auto kOnCuda = cuda::SoftmaxKind::LogSoftmax;
  static Tensor of_floats(const Tensor& x, std::int64_t axis) {
    return quanta::log_softmax(x, axis);
  }
  static void rows(const QTensor& x, const QTensor& out) {
    if (x.dtype() == DType::QUInt8) {
      log_softmax_rows_of_codes<std::uint8_t>(x, out, x.size(-1));
    } else {
      log_softmax_rows_of_codes<std::int8_t>(x, out, x.size(-1));
    }
  }
};

constexpr std::string_view kHeader = "quanta/ops/activation.h";

template <typename Kind>
Kind along(std::int64_t dim) {
  Kind operation;
  operation.dim = dim;
  return operation;
}

template <typename Kind>
Kind along(std::int64_t dim, double scale, std::int64_t zero_point) {
  auto operation = along<Kind>(dim);
  operation.scale = scale;
  operation.zero_point = zero_point;
  return operation;
}

}  // namespace

Tensor softmax_gradient(const Tensor& gradient, const Tensor& y, std::int64_t axis) {
  if (y.device().is_cuda()) return slopes_on_cuda(cuda::SoftmaxKind::Softmax, gradient, y, axis);
  return map_lines(gradient, y, axis, kSoftmaxSlopes);
}

void add_softmax(Catalogue& catalogue) {
  catalogue.add({.name = Softmax::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  return sample_call(along<Softmax>(1), {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  catalogue.add({.name = LogSoftmax::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  return sample_call(along<LogSoftmax>(1), {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  catalogue.add({.name = QuantizedSoftmax::kName, .header = kHeader, .dtypes = dtypes::kQ},
                [](DType dtype) {
                  return sample_call(along<QuantizedSoftmax>(-1, 1.0 / 256, 0),
                                     {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  catalogue.add({.name = QuantizedLogSoftmax::kName, .header = kHeader, .dtypes = dtypes::kQ},
                [](DType dtype) {
                  return sample_call(along<QuantizedLogSoftmax>(-1, 0.04, 9),
                                     {sample_tensor({2, 3, 5, 4}, dtype)});
                });
}

}  // namespace activation

Tensor softmax(const Tensor& x, std::int64_t dim) {
  return run(activation::along<activation::Softmax>(dim), x);
}
Tensor log_softmax(const Tensor& x, std::int64_t dim) {
  return run(activation::along<activation::LogSoftmax>(dim), x);
}

QTensor quantized::softmax(const QTensor& x, std::int64_t dim, double scale,
                           std::int64_t zero_point) {
  return QTensor(run(activation::along<activation::QuantizedSoftmax>(dim, scale, zero_point), x));
}
QTensor quantized::log_softmax(const QTensor& x, std::int64_t dim, double scale,
                               std::int64_t zero_point) {
  return QTensor(
      run(activation::along<activation::QuantizedLogSoftmax>(dim, scale, zero_point), x));
}

}  // namespace quanta
