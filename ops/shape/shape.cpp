#include "quanta/ops/shape.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/shape/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

constexpr std::size_t at(std::int64_t d) { return static_cast<std::size_t>(d); }

// `dim` of a tensor that has dimensions, counted from the front.
std::int64_t checked_dim(std::string_view op, const Tensor& x, std::int64_t dim) {
  detail::check_defined(op, "x", x);
  QUANTA_CHECK(x.dim() > 0, "{}: x: expected a tensor with dimensions, got a 0-d one", op);
  return wrap_dim(dim, x.dim(), op);
}

std::vector<Tensor> parts_of(const Tensor& x, std::int64_t dim, std::int64_t part) {
  std::vector<Tensor> parts;
  const std::int64_t length = x.sizes()[at(dim)];
  // One empty part of an empty dimension, as in torch.
  std::int64_t start = 0;
  do {
    parts.push_back(x.narrow(dim, start, std::min(part, length - start)));
    start += part;
  } while (start < length);
  return parts;
}

// x once, then each dimension's part over and over along it, the last one first.
void fill_repeated(const Tensor& x, const Dims& repeats, const Tensor& out) {
  Dims whole = x.sizes();
  while (whole.size() < repeats.size()) whole.insert(0, 1);
  Tensor target = out;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    target = target.narrow(static_cast<std::int64_t>(d), 0, whole[d]);
  }
  target.copy_(x.reshape(whole));
  for (std::size_t d = whole.size(); d-- > 0;) {
    const auto dim = static_cast<std::int64_t>(d);
    Tensor line = out;
    for (std::size_t outer = 0; outer < d; ++outer) {
      line = line.narrow(static_cast<std::int64_t>(outer), 0, whole[outer]);
    }
    const Tensor source = line.narrow(dim, 0, whole[d]);
    for (std::int64_t i = 1; i < repeats[d]; ++i) {
      line.narrow(dim, i * whole[d], whole[d]).copy_(source);
    }
  }
}

}  // namespace

Tensor stack(std::span<const Tensor> tensors, std::int64_t dim) {
  constexpr std::string_view kOp = "stack";
  QUANTA_CHECK(!tensors.empty(), "{}: tensors: expected at least one, got none", kOp);
  std::vector<Tensor> expanded;
  expanded.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    detail::check_uniform(kOp, fmt::format("tensors[{}]", i), tensor);
    QUANTA_CHECK(tensor.dtype() == tensors[0].dtype(),
                 "{}: tensors[{}]: expected {} as the first has, got {}", kOp, i,
                 tensors[0].dtype(), tensor.dtype());
    QUANTA_CHECK(tensor.sizes() == tensors[0].sizes(),
                 "{}: tensors[{}]: expected {} as the first has, got {}", kOp, i,
                 tensors[0].sizes(), tensor.sizes());
    const std::int64_t d = wrap_dim(dim, tensor.dim() + 1, kOp);
    expanded.push_back(tensor.unsqueeze(d));
  }
  return cat(expanded, wrap_dim(dim, tensors[0].dim() + 1, kOp));
}

std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim) {
  constexpr std::string_view kOp = "chunk";
  const std::int64_t d = checked_dim(kOp, x, dim);
  QUANTA_CHECK(chunks > 0, "{}: chunks: expected > 0, got {}", kOp, chunks);
  const std::int64_t length = x.sizes()[at(d)];
  if (length == 0) return std::vector<Tensor>(static_cast<std::size_t>(chunks), x);
  return parts_of(x, d, length / chunks + (length % chunks != 0 ? 1 : 0));
}

std::vector<Tensor> split(const Tensor& x, std::int64_t split_size, std::int64_t dim) {
  constexpr std::string_view kOp = "split";
  const std::int64_t d = checked_dim(kOp, x, dim);
  const std::int64_t length = x.sizes()[at(d)];
  QUANTA_CHECK(split_size > 0 || (split_size == 0 && length == 0),
               "{}: split_size: expected > 0, got {}", kOp, split_size);
  return parts_of(x, d, std::clamp<std::int64_t>(split_size, 1, std::max<std::int64_t>(1, length)));
}

std::vector<Tensor> split_with_sizes(const Tensor& x, const std::vector<std::int64_t>& split_sizes,
                                     std::int64_t dim) {
  constexpr std::string_view kOp = "split_with_sizes";
  const std::int64_t d = checked_dim(kOp, x, dim);
  std::int64_t left = x.sizes()[at(d)];
  for (const std::int64_t size : split_sizes) {
    QUANTA_CHECK(size >= 0 && size <= left,
                 "{}: split_sizes: expected sizes >= 0 that add up to {}, got {}", kOp,
                 x.sizes()[at(d)], fmt::join(split_sizes, ", "));
    left -= size;
  }
  QUANTA_CHECK(left == 0, "{}: split_sizes: expected sizes >= 0 that add up to {}, got {}", kOp,
               x.sizes()[at(d)], fmt::join(split_sizes, ", "));
  std::vector<Tensor> parts;
  std::int64_t start = 0;
  for (const std::int64_t size : split_sizes) {
    parts.push_back(x.narrow(d, start, size));
    start += size;
  }
  return parts;
}

std::vector<Tensor> unbind(const Tensor& x, std::int64_t dim) {
  const std::int64_t d = checked_dim("unbind", x, dim);
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < x.sizes()[at(d)]; ++i) parts.push_back(x.select(d, i));
  return parts;
}

Tensor unfold(const Tensor& x, std::int64_t dimension, std::int64_t size, std::int64_t step) {
  constexpr std::string_view kOp = "unfold";
  detail::check_uniform(kOp, "x", x);
  const std::int64_t d = wrap_dim(dimension, x.dim(), kOp, "dimension");
  const std::int64_t length = x.dim() == 0 ? 1 : x.sizes()[at(d)];
  QUANTA_CHECK(size >= 0 && size <= length, "{}: size: expected 0..{}, got {}", kOp, length, size);
  QUANTA_CHECK(step > 0, "{}: step: expected > 0, got {}", kOp, step);
  Dims sizes = x.sizes();
  Dims strides = x.strides();
  sizes.push_back(size);
  strides.push_back(x.dim() == 0 ? 1 : x.strides()[at(d)]);
  if (x.dim() > 0) {
    sizes[at(d)] = (length - size) / step + 1;
    strides[at(d)] *= sizes[at(d)] > 1 ? step : 1;
  }
  if (!autograd::needs_grad(x)) return x.as_strided(sizes, strides, x.storage_offset());
  return gradients::record_unfold(x, d, step,
                                  x.detach().as_strided(sizes, strides, x.storage_offset()));
}

Tensor flip(const Tensor& x, const Dims& dims) {
  constexpr std::string_view kOp = "flip";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const Tensor& t) { return flip(t, dims); }, x);
  }
  OpScope scope(kOp);
  detail::check_uniform(kOp, "x", x);
  Dims strides = x.strides();
  std::int64_t start = 0;
  std::array<bool, Dims::kMaxDims> flipped{};
  for (const std::int64_t dim : dims) {
    const std::size_t d = at(wrap_dim(dim, x.dim(), kOp, "dims"));
    QUANTA_CHECK(!flipped[d], "{}: dims: expected each dimension once, got {}", kOp, dims);
    flipped[d] = true;
    if (x.dim() == 0) continue;
    start += (x.sizes()[d] - 1) * x.strides()[d];
    strides[d] = -x.strides()[d];
  }
  const Tensor out = detail::empty_with_parameters_of(x, x.sizes(), x.suggested_format());
  scope.kernel("copy");
  const cpu::StridedLoop<2> loop(x.sizes(), {&out.strides(), &strides});
  const auto& step = loop.inner_strides();
  detail::visit_bits(x.dtype(), [&](auto bits) {
    using T = decltype(bits);
    const auto* from = static_cast<const T*>(x.data_ptr()) + start;
    auto* to = static_cast<T*>(out.data_ptr());
    loop.run([&](const std::array<std::int64_t, 2>& offsets, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        to[offsets[0] + i * step[0]] = from[offsets[1] + i * step[1]];
      }
    });
  });
  if (autograd::needs_grad(x)) return gradients::record_flip(x, dims, out);
  return out;
}

Tensor repeat(const Tensor& x, const Dims& repeats) {
  constexpr std::string_view kOp = "repeat";
  OpScope scope(kOp);
  detail::check_uniform(kOp, "x", x);
  QUANTA_CHECK(repeats.size() >= x.sizes().size(),
               "{}: repeats: expected at least {} numbers, got {}", kOp, x.dim(), repeats);
  Dims sizes = repeats;
  const std::size_t added = repeats.size() - x.sizes().size();
  for (std::size_t d = 0; d < repeats.size(); ++d) {
    QUANTA_CHECK(repeats[d] >= 0, "{}: repeats: expected numbers >= 0, got {}", kOp, repeats);
    const std::int64_t size = d < added ? 1 : x.sizes()[d - added];
    QUANTA_CHECK(size == 0 || repeats[d] <= std::numeric_limits<std::int64_t>::max() / size,
                 "{}: repeats: expected a result that fits memory, got {}", kOp, repeats);
    sizes[d] *= size;
  }
  checked_numel(sizes);
  const Tensor out = detail::empty_with_parameters_of(x, sizes, MemoryFormat::Contiguous);
  scope.kernel("copy");
  if (out.numel() > 0) fill_repeated(detail::off_tape(x), repeats, out);
  if (autograd::needs_grad(x)) return gradients::record_repeat(x, repeats, out);
  return out;
}

const Tensor& resize_(const Tensor& x, const Dims& sizes) {
  constexpr std::string_view kOp = "resize_";
  detail::check_uniform(kOp, "x", x);
  autograd::require_changeable(kOp, x);
  const std::int64_t numel = checked_numel(sizes);
  if (sizes == x.sizes()) return x;
  TensorImpl& impl = *x.impl();
  const auto bytes = storage_bytes(x.dtype(), numel);
  const auto offset = static_cast<std::size_t>(impl.data - impl.storage->data());
  if (numel > 0 && offset + bytes > impl.storage->bytes()) {
    IntrusivePtr<Storage> storage(new Storage(offset + bytes, x.device()));
    std::memcpy(storage->data(), impl.storage->data(), impl.storage->bytes());
    impl.data = storage->data() + offset;
    impl.storage = std::move(storage);
  }
  impl.storage->bump_version();
  impl.sizes = sizes;
  impl.strides = contiguous_strides(sizes);
  impl.numel = numel;
  return x;
}

}  // namespace quanta
