#pragma once

// Private: the operations that map each element on its own. A function with its settings, such as
// LeakyReLU in activation.cpp, becomes two operations: Pointwise<F> on floats (and on codes, where
// torch keeps their parameters), QuantizedPointwise<F> on codes into parameters of their own.

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/code_table.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/codes.h"
#include "quanta/ops/cuda/float_map.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/look_up.h"
#include "quanta/ops/detail/pointwise_gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta::activation {

/// Float32, Float64 or a supported quantized tensor, else an error that names `op`.
inline void check_unary(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  if (x.is_quantized()) {
    cpu::check_per_tensor(op, "x", x);
  } else {
    QUANTA_SUPPORTED(detail::is_float32_or_64(x.dtype()) || detail::is_float_of_cuda(x),
                     "{}: x: expected Float32, Float64, QUInt8, QInt8 or QInt32 on the CPU, got {}",
                     op, x.dtype());
  }
}

/// The module that convert gives the result's scale and zero point; empty for an op without one.
constexpr std::string_view module_of(std::string_view op) noexcept {
  if (op == "softmax") return "nn::Softmax";
  if (op == "log_softmax") return "nn::LogSoftmax";
  if (op == "silu") return "nn::SiLU";
  if (op == "celu") return "nn::CELU";
  if (op == "selu") return "nn::SELU";
  if (op == "mish") return "nn::Mish";
  if (op == "softplus") return "nn::Softplus";
  if (op == "softsign") return "nn::Softsign";
  if (op == "logsigmoid") return "nn::LogSigmoid";
  return {};
}

/// For operations whose quantized form lives in namespace quantized.
inline void check_float_unary(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a Float32 tensor, got an undefined one", op);
  const std::string_view module = x.is_quantized() ? module_of(op) : std::string_view();
  QUANTA_SUPPORTED(!x.is_quantized(),
                   "{0}: x: expected Float32, got {1}; quantized::{0} takes the result's scale and "
                   "zero point{2}{3}",
                   op, x.dtype(),
                   module.empty() ? "" : ": in a network that is converted, call a module ",
                   module);
  detail::check_floats(op, "x", x);
}

/// What a function may take.
enum class Takes : std::uint8_t {
  Floats,          ///< there is no quantized form
  FloatsOrScaled,  ///< codes only with the result's scale and zero point (namespace quantized)
  FloatsAndCodes,  ///< codes keep their parameters, or get those of range()
};

/// What the base of a function says where the function does not.
struct PointwiseFunction {
  static constexpr Takes kTakes = Takes::Floats;
  /// Whether slope() takes the function's value instead of its argument.
  static constexpr bool kSlopeOfResult = false;
  /// Whether torch gives codes in the order of a channels-last x; else they come out contiguous.
  static constexpr bool kKeepsOrderOfCodes = true;
  void check(std::string_view) const {}
  /// The parameters of a result of codes, where the function's range fixes them as in torch.
  std::optional<Quantizer> range(DType) const { return std::nullopt; }
  /// The settings, as numbers: what a table of codes depends on.
  std::array<double, 3> parameters() const { return {}; }
  template <typename Op>
  static std::span<const AttributeInfo> settings() {
    return {};
  }
};

/// out = function(x) for each code: the table's answers, or code by code for QInt32. Both dense and
/// of one memory order.
template <typename F>
void map_codes(std::string_view op, const F& function, const Tensor& x, const Tensor& out) {
  const Quantizer& from = x.impl()->quantizer;
  const Quantizer& to = out.impl()->quantizer;
  const cpu::ScalarDequantizer to_float(from.scale, from.zero_point);
  const cpu::ScalarQuantizer to_code(to.scale, to.zero_point, out.dtype());
  cpu::map_codes(
      x, out,
      {op, x.dtype(), from.scale, from.zero_point, to.scale, to.zero_point, function.parameters()},
      [&](std::int32_t code) { return to_code(function(to_float(code))); });
}

template <typename F>
std::shared_ptr<const ByteTable> code_table(std::string_view op, const F& function, const Tensor& x,
                                            const Tensor& out) {
  if (x.dtype() != DType::QUInt8 && x.dtype() != DType::QInt8) return nullptr;
  const Quantizer& from = x.impl()->quantizer;
  const Quantizer& to = out.impl()->quantizer;
  const cpu::ScalarDequantizer to_float(from.scale, from.zero_point);
  const cpu::ScalarQuantizer to_code(to.scale, to.zero_point, out.dtype());
  return std::make_shared<const ByteTable>(cpu::code_table(
      {op, x.dtype(), from.scale, from.zero_point, to.scale, to.zero_point, function.parameters()},
      [&](std::int32_t code) { return to_code(function(to_float(code))); }));
}

/// Whether a function has a form for many floats at once.
template <typename F>
constexpr bool kHasRows = requires(const F& function, const float* src, float* dst) {
  function.rows(src, std::int64_t{0}, dst);
};

template <typename F, typename T>
void map_elements(const F& function, const T* src, std::int64_t count, T* dst) {
  if constexpr (kHasRows<F> && std::is_same_v<T, float>) {
    function.rows(src, count, dst);
  } else {
    for (std::int64_t i = 0; i < count; ++i) dst[i] = function(src[i]);
  }
}

/// function(x) for each float or double, in several threads; in vectors where the function has
/// rows(). Gives the kernel's name.
template <typename F>
std::string_view map_floats(const F& function, const Tensor& x, const Tensor& out) {
  std::string_view kernel = "scalar";
  detail::visit_floats(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto* src = static_cast<const T*>(x.data_ptr());
    auto* dst = static_cast<T*>(out.data_ptr());
    cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
      map_elements(function, src + begin, end - begin, dst + begin);
    });
    if (kHasRows<F> && std::is_same_v<T, float>) kernel = "simd";
  });
  return kernel;
}

template <typename F>
struct Pointwise final : Op<Pointwise<F>> {
  static constexpr std::string_view kName = F::kName;
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  F function;

  Pointwise() = default;
  explicit Pointwise(F given) : function(std::move(given)) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    if constexpr (F::kTakes == Takes::FloatsAndCodes) {
      check_unary(kName, x);
    } else if constexpr (F::kTakes == Takes::FloatsOrScaled) {
      check_float_unary(kName, x);
    } else {
      detail::check_floats(kName, "x", x);
    }
    function.check(kName);
    const MemoryFormat format = x.suggested_format();
    out.arrange(0, format);
    if (x.is_quantized()) {
      out.add(x.sizes(), x.dtype(), function.range(x.dtype()).value_or(x.impl()->quantizer),
              format);
    } else {
      out.add(x.sizes(), x.dtype(), format);
    }
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if constexpr (F::kTakes == Takes::FloatsAndCodes) {
      if (in[0].is_quantized()) {
        map_codes(kName, function, in[0], out[0]);
        return "lookup";
      }
    }
    return map_floats(function, in[0], out[0]);
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    if constexpr (F::kTakes == Takes::FloatsAndCodes) {
      if (in[0].is_quantized()) {
        cuda::look_up(in[0], out[0], *code_table(kName, function, in[0], out[0]));
        return "look_up_codes";
      }
    }
    cuda::map(function.on_cuda(), in[0], out[0]);
    return "map_floats";
  }
  std::span<const DType> cuda_dtypes() const noexcept override {
    if constexpr (F::kTakes == Takes::FloatsAndCodes) {
      return detail::kCudaFloatQ8Dtypes;
    } else {
      return detail::kCudaFloatDtypes;
    }
  }

  PlanUse plan_use(const Arguments& in, std::span<const Tensor> out) const override {
    PlanUse use{.in_place = true};
    if constexpr (F::kTakes == Takes::FloatsAndCodes) {
      use.table = code_table(kName, function, in[0], out[0]);
    }
    return use;
  }
  std::shared_ptr<const Operation> with_table(
      std::shared_ptr<const ByteTable> table) const override {
    if constexpr (F::kTakes == Takes::FloatsAndCodes) {
      return std::make_shared<detail::LookUp>(std::move(table));
    } else {
      return nullptr;
    }
  }

  GradientUse gradient_use(std::uint64_t) const override {
    return F::kSlopeOfResult ? GradientUse::of(0, 1) : GradientUse::of(1);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor at = F::kSlopeOfResult ? context.output() : context.input(0);
    if (at.device().is_cuda()) {
      return {detail::slope_on_cuda(slope_call(), context.grad(), at)};
    }
    if constexpr (requires { function.slope_rows(nullptr, nullptr, nullptr, std::int64_t{0}); }) {
      if (at.dtype() == DType::Float32) {
        Tensor result = Tensor::empty(at.sizes(), DType::Float32, at.suggested_format());
        detail::for_each_pair<float>(
            context.grad(), at, result,
            [&](const float* gradient, const float* value, float* dst, std::int64_t count) {
              function.slope_rows(gradient, value, dst, count);
            });
        return {result};
      }
    }
    return {detail::map_pair(context.grad(), at, [&](auto gradient, auto value) {
      return function.slope(gradient, value);
    })};
  }

  static std::span<const AttributeInfo> attribute_table() {
    return F::template settings<Pointwise>();
  }

 private:
  cuda::FloatCall slope_call() const {
    if constexpr (requires { function.slope_on_cuda(); }) {
      return function.slope_on_cuda();
    } else {
      return function.on_cuda();
    }
  }
};

/// quantize(function(dequantize(code))) for each code.
template <typename F>
struct QuantizedPointwise final : Op<QuantizedPointwise<F>> {
  static constexpr std::string_view kName = F::kQuantizedName;
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  F function;
  double scale = 1.0;
  std::int64_t zero_point = 0;

  QuantizedPointwise() = default;
  QuantizedPointwise(F given, double scale_out, std::int64_t zero_point_out)
      : function(std::move(given)), scale(scale_out), zero_point(zero_point_out) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    function.check(kName);
    cpu::check_per_tensor(kName, "x", x);
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer(kName, quantizer, x.dtype(), x.sizes());
    const MemoryFormat format =
        F::kKeepsOrderOfCodes ? x.suggested_format() : MemoryFormat::Contiguous;
    out.arrange(0, format);
    out.add(x.sizes(), x.dtype(), quantizer, format);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    map_codes(kName, function, in[0], out[0]);
    return "lookup";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::look_up(in[0], out[0], *code_table(kName, function, in[0], out[0]));
    return "look_up_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ8; }
  PlanUse plan_use(const Arguments& in, std::span<const Tensor> out) const override {
    return {.in_place = true, .table = code_table(kName, function, in[0], out[0])};
  }
  std::shared_ptr<const Operation> with_table(
      std::shared_ptr<const ByteTable> table) const override {
    return std::make_shared<detail::LookUp>(std::move(table));
  }
  static std::span<const AttributeInfo> attribute_table() {
    static const std::vector<AttributeInfo> table = [] {
      const auto settings = F::template settings<QuantizedPointwise>();
      std::vector<AttributeInfo> all(settings.begin(), settings.end());
      all.push_back(attribute<QuantizedPointwise, &QuantizedPointwise::scale>("scale"));
      all.push_back(attribute<QuantizedPointwise, &QuantizedPointwise::zero_point>("zero_point"));
      return all;
    }();
    return table;
  }
};

}  // namespace quanta::activation
