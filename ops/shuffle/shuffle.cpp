#include "quanta/ops/shuffle.h"

#include <string_view>
#include <utility>

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/shape/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

// All three split dimensions of input and output into factors, which a view can always do, and
// copy from one view to the other.

void check_input(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  QUANTA_SUPPORTED(!is_sub_byte(x.dtype()), "{}: x: expected a whole-byte dtype, got {}", op,
                   x.dtype());
  QUANTA_SUPPORTED(!x.is_quantized() || !is_per_channel(x.impl()->quantizer.scheme),
                   "{}: x: expected a tensor quantized per tensor, got {}", op,
                   x.impl()->quantizer.scheme);
  QUANTA_CHECK(x.dim() >= 3 && x.dim() <= 7, "{}: x: expected 3 to 7 dimensions, got {}", op,
               x.sizes());
}

void check_factor(std::string_view op, std::string_view argument, std::int64_t factor) {
  constexpr std::int64_t kLimit = 65535;  // its square times the channels fits
  QUANTA_CHECK(factor >= 1 && factor <= kLimit, "{}: {}: expected 1..{}, got {}", op, argument,
               kLimit, factor);
}

MemoryFormat format_of(const Tensor& x) {
  return x.dim() <= 5 ? x.suggested_format() : MemoryFormat::Contiguous;
}

// The dimensions before the last three.
Dims leading(const Tensor& x) {
  Dims sizes = x.sizes();
  sizes.resize(sizes.size() - 3);
  return sizes;
}

Dims joined(Dims head, const Dims& tail) {
  for (const std::int64_t size : tail) head.push_back(size);
  return head;
}

// 0, 1, ... for the leading dimensions, then these positions among the rest.
Dims order_after(std::size_t head, const Dims& tail) {
  Dims order;
  for (std::size_t d = 0; d < head; ++d) order.push_back(static_cast<std::int64_t>(d));
  for (const std::int64_t d : tail) order.push_back(static_cast<std::int64_t>(head) + d);
  return order;
}

}  // namespace

Tensor channel_shuffle(const Tensor& x, std::int64_t groups) {
  constexpr std::string_view kOp = "channel_shuffle";
  OpScope scope(kOp);
  check_input(kOp, x);
  check_factor(kOp, "groups", groups);
  const std::int64_t channels = x.sizes()[1];
  QUANTA_CHECK(channels % groups == 0, "{}: groups: expected a divisor of the {} channels, got {}",
               kOp, channels, groups);
  const Tensor result = detail::empty_with_parameters_of(x, x.sizes(), format_of(x));
  if (x.numel() == 0) return result;
  scope.kernel("copy");
  Dims split = x.sizes();
  split[1] = groups;
  split.insert(2, channels / groups);
  Dims shuffled = split;
  std::swap(shuffled[1], shuffled[2]);
  result.view(shuffled).copy_(detail::off_tape(x).view(split).transpose(1, 2));
  if (autograd::needs_grad(x)) return gradients::record_channel_shuffle(x, groups, result);
  return result;
}

Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor) {
  constexpr std::string_view kOp = "pixel_shuffle";
  OpScope scope(kOp);
  check_input(kOp, x);
  check_factor(kOp, "upscale_factor", upscale_factor);
  const std::int64_t r = upscale_factor;
  const std::int64_t channels = x.size(-3);
  const std::int64_t height = x.size(-2);
  const std::int64_t width = x.size(-1);
  QUANTA_CHECK(channels % (r * r) == 0,
               "{}: x: expected a multiple of upscale_factor^2 = {} channels, got {}", kOp, r * r,
               channels);
  const Dims head = leading(x);
  const std::int64_t out = channels / (r * r);
  const Tensor result =
      detail::empty_with_parameters_of(x, joined(head, {out, height * r, width * r}), format_of(x));
  if (x.numel() == 0) return result;
  scope.kernel("copy");
  const Tensor source = detail::off_tape(x)
                            .view(joined(head, {out, r, r, height, width}))
                            .permute(order_after(head.size(), {0, 3, 1, 4, 2}));
  result.view(joined(head, {out, height, r, width, r})).copy_(source);
  if (autograd::needs_grad(x)) return gradients::record_pixel_shuffle(x, r, result);
  return result;
}

Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor) {
  constexpr std::string_view kOp = "pixel_unshuffle";
  OpScope scope(kOp);
  check_input(kOp, x);
  check_factor(kOp, "downscale_factor", downscale_factor);
  const std::int64_t r = downscale_factor;
  const std::int64_t channels = x.size(-3);
  QUANTA_CHECK(x.size(-2) % r == 0 && x.size(-1) % r == 0,
               "{}: x: expected height and width divisible by {}, got {}", kOp, r, x.sizes());
  const std::int64_t height = x.size(-2) / r;
  const std::int64_t width = x.size(-1) / r;
  const Dims head = leading(x);
  const Tensor result = detail::empty_with_parameters_of(
      x, joined(head, {channels * r * r, height, width}), format_of(x));
  if (x.numel() == 0) return result;
  scope.kernel("copy");
  const Tensor source = detail::off_tape(x)
                            .view(joined(head, {channels, height, r, width, r}))
                            .permute(order_after(head.size(), {0, 2, 4, 1, 3}));
  result.view(joined(head, {channels, r, r, height, width})).copy_(source);
  if (autograd::needs_grad(x)) return gradients::record_pixel_unshuffle(x, r, result);
  return result;
}

}  // namespace quanta
