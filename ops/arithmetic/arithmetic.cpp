#include "quanta/ops/arithmetic.h"

#include <cmath>

#include "quanta/ops/arithmetic/gradient.h"
#include "quanta/ops/cpu/code_table.h"
#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

using cpu::FloatBinary;

void check_plain(std::string_view op, std::string_view argument, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
  QUANTA_SUPPORTED(!x.is_quantized(),
                   "{}: {}: expected a plain tensor, got a quantized one ({}), and the result's "
                   "scale is not known here: use nn::FloatFunctional (prepare observes it and "
                   "convert gives it a scale), or dequantize first",
                   op, argument, x.dtype());
}

// Integers wrap around, as torch's do.
template <typename T>
T integer_binary(FloatBinary op, T lhs, T rhs) {
  using Bits = std::make_unsigned_t<T>;
  const auto left = static_cast<Bits>(lhs);
  const auto right = static_cast<Bits>(rhs);
  switch (op) {
    case FloatBinary::Add:
      return static_cast<T>(left + right);
    case FloatBinary::Sub:
      return static_cast<T>(left - right);
    case FloatBinary::Mul:
      return static_cast<T>(left * right);
    case FloatBinary::AddReLU:
      return std::max(static_cast<T>(left + right), T{0});
    case FloatBinary::Div:
      break;
  }
  return T{0};
}

double double_binary(FloatBinary op, double lhs, double rhs) {
  switch (op) {
    case FloatBinary::Add:
      return lhs + rhs;
    case FloatBinary::Sub:
      return lhs - rhs;
    case FloatBinary::Mul:
      return lhs * rhs;
    case FloatBinary::Div:
      return lhs / rhs;
    case FloatBinary::AddReLU:
      break;
  }
  return lhs + rhs < 0.0 ? 0.0 : lhs + rhs;
}

// Float64, which is for checks of gradients rather than for speed.
void run_doubles(FloatBinary op, const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
  cpu::broadcast_binary<double>(lhs, rhs, out,
                                [op](const double* left, const double* right, double* dst,
                                     std::int64_t count, cpu::Rhs kind, cpu::Store) {
                                  const std::int64_t step = kind == cpu::Rhs::Row ? 1 : 0;
                                  for (std::int64_t i = 0; i < count; ++i) {
                                    dst[i] = double_binary(op, left[i], right[i * step]);
                                  }
                                });
}

template <typename T>
void run_integers(FloatBinary op, const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
  cpu::broadcast_binary<T>(
      lhs, rhs, out,
      [op](const T* left, const T* right, T* dst, std::int64_t count, cpu::Rhs kind, cpu::Store) {
        const std::int64_t step = kind == cpu::Rhs::Row ? 1 : 0;
        for (std::int64_t i = 0; i < count; ++i) {
          dst[i] = integer_binary<T>(op, left[i], right[i * step]);
        }
      });
}

// Gives the name of the kernel.
std::string_view run_binary(FloatBinary op, const Tensor& lhs, const Tensor& rhs,
                            const Tensor& out) {
  if (lhs.dtype() == DType::Int32) {
    run_integers<std::int32_t>(op, lhs, rhs, out);
    return "integers";
  }
  if (lhs.dtype() == DType::Int64) {
    run_integers<std::int64_t>(op, lhs, rhs, out);
    return "integers";
  }
  if (lhs.dtype() == DType::Float64) {
    run_doubles(op, lhs, rhs, out);
    return "doubles";
  }
  cpu::broadcast_binary<float>(
      lhs, rhs, out,
      [op](const float* left, const float* right, float* dst, std::int64_t count, cpu::Rhs kind,
           cpu::Store store) { cpu::float_binary(op, left, right, dst, count, kind, store); });
  return "simd";
}

Tensor binary(std::string_view name, FloatBinary op, const Tensor& lhs, const Tensor& rhs) {
  OpScope scope(name);
  check_plain(name, "lhs", lhs);
  check_plain(name, "rhs", rhs);
  QUANTA_CHECK(lhs.dtype() == rhs.dtype(), "{}: rhs: expected {} as lhs has, got {}", name,
               lhs.dtype(), rhs.dtype());
  const bool integers = lhs.dtype() == DType::Int32 || lhs.dtype() == DType::Int64;
  QUANTA_SUPPORTED(
      lhs.dtype() == DType::Float32 || lhs.dtype() == DType::Float64 ||
          (integers && op != FloatBinary::Div),
      "{}: lhs: expected {} on the CPU, got {}", name,
      op == FloatBinary::Div ? "Float32 or Float64" : "Float32, Float64, Int32 or Int64",
      lhs.dtype());

  const Dims sizes =
      lhs.sizes() == rhs.sizes() ? lhs.sizes() : broadcast_sizes(lhs.sizes(), rhs.sizes(), name);
  Tensor out = Tensor::empty(sizes, lhs.dtype(), cpu::broadcast_format(lhs, rhs, sizes));
  scope.touches(lhs, rhs, out);

  scope.kernel(run_binary(op, lhs, rhs, out));
  if (replay::is_recording()) {
    replay::record({.op = name,
                    .inputs = {lhs, rhs},
                    .outputs = {out},
                    .run =
                        [op](const replay::Frame& frame) {
                          run_binary(op, frame.in(0), frame.in(1), frame.out());
                        },
                    .identity = std::string(name)});
  }
  if (autograd::needs_grad(lhs, rhs)) {
    return gradients::record_binary(name, op, lhs, rhs, std::move(out));
  }
  return out;
}

Tensor with_scalar(std::string_view name, FloatBinary op, const Tensor& x, double value) {
  check_plain(name, "x", x);
  QUANTA_CHECK(x.is_floating_point() || value == std::nearbyint(value),
               "{}: value: expected a whole number for {}, got {}", name, x.dtype(), value);
  return binary(name, op, x, Tensor::scalar(value, x.dtype()));
}

}  // namespace

Tensor add(const Tensor& lhs, const Tensor& rhs) {
  return binary("add", FloatBinary::Add, lhs, rhs);
}
Tensor sub(const Tensor& lhs, const Tensor& rhs) {
  return binary("sub", FloatBinary::Sub, lhs, rhs);
}
Tensor mul(const Tensor& lhs, const Tensor& rhs) {
  return binary("mul", FloatBinary::Mul, lhs, rhs);
}
Tensor div(const Tensor& lhs, const Tensor& rhs) {
  return binary("div", FloatBinary::Div, lhs, rhs);
}
Tensor add_relu(const Tensor& lhs, const Tensor& rhs) {
  return binary("add_relu", FloatBinary::AddReLU, lhs, rhs);
}
Tensor add_scalar(const Tensor& x, double value) {
  return with_scalar("add_scalar", FloatBinary::Add, x, value);
}
Tensor mul_scalar(const Tensor& x, double value) {
  return with_scalar("mul_scalar", FloatBinary::Mul, x, value);
}
Tensor operator+(const Tensor& lhs, const Tensor& rhs) { return add(lhs, rhs); }
Tensor operator-(const Tensor& lhs, const Tensor& rhs) { return sub(lhs, rhs); }
Tensor operator*(const Tensor& lhs, const Tensor& rhs) { return mul(lhs, rhs); }
Tensor operator/(const Tensor& lhs, const Tensor& rhs) { return div(lhs, rhs); }

namespace quantized {
namespace {

enum class Relu : bool { No, Yes };

// Checks, and the result that both add and mul write into.
QTensor binary_result(std::string_view op, const QTensor& lhs, const QTensor& rhs, double scale,
                      std::int64_t zero_point) {
  cpu::check_per_tensor(op, "lhs", lhs);
  cpu::check_per_tensor(op, "rhs", rhs);
  QUANTA_CHECK(lhs.dtype() == rhs.dtype(), "{}: rhs: expected {} as lhs has, got {}", op,
               lhs.dtype(), rhs.dtype());
  const Dims sizes =
      lhs.sizes() == rhs.sizes() ? lhs.sizes() : broadcast_sizes(lhs.sizes(), rhs.sizes(), op);
  const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
  check_quantizer(op, quantizer, lhs.dtype(), sizes);
  return QTensor::empty(sizes, lhs.dtype(), quantizer, cpu::broadcast_format(lhs, rhs, sizes));
}

cpu::ScalarQuantizer result_quantizer(const QTensor& out, Relu relu) {
  cpu::ScalarQuantizer quantizer(out);
  if (relu == Relu::Yes) quantizer.min = quantizer.zero_point;
  return quantizer;
}

cpu::AddArgs add_args(const QTensor& lhs, const QTensor& rhs,
                      const cpu::ScalarQuantizer& quantizer) {
  const cpu::ScalarDequantizer left(lhs);
  const cpu::ScalarDequantizer right(rhs);
  return {left.scale, left.offset, right.scale, right.offset, quantizer.args()};
}

// torch's order of roundings: (sa * sb) * (1 / s), each step in float32.
cpu::MulArgs mul_args(const QTensor& lhs, const QTensor& rhs,
                      const cpu::ScalarQuantizer& quantizer) {
  cpu::MulArgs args{static_cast<std::int32_t>(lhs.quantizer().zero_point),
                    static_cast<std::int32_t>(rhs.quantizer().zero_point), quantizer.args()};
  args.out.inv_scale = static_cast<float>(lhs.quantizer().scale) *
                       static_cast<float>(rhs.quantizer().scale) * quantizer.inv_scale;
  return args;
}

template <typename T>
void add_codes(const QTensor& lhs, const QTensor& rhs, const QTensor& out,
               const cpu::ScalarQuantizer& quantizer) {
  const cpu::ScalarDequantizer left(lhs);
  const cpu::ScalarDequantizer right(rhs);
  const cpu::AddArgs args = add_args(lhs, rhs, quantizer);
  cpu::broadcast_binary<T>(
      lhs, rhs, out,
      [&](const T* left_row, const T* right_row, T* dst, std::int64_t count, cpu::Rhs kind,
          cpu::Store) {
        if constexpr (sizeof(T) == 1) {
          cpu::add(left_row, right_row, dst, count, args, kind);
        } else {
          const std::int64_t step = kind == cpu::Rhs::Row ? 1 : 0;
          for (std::int64_t i = 0; i < count; ++i) {
            dst[i] = quantizer(left(left_row[i]) + right(right_row[i * step]));
          }
        }
      },
      [&](const T* left_rows, const T* right_row, T* dst, std::int64_t rows, std::int64_t count) {
        if constexpr (sizeof(T) == 1) {
          cpu::add_channels(left_rows, right_row, dst, rows, count, args);
        } else {
          for (std::int64_t i = 0; i < rows * count; ++i) {
            dst[i] = quantizer(left(left_rows[i]) + right(right_row[i % count]));
          }
        }
      });
}

template <typename T>
void mul_codes(const QTensor& lhs, const QTensor& rhs, const QTensor& out,
               const cpu::ScalarQuantizer& quantizer) {
  const auto lhs_zero = static_cast<std::int32_t>(lhs.quantizer().zero_point);
  const auto rhs_zero = static_cast<std::int32_t>(rhs.quantizer().zero_point);
  const cpu::MulArgs args = mul_args(lhs, rhs, quantizer);
  const float multiplier = args.out.inv_scale;
  const auto one = [&](T left, T right) {
    const std::int64_t product =
        cpu::saturating_product(std::int64_t{left} - lhs_zero, std::int64_t{right} - rhs_zero);
    return std::max(quantizer.min,
                    math::requantize_qint32(product, multiplier, quantizer.zero_point));
  };
  cpu::broadcast_binary<T>(
      lhs, rhs, out,
      [&](const T* left_row, const T* right_row, T* dst, std::int64_t count, cpu::Rhs kind,
          cpu::Store) {
        if constexpr (sizeof(T) == 1) {
          cpu::mul(left_row, right_row, dst, count, args, kind);
        } else {
          const std::int64_t step = kind == cpu::Rhs::Row ? 1 : 0;
          for (std::int64_t i = 0; i < count; ++i) dst[i] = one(left_row[i], right_row[i * step]);
        }
      },
      [&](const T* left_rows, const T* right_row, T* dst, std::int64_t rows, std::int64_t count) {
        if constexpr (sizeof(T) == 1) {
          cpu::mul_channels(left_rows, right_row, dst, rows, count, args);
        } else {
          for (std::int64_t i = 0; i < rows * count; ++i) {
            dst[i] = one(left_rows[i], right_row[i % count]);
          }
        }
      });
}

enum class CodeBinary : std::uint8_t { Add, Mul };

// Gives the name of the kernel. The operands may be swapped: sum and product are the same either
// way round, and the kernels want the broadcast one on the right.
std::string_view run_code_binary(CodeBinary kind, const QTensor& lhs, const QTensor& rhs,
                                 const QTensor& out, Relu relu) {
  const QTensor& left = lhs.numel() < rhs.numel() ? rhs : lhs;
  const QTensor& right = lhs.numel() < rhs.numel() ? lhs : rhs;
  const cpu::ScalarQuantizer quantizer = result_quantizer(out, relu);
  const auto run = [&](auto code) {
    using T = decltype(code);
    if (kind == CodeBinary::Add) {
      add_codes<T>(left, right, out, quantizer);
    } else {
      mul_codes<T>(left, right, out, quantizer);
    }
  };
  switch (lhs.dtype()) {
    case DType::QUInt8:
      run(std::uint8_t{});
      return "simd";
    case DType::QInt8:
      run(std::int8_t{});
      return "simd";
    default:
      run(std::int32_t{});
      return "reference";
  }
}

QTensor code_binary(std::string_view op, CodeBinary kind, const QTensor& lhs, const QTensor& rhs,
                    double scale, std::int64_t zero_point, Relu relu) {
  OpScope scope(op);
  QTensor out = binary_result(op, lhs, rhs, scale, zero_point);
  scope.touches(lhs, rhs, out);
  scope.kernel(run_code_binary(kind, lhs, rhs, out, relu));
  if (replay::is_recording()) {
    replay::record({.op = op,
                    .inputs = {lhs, rhs},
                    .outputs = {out},
                    .run = [kind, relu](const replay::Frame& frame) {
                      run_code_binary(kind, QTensor(frame.in(0)), QTensor(frame.in(1)),
                                      QTensor(frame.out()), relu);
                    }});
  }
  return out;
}

void check_scalar_operands(std::string_view op, const QTensor& x, double value) {
  cpu::check_per_tensor(op, "x", x);
  QUANTA_CHECK(std::isfinite(value), "{}: value: expected a finite number, got {}", op, value);
}

// max(code, zero point of x), in place; x was made by this op and is dense.
void relu_codes(const QTensor& x) {
  const auto zero_point = static_cast<std::int32_t>(x.quantizer().zero_point);
  cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    if (x.dtype() == DType::QUInt8) {
      auto* codes = static_cast<std::uint8_t*>(x.data_ptr()) + begin;
      cpu::clamp_codes(codes, codes, end - begin, static_cast<std::uint8_t>(zero_point), 255,
                       cpu::Store::Cached);
    } else if (x.dtype() == DType::QInt8) {
      auto* codes = static_cast<std::int8_t*>(x.data_ptr()) + begin;
      cpu::clamp_codes(codes, codes, end - begin, static_cast<std::int8_t>(zero_point), 127,
                       cpu::Store::Cached);
    } else {
      auto* codes = static_cast<std::int32_t*>(x.data_ptr());
      for (std::int64_t i = begin; i < end; ++i) codes[i] = std::max(codes[i], zero_point);
    }
  });
}

QTensor add_scalar_to(std::string_view op, const QTensor& x, double value, Relu relu) {
  if (replay::is_recording() && (relu == Relu::Yes || x.dtype() == DType::QInt32)) {
    return replay::call(
        op, [=](const QTensor& t) { return add_scalar_to(op, t, value, relu); }, x);
  }
  OpScope scope(op);
  check_scalar_operands(op, x, value);
  scope.maps(x);
  const double scale = x.quantizer().scale;
  const std::int64_t zero_point = x.quantizer().zero_point;
  const double steps = std::nearbyint(value / scale);
  QUANTA_CHECK(std::fabs(steps) < 2147483648.0,
               "{}: value: expected fewer than 2^31 steps of the scale {}, got {}", op, scale,
               value);
  const auto shift = static_cast<std::int64_t>(steps);
  const IntRange range = cpu::code_range(x.dtype());
  const std::int64_t moved = zero_point - shift;

  if (moved >= range.min && moved <= range.max) {
    scope.kernel("copy");
    QTensor out =
        QTensor(x.clone(x.suggested_format())).with_quantizer(Quantizer::per_tensor(scale, moved));
    if (relu == Relu::Yes) relu_codes(out);
    return out;
  }
  // The zero point stays at the end of the range and the scale grows to reach the rest.
  const double width = static_cast<double>(range.max) - static_cast<double>(range.min);
  const double reach = moved < range.min ? static_cast<double>(range.max - moved)
                                         : static_cast<double>(moved - range.min);
  const Quantizer quantizer =
      Quantizer::per_tensor(reach / width * scale, moved < range.min ? range.min : range.max);
  check_quantizer(op, quantizer, x.dtype(), x.sizes());
  const MemoryFormat format = x.suggested_format();
  QTensor out = QTensor::empty(x.sizes(), x.dtype(), quantizer, format);

  const cpu::ScalarQuantizer to_code = result_quantizer(out, relu);
  const float multiplier = static_cast<float>(scale) * to_code.inv_scale;
  const cpu::TableKey key{
      relu == Relu::Yes ? std::string_view("add_scalar_relu") : std::string_view("add_scalar"),
      x.dtype(),
      scale,
      zero_point,
      quantizer.scale,
      quantizer.zero_point,
      {steps}};
  scope.kernel("lookup");
  if (replay::is_recording()) {
    return replay::call(
        op, [=](const QTensor& t) { return add_scalar_to(op, t, value, relu); }, x);
  }
  cpu::map_codes(QTensor(x.contiguous(format)), out, key, [&](std::int32_t code) {
    const std::int64_t sum = code - zero_point + shift;
    if (x.dtype() == DType::QInt32) {
      return std::max(to_code.min, math::requantize_qint32(sum, multiplier, quantizer.zero_point));
    }
    return math::quantize(static_cast<float>(sum), multiplier, to_code.zero_point, to_code.min,
                          to_code.max);
  });
  return out;
}

// code -> min + max - code, which is ~code in every width.
void mirror_codes(const QTensor& x) {
  cpu::parallel_elements(static_cast<std::int64_t>(x.nbytes()),
                         [&](std::int64_t begin, std::int64_t end) {
                           auto* bytes = static_cast<std::uint8_t*>(x.data_ptr());
                           for (std::int64_t i = begin; i < end; ++i) {
                             bytes[i] = static_cast<std::uint8_t>(~bytes[i]);
                           }
                         });
}

QTensor mul_scalar_to(std::string_view op, const QTensor& x, double value, Relu relu) {
  if (replay::is_recording() && (relu == Relu::Yes || value <= 0.0)) {
    return replay::call(
        op, [=](const QTensor& t) { return mul_scalar_to(op, t, value, relu); }, x);
  }
  OpScope scope(op);
  check_scalar_operands(op, x, value);
  scope.maps(x);
  const double scale = x.quantizer().scale;
  const std::int64_t zero_point = x.quantizer().zero_point;
  const IntRange range = cpu::code_range(x.dtype());
  Quantizer quantizer = Quantizer::per_tensor(1.0, 0);
  if (value > 0.0) quantizer = Quantizer::per_tensor(scale * value, zero_point);
  if (value < 0.0) {
    quantizer = Quantizer::per_tensor(-value * scale, range.max - (zero_point - range.min));
  }
  check_quantizer(op, quantizer, x.dtype(), x.sizes());

  scope.kernel("copy");
  const QTensor out = QTensor(x.clone(x.suggested_format())).with_quantizer(quantizer);
  if (value == 0.0) out.fill_(0.0);
  if (value < 0.0) mirror_codes(out);
  if (relu == Relu::Yes) relu_codes(out);
  return out;
}

}  // namespace

QTensor add(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return code_binary("quantized::add", CodeBinary::Add, lhs, rhs, scale, zero_point, Relu::No);
}
QTensor add_relu(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return code_binary("quantized::add_relu", CodeBinary::Add, lhs, rhs, scale, zero_point,
                     Relu::Yes);
}
QTensor mul(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return code_binary("quantized::mul", CodeBinary::Mul, lhs, rhs, scale, zero_point, Relu::No);
}
QTensor mul_relu(const QTensor& lhs, const QTensor& rhs, double scale, std::int64_t zero_point) {
  return code_binary("quantized::mul_relu", CodeBinary::Mul, lhs, rhs, scale, zero_point,
                     Relu::Yes);
}
QTensor add_scalar(const QTensor& x, double value) {
  return add_scalar_to("quantized::add_scalar", x, value, Relu::No);
}
QTensor add_scalar_relu(const QTensor& x, double value) {
  return add_scalar_to("quantized::add_scalar_relu", x, value, Relu::Yes);
}
QTensor mul_scalar(const QTensor& x, double value) {
  return mul_scalar_to("quantized::mul_scalar", x, value, Relu::No);
}
QTensor mul_scalar_relu(const QTensor& x, double value) {
  return mul_scalar_to("quantized::mul_scalar_relu", x, value, Relu::Yes);
}

}  // namespace quantized
}  // namespace quanta
