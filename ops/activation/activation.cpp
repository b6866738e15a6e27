#include "quanta/ops/activation.h"

#include <algorithm>
#include <array>

#include "quanta/ops/activation/clamp.h"
#include "quanta/ops/activation/families.h"
#include "quanta/ops/activation/functions.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/detail/families.h"
#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/detail/dims_by_stride.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace activation {
namespace {

// Whether no two indices reach the same element: each stride clears all smaller ones.
bool has_own_elements(const Tensor& x) {
  if (x.numel() == 0) return true;
  std::int64_t reach = 0;
  for (const std::int64_t d : quanta::detail::dims_by_stride(x.sizes(), x.strides())) {
    const auto i = static_cast<std::size_t>(d);
    if (x.strides()[i] <= reach) return false;
    reach += x.strides()[i] * (x.sizes()[i] - 1);
  }
  return true;
}

void check_probability(std::string_view op, double p) {
  QUANTA_CHECK(p >= 0.0 && p <= 1.0, "{}: p: expected 0..1, got {}", op, p);
}

struct Dropout final : ComposedOp<Dropout> {
  static constexpr std::string_view kName = "dropout";
  static constexpr ArgumentCount kArguments{1};
  double p = 0.5;

  Dropout() = default;
  explicit Dropout(double probability) : p(probability) {}
  std::vector<Tensor> compose(const Arguments& in) const override {
    const Tensor& x = in[0];
    QUANTA_SUPPORTED(!x.defined() || !x.is_quantized(),
                     "dropout: x: expected Float32, got {}: codes pass unchanged through "
                     "quantized::dropout, and through a module nn::Dropout in eval mode",
                     x.dtype());
    check_float_unary(kName, x);
    check_probability(kName, p);
    const bool is_narrow = detail::is_float_of_cuda(x);
    Tensor mask = Tensor::empty(x.sizes(), is_narrow ? DType::Float32 : x.dtype());
    const Tensor chances = rand(x.sizes());
    detail::visit_floats(mask.dtype(), [&](auto zero) {
      using T = decltype(zero);
      auto* values = mask.mutable_data<T>();
      const auto* chance = chances.data<float>();
      const auto kept = p < 1.0 ? static_cast<T>(1.0 / (1.0 - p)) : T{0};
      for (std::int64_t i = 0; i < mask.numel(); ++i) {
        values[i] = static_cast<double>(chance[i]) < p ? T{0} : kept;
      }
    });
    if (is_narrow) return {mul(detail::widened(x), mask.to(x.device())).to(x.dtype())};
    return {mul(x, mask.to(x.device()))};
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Dropout, &Dropout::p>("p")};
    return kTable;
  }
};

struct QuantizedDropout final : ComposedOp<QuantizedDropout> {
  static constexpr std::string_view kName = "quantized::dropout";
  static constexpr ArgumentCount kArguments{1};
  double p = 0.5;

  QuantizedDropout() = default;
  explicit QuantizedDropout(double probability) : p(probability) {}
  std::vector<Tensor> compose(const Arguments& in) const override {
    QUANTA_CHECK(in[0].defined(), "{}: x: expected a quantized tensor, got an undefined one",
                 kName);
    QUANTA_CHECK(in[0].is_quantized(), "{}: x: expected a quantized tensor, got {}", kName,
                 in[0].dtype());
    check_probability(kName, p);
    return {in[0]};
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQuantized; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<QuantizedDropout, &QuantizedDropout::p>("p")};
    return kTable;
  }
};

}  // namespace

void ReLUInPlace::infer(const Arguments& in, Results& out) const {
  const Tensor& x = in[0];
  check_unary(kName, x);
  QUANTA_CHECK(has_own_elements(x),
               "relu_: x: expected each element at an address of its own, got sizes {} with "
               "strides {}; clone it first",
               x.sizes(), x.strides());
  out.add_in_place(x);
}

std::string_view ReLUInPlace::cpu(const Arguments&, std::span<const Tensor> out) const {
  cpu::clamp_in_place(out[0], relu_bounds(out[0]));
  return "simd";
}

std::string_view ReLUInPlace::cuda(const Arguments&, std::span<const Tensor> out) const {
  const Tensor& x = out[0];
  if (x.is_quantized() || x.is_dense()) return clamp_on_cuda(x, x, relu_bounds(x));
  const Tensor dense = Tensor::empty(x.sizes(), x.dtype(), MemoryFormat::Contiguous, x.device());
  cuda::copy_same_dtype(dense, x);
  const std::string_view kernel = clamp_on_cuda(dense, dense, relu_bounds(x));
  cuda::copy_same_dtype(x, dense);
  return kernel;
}

}  // namespace activation

using namespace activation;

Tensor relu(const Tensor& x) { return run(ReLU{}, x); }
const Tensor& relu_(const Tensor& x) {
  run(ReLUInPlace{}, x);
  return x;
}
Tensor relu6(const Tensor& x) { return run(ReLU6{}, x); }
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high) {
  return run(Clamp{low, high}, x);
}
Tensor hardtanh(const Tensor& x, double low, double high) { return run(HardTanh{low, high}, x); }
Tensor threshold(const Tensor& x, double threshold, double value) {
  return run(Pointwise(Threshold{{}, threshold, value}), x);
}
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return run(Pointwise(LeakyReLU{{}, negative_slope}), x);
}
Tensor hardsigmoid(const Tensor& x) { return run(Pointwise<HardSigmoid>{}, x); }
Tensor sigmoid(const Tensor& x) { return run(Pointwise<Sigmoid>{}, x); }
Tensor tanh(const Tensor& x) { return run(Pointwise<Tanh>{}, x); }
Tensor gelu(const Tensor& x, GeluApproximation approximate) {
  return run(Pointwise(Gelu{{}, approximate}), x);
}
Tensor hardswish(const Tensor& x) { return run(Pointwise<HardSwish>{}, x); }
Tensor silu(const Tensor& x) { return run(Pointwise<Silu>{}, x); }
Tensor elu(const Tensor& x, double alpha) { return run(Pointwise(Elu{{}, alpha}), x); }
Tensor celu(const Tensor& x, double alpha) { return run(Pointwise(Celu{{}, alpha}), x); }
Tensor softplus(const Tensor& x, double beta, double threshold) {
  return run(Pointwise(Softplus{{}, beta, threshold}), x);
}
Tensor mish(const Tensor& x) { return run(Pointwise<Mish>{}, x); }
Tensor selu(const Tensor& x) { return run(Pointwise<Selu>{}, x); }
Tensor logsigmoid(const Tensor& x) { return run(Pointwise<LogSigmoid>{}, x); }
Tensor softsign(const Tensor& x) { return run(Pointwise<Softsign>{}, x); }
Tensor hardshrink(const Tensor& x, double lambd) {
  return run(Pointwise(HardShrink{{}, lambd}), x);
}
Tensor dropout(const Tensor& x, double p) { return run(Dropout{p}, x); }

namespace quantized {

QTensor leaky_relu(const QTensor& x, double negative_slope, double scale, std::int64_t zero_point) {
  return QTensor(run(QuantizedPointwise(LeakyReLU{{}, negative_slope}, scale, zero_point), x));
}
QTensor hardswish(const QTensor& x, double scale, std::int64_t zero_point) {
  return QTensor(run(QuantizedPointwise(HardSwish{}, scale, zero_point), x));
}
QTensor elu(const QTensor& x, double output_scale, std::int64_t output_zero_point, double alpha,
            double scale, double input_scale) {
  return QTensor(run(
      QuantizedPointwise(Elu{{}, alpha, scale, input_scale}, output_scale, output_zero_point), x));
}
QTensor celu(const QTensor& x, double scale, std::int64_t zero_point, double alpha) {
  return QTensor(run(QuantizedPointwise(Celu{{}, alpha}, scale, zero_point), x));
}
QTensor sigmoid(const QTensor& x, double scale, std::int64_t zero_point) {
  return QTensor(run(QuantizedPointwise(Sigmoid{}, scale, zero_point), x));
}
QTensor tanh(const QTensor& x, double scale, std::int64_t zero_point) {
  return QTensor(run(QuantizedPointwise(Tanh{}, scale, zero_point), x));
}
QTensor gelu(const QTensor& x, double scale, std::int64_t zero_point,
             GeluApproximation approximate) {
  return QTensor(run(QuantizedPointwise(Gelu{{}, approximate}, scale, zero_point), x));
}
QTensor silu(const QTensor& x, double scale, std::int64_t zero_point) {
  return QTensor(run(QuantizedPointwise(Silu{}, scale, zero_point), x));
}
QTensor softplus(const QTensor& x, double scale, std::int64_t zero_point, double beta,
                 double threshold) {
  return QTensor(run(QuantizedPointwise(Softplus{{}, beta, threshold}, scale, zero_point), x));
}
QTensor mish(const QTensor& x, double scale, std::int64_t zero_point) {
  return QTensor(run(QuantizedPointwise(Mish{}, scale, zero_point), x));
}
QTensor selu(const QTensor& x, double scale, std::int64_t zero_point) {
  return QTensor(run(QuantizedPointwise(Selu{}, scale, zero_point), x));
}
QTensor logsigmoid(const QTensor& x, double scale, std::int64_t zero_point) {
  return QTensor(run(QuantizedPointwise(LogSigmoid{}, scale, zero_point), x));
}
QTensor softsign(const QTensor& x, double scale, std::int64_t zero_point) {
  return QTensor(run(QuantizedPointwise(Softsign{}, scale, zero_point), x));
}
QTensor dropout(const QTensor& x, double p) { return QTensor(run(QuantizedDropout{p}, x)); }

}  // namespace quantized

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/activation.h";
constexpr double kScale = 0.04;
constexpr std::int64_t kZeroPoint = 9;

Tensor sample_image(DType dtype) { return sample_tensor({2, 3, 5, 4}, dtype); }

template <typename Kind>
void add_plain(Catalogue& catalogue, std::span<const DType> dtypes) {
  catalogue.add({.name = Kind::kName, .header = kHeader, .dtypes = dtypes},
                [](DType dtype) { return sample_call(Kind{}, {sample_image(dtype)}); });
}

template <typename F>
void add_function(Catalogue& catalogue) {
  add_plain<Pointwise<F>>(catalogue, F::kTakes == Takes::FloatsAndCodes
                                         ? std::span<const DType>(dtypes::kFloatsQ)
                                         : std::span<const DType>(dtypes::kFloats));
}

template <typename F>
void add_quantized(Catalogue& catalogue) {
  catalogue.add(
      {.name = F::kQuantizedName, .header = kHeader, .dtypes = dtypes::kQ}, [](DType dtype) {
        return sample_call(QuantizedPointwise(F{}, kScale, kZeroPoint), {sample_image(dtype)});
      });
}

}  // namespace

void detail::add_activations(Catalogue& catalogue) {
  add_plain<ReLU>(catalogue, dtypes::kFloatsQ);
  add_plain<ReLUInPlace>(catalogue, dtypes::kFloatsQ);
  add_plain<ReLU6>(catalogue, dtypes::kFloatsQ);
  catalogue.add({.name = Clamp::kName, .header = kHeader, .dtypes = dtypes::kFloatsQ},
                [](DType dtype) {
                  return sample_call(Clamp{-0.25, 1.0}, {sample_image(dtype)});
                });
  add_plain<HardTanh>(catalogue, dtypes::kFloatsQ);
  add_function<Threshold>(catalogue);
  add_function<LeakyReLU>(catalogue);
  add_function<HardSigmoid>(catalogue);
  add_function<Sigmoid>(catalogue);
  add_function<Tanh>(catalogue);
  add_function<Gelu>(catalogue);
  add_function<HardSwish>(catalogue);
  add_function<Silu>(catalogue);
  add_function<Elu>(catalogue);
  add_function<Celu>(catalogue);
  add_function<Softplus>(catalogue);
  add_function<Mish>(catalogue);
  add_function<Selu>(catalogue);
  add_function<LogSigmoid>(catalogue);
  add_function<Softsign>(catalogue);
  add_function<HardShrink>(catalogue);
  add_quantized<LeakyReLU>(catalogue);
  add_quantized<HardSwish>(catalogue);
  add_quantized<Elu>(catalogue);
  add_quantized<Celu>(catalogue);
  add_quantized<Sigmoid>(catalogue);
  add_quantized<Tanh>(catalogue);
  add_quantized<Gelu>(catalogue);
  add_quantized<Silu>(catalogue);
  add_quantized<Softplus>(catalogue);
  add_quantized<Mish>(catalogue);
  add_quantized<Selu>(catalogue);
  add_quantized<LogSigmoid>(catalogue);
  add_quantized<Softsign>(catalogue);
  add_plain<Dropout>(catalogue, dtypes::kFloats);
  add_plain<QuantizedDropout>(catalogue, dtypes::kQuantized);
  activation::add_softmax(catalogue);
  activation::add_prelu(catalogue);
}

}  // namespace quanta
