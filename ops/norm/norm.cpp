// Normalizations by statistics of their own: of rows, of groups of channels, of each channel.

#include "quanta/ops/norm.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/cuda/device_data.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/norm/checks.h"
#include "quanta/ops/norm/cpu_groups.h"
#include "quanta/ops/norm/cuda_groups.h"
#include "quanta/ops/norm/families.h"
#include "quanta/ops/norm/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace norm {
namespace {

struct LayerNorm {
  static constexpr std::string_view kName = "layer_norm";
  static constexpr std::string_view kQuantizedName = "quantized::layer_norm";
  static constexpr bool kOfRows = true;
  Dims normalized_shape{};

  void check(std::string_view op, const Tensor& x) const {
    const std::size_t rank = x.sizes().size();
    bool matches = !normalized_shape.empty() && normalized_shape.size() <= rank;
    for (std::size_t d = 0; matches && d < normalized_shape.size(); ++d) {
      matches = normalized_shape[d] == x.sizes()[rank - normalized_shape.size() + d];
    }
    QUANTA_CHECK(matches, "{}: normalized_shape: expected the last sizes of x {}, got {}", op,
                 x.sizes(), normalized_shape);
  }
  Dims parameter_sizes(const Tensor& /*x*/) const { return normalized_shape; }
  GroupShape shape(const Dims& sizes) const {
    GroupShape shape{1, product(normalized_shape), 1, 1};
    for (std::size_t d = 0; d + normalized_shape.size() < sizes.size(); ++d) {
      shape.samples *= sizes[d];
    }
    return shape;
  }
  template <typename Op>
  static std::span<const AttributeInfo> settings() {
    static constexpr std::array kTable{
        attribute<Op, &Op::kind, &LayerNorm::normalized_shape>("normalized_shape")};
    return kTable;
  }
};

GroupShape group_shape(const Dims& sizes, std::int64_t groups) {
  GroupShape shape{sizes[0], sizes[1], 1, groups};
  for (std::size_t d = 2; d < sizes.size(); ++d) shape.volume *= sizes[d];
  return shape;
}

struct GroupNorm {
  static constexpr std::string_view kName = "group_norm";
  static constexpr std::string_view kQuantizedName = "quantized::group_norm";
  static constexpr bool kOfRows = false;
  std::int64_t num_groups = 1;

  void check(std::string_view op, const Tensor& x) const {
    const std::int64_t min_rank = x.is_quantized() ? 3 : 2;
    QUANTA_CHECK(x.dim() >= min_rank, "{}: x: expected at least {} dimensions, got {}", op,
                 min_rank, x.sizes());
    QUANTA_CHECK(num_groups >= 1 && x.sizes()[1] % num_groups == 0,
                 "{}: num_groups: expected a divisor of the {} channels, got {}", op, x.sizes()[1],
                 num_groups);
  }
  Dims parameter_sizes(const Tensor& x) const { return {x.sizes()[1]}; }
  GroupShape shape(const Dims& sizes) const { return group_shape(sizes, num_groups); }
  template <typename Op>
  static std::span<const AttributeInfo> settings() {
    static constexpr std::array kTable{
        attribute<Op, &Op::kind, &GroupNorm::num_groups>("num_groups")};
    return kTable;
  }
};

struct InstanceNorm {
  static constexpr std::string_view kName = "instance_norm";
  static constexpr std::string_view kQuantizedName = "quantized::instance_norm";
  static constexpr bool kOfRows = false;

  void check(std::string_view op, const Tensor& x) const {
    QUANTA_CHECK(x.dim() >= 3, "{}: x: expected at least 3 dimensions, got {}", op, x.sizes());
  }
  Dims parameter_sizes(const Tensor& x) const { return {x.sizes()[1]}; }
  GroupShape shape(const Dims& sizes) const { return group_shape(sizes, sizes[1]); }
  template <typename Op>
  static std::span<const AttributeInfo> settings() {
    return {};
  }
};

template <typename Op>
std::vector<AttributeInfo> with_settings(std::span<const AttributeInfo> settings,
                                         std::initializer_list<AttributeInfo> others) {
  std::vector<AttributeInfo> table(settings.begin(), settings.end());
  table.insert(table.end(), others.begin(), others.end());
  return table;
}

/// What both forms share: x, and a weight and a bias that may be left out.
template <typename Derived, typename Kind>
struct Normalization : Op<Derived> {
  static constexpr ArgumentCount kArguments{3};
  Kind kind;
  double eps = 1e-5;

  Normalization(Kind given, double epsilon) : kind(std::move(given)), eps(epsilon) {}

 protected:
  // The order in which x is read; gives that of the result.
  MemoryFormat infer_orders(std::string_view op, const Arguments& in, DType parameters,
                            MemoryFormat format, Results& out) const {
    const Tensor& x = in[0];
    kind.check(op, x);
    const Dims sizes = kind.parameter_sizes(x);
    check_parameter(op, "weight", in[1], parameters, sizes);
    check_parameter(op, "bias", in[2], parameters, sizes);
    check_eps(op, eps);
    const bool in_rows = Kind::kOfRows || x.dtype() == DType::Float64;
    out.arrange(0, in_rows ? MemoryFormat::Contiguous : format);
    out.arrange(1, MemoryFormat::Contiguous);
    out.arrange(2, MemoryFormat::Contiguous);
    return format;
  }

  // `range` is that of the floats that come out where these are normalized row by row, or null.
  void run_floats_or_codes(const Arguments& in, const Tensor& out, double scale,
                           const NormOutput& output, cpu::SharedRange* range = nullptr) const {
    const Tensor& x = in[0];
    const GroupShape shape = kind.shape(x.sizes());
    const Numbers<float> weight(in[1], shape.channels, 1.0F);
    const Numbers<float> bias(in[2], shape.channels, 0.0F);
    const auto call = [&](const Tensor& result) {
      return NormCall{x.dtype(),   x.data_ptr(),      weight.data(),
                      bias.data(), result.data_ptr(), output};
    };
    if constexpr (Kind::kOfRows) {
      in_contiguous_order(out, [&](const Tensor& result) {
        cpu::norm_each_row(shape.samples, shape.channels, call(result), scale, eps, range);
      });
    } else {
      cpu::norm_groups(NormGeometry(x, format_of(out)), shape.groups, call(out), scale, eps);
    }
  }

  std::string_view run_on_cuda(const Arguments& in, const Tensor& out, double scale,
                               const NormOutput& output) const {
    const Tensor& x = in[0];
    const GroupShape shape = kind.shape(x.sizes());
    const auto call = [&](const Tensor& result) {
      return cuda::NormTensors{.dtype = x.dtype(),
                               .x = x.device_ptr(),
                               .parameters = x.is_quantized() ? DType::Float32 : x.dtype(),
                               .weight = cuda::data_of(in[1]),
                               .bias = cuda::data_of(in[2]),
                               .y = result.device_ptr(),
                               .output = output};
    };
    if constexpr (Kind::kOfRows) {
      in_contiguous_order(out, [&](const Tensor& result) {
        cuda::norm_each_row(x.device(), shape.samples, shape.channels, call(result), scale, eps);
      });
    } else {
      cuda::norm_groups(x.device(), NormGeometry(x, format_of(out)), shape.groups, call(out), scale,
                        eps);
    }
    return "normalize";
  }

  // calculate(result) for a contiguous result.
  template <typename Calculate>
  static void in_contiguous_order(const Tensor& out, const Calculate& calculate) {
    if (out.is_contiguous()) return calculate(out);
    const Tensor memory =
        Tensor::empty(out.sizes(), out.is_quantized() ? int_repr_dtype(out.dtype()) : out.dtype(),
                      MemoryFormat::Contiguous, out.device());
    const Tensor result =
        out.is_quantized() ? QTensor::from_int_repr(memory, out.impl()->quantizer) : memory;
    calculate(result);
    copy_result(result, out);
  }
};

/// With tells_range the last result says what numbers, Float32, are in the first.
template <typename Kind>
struct Normalize final : Normalization<Normalize<Kind>, Kind> {
  static constexpr std::string_view kName = Kind::kName;
  bool tells_range = false;

  using Normalization<Normalize, Kind>::Normalization;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_floats(kName, "x", x);
    const MemoryFormat format = this->infer_orders(kName, in, x.dtype(), format_of(x), out);
    out.add(x.sizes(), x.dtype(), format);
    if (tells_range) out.add({2}, DType::Float32);
  }

  std::shared_ptr<const Operation> with_range() const override {
    if constexpr (Kind::kOfRows) {
      auto form = std::make_shared<Normalize>(*this);
      form->tells_range = true;
      return form;
    } else {
      return nullptr;
    }
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (in[0].dtype() == DType::Float32) {
      cpu::SharedRange range;
      this->run_floats_or_codes(in, out[0], 1.0, {}, tells_range ? &range : nullptr);
      if (tells_range) *static_cast<cpu::FloatRange*>(out[1].data_ptr()) = range.get();
      return "simd";
    }
    this->in_contiguous_order(out[0], [&](const Tensor& result) {
      cpu::norm_groups_double(this->kind.shape(in[0].sizes()), in[0], in[1], in[2], this->eps,
                              result);
    });
    return "doubles";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return this->run_on_cuda(in, out[0], 1.0, {});
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return detail::kCudaFloatDtypes; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b11); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor x = context.input(0);
    return group_norm_gradients({.gradient = context.grad(),
                                 .x = x,
                                 .weight = context.input(1),
                                 .parameter_sizes = this->kind.parameter_sizes(x),
                                 .eps = this->eps,
                                 .needs_weight = context.needs(1),
                                 .needs_bias = context.needs(2)},
                                this->kind.shape(x.sizes()));
  }

  static std::span<const AttributeInfo> attribute_table() {
    static const std::vector<AttributeInfo> table = [] {
      auto all = with_settings<Normalize>(Kind::template settings<Normalize>(),
                                          {attribute<Normalize, &Normalize::eps>("eps")});
      if constexpr (Kind::kOfRows) {
        all.push_back(
            read_only_attribute<Normalize, [](const Normalize& op) { return op.tells_range; }>(
                "tells_range"));
      }
      return all;
    }();
    return table;
  }
};

template <typename Kind>
struct QuantizedNormalize final : Normalization<QuantizedNormalize<Kind>, Kind> {
  static constexpr std::string_view kName = Kind::kQuantizedName;
  double scale = 1.0;
  std::int64_t zero_point = 0;

  QuantizedNormalize(Kind given, double epsilon, double scale_out, std::int64_t zero_point_out)
      : Normalization<QuantizedNormalize, Kind>(std::move(given), epsilon),
        scale(scale_out),
        zero_point(zero_point_out) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_quantized_8bit(kName, x);
    // On codes torch keeps the order of channels-last images alone, and not in layer norm.
    const bool is_kept = !Kind::kOfRows && x.dim() == 4;
    const MemoryFormat format = this->infer_orders(
        kName, in, DType::Float32, is_kept ? format_of(x) : MemoryFormat::Contiguous, out);
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer(kName, quantizer, x.dtype(), x.sizes());
    out.add(x.sizes(), x.dtype(), quantizer, format);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    this->run_floats_or_codes(in, out[0], input_scale(in), output_of(out[0], Clamp::No));
    return "simd";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return this->run_on_cuda(in, out[0], input_scale(in), output_of(out[0], Clamp::No));
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ8; }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = QuantizedNormalize;
    static const std::vector<AttributeInfo> table = with_settings<Self>(
        Kind::template settings<Self>(),
        {attribute<Self, &Self::eps>("eps"), attribute<Self, &Self::scale>("scale"),
         attribute<Self, &Self::zero_point>("zero_point")});
    return table;
  }

 private:
  static double input_scale(const Arguments& in) {
    return static_cast<double>(static_cast<float>(in[0].impl()->quantizer.scale));
  }
};

// The catalogue --------------------------------------------------------------------------------

template <typename Kind>
Kind sample_kind() {
  if constexpr (std::is_same_v<Kind, LayerNorm>) {
    return {{5, 4}};
  } else if constexpr (std::is_same_v<Kind, GroupNorm>) {
    return {2};
  } else {
    return {};
  }
}

template <typename Kind>
std::vector<Tensor> sample_inputs(DType dtype) {
  const Tensor x = sample_tensor({2, 6, 5, 4}, dtype);
  const DType parameters = dtype == DType::Float64 ? dtype : DType::Float32;
  return {x, sample_tensor(sample_kind<Kind>().parameter_sizes(x), parameters, 2), {}};
}

template <typename Kind>
void add(Catalogue& catalogue) {
  constexpr std::string_view kHeader = "quanta/ops/norm.h";
  catalogue.add(
      {.name = Kind::kName, .header = kHeader, .dtypes = dtypes::kFloats}, [](DType dtype) {
        return sample_call(Normalize<Kind>(sample_kind<Kind>(), 1e-5), sample_inputs<Kind>(dtype));
      });
  catalogue.add({.name = Kind::kQuantizedName, .header = kHeader, .dtypes = dtypes::kQ8},
                [](DType dtype) {
                  return sample_call(QuantizedNormalize<Kind>(sample_kind<Kind>(), 1e-5, 0.04, 9),
                                     sample_inputs<Kind>(dtype));
                });
}

}  // namespace
}  // namespace norm

using namespace norm;

Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps) {
  return run(Normalize<LayerNorm>({normalized_shape}, eps), x, weight, bias);
}

Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight,
                  const Tensor& bias, double eps) {
  return run(Normalize<GroupNorm>({num_groups}, eps), x, weight, bias);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return run(Normalize<InstanceNorm>({}, eps), x, weight, bias);
}

namespace quantized {

QTensor layer_norm(const QTensor& x, const Dims& normalized_shape, const Tensor& weight,
                   const Tensor& bias, double eps, double scale, std::int64_t zero_point) {
  return QTensor(run(QuantizedNormalize<LayerNorm>({normalized_shape}, eps, scale, zero_point), x,
                     weight, bias));
}

QTensor group_norm(const QTensor& x, std::int64_t num_groups, const Tensor& weight,
                   const Tensor& bias, double eps, double scale, std::int64_t zero_point) {
  return QTensor(
      run(QuantizedNormalize<GroupNorm>({num_groups}, eps, scale, zero_point), x, weight, bias));
}

QTensor instance_norm(const QTensor& x, const Tensor& weight, const Tensor& bias, double eps,
                      double scale, std::int64_t zero_point) {
  return QTensor(
      run(QuantizedNormalize<InstanceNorm>({}, eps, scale, zero_point), x, weight, bias));
}

}  // namespace quantized

void detail::add_norms(Catalogue& catalogue) {
  add<LayerNorm>(catalogue);
  add<GroupNorm>(catalogue);
  add<InstanceNorm>(catalogue);
  add_batch_norms(catalogue);
  add_row_norms(catalogue);
}

}  // namespace quanta
