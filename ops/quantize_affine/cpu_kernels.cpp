#include "quanta/ops/quantize_affine/cpu_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/quantize_affine/cpu_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "quanta/ops/cpu/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS

// The parameters of the elements from i on: one for all, or one for each.
template <bool kOneForAll>
class Parameters {
 public:
  Parameters(const float* scale, const float* offset, float shift)
      : scale_(scale), offset_(offset), shift_(hn::Set(FloatTag(), shift)) {
    const FloatTag d;
    one_scale_ = hn::Set(d, *scale);
    one_offset_ = hn::Set(d, *offset);
    one_back_ = hn::Add(one_offset_, shift_);
  }
  HWY_INLINE hn::Vec<FloatTag> scale(std::int64_t i) const {
    if constexpr (kOneForAll) return one_scale_;
    return hn::LoadU(FloatTag(), scale_ + i);
  }
  HWY_INLINE hn::Vec<FloatTag> offset(std::int64_t i) const {
    if constexpr (kOneForAll) return one_offset_;
    return hn::LoadU(FloatTag(), offset_ + i);
  }
  // offset + shift
  HWY_INLINE hn::Vec<FloatTag> back(std::int64_t i) const {
    if constexpr (kOneForAll) return one_back_;
    return hn::Add(offset(i), shift_);
  }

 private:
  const float* scale_;
  const float* offset_;
  hn::Vec<FloatTag> shift_, one_scale_, one_offset_, one_back_;
};

template <AffineOp kOp, bool kOneForAll, bool kStreaming>
HWY_INLINE std::int64_t affine_vectors(const float* src, std::int64_t count, const float* scale,
                                       const float* offset, const math::AffineLimits<float>& limits,
                                       float* dst) {
  const FloatTag d;
  const Parameters<kOneForAll> parameters(scale, offset, limits.shift);
  const auto qmin = hn::Set(d, limits.qmin);
  const auto qmax = hn::Set(d, limits.qmax);
  const auto shift = hn::Set(d, limits.shift);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    auto value = hn::LoadU(d, src + i);
    if constexpr (kOp != AffineOp::Dequantize) {
      value = hn::Div(value, parameters.scale(i));
      if constexpr (kOp == AffineOp::QuantizeDequantize) value = hn::Sub(value, shift);
      value = hn::Sub(hn::Round(value), parameters.offset(i));
      // x86's maximum and minimum answer their second operand for NaN, which therefore stays NaN.
      value = hn::Min(qmax, hn::Max(qmin, value));
    }
    if constexpr (kOp == AffineOp::Dequantize) value = hn::Add(value, parameters.offset(i));
    if constexpr (kOp == AffineOp::QuantizeDequantize) value = hn::Add(value, parameters.back(i));
    if constexpr (kOp != AffineOp::Quantize) value = hn::Mul(value, parameters.scale(i));
    put<kStreaming>(d, value, dst + i);
  }
  return i;
}
using DoubleTag = hn::ScalableTag<double>;
static_assert(GradientLanes::kCount % kLanes == 0, "lanes of sums come in whole vectors");

// A float vector's lanes as two vectors of doubles, each added to its sum.
template <class V>
HWY_INLINE void add_lanes(V terms, hn::Vec<DoubleTag>* sums) {
  const hn::Half<FloatTag> half;
  sums[0] = hn::Add(sums[0], hn::PromoteTo(DoubleTag(), hn::LowerHalf(half, terms)));
  sums[1] = hn::Add(sums[1], hn::PromoteTo(DoubleTag(), hn::UpperHalf(half, terms)));
}

// math::affine_quantize_dequantize_gradient of as many elements as fill all lanes.
std::int64_t gradient_vectors(const float* src, const float* grad, std::int64_t count, float scale,
                              float offset, const math::AffineLimits<float>& limits, float* dst,
                              GradientLanes& lanes) {
  constexpr std::int64_t kParts = GradientLanes::kCount / kLanes;
  const FloatTag d;
  const DoubleTag dd;
  const auto scales = hn::Set(d, scale);
  const auto offsets = hn::Set(d, offset);
  const auto shift = hn::Set(d, limits.shift);
  const auto low = hn::Set(d, offset + limits.qmin);
  const auto high = hn::Set(d, offset + limits.qmax);
  const auto qmin = hn::Set(d, limits.qmin);
  const auto qmax = hn::Set(d, limits.qmax);
  hn::Vec<DoubleTag> scale_sums[2 * kParts];
  hn::Vec<DoubleTag> offset_sums[2 * kParts];
  for (std::int64_t k = 0; k < 2 * kParts; ++k) scale_sums[k] = offset_sums[k] = hn::Zero(dd);
  std::int64_t i = 0;
  for (; i + GradientLanes::kCount <= count; i += GradientLanes::kCount) {
    for (std::int64_t part = 0; part < kParts; ++part) {
      const std::int64_t at = i + part * kLanes;
      const auto upstream = hn::LoadU(d, grad + at);
      const auto steps = hn::Sub(hn::Div(hn::LoadU(d, src + at), scales), shift);
      const auto rounded = hn::Round(steps);
      const auto code = hn::Sub(rounded, offsets);
      const auto inside = hn::And(hn::Ge(code, qmin), hn::Le(code, qmax));
      const auto end = hn::Min(high, hn::Max(low, rounded));
      hn::StoreU(hn::IfThenElseZero(inside, upstream), d, dst + at);
      add_lanes(hn::Mul(upstream, hn::IfThenElse(inside, hn::Sub(rounded, steps), end)),
                scale_sums + 2 * part);
      add_lanes(hn::IfThenZeroElse(inside, hn::Mul(upstream, scales)), offset_sums + 2 * part);
    }
  }
  for (std::int64_t k = 0; k < 2 * kParts; ++k) {
    hn::StoreU(scale_sums[k], dd, lanes.scale + k * kLanes / 2);
    hn::StoreU(offset_sums[k], dd, lanes.offset + k * kLanes / 2);
  }
  return i;
}
#endif  // QUANTA_VECTORS

void gradient_row(const float* src, const float* grad, std::int64_t count, float scale,
                  float offset, const math::AffineLimits<float>& limits, float* dst,
                  GradientLanes& lanes) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = gradient_vectors(src, grad, count, scale, offset, limits, dst, lanes);
#endif
  for (; i < count; ++i) {
    const auto one =
        math::affine_quantize_dequantize_gradient(src[i], scale, offset, limits, grad[i]);
    const std::int64_t lane = i % GradientLanes::kCount;
    dst[i] = one.x;
    lanes.scale[lane] += static_cast<double>(one.scale);
    lanes.offset[lane] += static_cast<double>(one.offset);
  }
}

template <AffineOp kOp>
float affine_one(float x, float scale, float offset, const math::AffineLimits<float>& limits) {
  if constexpr (kOp == AffineOp::Quantize) return math::affine_quantize(x, scale, offset, limits);
  if constexpr (kOp == AffineOp::Dequantize) return math::affine_dequantize(x, scale, offset);
  return math::affine_quantize_dequantize(x, scale, offset, limits);
}

template <AffineOp kOp, bool kOneForAll, bool kStreaming>
void affine_run(const float* src, std::int64_t rows, std::int64_t length, const float* scale,
                const float* offset, std::int64_t stride, const math::AffineLimits<float>& limits,
                float* dst) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* from = src + row * length;
    float* to = dst + row * length;
    const float* row_scale = scale + row * stride;
    const float* row_offset = offset + row * stride;
    std::int64_t i = 0;
#if QUANTA_VECTORS
    i = affine_vectors<kOp, kOneForAll, kStreaming>(from, length, row_scale, row_offset, limits,
                                                    to);
#endif
    for (; i < length; ++i) {
      const std::int64_t at = kOneForAll ? 0 : i;
      to[i] = affine_one<kOp>(from[i], row_scale[at], row_offset[at], limits);
    }
  }
#if QUANTA_VECTORS
  if constexpr (kStreaming) hwy::FlushStream();
#endif
}

template <AffineOp kOp>
void affine_run_of(const float* src, std::int64_t rows, std::int64_t length, const float* scale,
                   const float* offset, std::int64_t stride, bool one_for_all,
                   const math::AffineLimits<float>& limits, float* dst, Store store) {
  const bool streaming = store == Store::Streaming;
  if (one_for_all && streaming) {
    affine_run<kOp, true, true>(src, rows, length, scale, offset, stride, limits, dst);
  } else if (one_for_all) {
    affine_run<kOp, true, false>(src, rows, length, scale, offset, stride, limits, dst);
  } else if (streaming) {
    affine_run<kOp, false, true>(src, rows, length, scale, offset, stride, limits, dst);
  } else {
    affine_run<kOp, false, false>(src, rows, length, scale, offset, stride, limits, dst);
  }
}

void affine_rows(AffineOp op, const float* src, std::int64_t rows, std::int64_t length,
                 const float* scale, const float* offset, std::int64_t stride, bool one_for_all,
                 const math::AffineLimits<float>& limits, float* dst, Store store) {
  switch (op) {
    case AffineOp::Quantize:
      return affine_run_of<AffineOp::Quantize>(src, rows, length, scale, offset, stride,
                                               one_for_all, limits, dst, store);
    case AffineOp::Dequantize:
      return affine_run_of<AffineOp::Dequantize>(src, rows, length, scale, offset, stride,
                                                 one_for_all, limits, dst, store);
    case AffineOp::QuantizeDequantize:
      return affine_run_of<AffineOp::QuantizeDequantize>(src, rows, length, scale, offset, stride,
                                                         one_for_all, limits, dst, store);
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(affine_rows);
HWY_EXPORT(gradient_row);

namespace {

template <typename Body>
void parallel_rows(const AffineRows& rows, Body&& body) {
  const std::int64_t length = std::max<std::int64_t>(rows.length(), 1);
  parallel_for(rows.count(), std::max<std::int64_t>(1, kElementGrain / length), body);
}

// Streaming needs rows of whole cache lines.
Store row_store(const AffineRows& rows, const float* dst) {
  constexpr std::int64_t kCacheLine = 16;
  if (rows.length() % kCacheLine != 0) return Store::Cached;
  return store_for(static_cast<std::size_t>(rows.count() * rows.length()) * sizeof(float), dst);
}

// element(index, parameter) for all elements of the rows begin..end.
template <typename Element>
void for_each_element(const AffineRows& rows, std::int64_t begin, std::int64_t end,
                      Element&& element) {
  rows.for_each_run(begin, end, [&](std::int64_t first, std::int64_t count, std::int64_t at) {
    for (std::int64_t row = 0; row < count; ++row) {
      const std::int64_t start = (first + row) * rows.length();
      const std::int64_t parameter = at + row * rows.run_stride();
      for (std::int64_t i = 0; i < rows.length(); ++i) {
        element(start + i, parameter + i * rows.step());
      }
    }
  });
}

template <typename T, typename Step>
void scalar_forward(AffineOp op, const T* src, const AffineRows& rows, const T* scale,
                    const T* offset, const math::AffineLimits<T>& limits, Step step, T* dst) {
  parallel_rows(rows, [&](std::int64_t begin, std::int64_t end) {
    for_each_element(rows, begin, end, [&](std::int64_t i, std::int64_t p) {
      dst[i] = math::affine_value(op, src[i], scale[p], offset[p], limits, step);
    });
  });
}

void vector_forward(AffineOp op, const float* src, const AffineRows& rows, const float* scale,
                    const float* offset, const math::AffineLimits<float>& limits, float* dst) {
  const auto run = HWY_DYNAMIC_DISPATCH(affine_rows);
  const Store store = row_store(rows, dst);
  const std::int64_t length = rows.length();
  if (rows.count() == 1 && rows.step() == 0) {
    parallel_elements(length, [&](std::int64_t begin, std::int64_t end) {
      run(op, src + begin, 1, end - begin, scale, offset, 0, true, limits, dst + begin,
          Store::Cached);
    });
    return;
  }
  parallel_rows(rows, [&](std::int64_t begin, std::int64_t end) {
    rows.for_each_run(begin, end, [&](std::int64_t first, std::int64_t count, std::int64_t at) {
      run(op, src + first * length, count, length, scale + at, offset + at, rows.run_stride(),
          rows.step() == 0, limits, dst + first * length, store);
    });
  });
}

// The rows begin..end of affine_backward, element by element.
template <typename T>
void backward_rows(AffineOp op, const T* src, const T* grad, const AffineRows& rows,
                   std::int64_t begin, std::int64_t end, const T* scale, const T* offset,
                   const math::AffineLimits<T>& limits, T* x_grad, double* scale_sums,
                   double* offset_sums) {
  for_each_element(rows, begin, end, [&](std::int64_t i, std::int64_t p) {
    const auto one = math::affine_gradient(op, src[i], scale[p], offset[p], limits, grad[i]);
    x_grad[i] = one.x;
    scale_sums[p] += static_cast<double>(one.scale);
    offset_sums[p] += static_cast<double>(one.offset);
  });
}

// The gradient of quantize_dequantize in vectors, for rows with one parameter each.
void backward_rows_in_vectors(const float* src, const float* grad, const AffineRows& rows,
                              std::int64_t begin, std::int64_t end, const float* scale,
                              const float* offset, const math::AffineLimits<float>& limits,
                              float* x_grad, double* scale_sums, double* offset_sums) {
  const auto run = HWY_DYNAMIC_DISPATCH(gradient_row);
  rows.for_each_run(begin, end, [&](std::int64_t first, std::int64_t count, std::int64_t at) {
    for (std::int64_t row = 0; row < count; ++row) {
      const std::int64_t start = (first + row) * rows.length();
      const std::int64_t p = at + row * rows.run_stride();
      GradientLanes lanes;
      run(src + start, grad + start, rows.length(), scale[p], offset[p], limits, x_grad + start,
          lanes);
      for (std::int64_t lane = 0; lane < GradientLanes::kCount; ++lane) {
        scale_sums[p] += lanes.scale[lane];
        offset_sums[p] += lanes.offset[lane];
      }
    }
  });
}

}  // namespace

template <>
void affine_forward(AffineOp op, const float* src, const AffineLayout& layout, const float* scale,
                    const float* offset, const math::AffineLimits<float>& limits, AffineStep step,
                    float* dst) {
  const AffineRows rows(layout);
  if (step == AffineStep::Float16) {
    return scalar_forward(op, src, rows, scale, offset, limits, math::Float16Step(), dst);
  }
  if (step == AffineStep::BFloat16) {
    return scalar_forward(op, src, rows, scale, offset, limits, math::BFloat16Step(), dst);
  }
  // Vectors take neighbouring parameters, or one.
  if (limits.rounding != AffineRounding::HalfEven || rows.step() > 1) {
    return scalar_forward(op, src, rows, scale, offset, limits, math::NativeStep(), dst);
  }
  vector_forward(op, src, rows, scale, offset, limits, dst);
}

template <>
void affine_forward(AffineOp op, const double* src, const AffineLayout& layout, const double* scale,
                    const double* offset, const math::AffineLimits<double>& limits, AffineStep,
                    double* dst) {
  scalar_forward(op, src, AffineRows(layout), scale, offset, limits, math::NativeStep(), dst);
}

std::int64_t gradient_parts(const AffineRows& rows, std::int64_t parameters) {
  constexpr std::int64_t kMostSums = std::int64_t{1} << 20;
  constexpr std::int64_t kMostParts = 64;
  return std::clamp<std::int64_t>(kMostSums / std::max<std::int64_t>(parameters, 1), 1,
                                  std::clamp<std::int64_t>(rows.count(), 1, kMostParts));
}

template <typename T>
void affine_backward(AffineOp op, const T* src, const T* grad, const AffineLayout& layout,
                     const T* scale, const T* offset, const math::AffineLimits<T>& limits,
                     T* x_grad, double* scale_grad, double* offset_grad) {
  const AffineRows rows(layout);
  const auto parameters = static_cast<std::size_t>(layout.parameters);
  const std::int64_t parts = gradient_parts(rows, layout.parameters);
  std::vector<double> sums(2 * parameters * static_cast<std::size_t>(parts));
  parallel_for(parts, 1, [&](std::int64_t first_part, std::int64_t end_part) {
    for (std::int64_t part = first_part; part < end_part; ++part) {
      double* of_scale = sums.data() + 2 * parameters * static_cast<std::size_t>(part);
      double* of_offset = of_scale + parameters;
      const std::int64_t begin = rows.count() * part / parts;
      const std::int64_t end = rows.count() * (part + 1) / parts;
      if constexpr (std::is_same_v<T, float>) {
        if (sums_in_lanes(op, true, rows, limits.rounding)) {
          backward_rows_in_vectors(src, grad, rows, begin, end, scale, offset, limits, x_grad,
                                   of_scale, of_offset);
          continue;
        }
      }
      backward_rows(op, src, grad, rows, begin, end, scale, offset, limits, x_grad, of_scale,
                    of_offset);
    }
  });
  std::fill(scale_grad, scale_grad + parameters, 0.0);
  std::fill(offset_grad, offset_grad + parameters, 0.0);
  for (std::int64_t part = 0; part < parts; ++part) {
    const double* of_scale = sums.data() + 2 * parameters * static_cast<std::size_t>(part);
    for (std::size_t p = 0; p < parameters; ++p) {
      scale_grad[p] += of_scale[p];
      offset_grad[p] += of_scale[parameters + p];
    }
  }
}

template void affine_backward(AffineOp, const float*, const float*, const AffineLayout&,
                              const float*, const float*, const math::AffineLimits<float>&, float*,
                              double*, double*);
template void affine_backward(AffineOp, const double*, const double*, const AffineLayout&,
                              const double*, const double*, const math::AffineLimits<double>&,
                              double*, double*, double*);

}  // namespace quanta::cpu
#endif  // HWY_ONCE
