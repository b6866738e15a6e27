#include "quanta/ops/arithmetic.h"

#include <cmath>
#include <string_view>

#include "quanta/ops/elementwise.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

// The number as a tensor of the dtype of x, checked.
Tensor number_like(std::string_view op, double value, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  QUANTA_SUPPORTED(!x.is_quantized(),
                   "{}: x: expected a plain tensor, got a quantized one ({}): dequantize first", op,
                   x.dtype());
  QUANTA_CHECK(x.is_floating_point() || value == std::nearbyint(value),
               "{}: value: expected a whole number for {}, got {}", op, x.dtype(), value);
  return Tensor::scalar(value, x.dtype());
}

// The result of a binary op, calculated once x may be changed, into the elements of x.
template <typename Calculate>
const Tensor& change(std::string_view op, const Tensor& x, Calculate&& calculate) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  autograd::require_changeable(op, x);
  const Tensor result = calculate();
  QUANTA_CHECK(result.sizes() == x.sizes(),
               "{}: other: expected sizes that broadcast to {}, got a result of {}", op, x.sizes(),
               result.sizes());
  return x.copy_(result);
}

}  // namespace

Tensor operator+(const Tensor& x, double value) { return add_scalar(x, value); }
Tensor operator+(double value, const Tensor& x) { return add_scalar(x, value); }
Tensor operator-(const Tensor& x, double value) { return add_scalar(x, -value); }
Tensor operator-(double value, const Tensor& x) { return sub(number_like("sub", value, x), x); }
Tensor operator*(const Tensor& x, double value) { return mul_scalar(x, value); }
Tensor operator*(double value, const Tensor& x) { return mul_scalar(x, value); }
Tensor operator/(const Tensor& x, double value) { return div(x, number_like("div", value, x)); }
Tensor operator/(double value, const Tensor& x) { return div(number_like("div", value, x), x); }
Tensor operator-(const Tensor& x) { return neg(x); }

const Tensor& operator+=(const Tensor& x, const Tensor& other) {
  return change("operator+=", x, [&] { return x + other; });
}
const Tensor& operator-=(const Tensor& x, const Tensor& other) {
  return change("operator-=", x, [&] { return x - other; });
}
const Tensor& operator*=(const Tensor& x, const Tensor& other) {
  return change("operator*=", x, [&] { return x * other; });
}
const Tensor& operator/=(const Tensor& x, const Tensor& other) {
  return change("operator/=", x, [&] { return x / other; });
}
const Tensor& operator+=(const Tensor& x, double value) {
  return change("operator+=", x, [&] { return x + value; });
}
const Tensor& operator-=(const Tensor& x, double value) {
  return change("operator-=", x, [&] { return x - value; });
}
const Tensor& operator*=(const Tensor& x, double value) {
  return change("operator*=", x, [&] { return x * value; });
}
const Tensor& operator/=(const Tensor& x, double value) {
  return change("operator/=", x, [&] { return x / value; });
}

}  // namespace quanta
