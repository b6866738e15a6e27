#include "quanta/ops/activation/cpu_clamp.h"

#include <memory>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cpu {
namespace {

void clamp_row(const float* src, float* dst, std::int64_t count, const ClampBounds& bounds,
               Store store) {
  float_clamp(src, dst, count, static_cast<float>(bounds.low), static_cast<float>(bounds.high),
              store);
}
void clamp_row(const double* src, double* dst, std::int64_t count, const ClampBounds& bounds,
               Store) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double at_least = src[i] < bounds.low ? bounds.low : src[i];
    dst[i] = at_least > bounds.high ? bounds.high : at_least;
  }
}
void clamp_row(const std::uint8_t* src, std::uint8_t* dst, std::int64_t count,
               const ClampBounds& bounds, Store store) {
  clamp_codes(src, dst, count, static_cast<std::uint8_t>(bounds.low_code),
              static_cast<std::uint8_t>(bounds.high_code), store);
}
void clamp_row(const std::int8_t* src, std::int8_t* dst, std::int64_t count,
               const ClampBounds& bounds, Store store) {
  clamp_codes(src, dst, count, static_cast<std::int8_t>(bounds.low_code),
              static_cast<std::int8_t>(bounds.high_code), store);
}
void clamp_row(const std::int32_t* src, std::int32_t* dst, std::int64_t count,
               const ClampBounds& bounds, Store) {
  for (std::int64_t i = 0; i < count; ++i) {
    dst[i] = math::clamp(src[i], bounds.low_code, bounds.high_code);
  }
}

template <typename T>
void clamp_dense(const Tensor& x, const Tensor& out, const ClampBounds& bounds, Store store) {
  const auto* src = static_cast<const T*>(x.data_ptr());
  auto* dst = static_cast<T*>(out.data_ptr());
  parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    clamp_row(src + begin, dst + begin, end - begin, bounds, store);
  });
}

template <typename T>
void clamp_strided(const Tensor& x, const ClampBounds& bounds) {
  auto* data = static_cast<T*>(x.data_ptr());
  const StridedLoop<1> loop(x.sizes(), {&x.strides()});
  const std::int64_t step = loop.inner_strides()[0];
  loop.run([&](const std::array<std::int64_t, 1>& offsets, std::int64_t count) {
    T* row = data + offsets[0];
    if (step == 1) {
      clamp_row(row, row, count, bounds, Store::Cached);
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      clamp_row(row + i * step, row + i * step, 1, bounds, Store::Cached);
    }
  });
}

// visitor(T{}) with the type of the elements.
template <typename Visitor>
void visit_elements(DType dtype, Visitor&& visitor) {
  if (dtype == DType::QUInt8) return visitor(std::uint8_t{});
  if (dtype == DType::QInt8) return visitor(std::int8_t{});
  if (dtype == DType::QInt32) return visitor(std::int32_t{});
  if (dtype == DType::Float64) return visitor(double{});
  visitor(float{});
}

}  // namespace

std::shared_ptr<const CodeTable> clamp_table(DType dtype, const ClampBounds& bounds) {
  if (dtype != DType::QUInt8 && dtype != DType::QInt8) return nullptr;
  auto table = std::make_shared<CodeTable>();
  for (std::int32_t bits = 0; bits < 256; ++bits) {
    const std::int32_t code = dtype == DType::QInt8 && bits > 127 ? bits - 256 : bits;
    (*table)[static_cast<std::size_t>(bits)] =
        static_cast<std::uint8_t>(math::clamp(code, bounds.low_code, bounds.high_code));
  }
  return table;
}

void clamp(const Tensor& x, const Tensor& out, const ClampBounds& bounds) {
  visit_elements(x.dtype(), [&](auto element) {
    clamp_dense<decltype(element)>(x, out, bounds, store_for(out.nbytes(), out.data_ptr()));
  });
}

void clamp_in_place(const Tensor& x, const ClampBounds& bounds) {
  visit_elements(x.dtype(), [&](auto element) {
    using T = decltype(element);
    if (x.is_dense()) {
      // Written lines are read anyway, so there is nothing for streaming to save.
      clamp_dense<T>(x, x, bounds, Store::Cached);
    } else {
      clamp_strided<T>(x, bounds);
    }
  });
}

}  // namespace quanta::cpu
