#include "quanta/ops/interpolate/gradient.h"

#include <algorithm>
#include <utility>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/runtime/parallel.h"

namespace quanta::interpolation {
namespace {

using Taps = std::vector<cpu::LinearTap>;

enum class Direction : bool { Forward, Backward };

// [outer, from, inner] to [outer, to, inner]: blends, or adds each number to where it came from.
template <typename T>
void resample_line(Direction direction, const Taps& taps, const T* src, T* dst,
                   std::int64_t inner) {
  for (std::size_t o = 0; o < taps.size(); ++o) {
    const auto low = static_cast<T>(taps[o].weight_low);
    const auto high = static_cast<T>(taps[o].weight_high);
    const std::int64_t at = static_cast<std::int64_t>(o) * inner;
    const std::int64_t first = taps[o].low * inner;
    const std::int64_t second = taps[o].high * inner;
    for (std::int64_t i = 0; i < inner; ++i) {
      if (direction == Direction::Forward) {
        dst[at + i] = low * src[first + i] + high * src[second + i];
      } else {
        dst[first + i] += low * src[at + i];
        dst[second + i] += high * src[at + i];
      }
    }
  }
}

Tensor resample_axis(Direction direction, const Tensor& x, std::size_t axis, std::int64_t size,
                     const Taps& taps) {
  Dims sizes = x.sizes();
  const std::int64_t before = sizes[axis];
  sizes[axis] = size;
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (std::size_t d = 0; d < axis; ++d) outer *= sizes[d];
  for (std::size_t d = axis + 1; d < sizes.size(); ++d) inner *= sizes[d];
  const Tensor out = Tensor::zeros(sizes, x.dtype());
  const std::int64_t work = std::max<std::int64_t>(1, static_cast<std::int64_t>(taps.size())) *
                            std::max<std::int64_t>(1, inner);
  detail::visit_floats(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto* src = static_cast<const T*>(x.data_ptr());
    auto* dst = static_cast<T*>(out.data_ptr());
    parallel_for(outer, std::max<std::int64_t>(1, cpu::kElementGrain / work),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     resample_line(direction, taps, src + i * before * inner,
                                   dst + i * size * inner, inner);
                   }
                 });
  });
  return out;
}

// Width first, as the fast kernels do; backward the other way round.
Tensor resample(Direction direction, const Tensor& x, const cpu::LinearTables& tables,
                const Dims& sizes) {
  Tensor result = x.contiguous();
  const std::size_t spatial = sizes.size() - 2;
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::size_t d = direction == Direction::Forward ? spatial - 1 - i : i;
    result = resample_axis(direction, result, d + 2, sizes[d + 2], tables[3 - spatial + d]);
  }
  return result;
}

}  // namespace

Taps copying_taps(const std::vector<std::int64_t>& sources) {
  Taps taps;
  taps.reserve(sources.size());
  for (const std::int64_t source : sources) taps.push_back({source, source, 1.0F, 0.0F});
  return taps;
}

Tensor blend(const Tensor& x, const cpu::LinearTables& tables, const Dims& sizes) {
  return resample(Direction::Forward, x, tables, sizes);
}

Tensor blend_gradient(const Tensor& gradient, const cpu::LinearTables& tables, const Dims& sizes) {
  return resample(Direction::Backward, gradient, tables, sizes);
}

}  // namespace quanta::interpolation
