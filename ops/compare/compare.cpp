#include "quanta/ops/compare.h"

#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string_view>
#include <type_traits>

#include "quanta/ops/compare/cuda_compare.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace comparison {
namespace {

// The plain dtype that both sides are compared in.
DType common_dtype(DType lhs, DType rhs) {
  if (lhs == DType::Float64 || rhs == DType::Float64) return DType::Float64;
  if (is_floating_point(lhs) || is_floating_point(rhs)) return DType::Float32;
  return lhs == rhs && lhs != DType::Bool ? lhs : DType::Int64;
}

// The dtypes that kernels exist for.
DType kernel_dtype(DType dtype) {
  switch (dtype) {
    case DType::Float32:
    case DType::Float64:
    case DType::UInt8:
    case DType::Int8:
    case DType::Int32:
      return dtype;
    default:
      return is_floating_point(dtype) ? DType::Float32 : DType::Int64;
  }
}

Tensor plain_values(const Tensor& x) { return x.is_quantized() ? dequantize(x) : x; }

template <typename T, typename Compare>
void compare_elements(const Tensor& lhs, const Tensor& rhs, const Tensor& out, Compare compare) {
  const auto* lhs_data = static_cast<const T*>(lhs.data_ptr());
  const auto* rhs_data = static_cast<const T*>(rhs.data_ptr());
  auto* out_data = static_cast<bool*>(out.data_ptr());
  const Dims lhs_strides = cpu::broadcast_strides(lhs, out.sizes());
  const Dims rhs_strides = cpu::broadcast_strides(rhs, out.sizes());
  const cpu::StridedLoop<3> loop(out.sizes(), {&out.strides(), &lhs_strides, &rhs_strides});
  const auto [out_step, lhs_step, rhs_step] = loop.inner_strides();
  loop.run([&, out_step = out_step, lhs_step = lhs_step, rhs_step = rhs_step](
               const std::array<std::int64_t, 3>& offsets, std::int64_t count) {
    bool* to = out_data + offsets[0];
    const T* left = lhs_data + offsets[1];
    const T* right = rhs_data + offsets[2];
    // Two loops that vectorise, one for the rest.
    if (out_step == 1 && lhs_step == 1 && rhs_step == 1) {
      for (std::int64_t i = 0; i < count; ++i) to[i] = compare(left[i], right[i]);
    } else if (out_step == 1 && lhs_step == 1 && rhs_step == 0) {
      const T value = *right;
      for (std::int64_t i = 0; i < count; ++i) to[i] = compare(left[i], value);
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        to[i * out_step] = compare(left[i * lhs_step], right[i * rhs_step]);
      }
    }
  });
}

template <typename Compare>
void compare_plain(const Tensor& lhs, const Tensor& rhs, DType dtype, const Tensor& out,
                   Compare compare) {
  const DType computed = kernel_dtype(dtype);
  const Tensor left = lhs.to(computed);
  const Tensor right = rhs.to(computed);
  switch (computed) {
    case DType::Float32:
      return compare_elements<float>(left, right, out, compare);
    case DType::Float64:
      return compare_elements<double>(left, right, out, compare);
    case DType::UInt8:
      return compare_elements<std::uint8_t>(left, right, out, compare);
    case DType::Int8:
      return compare_elements<std::int8_t>(left, right, out, compare);
    case DType::Int32:
      return compare_elements<std::int32_t>(left, right, out, compare);
    default:
      return compare_elements<std::int64_t>(left, right, out, compare);
  }
}

// Whether the codes of both compare as their values do: 8 bits, one scale and zero point for both,
// and no two codes with one value.
bool compare_as_codes(const Tensor& lhs, const Tensor& rhs) {
  if (lhs.dtype() != rhs.dtype()) return false;
  if (lhs.dtype() != DType::QUInt8 && lhs.dtype() != DType::QInt8) return false;
  const Quantizer& quantizer = lhs.impl()->quantizer;
  if (is_per_channel(quantizer.scheme) || !(quantizer == rhs.impl()->quantizer)) return false;
  const auto scale = static_cast<float>(quantizer.scale);
  return std::isnormal(scale) && std::isfinite(scale * 255.0F);
}

template <typename Compare>
std::string_view compare_tensors(const Tensor& lhs, const Tensor& rhs, const Tensor& out,
                                 Compare compare) {
  if (compare_as_codes(lhs, rhs)) {
    compare_plain(QTensor(lhs).int_repr_view(), QTensor(rhs).int_repr_view(),
                  int_repr_dtype(lhs.dtype()), out, compare);
    return "codes";
  }
  const Tensor left = plain_values(lhs);
  const Tensor right = plain_values(rhs);
  compare_plain(left, right, common_dtype(left.dtype(), right.dtype()), out, compare);
  return "values";
}

// The dtype that a tensor's values are compared with a number in.
DType number_dtype(DType values, double other) {
  if (is_floating_point(values)) return values;
  constexpr double kExact = 9007199254740992.0;  // 2^53: a whole double below is an exact int64
  const bool whole = std::trunc(other) == other && std::fabs(other) <= kExact;
  return whole ? DType::Int64 : DType::Float32;
}

template <typename Compare>
std::string_view compare_number(const Tensor& x, double other, const Tensor& out, Compare compare) {
  const Tensor values = plain_values(x);
  const DType dtype = number_dtype(values.dtype(), other);
  compare_plain(values, Tensor::scalar(other, kernel_dtype(dtype)), dtype, out, compare);
  return "values";
}

// On a CUDA device --------------------------------------------------------------------------------

template <typename Compare>
constexpr cuda::Relation relation_of() {
  if (std::is_same_v<Compare, std::equal_to<>>) return cuda::Relation::Equal;
  if (std::is_same_v<Compare, std::not_equal_to<>>) return cuda::Relation::NotEqual;
  if (std::is_same_v<Compare, std::less<>>) return cuda::Relation::Less;
  if (std::is_same_v<Compare, std::less_equal<>>) return cuda::Relation::LessEqual;
  return std::is_same_v<Compare, std::greater<>> ? cuda::Relation::Greater
                                                 : cuda::Relation::GreaterEqual;
}

// All integers become Int64 there.
DType computed_on_cuda(DType dtype) {
  const DType kernel = kernel_dtype(dtype);
  return is_floating_point(kernel) ? kernel : DType::Int64;
}

// Plain tensors; an undefined rhs stands for the number.
std::string_view compare_on_cuda(cuda::Relation relation, const Tensor& lhs, const Tensor& rhs,
                                 double number, DType dtype, const Tensor& out) {
  const Dims& sizes = out.sizes();
  const Dims lhs_strides = cpu::broadcast_strides(lhs, sizes);
  const Dims rhs_strides = rhs.defined() ? cpu::broadcast_strides(rhs, sizes) : lhs_strides;
  cuda::CompareParams params;
  params.walk = {sizes, {&out.strides(), &lhs_strides, &rhs_strides}};
  params.relation = relation;
  params.computed = computed_on_cuda(dtype);
  params.lhs_dtype = lhs.dtype();
  params.lhs = lhs.device_ptr();
  params.number = number;
  if (rhs.defined()) {
    params.rhs_dtype = rhs.dtype();
    params.rhs = rhs.device_ptr();
  }
  params.out = reinterpret_cast<bool*>(out.device_ptr());
  cuda::compare_items(out.device(), params);
  return "compare_items";
}

std::string_view compare_tensors_on_cuda(cuda::Relation relation, const Tensor& lhs,
                                         const Tensor& rhs, const Tensor& out) {
  const bool by_codes = compare_as_codes(lhs, rhs);
  const Tensor left = by_codes ? QTensor(lhs).int_repr_view() : plain_values(lhs);
  const Tensor right = by_codes ? QTensor(rhs).int_repr_view() : plain_values(rhs);
  return compare_on_cuda(relation, left, right, 0.0, common_dtype(left.dtype(), right.dtype()),
                         out);
}

std::string_view compare_number_on_cuda(cuda::Relation relation, const Tensor& x, double other,
                                        const Tensor& out) {
  const Tensor values = plain_values(x);
  return compare_on_cuda(relation, values, Tensor(), other, number_dtype(values.dtype(), other),
                         out);
}

// Names of the comparisons that C++ has as function objects.
template <typename Compare>
inline constexpr std::string_view kCompareName = {};
template <>
inline constexpr std::string_view kCompareName<std::equal_to<>> = "eq";
template <>
inline constexpr std::string_view kCompareName<std::not_equal_to<>> = "ne";
template <>
inline constexpr std::string_view kCompareName<std::less<>> = "lt";
template <>
inline constexpr std::string_view kCompareName<std::less_equal<>> = "le";
template <>
inline constexpr std::string_view kCompareName<std::greater<>> = "gt";
template <>
inline constexpr std::string_view kCompareName<std::greater_equal<>> = "ge";

// Of two tensors, or of one and the number `other`.
template <typename Compare>
struct Comparison final : Op<Comparison<Compare>> {
  static constexpr std::string_view kName = kCompareName<Compare>;
  static constexpr ArgumentCount kArguments{1, 2};
  std::optional<double> other;

  Comparison() = default;
  explicit Comparison(double number) : other(number) {}
  ArgumentCount argument_count() const noexcept override { return ArgumentCount(other ? 1 : 2); }
  void infer(const Arguments& in, Results& out) const override {
    if (other) {
      detail::check_defined(kName, "x", in[0]);
      out.add(in[0].sizes(), DType::Bool, in[0].suggested_format());
      return;
    }
    detail::check_defined(kName, "lhs", in[0]);
    detail::check_defined(kName, "rhs", in[1]);
    const Dims sizes = broadcast_sizes(in[0].sizes(), in[1].sizes(), kName);
    out.add(sizes, DType::Bool, cpu::broadcast_format(in[0], in[1], sizes));
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return other ? compare_number(in[0], *other, out[0], Compare())
                 : compare_tensors(in[0], in[1], out[0], Compare());
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    constexpr cuda::Relation kRelation = relation_of<Compare>();
    return other ? compare_number_on_cuda(kRelation, in[0], *other, out[0])
                 : compare_tensors_on_cuda(kRelation, in[0], in[1], out[0]);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kEvery; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Comparison, &Comparison::other>("other")};
    return kTable;
  }
};

template <typename Compare>
Tensor compared(const Tensor& lhs, const Tensor& rhs) {
  return run(Comparison<Compare>{}, lhs, rhs);
}
template <typename Compare>
Tensor compared(const Tensor& x, double other) {
  return run(Comparison<Compare>{other}, x);
}

// Arguments: x, y, condition.
struct Where final : Op<Where> {
  static constexpr std::string_view kName = "where";
  static constexpr ArgumentCount kArguments{3};

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    const Tensor& y = in[1];
    const Tensor& condition = in[2];
    detail::check_defined(kName, "condition", condition);
    detail::check_uniform(kName, "x", x);
    detail::check_uniform(kName, "y", y);
    QUANTA_CHECK(condition.dtype() == DType::Bool, "{}: condition: expected Bool, got {}", kName,
                 condition.dtype());
    QUANTA_CHECK(x.dtype() == y.dtype(), "{}: y: expected {} as x has, got {}", kName, x.dtype(),
                 y.dtype());
    const Quantizer& quantizer = x.impl()->quantizer;
    const Quantizer& other = y.impl()->quantizer;
    QUANTA_CHECK(!x.is_quantized() || quantizer == other,
                 "{}: y: expected scale {} and zero_point {} as x has, got {} and {}", kName,
                 quantizer.scale, quantizer.zero_point, other.scale, other.zero_point);
    const Dims sizes =
        broadcast_sizes(condition.sizes(), broadcast_sizes(x.sizes(), y.sizes(), kName), kName);
    out.add_like(x, sizes, cpu::broadcast_format(x, y, sizes));
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Dims& sizes = out[0].sizes();
    const Dims condition_strides = cpu::broadcast_strides(in[2], sizes);
    const Dims x_strides = cpu::broadcast_strides(in[0], sizes);
    const Dims y_strides = cpu::broadcast_strides(in[1], sizes);
    const cpu::StridedLoop<4> loop(sizes,
                                   {&out[0].strides(), &condition_strides, &x_strides, &y_strides});
    const auto& step = loop.inner_strides();
    detail::visit_bits(in[0].dtype(), [&](auto bits) {
      using T = decltype(bits);
      auto* to = static_cast<T*>(out[0].data_ptr());
      const auto* chosen = static_cast<const bool*>(in[2].data_ptr());
      const auto* from_x = static_cast<const T*>(in[0].data_ptr());
      const auto* from_y = static_cast<const T*>(in[1].data_ptr());
      loop.run([&](const std::array<std::int64_t, 4>& at, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          to[at[0] + i * step[0]] =
              detail::select_bits(chosen[at[1] + i * step[1]], from_x[at[2] + i * step[2]],
                                  from_y[at[3] + i * step[3]]);
        }
      });
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Dims& sizes = out[0].sizes();
    const Dims condition_strides = cpu::broadcast_strides(in[2], sizes);
    const Dims x_strides = cpu::broadcast_strides(in[0], sizes);
    const Dims y_strides = cpu::broadcast_strides(in[1], sizes);
    cuda::choose_items(
        out[0].device(),
        {.walk = {sizes, {&out[0].strides(), &condition_strides, &x_strides, &y_strides}},
         .condition = reinterpret_cast<const bool*>(in[2].device_ptr()),
         .x = in[0].device_ptr(),
         .y = in[1].device_ptr(),
         .out = out[0].device_ptr(),
         .item_bytes = static_cast<int>(item_size(in[0].dtype()))});
    return "choose_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b100); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor& gradient = context.grad();
    const Tensor condition = context.input(2);
    const Tensor nothing = Tensor::zeros({}, gradient.dtype());
    std::vector<Tensor> results(3);
    if (context.needs(0)) {
      results[0] =
          autograd::sum_to_size(where(condition, gradient, nothing), context.input_sizes(0));
    }
    if (context.needs(1)) {
      results[1] =
          autograd::sum_to_size(where(condition, nothing, gradient), context.input_sizes(1));
    }
    return results;
  }
};

}  // namespace
}  // namespace comparison

using namespace comparison;

Tensor eq(const Tensor& lhs, const Tensor& rhs) { return compared<std::equal_to<>>(lhs, rhs); }
Tensor ne(const Tensor& lhs, const Tensor& rhs) { return compared<std::not_equal_to<>>(lhs, rhs); }
Tensor lt(const Tensor& lhs, const Tensor& rhs) { return compared<std::less<>>(lhs, rhs); }
Tensor le(const Tensor& lhs, const Tensor& rhs) { return compared<std::less_equal<>>(lhs, rhs); }
Tensor gt(const Tensor& lhs, const Tensor& rhs) { return compared<std::greater<>>(lhs, rhs); }
Tensor ge(const Tensor& lhs, const Tensor& rhs) { return compared<std::greater_equal<>>(lhs, rhs); }

Tensor eq(const Tensor& x, double other) { return compared<std::equal_to<>>(x, other); }
Tensor ne(const Tensor& x, double other) { return compared<std::not_equal_to<>>(x, other); }
Tensor lt(const Tensor& x, double other) { return compared<std::less<>>(x, other); }
Tensor le(const Tensor& x, double other) { return compared<std::less_equal<>>(x, other); }
Tensor gt(const Tensor& x, double other) { return compared<std::greater<>>(x, other); }
Tensor ge(const Tensor& x, double other) { return compared<std::greater_equal<>>(x, other); }

Tensor where(const Tensor& condition, const Tensor& x, const Tensor& y) {
  return run(Where{}, x, y, condition);
}

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/compare.h";

template <typename Compare>
void add_of_tensors(Catalogue& catalogue) {
  using Kind = Comparison<Compare>;
  catalogue.add(
      {.name = Kind::kName, .header = kHeader, .dtypes = dtypes::kEvery}, [](DType dtype) {
        return sample_call(
            Kind{}, {sample_tensor({2, 3, 5, 4}, dtype), sample_tensor({3, 1, 4}, dtype, 2)});
      });
}
template <typename Compare>
void add_of_number(Catalogue& catalogue) {
  using Kind = Comparison<Compare>;
  catalogue.add({.name = Kind::kName, .header = kHeader, .dtypes = dtypes::kEvery},
                [](DType dtype) {
                  return sample_call(Kind{1.0}, {sample_tensor({2, 3, 5, 4}, dtype)});
                });
}

}  // namespace

void detail::add_compare(Catalogue& catalogue) {
  add_of_tensors<std::equal_to<>>(catalogue);
  add_of_number<std::not_equal_to<>>(catalogue);
  add_of_tensors<std::less<>>(catalogue);
  add_of_number<std::less_equal<>>(catalogue);
  add_of_tensors<std::greater<>>(catalogue);
  add_of_number<std::greater_equal<>>(catalogue);
  catalogue.add({.name = Where::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes},
                [](DType dtype) {
                  return sample_call(
                      Where{}, {sample_tensor({2, 3, 5, 4}, dtype), sample_tensor({4}, dtype, 2),
                                sample_tensor({3, 5, 1}, DType::Bool, 3)});
                });
}

}  // namespace quanta
