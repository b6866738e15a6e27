// Normalizations without a mean to subtract, and the statistics of rows by themselves.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cuda/device_data.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/norm/checks.h"
#include "quanta/ops/norm/cuda_kernels.h"
#include "quanta/ops/norm/cuda_powers.h"
#include "quanta/ops/norm/families.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/detail/power_math.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace norm {
namespace {

constexpr std::string_view kHeader = "quanta/ops/norm.h";
// Elements for which a second thread is not worth its waking.
constexpr std::int64_t kGrain = 16384;

template <typename Body>
void for_each_row(std::int64_t rows, std::int64_t width, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, width));
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

// The sum of term(i) for i < count, in eight sums so that no addition waits for the one before it.
template <typename Term>
double sum_of(std::int64_t count, const Term& term) {
  std::array<double, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t k = 0; k < 8; ++k) sums[k] += term(i + static_cast<std::int64_t>(k));
  }
  for (; i < count; ++i) sums[0] += term(i);
  return (sums[0] + sums[1] + sums[2] + sums[3]) + (sums[4] + sums[5] + sums[6] + sums[7]);
}

std::int64_t product_of(const Dims& sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

struct RmsNorm final : Op<RmsNorm> {
  static constexpr std::string_view kName = "rms_norm";
  static constexpr ArgumentCount kArguments{2};
  Dims normalized_shape{};
  double eps = 1e-5;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_floats(kName, "x", x);
    const std::size_t rank = x.sizes().size();
    bool matches = !normalized_shape.empty() && normalized_shape.size() <= rank;
    for (std::size_t d = 0; matches && d < normalized_shape.size(); ++d) {
      matches = normalized_shape[d] == x.sizes()[rank - normalized_shape.size() + d];
    }
    QUANTA_CHECK(matches, "{}: normalized_shape: expected the last sizes of x {}, got {}", kName,
                 x.sizes(), normalized_shape);
    check_parameter(kName, "weight", in[1], x.dtype(), normalized_shape);
    check_eps(kName, eps);
    out.arrange(0, MemoryFormat::Contiguous);
    out.arrange(1, MemoryFormat::Contiguous);
    out.add(x.sizes(), x.dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t width = product_of(normalized_shape);
      const T* weight = in[1].defined() ? in[1].data<T>() : nullptr;
      for_each_row(in[0].numel() / width, width, [&](std::int64_t row) {
        const T* x = in[0].data<T>() + row * width;
        T* y = out[0].mutable_data<T>() + row * width;
        const double squares =
            sum_of(width, [&](std::int64_t i) { return double{x[i]} * double{x[i]}; });
        const T factor =
            static_cast<T>(1.0 / std::sqrt(squares / static_cast<double>(width) + eps));
        for (std::int64_t i = 0; i < width; ++i) y[i] = x[i] * factor;
        for (std::int64_t i = 0; weight != nullptr && i < width; ++i) y[i] *= weight[i];
      });
    });
    return "scalar";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const std::int64_t width = product_of(normalized_shape);
    cuda::normalize_rows(in[0].device(), {.step = cuda::RowStep::RmsNorm,
                                          .dtype = in[0].dtype(),
                                          .x = in[0].device_ptr(),
                                          .rows = in[0].numel() / width,
                                          .width = width,
                                          .weight = cuda::data_of(in[1]),
                                          .eps = eps,
                                          .y = out[0].device_ptr()});
    return "normalize_rows";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }

  // With r = 1 / sqrt(mean(x^2) + eps) and g the gradient times the weight:
  //   dx = r g - x r^3 mean(g x),  dw = sum over rows of (gradient x r)
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b11); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const std::int64_t width = product_of(normalized_shape);
    const DType dtype = context.input_dtype(0);
    const Tensor x = detail::widened(context.input(0)).reshape({-1, width});
    const Tensor grad = detail::widened(context.grad()).reshape({-1, width});
    const Tensor weight = detail::widened(context.input(1));
    const RowStatistics statistics = row_statistics(mul(x, x), 1, 0.0);
    const Tensor factor = reciprocal(sqrt(add_scalar(statistics.mean, eps)));
    const Tensor weighted = weight.defined() ? mul(grad, weight.reshape({width})) : grad;
    const Tensor along = mean(mul(weighted, x), Dims{1}, {.keepdim = true});
    const Tensor cubed = mul(mul(factor, factor), factor);
    std::vector<Tensor> gradients(2);
    gradients[0] =
        sub(mul(weighted, factor), mul(x, mul(cubed, along))).reshape(context.input_sizes(0));
    if (weight.defined()) {
      gradients[1] = sum(mul(mul(grad, x), factor), Dims{0}).reshape(normalized_shape);
    }
    for (Tensor& gradient : gradients) gradient = detail::narrowed(gradient, dtype);
    return gradients;
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<RmsNorm, &RmsNorm::normalized_shape>("normalized_shape"),
        attribute<RmsNorm, &RmsNorm::eps>("eps")};
    return kTable;
  }
};

struct RowStatisticsOp final : Op<RowStatisticsOp> {
  static constexpr std::string_view kName = "row_statistics";
  static constexpr ArgumentCount kArguments{1};
  std::int64_t dims = 1;
  double eps = 1e-5;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_floats(kName, "x", x);
    QUANTA_CHECK(dims >= 0 && dims <= x.dim(), "{}: dims: expected 0..{}, got {}", kName, x.dim(),
                 dims);
    check_eps(kName, eps);
    Dims sizes = x.sizes();
    for (std::int64_t d = x.dim() - dims; d < x.dim(); ++d) sizes[static_cast<std::size_t>(d)] = 1;
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(sizes, x.dtype());
    out.add(sizes, x.dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t rows = out[0].numel();
      const std::int64_t width = in[0].numel() / rows;
      for_each_row(rows, width, [&](std::int64_t row) {
        const T* x = in[0].data<T>() + row * width;
        const double count = static_cast<double>(width);
        const double mean = sum_of(width, [&](std::int64_t i) { return double{x[i]}; }) / count;
        const double squares = sum_of(width, [&](std::int64_t i) {
          const double distance = double{x[i]} - mean;
          return distance * distance;
        });
        out[0].mutable_data<T>()[row] = static_cast<T>(mean);
        out[1].mutable_data<T>()[row] = static_cast<T>(1.0 / std::sqrt(squares / count + eps));
      });
    });
    return "scalar";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const std::int64_t rows = out[0].numel();
    cuda::normalize_rows(in[0].device(), {.step = cuda::RowStep::Statistics,
                                          .dtype = in[0].dtype(),
                                          .x = in[0].device_ptr(),
                                          .rows = rows,
                                          .width = in[0].numel() / rows,
                                          .eps = eps,
                                          .y = out[0].device_ptr(),
                                          .second = out[1].device_ptr()});
    return "normalize_rows";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<RowStatisticsOp, &RowStatisticsOp::dims>("dims"),
                                       attribute<RowStatisticsOp, &RowStatisticsOp::eps>("eps")};
    return kTable;
  }
};

struct LpNormalize final : Op<LpNormalize> {
  static constexpr std::string_view kName = "lp_normalize";
  static constexpr ArgumentCount kArguments{1};
  std::int64_t dim = -1;
  double p = 2.0;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_floats(kName, "x", x);
    QUANTA_CHECK(dim >= -x.dim() && dim < x.dim(), "{}: dim: expected {}..{}, got {}", kName,
                 -x.dim(), x.dim() - 1, dim);
    QUANTA_CHECK(p > 0.0 && std::isfinite(p), "{}: p: expected a finite number > 0, got {}", kName,
                 p);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(x.sizes(), x.dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const Line line = line_of(in[0].sizes());
      for_each_row(in[0].numel() / line.width, line.width, [&](std::int64_t row) {
        const std::int64_t first = row / line.inner * line.inner * line.width + row % line.inner;
        const T* x = in[0].data<T>() + first;
        T* y = out[0].mutable_data<T>() + first;
        double sum = 0.0;
        for (std::int64_t i = 0; i < line.width; ++i) {
          sum += math::power_term(x[i * line.inner], p);
        }
        const double norm = math::power_root(sum, p);
        for (std::int64_t i = 0; i < line.width; ++i) {
          y[i * line.inner] = static_cast<T>(math::part_of_norm(x[i * line.inner], norm));
        }
      });
    });
    return "scalar";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const auto [width, inner] = line_of(in[0].sizes());
    cuda::lp_normalize_lines(out[0].device(), {.is_double = in[0].dtype() == DType::Float64,
                                               .outer = in[0].numel() / (width * inner),
                                               .width = width,
                                               .inner = inner,
                                               .p = p,
                                               .x = in[0].device_ptr(),
                                               .y = out[0].device_ptr()});
    return "lp_normalize_lines";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<LpNormalize, &LpNormalize::dim>("dim"),
                                       attribute<LpNormalize, &LpNormalize::p>("p")};
    return kTable;
  }

 private:
  struct Line {
    std::int64_t width;  ///< elements
    std::int64_t inner;  ///< from one to the next
  };
  Line line_of(const Dims& sizes) const {
    const auto axis =
        static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(sizes.size()) : dim);
    Line line{sizes[axis], 1};
    for (std::size_t d = axis + 1; d < sizes.size(); ++d) line.inner *= sizes[d];
    return line;
  }
};

struct LocalResponseNorm final : Op<LocalResponseNorm> {
  static constexpr std::string_view kName = "local_response_norm";
  static constexpr ArgumentCount kArguments{1};
  LocalResponseNormOptions options;

  void infer(const Arguments& in, Results& out) const override {
    detail::check_floats(kName, "x", in[0]);
    QUANTA_CHECK(in[0].dim() >= 2, "{}: x: expected [N, C, ...], got {}", kName, in[0].sizes());
    QUANTA_CHECK(options.size >= 1, "{}: size: expected at least 1, got {}", kName, options.size);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(in[0].sizes(), in[0].dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t channels = in[0].size(1);
      const std::int64_t volume = in[0].numel() / (in[0].size(0) * channels);
      const Around sides = around(channels);
      for_each_row(in[0].size(0) * channels, volume * (sides.before + sides.behind + 1),
                   [&](std::int64_t row) {
                     const std::int64_t channel = row % channels;
                     const T* x = in[0].data<T>() + row * volume;
                     T* y = out[0].mutable_data<T>() + row * volume;
                     const std::int64_t first = std::max<std::int64_t>(-sides.before, -channel);
                     const std::int64_t last = std::min(sides.behind, channels - 1 - channel);
                     for (std::int64_t i = 0; i < volume; ++i) {
                       double squares = 0.0;
                       for (std::int64_t c = first; c <= last; ++c) {
                         const double value{x[c * volume + i]};
                         squares += value * value;
                       }
                       y[i] = static_cast<T>(math::local_response(x[i], squares, factor(),
                                                                  options.beta, options.bias));
                     }
                   });
    });
    return "scalar";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const std::int64_t images = in[0].size(0);
    const std::int64_t channels = in[0].size(1);
    const auto [before, behind] = around(channels);
    cuda::normalize_local_responses(out[0].device(), {.is_double = in[0].dtype() == DType::Float64,
                                                      .images = images,
                                                      .channels = channels,
                                                      .volume = in[0].numel() / (images * channels),
                                                      .before = before,
                                                      .behind = behind,
                                                      .factor = factor(),
                                                      .beta = options.beta,
                                                      .bias = options.bias,
                                                      .x = in[0].device_ptr(),
                                                      .y = out[0].device_ptr()});
    return "normalize_local_responses";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = LocalResponseNorm;
    using Options = LocalResponseNormOptions;
    static constexpr std::array kTable{attribute<Self, &Self::options, &Options::size>("size"),
                                       attribute<Self, &Self::options, &Options::alpha>("alpha"),
                                       attribute<Self, &Self::options, &Options::beta>("beta"),
                                       attribute<Self, &Self::options, &Options::bias>("bias")};
    return kTable;
  }

 private:
  struct Around {
    std::int64_t before, behind;
  };
  /// How many channels an element looks at on either side.
  Around around(std::int64_t channels) const {
    const std::int64_t before = (options.size - 1) / 2;
    return {std::min(before, channels), std::min(options.size - 1 - before, channels)};
  }
  double factor() const { return options.alpha / static_cast<double>(options.size); }
};

}  // namespace

void add_row_norms(Catalogue& catalogue) {
  catalogue.add(
      {.name = RmsNorm::kName, .header = kHeader, .dtypes = dtypes::kFloats}, [](DType dtype) {
        RmsNorm operation;
        operation.normalized_shape = {3, 4};
        return sample_call(std::move(operation),
                           {sample_tensor({2, 3, 4}, dtype), sample_tensor({3, 4}, dtype, 2)});
      });
  catalogue.add({.name = RowStatisticsOp::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  return sample_call(RowStatisticsOp{}, {sample_tensor({2, 3, 4}, dtype)});
                });
  catalogue.add({.name = LpNormalize::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  LpNormalize operation;
                  operation.dim = 1;
                  return sample_call(std::move(operation), {sample_tensor({2, 3, 4}, dtype)});
                });
  catalogue.add({.name = LocalResponseNorm::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  LocalResponseNorm operation;
                  operation.options.size = 3;
                  return sample_call(std::move(operation), {sample_tensor({2, 5, 4}, dtype)});
                });
}

}  // namespace norm

using namespace norm;

Tensor rms_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight, double eps) {
  RmsNorm operation;
  operation.normalized_shape = normalized_shape;
  operation.eps = eps;
  return run(operation, x, weight);
}

RowStatistics row_statistics(const Tensor& x, std::int64_t dims, double eps) {
  RowStatisticsOp operation;
  operation.dims = dims;
  operation.eps = eps;
  const Results results = run_all(operation, x);
  return {results[0], results[1]};
}

Tensor lp_normalize(const Tensor& x, std::int64_t dim, double p) {
  LpNormalize operation;
  operation.dim = dim;
  operation.p = p;
  return run(operation, x);
}

Tensor local_response_norm(const Tensor& x, const LocalResponseNormOptions& options) {
  LocalResponseNorm operation;
  operation.options = options;
  return run(operation, x);
}

}  // namespace quanta
