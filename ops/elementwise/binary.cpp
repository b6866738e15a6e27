#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/elementwise/cuda_numbers.h"
#include "quanta/ops/elementwise/families.h"
#include "quanta/ops/elementwise/numbers.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

// Functions of two numbers.

namespace quanta {
namespace elementwise {
namespace {

constexpr std::string_view kHeader = "quanta/ops/elementwise.h";

template <typename F, typename T>
void row(const T* lhs, const T* rhs, T* dst, std::int64_t count, cpu::Rhs kind) {
  if (kind == cpu::Rhs::Row) {
    for (std::int64_t i = 0; i < count; ++i) dst[i] = F::template value<T>(lhs[i], rhs[i]);
    return;
  }
  const T value = *rhs;
  if constexpr (std::is_same_v<F, Pow> && std::is_floating_point_v<T>) {
    if (value == T{2}) {
      for (std::int64_t i = 0; i < count; ++i) dst[i] = Pow::square(lhs[i]);
      return;
    }
    if (value == T{3}) {
      for (std::int64_t i = 0; i < count; ++i) dst[i] = Pow::cube(lhs[i]);
      return;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) dst[i] = F::template value<T>(lhs[i], value);
}

// The loops over strides are one piece of code for each dtype, whatever the function.
template <typename T>
using RowKernel = void (*)(const T* lhs, const T* rhs, T* dst, std::int64_t count, cpu::Rhs kind);

template <typename T>
void broadcast(const Tensor& lhs, const Tensor& rhs, const Tensor& out, RowKernel<T> kernel) {
  cpu::broadcast_binary<T>(
      lhs, rhs, out,
      [kernel](const T* left, const T* right, T* dst, std::int64_t count, cpu::Rhs kind,
               cpu::Store) { kernel(left, right, dst, count, kind); });
}

template <typename F>
constexpr cuda::NumberPairFunction cuda_function() {
  using Function = cuda::NumberPairFunction;
  if (std::is_same_v<F, Pow>) return Function::Pow;
  if (std::is_same_v<F, Maximum>) return Function::Maximum;
  if (std::is_same_v<F, Minimum>) return Function::Minimum;
  if (std::is_same_v<F, Fmod>) return Function::Fmod;
  if (std::is_same_v<F, Remainder>) return Function::Remainder;
  if (std::is_same_v<F, DivTrunc>) return Function::DivTrunc;
  if (std::is_same_v<F, BitwiseAnd>) return Function::BitwiseAnd;
  if (std::is_same_v<F, BitwiseOr>) return Function::BitwiseOr;
  if (std::is_same_v<F, BitwiseXor>) return Function::BitwiseXor;
  return std::is_same_v<F, LeftShift> ? Function::LeftShift : Function::RightShift;
}

constexpr std::array kCudaPowers{DType::Float32, DType::UInt8,   DType::Int8,
                                 DType::Int16,   DType::UInt16,  DType::Int32,
                                 DType::Int64,   DType::Float16, DType::BFloat16};

template <typename F>
constexpr std::span<const DType> cuda_dtypes_of() {
  // Powers of doubles have no more digits than CUDA's.
  if (std::is_same_v<F, Pow>) return kCudaPowers;
  switch (F::kNumbers) {
    case Numbers::FloatsAndIntegers:
      return kCudaNumbers;
    case Numbers::Integers:
      return dtypes::kIntegers;
    case Numbers::IntegersAndBool:
      return dtypes::kIntegersBool;
    case Numbers::All:
      break;
  }
  return dtypes::kOrderedPlain;
}

template <typename F>
struct Binary final : Op<Binary<F>> {
  static constexpr std::string_view kName = F::kName;
  static constexpr ArgumentCount kArguments{2};

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& lhs = in[0];
    const Tensor& rhs = in[1];
    check_numbers(kName, "lhs", lhs, F::kNumbers);
    QUANTA_CHECK(rhs.defined(), "{}: rhs: expected a tensor, got an undefined one", kName);
    QUANTA_CHECK(lhs.dtype() == rhs.dtype(), "{}: rhs: expected {} as lhs has, got {}", kName,
                 lhs.dtype(), rhs.dtype());
    const Dims sizes =
        lhs.sizes() == rhs.sizes() ? lhs.sizes() : broadcast_sizes(lhs.sizes(), rhs.sizes(), kName);
    out.add(sizes, lhs.dtype(), cpu::broadcast_format(lhs, rhs, sizes));
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    visit_numbers(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      constexpr bool kTakesFloats = F::kNumbers == Numbers::FloatsAndIntegers;
      if constexpr (kTakesFloats || !std::is_floating_point_v<T>) {
        broadcast<T>(in[0], in[1], out[0], row<F, T>);
      }
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::combine(cuda_function<F>(), in[0], in[1], out[0]);
    return "combine_numbers";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return cuda_dtypes_of<F>(); }

  GradientUse gradient_use(std::uint64_t) const override {
    if constexpr (std::is_same_v<F, Maximum> || std::is_same_v<F, Minimum>) {
      return GradientUse::of(0b11);
    } else if constexpr (std::is_same_v<F, Pow>) {
      return GradientUse::of(0b11, 1);
    } else if constexpr (F::kNumbers == Numbers::FloatsAndIntegers) {
      return {};
    } else {
      return GradientUse::none();
    }
  }

  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    if constexpr (std::is_same_v<F, Maximum> || std::is_same_v<F, Minimum>) {
      return extreme_gradient(context);
    } else if constexpr (std::is_same_v<F, Pow>) {
      return power_gradient(context);
    } else {
      return Operation::gradient(context);
    }
  }

 private:
  // To the one that was taken; equal ones share it, as in torch.
  static std::vector<Tensor> extreme_gradient(const autograd::BackwardContext& context) {
    const Tensor lhs = context.input(0);
    const Tensor rhs = context.input(1);
    const Tensor& gradient = context.grad();
    const Tensor nothing = Tensor::zeros({}, gradient.dtype());
    const Tensor shared = where(eq(lhs, rhs), mul_scalar(gradient, 0.5), nothing);
    const bool is_max = std::is_same_v<F, Maximum>;
    const auto share = [&](const Tensor& mine, const Tensor& other, std::size_t i) {
      const Tensor wins = is_max ? gt(mine, other) : lt(mine, other);
      return autograd::sum_to_size(add(where(wins, gradient, nothing), shared),
                                   context.input_sizes(i));
    };
    std::vector<Tensor> results(2);
    if (context.needs(0)) results[0] = share(lhs, rhs, 0);
    if (context.needs(1)) results[1] = share(rhs, lhs, 1);
    return results;
  }

  // d x^y = y x^(y - 1) dx + x^y log(x) dy; the latter is 0 for a base of 0, as in torch.
  static std::vector<Tensor> power_gradient(const autograd::BackwardContext& context) {
    const Tensor base = context.input(0);
    const Tensor exponent = context.input(1);
    const Tensor& gradient = context.grad();
    std::vector<Tensor> results(2);
    if (context.needs(0)) {
      const Tensor slope = mul(exponent, pow(base, add_scalar(exponent, -1.0)));
      results[0] = autograd::sum_to_size(mul(gradient, slope), context.input_sizes(0));
    }
    if (context.needs(1)) {
      const Tensor nothing = Tensor::zeros({}, gradient.dtype());
      const Tensor slope = mul(context.output(), where(eq(base, 0.0), nothing, quanta::log(base)));
      results[1] = autograd::sum_to_size(mul(gradient, slope), context.input_sizes(1));
    }
    return results;
  }
};

// Divisors are not 0, and bases of powers not below it.
Tensor positive(const Tensor& x) {
  if (x.dtype() == DType::Bool) return x;
  return quanta::maximum(quanta::abs(x), Tensor::ones({}, x.dtype()));
}

template <typename F>
void add_function(Catalogue& catalogue, std::span<const DType> dtypes) {
  catalogue.add({.name = F::kName, .header = kHeader, .dtypes = dtypes}, [](DType dtype) {
    Tensor lhs = sample_tensor({2, 3, 5, 4}, dtype);
    Tensor rhs = sample_tensor({3, 1, 4}, dtype, 2);
    const bool is_pow = std::is_same_v<F, Pow>;
    if (is_pow) lhs = positive(lhs);
    if (is_pow && lhs.is_floating_point()) lhs = add_scalar(lhs, 0.25);
    if (std::is_same_v<F, Fmod> || std::is_same_v<F, Remainder>) rhs = positive(rhs);
    return sample_call(Binary<F>{}, {lhs, rhs});
  });
}

}  // namespace

void add_binary(Catalogue& catalogue) {
  add_function<Pow>(catalogue, dtypes::kFloatsIntegers);
  add_function<Maximum>(catalogue, dtypes::kFloatsIntegers);
  add_function<Minimum>(catalogue, dtypes::kFloatsIntegers);
  add_function<Fmod>(catalogue, dtypes::kFloatsIntegers);
  add_function<Remainder>(catalogue, dtypes::kFloatsIntegers);
  add_function<DivTrunc>(catalogue, dtypes::kIntegers);
  add_function<BitwiseAnd>(catalogue, dtypes::kIntegersBool);
  add_function<BitwiseOr>(catalogue, dtypes::kIntegersBool);
  add_function<BitwiseXor>(catalogue, dtypes::kIntegersBool);
  add_function<LeftShift>(catalogue, dtypes::kIntegers);
  add_function<RightShift>(catalogue, dtypes::kIntegers);
}

}  // namespace elementwise

using namespace elementwise;

Tensor pow(const Tensor& lhs, const Tensor& rhs) { return run(Binary<Pow>{}, lhs, rhs); }
Tensor pow(const Tensor& x, double exponent) {
  QUANTA_CHECK(x.defined(), "pow: x: expected a tensor, got an undefined one");
  QUANTA_CHECK(x.is_floating_point() || exponent == std::nearbyint(exponent),
               "pow: exponent: expected a whole number for {}, got {}", x.dtype(), exponent);
  QUANTA_SUPPORTED(!x.is_quantized(), "pow: x: expected a plain tensor, got {}: dequantize first",
                   x.dtype());
  if (x.device().is_cpu()) return pow(x, Tensor::scalar(exponent, x.dtype()));
  // Filled there: a copy from here would wait for the device.
  const Tensor there = Tensor::empty({}, x.dtype(), MemoryFormat::Contiguous, x.device());
  return pow(x, there.fill_(exponent));
}
Tensor maximum(const Tensor& lhs, const Tensor& rhs) { return run(Binary<Maximum>{}, lhs, rhs); }
Tensor minimum(const Tensor& lhs, const Tensor& rhs) { return run(Binary<Minimum>{}, lhs, rhs); }
Tensor fmod(const Tensor& lhs, const Tensor& rhs) { return run(Binary<Fmod>{}, lhs, rhs); }
Tensor remainder(const Tensor& lhs, const Tensor& rhs) {
  return run(Binary<Remainder>{}, lhs, rhs);
}
Tensor div_trunc(const Tensor& lhs, const Tensor& rhs) { return run(Binary<DivTrunc>{}, lhs, rhs); }
Tensor bitwise_and(const Tensor& lhs, const Tensor& rhs) {
  return run(Binary<BitwiseAnd>{}, lhs, rhs);
}
Tensor bitwise_or(const Tensor& lhs, const Tensor& rhs) {
  return run(Binary<BitwiseOr>{}, lhs, rhs);
}
Tensor bitwise_xor(const Tensor& lhs, const Tensor& rhs) {
  return run(Binary<BitwiseXor>{}, lhs, rhs);
}
Tensor bitwise_left_shift(const Tensor& lhs, const Tensor& rhs) {
  return run(Binary<LeftShift>{}, lhs, rhs);
}
Tensor bitwise_right_shift(const Tensor& lhs, const Tensor& rhs) {
  return run(Binary<RightShift>{}, lhs, rhs);
}

// The catalogue --------------------------------------------------------------------------------

void detail::add_elementwise(Catalogue& catalogue) {
  add_float_functions(catalogue);
  add_signs(catalogue);
  add_binary(catalogue);
  add_cast(catalogue);
}

}  // namespace quanta
