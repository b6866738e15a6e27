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

template <typename T>
T divide(T lhs, T rhs) {
  if (rhs == T{0}) return T{0};
  // The only quotient that does not fit: it wraps around to itself.
  if (std::is_signed_v<T> && rhs == static_cast<T>(-1)) {
    return static_cast<T>(Bits<T>{0} - bits_of(lhs));
  }
  return static_cast<T>(lhs / rhs);
}

template <typename T>
T rest_of(T lhs, T rhs) {
  if (rhs == T{0} || (std::is_signed_v<T> && rhs == static_cast<T>(-1))) return T{0};
  return static_cast<T>(lhs % rhs);
}

template <typename T>
T integer_power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < T{0}) {
      if (base == T{1}) return T{1};
      if (base != static_cast<T>(-1)) return T{0};
      return exponent % 2 == 0 ? T{1} : static_cast<T>(-1);
    }
  }
  Bits<T> result = 1;
  Bits<T> square = bits_of(base);
  for (auto rest = bits_of(exponent); rest != 0; rest >>= 1U) {
    if ((rest & 1U) != 0) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

template <typename T>
T shift_left(T value, T by) {
  constexpr int kBits = std::numeric_limits<Bits<T>>::digits;
  if (by < T{0} || static_cast<std::uint64_t>(by) >= kBits) return T{0};
  return static_cast<T>(bits_of(value) << static_cast<int>(by));
}

template <typename T>
T shift_right(T value, T by) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(T));
  if (by < T{0} || static_cast<std::uint64_t>(by) >= kBits) {
    return value < T{0} ? static_cast<T>(-1) : T{0};
  }
  return static_cast<T>(value >> static_cast<int>(by));
}

// Each function says which dtypes it takes and what becomes of two numbers.

struct Pow {
  static constexpr std::string_view kName = "pow";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  static T value(T lhs, T rhs) {
    if constexpr (std::is_floating_point_v<T>) {
      // In double, so that every variant of the library's code gives the same float.
      return static_cast<T>(std::pow(static_cast<double>(lhs), static_cast<double>(rhs)));
    } else {
      return integer_power(lhs, rhs);
    }
  }
};

struct Maximum {
  static constexpr std::string_view kName = "maximum";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  static T value(T lhs, T rhs) {
    if constexpr (std::is_floating_point_v<T>) {
      if (lhs != lhs) return lhs;
      return lhs > rhs ? lhs : rhs;  // a NaN on the right stays
    } else {
      return std::max(lhs, rhs);
    }
  }
};

struct Minimum {
  static constexpr std::string_view kName = "minimum";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  static T value(T lhs, T rhs) {
    if constexpr (std::is_floating_point_v<T>) {
      if (lhs != lhs) return lhs;
      return lhs < rhs ? lhs : rhs;
    } else {
      return std::min(lhs, rhs);
    }
  }
};

struct Fmod {
  static constexpr std::string_view kName = "fmod";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  static T value(T lhs, T rhs) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(lhs, rhs);
    } else {
      return rest_of(lhs, rhs);
    }
  }
};

struct Remainder {
  static constexpr std::string_view kName = "remainder";
  static constexpr Numbers kNumbers = Numbers::FloatsAndIntegers;
  template <typename T>
  static T value(T lhs, T rhs) {
    const T rest = Fmod::value(lhs, rhs);
    const bool other_sign = rest != T{0} && (rest < T{0}) != (rhs < T{0});
    return other_sign ? static_cast<T>(rest + rhs) : rest;
  }
};

struct DivTrunc {
  static constexpr std::string_view kName = "div_trunc";
  static constexpr Numbers kNumbers = Numbers::Integers;
  template <typename T>
  static T value(T lhs, T rhs) {
    return divide(lhs, rhs);
  }
};

struct BitwiseAnd {
  static constexpr std::string_view kName = "bitwise_and";
  static constexpr Numbers kNumbers = Numbers::IntegersAndBool;
  template <typename T>
  static T value(T lhs, T rhs) {
    return static_cast<T>(lhs & rhs);
  }
};
struct BitwiseOr {
  static constexpr std::string_view kName = "bitwise_or";
  static constexpr Numbers kNumbers = Numbers::IntegersAndBool;
  template <typename T>
  static T value(T lhs, T rhs) {
    return static_cast<T>(lhs | rhs);
  }
};
struct BitwiseXor {
  static constexpr std::string_view kName = "bitwise_xor";
  static constexpr Numbers kNumbers = Numbers::IntegersAndBool;
  template <typename T>
  static T value(T lhs, T rhs) {
    return static_cast<T>(lhs ^ rhs);
  }
};
struct LeftShift {
  static constexpr std::string_view kName = "bitwise_left_shift";
  static constexpr Numbers kNumbers = Numbers::Integers;
  template <typename T>
  static T value(T lhs, T rhs) {
    return shift_left(lhs, rhs);
  }
};
struct RightShift {
  static constexpr std::string_view kName = "bitwise_right_shift";
  static constexpr Numbers kNumbers = Numbers::Integers;
  template <typename T>
  static T value(T lhs, T rhs) {
    return shift_right(lhs, rhs);
  }
};

template <typename F, typename T>
void row(const T* lhs, const T* rhs, T* dst, std::int64_t count, cpu::Rhs kind) {
  if (kind == cpu::Rhs::Row) {
    for (std::int64_t i = 0; i < count; ++i) dst[i] = F::template value<T>(lhs[i], rhs[i]);
    return;
  }
  const T value = *rhs;
  if constexpr (std::is_same_v<F, Pow> && std::is_floating_point_v<T>) {
    // The powers of layer norms and gelus. Both give what std::pow gives but for the sign of 0.
    if (value == T{2}) {
      for (std::int64_t i = 0; i < count; ++i) dst[i] = lhs[i] * lhs[i];
      return;
    }
    if (value == static_cast<T>(3)) {
      for (std::int64_t i = 0; i < count; ++i) {
        const double x = static_cast<double>(lhs[i]);
        dst[i] = static_cast<T>(x * x * x);
      }
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
  return pow(x, Tensor::scalar(exponent, x.dtype()));
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
