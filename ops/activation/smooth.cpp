// Activations that are made of log1p and exp, and softsign: float only, as in torch.

#include <algorithm>
#include <cmath>
#include <limits>

#include "quanta/ops/activation.h"
#include "quanta/ops/activation/gradient.h"
#include "quanta/ops/activation/math.h"
#include "quanta/ops/activation/softmax_gradient.h"
#include "quanta/ops/cpu/per_channel.h"
#include "quanta/ops/cpu/softmax.h"
#include "quanta/ops/cpu/unary.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

// Klambauer et al., Self-Normalizing Neural Networks.
constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;

template <typename Function>
Tensor map_checked(std::string_view op, const Tensor& x, Function&& function) {
  OpScope scope(op);
  detail::check_floats(op, "x", x);
  scope.maps(x);
  scope.kernel("scalar");
  return cpu::map_floats(op, x, function);
}

// log(sum of exp) is taken from what is left after the maximum, in double: a line's length does not
// cost digits then.
template <typename T>
void log_softmax_line(const T* src, T* dst, std::int64_t length, std::int64_t step) {
  T largest = -std::numeric_limits<T>::infinity();
  for (std::int64_t i = 0; i < length; ++i) largest = std::max(largest, src[i * step]);
  double sum = 0.0;
  for (std::int64_t i = 0; i < length; ++i) {
    sum += static_cast<double>(std::exp(src[i * step] - largest));
  }
  const T log_sum = static_cast<T>(std::log(sum));
  for (std::int64_t i = 0; i < length; ++i) dst[i * step] = src[i * step] - largest - log_sum;
}

// A line of neighbouring floats in vectors: softmax gives 1 / sum of exp at the maximum.
void log_softmax_row(const float* src, float* dst, std::int64_t length) {
  cpu::softmax_row(src, length, dst);
  const std::int64_t top = std::max_element(src, src + length) - src;
  const float largest = src[top];
  const float log_share = std::log(dst[top]);
  for (std::int64_t i = 0; i < length; ++i) dst[i] = src[i] - largest + log_share;
}
void log_softmax_row(const double* src, double* dst, std::int64_t length) {
  log_softmax_line(src, dst, length, 1);
}

template <typename T>
void log_softmax_lines(const Tensor& x, const Tensor& out, std::int64_t axis) {
  const cpu::ChannelLayout layout(out, axis);
  const auto* src = static_cast<const T*>(x.data_ptr());
  auto* dst = static_cast<T*>(out.data_ptr());
  const std::int64_t grain = std::max<std::int64_t>(1, 2048 / layout.channels);
  parallel_for(layout.outer * layout.inner, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t first =
          line / layout.inner * layout.channels * layout.inner + line % layout.inner;
      if (layout.inner == 1) {
        log_softmax_row(src + first, dst + first, layout.channels);
      } else {
        log_softmax_line(src + first, dst + first, layout.channels, layout.inner);
      }
    }
  });
}

}  // namespace

Tensor softplus(const Tensor& x, double beta, double threshold) {
  QUANTA_CHECK(std::isfinite(beta) && beta != 0.0,
               "softplus: beta: expected a number but 0, got {}", beta);
  Tensor y = map_checked("softplus", x, [=](auto v) {
    using T = decltype(v);
    const T scaled = v * static_cast<T>(beta);
    if (scaled > static_cast<T>(threshold)) return v;
    return std::log1p(std::exp(scaled)) / static_cast<T>(beta);
  });
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_softplus(x, std::move(y), beta, threshold);
}

Tensor mish(const Tensor& x) {
  Tensor y = map_checked("mish", x, [](auto v) { return v * std::tanh(std::log1p(std::exp(v))); });
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_mish(x, std::move(y));
}

Tensor selu(const Tensor& x) {
  Tensor y = map_checked("selu", x, [](auto v) {
    using T = decltype(v);
    return cpu::elu(v, static_cast<T>(kSeluAlpha), static_cast<T>(kSeluScale), T{1});
  });
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_elu("selu", x, std::move(y), kSeluAlpha, kSeluScale, 1.0);
}

Tensor logsigmoid(const Tensor& x) {
  Tensor y = map_checked("logsigmoid", x, [](auto v) {
    using T = decltype(v);
    const T low = v >= T{0} ? T{0} : v;
    return low - std::log1p(std::exp(-std::abs(v)));
  });
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_logsigmoid(x, std::move(y));
}

Tensor softsign(const Tensor& x) {
  Tensor y = map_checked("softsign", x, [](auto v) { return v / (decltype(v){1} + std::abs(v)); });
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_softsign(x, std::move(y));
}

Tensor log_softmax(const Tensor& x, std::int64_t dim) {
  if (replay::is_recording()) {
    return replay::call(
        "log_softmax", [=](const Tensor& t) { return log_softmax(t, dim); }, x);
  }
  OpScope scope("log_softmax");
  detail::check_floats("log_softmax", "x", x);
  scope.maps(x);
  const std::int64_t axis = wrap_dim(dim, x.dim(), "log_softmax");
  const MemoryFormat format = x.suggested_format();
  Tensor out = Tensor::empty(x.sizes(), x.dtype(), format);
  scope.kernel("scalar");
  if (x.dim() == 0) {
    out.fill_(0.0);
  } else if (x.numel() > 0) {
    const Tensor dense = x.contiguous(format);
    detail::visit_floats(x.dtype(),
                         [&](auto zero) { log_softmax_lines<decltype(zero)>(dense, out, axis); });
  }
  if (!autograd::needs_grad(x)) return out;
  return gradients::record_log_softmax(x, std::move(out), axis);
}

}  // namespace quanta
