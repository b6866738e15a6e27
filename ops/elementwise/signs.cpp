#include <array>
#include <cmath>
#include <limits>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/float_map.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/elementwise/cuda_numbers.h"
#include "quanta/ops/elementwise/families.h"
#include "quanta/ops/elementwise/numbers.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/operation.h"

// Functions of one number of any dtype: signs, and questions.

namespace quanta {

inline std::span<const std::string_view> enumerators(InfinitySigns) {
  static constexpr std::array<std::string_view, 4> kNames{"both", "positive", "negative", "none"};
  return kNames;
}

namespace elementwise {
namespace {

constexpr std::string_view kHeader = "quanta/ops/elementwise.h";

// What questions about floats take on a CUDA device.
constexpr std::array kCudaFloating{DType::Float32, DType::Float64, DType::Float16, DType::BFloat16};

template <typename T, typename Result, typename Function>
void map(const Tensor& x, const Tensor& out, const Function& function) {
  const auto* src = static_cast<const T*>(x.data_ptr());
  auto* dst = static_cast<Result*>(out.data_ptr());
  cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) dst[i] = function(src[i]);
  });
}

void infer_same(const Tensor& x, DType dtype, Results& out) {
  const MemoryFormat format = x.suggested_format();
  out.arrange(0, format);
  out.add(x.sizes(), dtype, format);
}

struct NegFunction : Neg {
  static constexpr auto kOnCuda = cuda::NumberFunction::Neg;
  static constexpr auto kOfFloats = cuda::FloatFunction::Neg;
  static Tensor gradient(const Tensor& gradient, const Tensor&) {
    return mul_scalar(gradient, -1.0);
  }
};
struct AbsFunction : Abs {
  static constexpr auto kOnCuda = cuda::NumberFunction::Abs;
  static constexpr auto kOfFloats = cuda::FloatFunction::Abs;
  static Tensor gradient(const Tensor& gradient, const Tensor& x) {
    return mul(gradient, quanta::sign(x));
  }
};
struct SignFunction : Sign {
  static constexpr auto kOnCuda = cuda::NumberFunction::Sign;
  static constexpr auto kOfFloats = cuda::FloatFunction::Sign;
  static Tensor gradient(const Tensor& gradient, const Tensor&) {
    return mul_scalar(gradient, 0.0);
  }
};
struct NotFunction : Not {
  static constexpr auto kOnCuda = cuda::NumberFunction::BitwiseNot;
};

// A number of the same dtype for each.
template <typename F>
struct SameDType final : Op<SameDType<F>> {
  static constexpr std::string_view kName = F::kName;
  static constexpr bool kHasFloats = F::kNumbers == Numbers::FloatsAndIntegers;
  static constexpr ArgumentCount kArguments{1};

  void infer(const Arguments& in, Results& out) const override {
    check_numbers(kName, "x", in[0], F::kNumbers);
    infer_same(in[0], in[0].dtype(), out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (in[0].dtype() == DType::Bool) {
      map<bool, bool>(in[0], out[0], [](bool v) { return !v; });  // only bitwise_not takes it
      return "scalar";
    }
    visit_numbers(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      map<T, T>(in[0], out[0], [](T v) { return F::template value<T>(v); });
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    if constexpr (kHasFloats) {
      if (in[0].dtype() == DType::Float32 || detail::is_float_of_cuda(in[0])) {
        cuda::map({F::kOfFloats}, in[0], out[0]);
        return "map_floats";
      }
    }
    cuda::map(F::kOnCuda, in[0], out[0]);
    return "map_numbers";
  }
  std::span<const DType> cuda_dtypes() const noexcept override {
    if constexpr (kHasFloats) {
      return kCudaNumbers;
    } else {
      return dtypes::kIntegersBool;
    }
  }
  PlanUse plan_use(const Arguments&, std::span<const Tensor>) const override {
    return {.in_place = true};
  }
  GradientUse gradient_use(std::uint64_t) const override {
    if constexpr (requires { &F::gradient; }) {
      return GradientUse::of(1);
    } else {
      return GradientUse::none();
    }
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    if constexpr (requires { &F::gradient; }) {
      return {F::gradient(context.grad(), context.input(0))};
    } else {
      return {Tensor()};
    }
  }
};

struct LogicalNot final : Op<LogicalNot> {
  static constexpr std::string_view kName = "logical_not";
  static constexpr ArgumentCount kArguments{1};

  void infer(const Arguments& in, Results& out) const override {
    check_numbers(kName, "x", in[0], Numbers::All);
    infer_same(in[0], DType::Bool, out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    visit_numbers(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      map<T, bool>(in[0], out[0], [](T v) { return v == T{0}; });
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::map(cuda::NumberFunction::LogicalNot, in[0], out[0]);
    return "map_numbers";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kOrderedPlain; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
};

struct IsNan final : Op<IsNan> {
  static constexpr std::string_view kName = "isnan";
  static constexpr ArgumentCount kArguments{1};

  void infer(const Arguments& in, Results& out) const override {
    detail::check_floats(kName, "x", in[0]);
    infer_same(in[0], DType::Bool, out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      map<T, bool>(in[0], out[0], [](T v) { return v != v; });
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::map(cuda::NumberFunction::IsNan, in[0], out[0]);
    return "map_numbers";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kCudaFloating; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
};

struct IsInf final : Op<IsInf> {
  static constexpr std::string_view kName = "isinf";
  static constexpr ArgumentCount kArguments{1};
  InfinitySigns signs = InfinitySigns::Both;

  IsInf() = default;
  explicit IsInf(InfinitySigns wanted) : signs(wanted) {}
  void infer(const Arguments& in, Results& out) const override {
    detail::check_floats(kName, "x", in[0]);
    infer_same(in[0], DType::Bool, out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const bool positive = signs == InfinitySigns::Both || signs == InfinitySigns::Positive;
    const bool negative = signs == InfinitySigns::Both || signs == InfinitySigns::Negative;
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      constexpr T kInfinity = std::numeric_limits<T>::infinity();
      map<T, bool>(in[0], out[0], [=](T v) {
        return (positive && v == kInfinity) || (negative && v == -kInfinity);
      });
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    switch (signs) {
      case InfinitySigns::None:
        out[0].fill_(0.0);
        return "fill_items";
      case InfinitySigns::Positive:
        cuda::map(cuda::NumberFunction::IsPositiveInfinity, in[0], out[0]);
        break;
      case InfinitySigns::Negative:
        cuda::map(cuda::NumberFunction::IsNegativeInfinity, in[0], out[0]);
        break;
      case InfinitySigns::Both:
        cuda::map(cuda::NumberFunction::IsInfinity, in[0], out[0]);
        break;
    }
    return "map_numbers";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kCudaFloating; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<IsInf, &IsInf::signs>("signs")};
    return kTable;
  }
};

template <typename Kind>
void add_row(Catalogue& catalogue, std::span<const DType> dtypes) {
  catalogue.add({.name = Kind::kName, .header = kHeader, .dtypes = dtypes}, [](DType dtype) {
    return sample_call(Kind{}, {sample_tensor({2, 3, 5, 4}, dtype)});
  });
}

}  // namespace

void add_signs(Catalogue& catalogue) {
  add_row<SameDType<NegFunction>>(catalogue, dtypes::kFloatsIntegers);
  add_row<SameDType<AbsFunction>>(catalogue, dtypes::kFloatsIntegers);
  add_row<SameDType<SignFunction>>(catalogue, dtypes::kFloatsIntegers);
  add_row<SameDType<NotFunction>>(catalogue, dtypes::kIntegersBool);
  add_row<LogicalNot>(catalogue, dtypes::kOrderedPlain);
  add_row<IsNan>(catalogue, dtypes::kFloats);
  add_row<IsInf>(catalogue, dtypes::kFloats);
}

}  // namespace elementwise

using namespace elementwise;

Tensor neg(const Tensor& x) { return run(SameDType<NegFunction>{}, x); }
Tensor abs(const Tensor& x) { return run(SameDType<AbsFunction>{}, x); }
Tensor sign(const Tensor& x) { return run(SameDType<SignFunction>{}, x); }
Tensor bitwise_not(const Tensor& x) { return run(SameDType<NotFunction>{}, x); }
Tensor logical_not(const Tensor& x) { return run(LogicalNot{}, x); }
Tensor isnan(const Tensor& x) { return run(IsNan{}, x); }
Tensor isinf(const Tensor& x, InfinitySigns signs) { return run(IsInf{signs}, x); }

}  // namespace quanta
