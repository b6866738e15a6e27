#include "quanta/ops/indexing.h"

#include <cstring>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/indexing/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/overlap.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

// The ops with one index or mask; index and index_put_ are in indexing_advanced.cpp.

namespace quanta {
namespace {

void check_positions(std::string_view op, const Tensor& index, std::int64_t low,
                     std::int64_t length) {
  const auto* at = static_cast<const std::int64_t*>(index.data_ptr());
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    QUANTA_CHECK(at[i] >= low && at[i] < length, "{}: index: expected {}..{}, got {}", op, low,
                 length - 1, at[i]);
  }
}

// Negative numbers counted from the front.
Tensor wrapped_positions(const Tensor& positions, std::int64_t length) {
  const Tensor result = positions.clone();
  auto* at = result.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < result.numel(); ++i) at[i] += at[i] < 0 ? length : 0;
  return result;
}

}  // namespace

Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index) {
  constexpr std::string_view kOp = "index_select";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const Tensor& a, const Tensor& b) { return index_select(a, dim, b); }, x, index);
  }
  OpScope scope(kOp);
  detail::check_uniform(kOp, "x", x);
  const std::int64_t d = wrap_dim(dim, x.dim(), kOp);
  const Tensor positions = detail::int64_indices(kOp, "index", index);
  QUANTA_CHECK(positions.dim() <= 1, "{}: index: expected at most 1 dimension, got {}", kOp,
               index.sizes());
  const Tensor source = (x.dim() == 0 ? x.reshape({1}) : x).contiguous();
  const auto axis = static_cast<std::size_t>(d);
  const std::int64_t length = source.sizes()[axis];
  check_positions(kOp, positions, 0, length);
  Dims sizes = source.sizes();
  sizes[axis] = positions.numel();
  const Tensor out = detail::empty_with_parameters_of(x, sizes, MemoryFormat::Contiguous);
  scope.maps(out);
  scope.kernel("copy");
  std::int64_t inner = 1;
  for (std::size_t i = axis + 1; i < sizes.size(); ++i) inner *= sizes[i];
  const std::size_t bytes = static_cast<std::size_t>(inner) * item_size(x.dtype());
  const auto* from = static_cast<const std::byte*>(source.data_ptr());
  auto* to = static_cast<std::byte*>(out.data_ptr());
  const auto* at = static_cast<const std::int64_t*>(positions.data_ptr());
  const std::int64_t count = positions.numel();
  const std::int64_t pieces = bytes == 0 || count == 0 ? 0 : out.numel() / inner;
  parallel_for(pieces,
               std::max<std::int64_t>(1, cpu::kElementGrain / std::max<std::int64_t>(1, inner)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t piece = begin; piece < end; ++piece) {
                   const std::int64_t position = piece / count * length + at[piece % count];
                   std::memcpy(to + static_cast<std::size_t>(piece) * bytes,
                               from + static_cast<std::size_t>(position) * bytes, bytes);
                 }
               });
  const Tensor result = x.dim() == 0 && positions.dim() == 0 ? out.reshape({}) : out;
  if (!autograd::needs_grad(x)) return result;
  return gradients::record_slices(kOp, x, result, d, positions);
}

Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index) {
  constexpr std::string_view kOp = "gather";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const Tensor& a, const Tensor& b) { return gather(a, dim, b); }, x, index);
  }
  OpScope scope(kOp);
  detail::check_uniform(kOp, "x", x);
  const std::int64_t d = wrap_dim(dim, x.dim(), kOp);
  const Tensor positions = detail::int64_indices(kOp, "index", index);
  QUANTA_CHECK(positions.dim() == x.dim(), "{}: index: expected {} dimensions as x has, got {}",
               kOp, x.dim(), index.sizes());
  const Tensor out =
      detail::empty_with_parameters_of(x, positions.sizes(), MemoryFormat::Contiguous);
  if (out.numel() == 0) return out;
  Dims strides = x.strides();
  std::int64_t step = 0;
  if (x.dim() > 0) {
    for (std::int64_t i = 0; i < x.dim(); ++i) {
      QUANTA_CHECK(i == d || positions.size(i) <= x.size(i),
                   "{}: index: expected sizes up to {} but along dim {}, got {}", kOp, x.sizes(), d,
                   index.sizes());
    }
    step = x.strides()[static_cast<std::size_t>(d)];
    strides[static_cast<std::size_t>(d)] = 0;
  }
  check_positions(kOp, positions, 0, x.dim() == 0 ? 1 : x.size(d));
  const auto* at = static_cast<const std::int64_t*>(positions.data_ptr());
  const cpu::StridedLoop<3> loop(out.sizes(), {&out.strides(), &positions.strides(), &strides});
  const auto& inner = loop.inner_strides();
  detail::visit_bits(x.dtype(), [&](auto bits) {
    using T = decltype(bits);
    auto* to = static_cast<T*>(out.data_ptr());
    const auto* from = static_cast<const T*>(x.data_ptr());
    loop.run([&](const std::array<std::int64_t, 3>& offsets, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        to[offsets[0] + i * inner[0]] =
            from[offsets[2] + i * inner[2] + at[offsets[1] + i * inner[1]] * step];
      }
    });
  });
  if (!autograd::needs_grad(x)) return out;
  return gradients::record_taken(kOp, x, out, gradients::positions_along(positions, d, x.sizes()));
}

Tensor take(const Tensor& x, const Tensor& index) {
  constexpr std::string_view kOp = "take";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [](const Tensor& a, const Tensor& b) { return take(a, b); }, x, index);
  }
  OpScope scope(kOp);
  detail::check_uniform(kOp, "x", x);
  const Tensor positions = detail::int64_indices(kOp, "index", index);
  const std::int64_t length = x.numel();
  check_positions(kOp, positions, -length, length);
  const Tensor source = x.contiguous();
  const Tensor out =
      detail::empty_with_parameters_of(x, positions.sizes(), MemoryFormat::Contiguous);
  const auto* at = static_cast<const std::int64_t*>(positions.data_ptr());
  detail::visit_bits(x.dtype(), [&](auto bits) {
    using T = decltype(bits);
    const auto* from = static_cast<const T*>(source.data_ptr());
    auto* to = static_cast<T*>(out.data_ptr());
    cpu::parallel_elements(out.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = from[at[i] < 0 ? at[i] + length : at[i]];
    });
  });
  if (!autograd::needs_grad(x)) return out;
  return gradients::record_taken(kOp, x, out, wrapped_positions(positions, length));
}

namespace {

// `mask` may broadcast.
void fill_masked(const Tensor& x, const Tensor& mask, double value) {
  const Tensor one = detail::empty_with_parameters_of(x, {}, MemoryFormat::Contiguous);
  one.fill_(value);
  const Dims mask_strides = cpu::broadcast_strides(mask, x.sizes());
  const cpu::StridedLoop<2> loop(x.sizes(), {&x.strides(), &mask_strides});
  const auto [x_step, mask_step] = loop.inner_strides();
  detail::visit_bits(x.dtype(), [&, x_step = x_step, mask_step = mask_step](auto bits) {
    using T = decltype(bits);
    const T item = *static_cast<const T*>(one.data_ptr());
    auto* to = static_cast<T*>(x.data_ptr());
    const auto* fill = static_cast<const bool*>(mask.data_ptr());
    loop.run([&](const std::array<std::int64_t, 2>& at, std::int64_t count) {
      T* row = to + at[0];
      const bool* row_mask = fill + at[1];
      if (x_step == 1 && mask_step == 1) {
        for (std::int64_t i = 0; i < count; ++i) {
          row[i] = detail::select_bits(row_mask[i], item, row[i]);
        }
        return;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        row[i * x_step] = detail::select_bits(row_mask[i * mask_step], item, row[i * x_step]);
      }
    });
  });
}

}  // namespace

const Tensor& masked_fill_(const Tensor& x, const Tensor& mask, double value) {
  constexpr std::string_view kOp = "masked_fill_";
  OpScope scope(kOp);
  detail::check_uniform(kOp, "x", x);
  detail::check_defined(kOp, "mask", mask);
  QUANTA_CHECK(mask.dtype() == DType::Bool, "{}: mask: expected Bool, got {}", kOp, mask.dtype());
  QUANTA_CHECK(detail::broadcasts_to(mask.sizes(), x.sizes()),
               "{}: mask: expected sizes that broadcast to {}, got {}", kOp, x.sizes(),
               mask.sizes());
  detail::check_writable(kOp, "x", x);
  const Tensor chosen = detail::memory_meets(x, mask) ? mask.clone() : mask;
  replay::before_write(kOp, x);
  x.storage()->bump_version();
  fill_masked(x, chosen, value);
  if (replay::is_recording() && x.numel() > 0) {
    replay::record(
        {.op = kOp, .inputs = {x, chosen}, .outputs = {x}, .run = [value](const replay::Frame& f) {
           fill_masked(f.out(), f.in(1), value);
         }});
  }
  return x;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  if (replay::is_recording()) {
    return replay::call(
        "masked_fill", [=](const Tensor& a, const Tensor& b) { return masked_fill(a, b, value); },
        x, mask);
  }
  detail::check_uniform("masked_fill", "x", x);
  detail::check_defined("masked_fill", "mask", mask);
  // As in torch the copy has the broadcast sizes, so that the mask may be the larger one.
  const Dims sizes = broadcast_sizes(x.sizes(), mask.sizes(), "masked_fill");
  const Tensor values = detail::off_tape(x);
  const Tensor result =
      sizes == x.sizes() ? values.clone() : values.expand(sizes).clone(MemoryFormat::Contiguous);
  masked_fill_(result, mask, value);
  return autograd::needs_grad(x) ? gradients::record_masked_fill(x, mask, result) : result;
}

Tensor nonzero(const Tensor& x) {
  constexpr std::string_view kOp = "nonzero";
  OpScope scope(kOp);
  detail::check_defined(kOp, "x", x);
  QUANTA_SUPPORTED(!x.is_quantized(), "{}: x: expected a plain tensor (dequantize first), got {}",
                   kOp, x.dtype());
  replay::check_read(kOp, x);  // the result's sizes depend on it
  const Tensor source = x.contiguous();
  std::vector<std::int64_t> found;
  detail::visit_ordered(kOp, x.dtype(), [&](auto element) {
    using T = decltype(element);
    const auto* from = static_cast<const T*>(source.data_ptr());
    for (std::int64_t i = 0; i < source.numel(); ++i) {
      if (from[i] != T{}) found.push_back(i);
    }
  });
  const auto count = static_cast<std::int64_t>(found.size());
  const Tensor out = Tensor::empty({count, x.dim()}, DType::Int64);
  auto* to = static_cast<std::int64_t*>(out.data_ptr());
  for (std::int64_t row = 0; row < count; ++row) {
    std::int64_t rest = found[static_cast<std::size_t>(row)];
    for (std::int64_t d = x.dim() - 1; d >= 0; --d) {
      const std::int64_t size = x.sizes()[static_cast<std::size_t>(d)];
      to[row * x.dim() + d] = rest % size;
      rest /= size;
    }
  }
  return out;
}

}  // namespace quanta
