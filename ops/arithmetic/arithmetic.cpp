#include "quanta/ops/arithmetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "quanta/ops/arithmetic/families.h"
#include "quanta/ops/arithmetic/gradient.h"
#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/floats.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace arithmetic {
namespace {

using cpu::FloatBinary;

// Kernels --------------------------------------------------------------------------------------

// Integers wrap around, as torch's do.
template <typename T>
T integer_binary(FloatBinary op, T lhs, T rhs) {
  // int would not hold products of uint16.
  using Bits = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;
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
  switch (lhs.dtype()) {
    case DType::UInt8:
      run_integers<std::uint8_t>(op, lhs, rhs, out);
      return "integers";
    case DType::Int8:
      run_integers<std::int8_t>(op, lhs, rhs, out);
      return "integers";
    case DType::Int16:
      run_integers<std::int16_t>(op, lhs, rhs, out);
      return "integers";
    case DType::UInt16:
      run_integers<std::uint16_t>(op, lhs, rhs, out);
      return "integers";
    case DType::Int32:
      run_integers<std::int32_t>(op, lhs, rhs, out);
      return "integers";
    case DType::Int64:
      run_integers<std::int64_t>(op, lhs, rhs, out);
      return "integers";
    case DType::Float64:
      run_doubles(op, lhs, rhs, out);
      return "doubles";
    default:
      break;
  }
  cpu::broadcast_binary<float>(
      lhs, rhs, out,
      [op](const float* left, const float* right, float* dst, std::int64_t count, cpu::Rhs kind,
           cpu::Store store) { cpu::float_binary(op, left, right, dst, count, kind, store); });
  return "simd";
}

std::string_view run_with_number(FloatBinary op, const Tensor& x, double number,
                                 const Tensor& out) {
  if (x.dtype() != DType::Float32 || x.strides() != out.strides()) {
    return run_binary(op, x, Tensor::scalar(number, x.dtype()), out);
  }
  const auto value = static_cast<float>(number);
  const auto* src = static_cast<const float*>(x.data_ptr());
  auto* dst = static_cast<float*>(out.data_ptr());
  cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    cpu::float_binary(op, src + begin, &value, dst + begin, end - begin, cpu::Rhs::Scalar,
                      cpu::Store::Cached);
  });
  return "simd";
}

// Operations -----------------------------------------------------------------------------------

void check_plain(std::string_view op, std::string_view argument, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
  QUANTA_SUPPORTED(!x.is_quantized(),
                   "{}: {}: expected a plain tensor, got a quantized one ({}), and the result's "
                   "scale is not known here: use nn::FloatFunctional (prepare observes it and "
                   "convert gives it a scale), or dequantize first",
                   op, argument, x.dtype());
}

void check_binary_dtype(std::string_view name, FloatBinary op, std::string_view argument,
                        const Tensor& x) {
  const bool integers = std::ranges::find(dtypes::kIntegers, x.dtype()) != dtypes::kIntegers.end();
  QUANTA_SUPPORTED(
      detail::is_float32_or_64(x.dtype()) || detail::is_float_of_cuda(x) ||
          (integers && op != FloatBinary::Div),
      "{}: {}: expected {} on the CPU, got {}", name, argument,
      op == FloatBinary::Div ? "Float32 or Float64" : "Float32, Float64 or an integer dtype",
      x.dtype());
}

void infer_binary(std::string_view name, FloatBinary op, const Tensor& lhs, const Tensor& rhs,
                  Results& out) {
  check_plain(name, "lhs", lhs);
  check_plain(name, "rhs", rhs);
  QUANTA_CHECK(lhs.dtype() == rhs.dtype(), "{}: rhs: expected {} as lhs has, got {}", name,
               lhs.dtype(), rhs.dtype());
  check_binary_dtype(name, op, "lhs", lhs);
  const Dims sizes =
      lhs.sizes() == rhs.sizes() ? lhs.sizes() : broadcast_sizes(lhs.sizes(), rhs.sizes(), name);
  out.add(sizes, lhs.dtype(), cpu::broadcast_format(lhs, rhs, sizes));
}

constexpr std::string_view name_of(FloatBinary op) {
  switch (op) {
    case FloatBinary::Add:
      return "add";
    case FloatBinary::Sub:
      return "sub";
    case FloatBinary::Mul:
      return "mul";
    case FloatBinary::Div:
      return "div";
    case FloatBinary::AddReLU:
      break;
  }
  return "add_relu";
}

constexpr cuda::FloatStep cuda_step(FloatBinary op) {
  switch (op) {
    case FloatBinary::Add:
      return cuda::FloatStep::Add;
    case FloatBinary::Sub:
      return cuda::FloatStep::Sub;
    case FloatBinary::Mul:
      return cuda::FloatStep::Mul;
    case FloatBinary::Div:
      return cuda::FloatStep::Div;
    case FloatBinary::AddReLU:
      break;
  }
  return cuda::FloatStep::AddReLU;
}

// lhs op rhs, broadcast.
template <FloatBinary kOp>
struct Binary final : Op<Binary<kOp>> {
  static constexpr std::string_view kName = name_of(kOp);
  static constexpr ArgumentCount kArguments{2};

  void infer(const Arguments& in, Results& out) const override {
    infer_binary(kName, kOp, in[0], in[1], out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return run_binary(kOp, in[0], in[1], out[0]);
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::combine(cuda_step(kOp), in[0], in[1], 0.0F, out[0]);
    return "combine_floats";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }
  GradientUse gradient_use(std::uint64_t needed) const override {
    return binary_gradient_use(kOp, needed);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return binary_gradient(kOp, context);
  }
};

// x op other, a number: Add or Mul.
template <FloatBinary kOp>
struct WithNumber final : Op<WithNumber<kOp>> {
  static constexpr std::string_view kName = kOp == FloatBinary::Add ? "add_scalar" : "mul_scalar";
  static constexpr ArgumentCount kArguments{1};
  double other = 1.0;

  WithNumber() = default;
  explicit WithNumber(double number) : other(number) {}
  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_plain(kName, "x", x);
    QUANTA_CHECK(x.is_floating_point() || other == std::nearbyint(other),
                 "{}: value: expected a whole number for {}, got {}", kName, x.dtype(), other);
    // The number has to be one of the dtype, which narrow integers often are not.
    QUANTA_SUPPORTED(std::ranges::find(dtypes::kNumbers, x.dtype()) != dtypes::kNumbers.end() ||
                         detail::is_float_of_cuda(x),
                     "{}: x: expected Float32, Float64, Int32 or Int64 on the CPU, got {}", kName,
                     x.dtype());
    out.add(x.sizes(), x.dtype(), x.suggested_format());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return run_with_number(kOp, in[0], other, out[0]);
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::combine(cuda_step(kOp), in[0], Tensor(), static_cast<float>(other), out[0]);
    return "combine_floats";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {kOp == FloatBinary::Add ? context.grad() : mul_scalar(context.grad(), other)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<WithNumber, &WithNumber::other>("other")};
    return kTable;
  }
};

}  // namespace
}  // namespace arithmetic

using namespace arithmetic;

Tensor add(const Tensor& lhs, const Tensor& rhs) {
  return run(Binary<FloatBinary::Add>{}, lhs, rhs);
}
Tensor sub(const Tensor& lhs, const Tensor& rhs) {
  return run(Binary<FloatBinary::Sub>{}, lhs, rhs);
}
Tensor mul(const Tensor& lhs, const Tensor& rhs) {
  return run(Binary<FloatBinary::Mul>{}, lhs, rhs);
}
Tensor div(const Tensor& lhs, const Tensor& rhs) {
  return run(Binary<FloatBinary::Div>{}, lhs, rhs);
}
Tensor add_relu(const Tensor& lhs, const Tensor& rhs) {
  return run(Binary<FloatBinary::AddReLU>{}, lhs, rhs);
}
Tensor add_scalar(const Tensor& x, double value) {
  return run(WithNumber<FloatBinary::Add>{value}, x);
}
Tensor mul_scalar(const Tensor& x, double value) {
  return run(WithNumber<FloatBinary::Mul>{value}, x);
}
Tensor operator+(const Tensor& lhs, const Tensor& rhs) { return add(lhs, rhs); }
Tensor operator-(const Tensor& lhs, const Tensor& rhs) { return sub(lhs, rhs); }
Tensor operator*(const Tensor& lhs, const Tensor& rhs) { return mul(lhs, rhs); }
Tensor operator/(const Tensor& lhs, const Tensor& rhs) { return div(lhs, rhs); }

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/arithmetic.h";

template <FloatBinary kOp>
void add_binary(Catalogue& catalogue, std::span<const DType> dtypes) {
  catalogue.add({.name = Binary<kOp>::kName, .header = kHeader, .dtypes = dtypes}, [](DType dtype) {
    return sample_call(Binary<kOp>{},
                       {sample_tensor({2, 3, 5, 4}, dtype), sample_tensor({3, 1, 4}, dtype, 2)});
  });
}

template <FloatBinary kOp>
void add_with_number(Catalogue& catalogue) {
  catalogue.add({.name = WithNumber<kOp>::kName, .header = kHeader, .dtypes = dtypes::kNumbers},
                [](DType dtype) {
                  return sample_call(WithNumber<kOp>{-3.0}, {sample_tensor({2, 3, 5, 4}, dtype)});
                });
}

}  // namespace

void detail::add_arithmetic(Catalogue& catalogue) {
  add_binary<FloatBinary::Add>(catalogue, dtypes::kFloatsIntegers);
  add_binary<FloatBinary::Sub>(catalogue, dtypes::kFloatsIntegers);
  add_binary<FloatBinary::Mul>(catalogue, dtypes::kFloatsIntegers);
  add_binary<FloatBinary::Div>(catalogue, dtypes::kFloats);
  add_binary<FloatBinary::AddReLU>(catalogue, dtypes::kFloatsIntegers);
  add_with_number<FloatBinary::Add>(catalogue);
  add_with_number<FloatBinary::Mul>(catalogue);
  add_quantized(catalogue);
  add_quantized_functions(catalogue);
}

}  // namespace quanta
