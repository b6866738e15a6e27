#pragma once

// Private: what the operations of this family ask of their arguments.

#include <cmath>
#include <string_view>
#include <vector>

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/norm/call.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quantizer.h"
#include "quanta/runtime/tensor.h"

namespace quanta::norm {

inline void check_eps(std::string_view op, double eps) {
  QUANTA_CHECK(std::isfinite(eps) && eps >= 0.0, "{}: eps: expected a finite number >= 0, got {}",
               op, eps);
}

/// A parameter that may be left out.
inline void check_parameter(std::string_view op, std::string_view name, const Tensor& values,
                            DType dtype, const Dims& sizes) {
  QUANTA_CHECK(!values.defined() || (values.dtype() == dtype && values.sizes() == sizes),
               "{}: {}: expected {} {}, got {} {}", op, name, dtype, sizes, values.dtype(),
               values.sizes());
}

inline void check_required(std::string_view op, std::string_view name, const Tensor& values,
                           DType dtype, const Dims& sizes) {
  QUANTA_CHECK(values.defined(), "{}: {}: expected {} {}, got an undefined tensor", op, name, dtype,
               sizes);
  check_parameter(op, name, values, dtype, sizes);
}

inline void check_floats_to_normalize(std::string_view op, const Tensor& x) {
  detail::check_floats(op, "x", x);
  QUANTA_CHECK(x.dim() >= 2, "{}: x: expected at least 2 dimensions, got {}", op, x.sizes());
}

/// The order in which a normalization works and answers.
inline MemoryFormat format_of(const Tensor& x) {
  return x.dim() >= 3 && x.dim() <= 5 ? x.suggested_format() : MemoryFormat::Contiguous;
}

enum class Clamp : bool { No, ReLU };

/// How values become the codes of `result`.
inline NormOutput output_of(const Tensor& result, Clamp clamp) {
  const Quantizer& quantizer = result.impl()->quantizer;
  const IntRange range = quant_range(result.dtype());
  NormOutput output;
  output.zero_point = static_cast<std::int32_t>(quantizer.zero_point);
  output.min = clamp == Clamp::ReLU ? output.zero_point : static_cast<std::int32_t>(range.min);
  output.max = static_cast<std::int32_t>(range.max);
  output.inv_scale = 1.0F / static_cast<float>(quantizer.scale);
  return output;
}

/// The numbers of a dense parameter, or as many of `fallback`.
template <typename T>
class Numbers {
 public:
  Numbers(const Tensor& values, std::int64_t count, T fallback) {
    if (values.defined()) {
      data_ = static_cast<const T*>(values.data_ptr());
    } else {
      fallback_.assign(static_cast<std::size_t>(count), fallback);
      data_ = fallback_.data();
    }
  }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  const T* data() const noexcept { return data_; }

 private:
  std::vector<T> fallback_;
  const T* data_ = nullptr;
};

}  // namespace quanta::norm
