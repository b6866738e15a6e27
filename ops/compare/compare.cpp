#include "quanta/ops/compare.h"

#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/indexing/gradient.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
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

Tensor plain_values(std::string_view op, std::string_view argument, const Tensor& x) {
  detail::check_defined(op, argument, x);
  return x.is_quantized() ? dequantize(x) : x;
}

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
Tensor compare_plain(std::string_view op, const Tensor& lhs, const Tensor& rhs, DType dtype,
                     Compare compare) {
  const DType computed = kernel_dtype(dtype);
  const Tensor left = lhs.to(computed);
  const Tensor right = rhs.to(computed);
  const Dims sizes = broadcast_sizes(left.sizes(), right.sizes(), op);
  const Tensor out = Tensor::empty(sizes, DType::Bool, cpu::broadcast_format(left, right, sizes));
  switch (computed) {
    case DType::Float32:
      compare_elements<float>(left, right, out, compare);
      break;
    case DType::Float64:
      compare_elements<double>(left, right, out, compare);
      break;
    case DType::UInt8:
      compare_elements<std::uint8_t>(left, right, out, compare);
      break;
    case DType::Int8:
      compare_elements<std::int8_t>(left, right, out, compare);
      break;
    case DType::Int32:
      compare_elements<std::int32_t>(left, right, out, compare);
      break;
    default:
      compare_elements<std::int64_t>(left, right, out, compare);
  }
  return out;
}

// Whether the codes of both compare as their values do: 8 bits, one scale and zero point for both,
// and no two codes with one value.
bool compare_as_codes(const Tensor& lhs, const Tensor& rhs) {
  if (!lhs.defined() || !rhs.defined() || lhs.dtype() != rhs.dtype()) return false;
  if (lhs.dtype() != DType::QUInt8 && lhs.dtype() != DType::QInt8) return false;
  const Quantizer& quantizer = lhs.impl()->quantizer;
  if (is_per_channel(quantizer.scheme) || !(quantizer == rhs.impl()->quantizer)) return false;
  const auto scale = static_cast<float>(quantizer.scale);
  return std::isnormal(scale) && std::isfinite(scale * 255.0F);
}

template <typename Compare>
Tensor compare_tensors(std::string_view op, const Tensor& lhs, const Tensor& rhs, Compare compare) {
  if (replay::is_recording()) {
    return replay::call(
        op, [=](const Tensor& a, const Tensor& b) { return compare_tensors(op, a, b, compare); },
        lhs, rhs);
  }
  OpScope scope(op);
  if (compare_as_codes(lhs, rhs)) {
    return compare_plain(op, QTensor(lhs).int_repr_view(), QTensor(rhs).int_repr_view(),
                         int_repr_dtype(lhs.dtype()), compare);
  }
  const Tensor left = plain_values(op, "lhs", lhs);
  const Tensor right = plain_values(op, "rhs", rhs);
  return compare_plain(op, left, right, common_dtype(left.dtype(), right.dtype()), compare);
}

template <typename Compare>
Tensor compare_number(std::string_view op, const Tensor& x, double other, Compare compare) {
  if (replay::is_recording()) {
    return replay::call(
        op, [=](const Tensor& t) { return compare_number(op, t, other, compare); }, x);
  }
  OpScope scope(op);
  const Tensor values = plain_values(op, "x", x);
  DType dtype = values.dtype();
  if (!is_floating_point(dtype)) {
    constexpr double kExact = 9007199254740992.0;  // 2^53: a whole double below is an exact int64
    const bool whole = std::trunc(other) == other && std::fabs(other) <= kExact;
    dtype = whole ? DType::Int64 : DType::Float32;
  }
  return compare_plain(op, values, Tensor::scalar(other, kernel_dtype(dtype)), dtype, compare);
}

}  // namespace

Tensor eq(const Tensor& lhs, const Tensor& rhs) {
  return compare_tensors("eq", lhs, rhs, std::equal_to<>());
}
Tensor ne(const Tensor& lhs, const Tensor& rhs) {
  return compare_tensors("ne", lhs, rhs, std::not_equal_to<>());
}
Tensor lt(const Tensor& lhs, const Tensor& rhs) {
  return compare_tensors("lt", lhs, rhs, std::less<>());
}
Tensor le(const Tensor& lhs, const Tensor& rhs) {
  return compare_tensors("le", lhs, rhs, std::less_equal<>());
}
Tensor gt(const Tensor& lhs, const Tensor& rhs) {
  return compare_tensors("gt", lhs, rhs, std::greater<>());
}
Tensor ge(const Tensor& lhs, const Tensor& rhs) {
  return compare_tensors("ge", lhs, rhs, std::greater_equal<>());
}

Tensor eq(const Tensor& x, double other) {
  return compare_number("eq", x, other, std::equal_to<>());
}
Tensor ne(const Tensor& x, double other) {
  return compare_number("ne", x, other, std::not_equal_to<>());
}
Tensor lt(const Tensor& x, double other) { return compare_number("lt", x, other, std::less<>()); }
Tensor le(const Tensor& x, double other) {
  return compare_number("le", x, other, std::less_equal<>());
}
Tensor gt(const Tensor& x, double other) {
  return compare_number("gt", x, other, std::greater<>());
}
Tensor ge(const Tensor& x, double other) {
  return compare_number("ge", x, other, std::greater_equal<>());
}

Tensor where(const Tensor& condition, const Tensor& x, const Tensor& y) {
  constexpr std::string_view kOp = "where";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [](const Tensor& a, const Tensor& b, const Tensor& c) { return where(a, b, c); },
        condition, x, y);
  }
  OpScope scope(kOp);
  detail::check_defined(kOp, "condition", condition);
  detail::check_uniform(kOp, "x", x);
  detail::check_uniform(kOp, "y", y);
  QUANTA_CHECK(condition.dtype() == DType::Bool, "{}: condition: expected Bool, got {}", kOp,
               condition.dtype());
  QUANTA_CHECK(x.dtype() == y.dtype(), "{}: y: expected {} as x has, got {}", kOp, x.dtype(),
               y.dtype());
  const Quantizer& quantizer = x.impl()->quantizer;
  const Quantizer& other = y.impl()->quantizer;
  QUANTA_CHECK(!x.is_quantized() || quantizer == other,
               "{}: y: expected scale {} and zero_point {} as x has, got {} and {}", kOp,
               quantizer.scale, quantizer.zero_point, other.scale, other.zero_point);
  const Dims sizes =
      broadcast_sizes(condition.sizes(), broadcast_sizes(x.sizes(), y.sizes(), kOp), kOp);
  const Tensor out = detail::empty_with_parameters_of(x, sizes, cpu::broadcast_format(x, y, sizes));
  const Dims condition_strides = cpu::broadcast_strides(condition, sizes);
  const Dims x_strides = cpu::broadcast_strides(x, sizes);
  const Dims y_strides = cpu::broadcast_strides(y, sizes);
  const cpu::StridedLoop<4> loop(sizes,
                                 {&out.strides(), &condition_strides, &x_strides, &y_strides});
  const auto& step = loop.inner_strides();
  detail::visit_bits(x.dtype(), [&](auto bits) {
    using T = decltype(bits);
    auto* to = static_cast<T*>(out.data_ptr());
    const auto* chosen = static_cast<const bool*>(condition.data_ptr());
    const auto* from_x = static_cast<const T*>(x.data_ptr());
    const auto* from_y = static_cast<const T*>(y.data_ptr());
    loop.run([&](const std::array<std::int64_t, 4>& at, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        to[at[0] + i * step[0]] = detail::select_bits(
            chosen[at[1] + i * step[1]], from_x[at[2] + i * step[2]], from_y[at[3] + i * step[3]]);
      }
    });
  });
  if (autograd::needs_grad(x, y)) return gradients::record_where(condition, x, y, out);
  return out;
}

}  // namespace quanta
