#include "quanta/ops/cuda/gather.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "quanta/runtime/tensor.h"

namespace quanta::cuda {
namespace {

// Neighbours that are both kept and lie behind each other are one axis.
void add_axis(GatherParams& params, const GatherAxis& axis) {
  if (axis.is_kept() && axis.source.output == 1) return;
  if (params.rank > 0) {
    GatherAxis& outer = params.axes[params.rank - 1];
    if (axis.is_kept() && outer.is_kept() && outer.stride == axis.stride * axis.source.input) {
      outer = kept_axis(outer.source.input * axis.source.input, axis.stride);
      return;
    }
  }
  params.axes[params.rank++] = axis;
}

// Items of the widest kind in which the innermost axis, if it is kept, is moved as it lies.
void widen(GatherParams& params) {
  if (params.rank == 0) return;
  GatherAxis& inner = params.axes[params.rank - 1];
  if (!inner.is_kept() || inner.stride != 1) return;
  const auto addresses =
      reinterpret_cast<std::uintptr_t>(params.from) | reinterpret_cast<std::uintptr_t>(params.to);
  for (int bytes = 16; bytes > params.item_bytes; bytes /= 2) {
    const std::int64_t items = bytes / params.item_bytes;
    bool fits =
        inner.source.input % items == 0 && addresses % static_cast<std::uintptr_t>(bytes) == 0;
    for (int d = 0; d + 1 < params.rank; ++d) fits = fits && params.axes[d].stride % items == 0;
    if (!fits) continue;
    inner = kept_axis(inner.source.input / items, 1);
    for (int d = 0; d + 1 < params.rank; ++d) params.axes[d].stride /= items;
    params.count /= items;
    params.item_bytes = bytes;
    return;
  }
}

}  // namespace

GatherAxis kept_axis(std::int64_t size, std::int64_t stride) {
  GatherAxis axis;
  axis.source.input = size;
  axis.source.output = size;
  axis.stride = stride;
  return axis;
}

void gather(const Tensor& x, std::span<const GatherAxis> axes, const Tensor& out,
            std::uint64_t other) {
  static_assert(GatherParams::kMostAxes >= static_cast<int>(Dims::kMaxDims));
  std::array<std::size_t, Dims::kMaxDims> order{};
  for (std::size_t d = 0; d < axes.size(); ++d) order[d] = d;
  std::stable_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(axes.size()),
                   [&](std::size_t a, std::size_t b) {
                     // Dimensions of one element may have any stride.
                     const bool is_single = out.sizes()[a] == 1;
                     if (is_single != (out.sizes()[b] == 1)) return is_single;
                     return out.strides()[a] > out.strides()[b];
                   });
  GatherParams params;
  params.count = out.numel();
  params.item_bytes = static_cast<int>(item_size(out.dtype()));
  params.from = x.device_ptr();
  params.to = out.device_ptr();
  params.other = other;
  for (int bytes = params.item_bytes; bytes < 8; bytes *= 2) {
    params.other |= params.other << (8 * bytes);
  }
  for (std::size_t i = 0; i < axes.size(); ++i) add_axis(params, axes[order[i]]);
  widen(params);
  gather_items(out.device(), params);
}

std::uint64_t bits_of(const Tensor& x, double value) {
  const Tensor one = x.is_quantized() ? QTensor::empty({}, x.dtype(), x.impl()->quantizer)
                                      : Tensor::empty({}, x.dtype());
  one.fill_(value);
  std::uint64_t bits = 0;
  std::memcpy(&bits, one.data_ptr(), one.nbytes());
  return bits;
}

}  // namespace quanta::cuda
