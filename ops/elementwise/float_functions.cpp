#include <cmath>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/float_map.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/pointwise_gradient.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/elementwise/cpu_math.h"
#include "quanta/ops/elementwise/families.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/detail/slope_math.h"
#include "quanta/runtime/operation.h"

// Functions of one float.

namespace quanta {
namespace elementwise {
namespace {

// What the base of a function says where the function does not.
struct PointwiseFunction {
  /// Whether slope() takes the function's value instead of its argument.
  static constexpr bool kSlopeOfResult = false;
};

// Whether F has rows(), which does many floats at once.
template <typename F, typename T>
concept InVectors = std::is_same_v<T, float> && requires(const F& function) {
  function.rows(nullptr, std::int64_t{0}, nullptr);
};

template <typename F, typename T>
void map_row(const T* src, std::int64_t count, T* dst) {
  const F function;
  if constexpr (InVectors<F, T>) {
    function.rows(src, count, dst);
  } else {
    for (std::int64_t i = 0; i < count; ++i) dst[i] = function(src[i]);
  }
}

// function(x) for each float or double. F has a value for one number, its slope, its name on CUDA
// and perhaps rows().
template <typename F>
struct Pointwise final : Op<Pointwise<F>> {
  static constexpr std::string_view kName = F::kName;
  static constexpr ArgumentCount kArguments{1};

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_floats(kName, "x", x);
    const MemoryFormat format = x.suggested_format();
    out.arrange(0, format);
    out.add(x.sizes(), x.dtype(), format);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    std::string_view kernel = "scalar";
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto* src = static_cast<const T*>(in[0].data_ptr());
      auto* dst = static_cast<T*>(out[0].data_ptr());
      quanta::cpu::parallel_elements(in[0].numel(), [&](std::int64_t begin, std::int64_t end) {
        map_row<F>(src + begin, end - begin, dst + begin);
      });
      if (InVectors<F, T>) kernel = "simd";
    });
    return kernel;
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::map({F::kOnCuda}, in[0], out[0]);
    return "map_floats";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }

  PlanUse plan_use(const Arguments&, std::span<const Tensor>) const override {
    return {.in_place = true};
  }
  GradientUse gradient_use(std::uint64_t) const override {
    return F::kSlopeOfResult ? GradientUse::of(0, 1) : GradientUse::of(1);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor at = F::kSlopeOfResult ? context.output() : context.input(0);
    if (at.device().is_cuda()) return {detail::slope_on_cuda({F::kOnCuda}, context.grad(), at)};
    return {detail::map_pair(context.grad(), at,
                             [](auto gradient, auto value) { return F().slope(gradient, value); })};
  }
};

// Functions of the standard library, which calculate floats in double: the result is then the same
// whichever variant of the library's code a machine takes.
template <typename T, typename Function>
T through_double(T value, Function&& function) {
  return static_cast<T>(function(static_cast<double>(value)));
}

struct Reciprocal : PointwiseFunction {
  static constexpr std::string_view kName = "reciprocal";
  static constexpr auto kOnCuda = cuda::FloatFunction::Reciprocal;
  static constexpr bool kSlopeOfResult = true;
  template <typename T>
  T operator()(T v) const {
    return T{1} / v;
  }
  void rows(const float* src, std::int64_t count, float* dst) const {
    cpu::math_row(cpu::MathFunction::Reciprocal, src, count, dst);
  }
  template <typename T>
  T slope(T gradient, T result) const {
    return math::reciprocal_slope(gradient, result);
  }
};

struct Sqrt : PointwiseFunction {
  static constexpr std::string_view kName = "sqrt";
  static constexpr auto kOnCuda = cuda::FloatFunction::Sqrt;
  static constexpr bool kSlopeOfResult = true;
  template <typename T>
  T operator()(T v) const {
    return std::sqrt(v);
  }
  void rows(const float* src, std::int64_t count, float* dst) const {
    cpu::math_row(cpu::MathFunction::Sqrt, src, count, dst);
  }
  template <typename T>
  T slope(T gradient, T result) const {
    return math::sqrt_slope(gradient, result);
  }
};

struct Exp : PointwiseFunction {
  static constexpr std::string_view kName = "exp";
  static constexpr auto kOnCuda = cuda::FloatFunction::Exp;
  static constexpr bool kSlopeOfResult = true;
  template <typename T>
  T operator()(T v) const {
    return std::exp(v);
  }
  void rows(const float* src, std::int64_t count, float* dst) const {
    cpu::math_row(cpu::MathFunction::Exp, src, count, dst);
  }
  template <typename T>
  T slope(T gradient, T result) const {
    return math::exp_slope(gradient, result);
  }
};

struct Erf : PointwiseFunction {
  static constexpr std::string_view kName = "erf";
  static constexpr auto kOnCuda = cuda::FloatFunction::Erf;
  template <typename T>
  T operator()(T v) const {
    return std::erf(v);
  }
  void rows(const float* src, std::int64_t count, float* dst) const {
    cpu::math_row(cpu::MathFunction::Erf, src, count, dst);
  }
  template <typename T>
  T slope(T gradient, T v) const {
    return math::erf_slope(gradient, v);
  }
};

struct Floor : PointwiseFunction {
  static constexpr std::string_view kName = "floor";
  static constexpr auto kOnCuda = cuda::FloatFunction::Floor;
  template <typename T>
  T operator()(T v) const {
    return std::floor(v);
  }
  template <typename T>
  T slope(T gradient, T) const {
    return math::step_slope(gradient);
  }
};
struct Ceil : PointwiseFunction {
  static constexpr std::string_view kName = "ceil";
  static constexpr auto kOnCuda = cuda::FloatFunction::Ceil;
  template <typename T>
  T operator()(T v) const {
    return std::ceil(v);
  }
  template <typename T>
  T slope(T gradient, T) const {
    return math::step_slope(gradient);
  }
};
struct Round : PointwiseFunction {
  static constexpr std::string_view kName = "round";
  static constexpr auto kOnCuda = cuda::FloatFunction::Round;
  template <typename T>
  T operator()(T v) const {
    return std::nearbyint(v);  // ties to even, as nobody changes the rounding mode
  }
  template <typename T>
  T slope(T gradient, T) const {
    return math::step_slope(gradient);
  }
};

// A function of the standard library and its slope as an expression of the argument v. The
// functions that networks use seldom are all alike but for these.
template <typename Derived>
struct LibraryFunction : PointwiseFunction {
  template <typename T>
  T operator()(T v) const {
    return through_double(v, Derived::value);
  }
  template <typename T>
  T slope(T gradient, T v) const {
    return gradient * through_double(v, Derived::derivative);
  }
};

struct Log : LibraryFunction<Log> {
  static constexpr std::string_view kName = "log";
  static constexpr auto kOnCuda = cuda::FloatFunction::Log;
  static double value(double v) { return std::log(v); }
  static double derivative(double v) { return math::log_derivative(v); }
};
struct Sin : LibraryFunction<Sin> {
  static constexpr std::string_view kName = "sin";
  static constexpr auto kOnCuda = cuda::FloatFunction::Sin;
  static double value(double v) { return std::sin(v); }
  static double derivative(double v) { return math::sin_derivative(v); }
};
struct Cos : LibraryFunction<Cos> {
  static constexpr std::string_view kName = "cos";
  static constexpr auto kOnCuda = cuda::FloatFunction::Cos;
  static double value(double v) { return std::cos(v); }
  static double derivative(double v) { return math::cos_derivative(v); }
};
struct Tan : LibraryFunction<Tan> {
  static constexpr std::string_view kName = "tan";
  static constexpr auto kOnCuda = cuda::FloatFunction::Tan;
  static double value(double v) { return std::tan(v); }
  static double derivative(double v) { return math::tan_derivative(v); }
};
struct Asin : LibraryFunction<Asin> {
  static constexpr std::string_view kName = "asin";
  static constexpr auto kOnCuda = cuda::FloatFunction::Asin;
  static double value(double v) { return std::asin(v); }
  static double derivative(double v) { return math::asin_derivative(v); }
};
struct Acos : LibraryFunction<Acos> {
  static constexpr std::string_view kName = "acos";
  static constexpr auto kOnCuda = cuda::FloatFunction::Acos;
  static double value(double v) { return std::acos(v); }
  static double derivative(double v) { return math::acos_derivative(v); }
};
struct Atan : LibraryFunction<Atan> {
  static constexpr std::string_view kName = "atan";
  static constexpr auto kOnCuda = cuda::FloatFunction::Atan;
  static double value(double v) { return std::atan(v); }
  static double derivative(double v) { return math::atan_derivative(v); }
};
struct Sinh : LibraryFunction<Sinh> {
  static constexpr std::string_view kName = "sinh";
  static constexpr auto kOnCuda = cuda::FloatFunction::Sinh;
  static double value(double v) { return std::sinh(v); }
  static double derivative(double v) { return math::sinh_derivative(v); }
};
struct Cosh : LibraryFunction<Cosh> {
  static constexpr std::string_view kName = "cosh";
  static constexpr auto kOnCuda = cuda::FloatFunction::Cosh;
  static double value(double v) { return std::cosh(v); }
  static double derivative(double v) { return math::cosh_derivative(v); }
};
struct Asinh : LibraryFunction<Asinh> {
  static constexpr std::string_view kName = "asinh";
  static constexpr auto kOnCuda = cuda::FloatFunction::Asinh;
  static double value(double v) { return std::asinh(v); }
  static double derivative(double v) { return math::asinh_derivative(v); }
};
struct Acosh : LibraryFunction<Acosh> {
  static constexpr std::string_view kName = "acosh";
  static constexpr auto kOnCuda = cuda::FloatFunction::Acosh;
  static double value(double v) { return std::acosh(v); }
  static double derivative(double v) { return math::acosh_derivative(v); }
};
struct Atanh : LibraryFunction<Atanh> {
  static constexpr std::string_view kName = "atanh";
  static constexpr auto kOnCuda = cuda::FloatFunction::Atanh;
  static double value(double v) { return std::atanh(v); }
  static double derivative(double v) { return math::atanh_derivative(v); }
};

// Sample arguments lie where a function has values: normal ones, 1 + x^2, or within (-0.9, 0.9).
Tensor any_number(DType dtype) { return sample_tensor({2, 3, 5, 4}, dtype); }
Tensor above_one(DType dtype) {
  const Tensor x = any_number(dtype);
  return add_scalar(mul(x, x), 1.25);
}
Tensor within_one(DType dtype) { return mul_scalar(tanh(any_number(dtype)), 0.9); }

template <typename F, Tensor (*kArgument)(DType)>
void add_function(Catalogue& catalogue) {
  catalogue.add({.name = F::kName, .header = "quanta/ops/elementwise.h", .dtypes = dtypes::kFloats},
                [](DType dtype) { return sample_call(Pointwise<F>{}, {kArgument(dtype)}); });
}

}  // namespace

void add_float_functions(Catalogue& catalogue) {
  add_function<Reciprocal, above_one>(catalogue);
  add_function<Sqrt, above_one>(catalogue);
  add_function<Exp, any_number>(catalogue);
  add_function<Log, above_one>(catalogue);
  add_function<Erf, any_number>(catalogue);
  add_function<Floor, any_number>(catalogue);
  add_function<Ceil, any_number>(catalogue);
  add_function<Round, any_number>(catalogue);
  add_function<Sin, any_number>(catalogue);
  add_function<Cos, any_number>(catalogue);
  add_function<Tan, within_one>(catalogue);
  add_function<Asin, within_one>(catalogue);
  add_function<Acos, within_one>(catalogue);
  add_function<Atan, any_number>(catalogue);
  add_function<Sinh, any_number>(catalogue);
  add_function<Cosh, any_number>(catalogue);
  add_function<Asinh, any_number>(catalogue);
  add_function<Acosh, above_one>(catalogue);
  add_function<Atanh, within_one>(catalogue);
}

}  // namespace elementwise

using namespace elementwise;

Tensor reciprocal(const Tensor& x) { return run(Pointwise<Reciprocal>{}, x); }
Tensor sqrt(const Tensor& x) { return run(Pointwise<Sqrt>{}, x); }
Tensor exp(const Tensor& x) { return run(Pointwise<Exp>{}, x); }
Tensor log(const Tensor& x) { return run(Pointwise<Log>{}, x); }
Tensor erf(const Tensor& x) { return run(Pointwise<Erf>{}, x); }
Tensor floor(const Tensor& x) { return run(Pointwise<Floor>{}, x); }
Tensor ceil(const Tensor& x) { return run(Pointwise<Ceil>{}, x); }
Tensor round(const Tensor& x) { return run(Pointwise<Round>{}, x); }
Tensor sin(const Tensor& x) { return run(Pointwise<Sin>{}, x); }
Tensor cos(const Tensor& x) { return run(Pointwise<Cos>{}, x); }
Tensor tan(const Tensor& x) { return run(Pointwise<Tan>{}, x); }
Tensor asin(const Tensor& x) { return run(Pointwise<Asin>{}, x); }
Tensor acos(const Tensor& x) { return run(Pointwise<Acos>{}, x); }
Tensor atan(const Tensor& x) { return run(Pointwise<Atan>{}, x); }
Tensor sinh(const Tensor& x) { return run(Pointwise<Sinh>{}, x); }
Tensor cosh(const Tensor& x) { return run(Pointwise<Cosh>{}, x); }
Tensor asinh(const Tensor& x) { return run(Pointwise<Asinh>{}, x); }
Tensor acosh(const Tensor& x) { return run(Pointwise<Acosh>{}, x); }
Tensor atanh(const Tensor& x) { return run(Pointwise<Atanh>{}, x); }

}  // namespace quanta
