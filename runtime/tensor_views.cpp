#include <algorithm>
#include <optional>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/require_tensor.h"
#include "quanta/runtime/tensor.h"

namespace quanta {
namespace {

constexpr std::size_t index(std::int64_t d) { return static_cast<std::size_t>(d); }

bool is_channel_quantized(const Tensor& x) {
  return x.is_quantized() && is_per_channel(x.impl()->quantizer.scheme);
}

// A new handle over the storage of `x`.
Tensor make_view(const Tensor& x, const Dims& sizes, const Dims& strides, std::int64_t offset,
                 const Quantizer& quantizer) {
  IntrusivePtr<TensorImpl> impl(new TensorImpl);
  impl->storage = x.storage();
  impl->data = x.impl()->data + offset * static_cast<std::int64_t>(item_size(x.dtype()));
  impl->sizes = sizes;
  impl->strides = strides;
  impl->numel = product(sizes);
  impl->dtype = x.dtype();
  impl->device = x.device();
  impl->quantizer = quantizer;
  return Tensor(std::move(impl));
}

void require_whole_bytes(const Tensor& x, std::string_view op) {
  QUANTA_CHECK(!is_sub_byte(x.dtype()), "{}: x: expected whole-byte elements, got {}", op,
               x.dtype());
}

// Replaces a single -1 and checks the element count.
Dims resolve_sizes(const Tensor& x, const Dims& wanted, std::string_view op) {
  Dims sizes = wanted;
  std::int64_t known = 1;
  std::optional<std::size_t> unknown;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == -1) {
      QUANTA_CHECK(!unknown, "{}: sizes: expected at most one -1, got {}", op, wanted);
      unknown = d;
    } else {
      QUANTA_CHECK(sizes[d] >= 0, "{}: sizes: expected numbers >= 0 or -1, got {}", op, wanted);
    }
  }
  if (unknown) {
    sizes[*unknown] = 1;
    known = checked_numel(sizes);
    QUANTA_CHECK(known != 0 && x.numel() % known == 0, "{}: sizes: expected {} elements, got {}",
                 op, x.numel(), wanted);
    sizes[*unknown] = x.numel() / known;
  }
  QUANTA_CHECK(checked_numel(sizes) == x.numel(), "{}: sizes: expected {} elements, got {}", op,
               x.numel(), wanted);
  return sizes;
}

// Strides that show the same elements under other sizes, if there are any.
std::optional<Dims> view_strides(const Tensor& x, const Dims& sizes) {
  if (x.numel() == 0 || x.is_contiguous()) return contiguous_strides(sizes);
  Dims strides;
  strides.resize(sizes.size(), 1);
  auto d = static_cast<std::int64_t>(sizes.size()) - 1;
  // Blocks of old dimensions that lie in memory as one; new dimensions must not straddle two.
  std::int64_t block_stride = x.strides().back();
  std::int64_t block_numel = 1;
  std::int64_t covered = 1;
  for (auto old = x.dim() - 1; old >= 0; --old) {
    block_numel *= x.sizes()[index(old)];
    const bool ends = old == 0 || (x.sizes()[index(old - 1)] != 1 &&
                                   x.strides()[index(old - 1)] != block_numel * block_stride);
    if (!ends) continue;
    while (d >= 0 && (covered < block_numel || sizes[index(d)] == 1)) {
      strides[index(d)] = covered * block_stride;
      covered *= sizes[index(d)];
      --d;
    }
    if (covered != block_numel) return std::nullopt;
    if (old > 0) {
      block_stride = x.strides()[index(old - 1)];
      block_numel = 1;
      covered = 1;
    }
  }
  return d == -1 ? std::optional(strides) : std::nullopt;
}

// Where the channel axis goes: same size, same number of elements before it.
std::int64_t axis_after_view(const Tensor& x, const Dims& sizes, std::string_view op) {
  const std::int64_t axis = x.impl()->quantizer.axis;
  const auto before = [](const Dims& dims, std::int64_t d) {
    std::int64_t result = 1;
    for (std::int64_t i = 0; i < d; ++i) result *= dims[index(i)];
    return result;
  };
  const std::int64_t length = x.sizes()[index(axis)];
  const std::int64_t outer = before(x.sizes(), axis);
  const auto matches = [&](std::int64_t d) {
    return d < static_cast<std::int64_t>(sizes.size()) && sizes[index(d)] == length &&
           before(sizes, d) == outer;
  };
  if (matches(axis)) return axis;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(sizes.size()); ++d) {
    if (matches(d)) return d;
  }
  throw ArgumentError(with_module_path(fmt::format(
      "{}: sizes: expected to keep the channel axis {} of {}, got {} (dequantize first)", op, axis,
      x.sizes(), sizes)));
}

Quantizer quantizer_after_view(const Tensor& x, const Dims& sizes, std::string_view op) {
  Quantizer quantizer = x.impl()->quantizer;
  if (is_channel_quantized(x)) quantizer.axis = axis_after_view(x, sizes, op);
  return quantizer;
}

// The parameters of channels start, start + step, ... (`count` of them).
Quantizer slice_channels(const Quantizer& quantizer, std::int64_t start, std::int64_t count,
                         std::int64_t step) {
  auto channel = std::make_shared<ChannelQParams>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t c = index(start + i * step);
    channel->scales.push_back(quantizer.channel->scales[c]);
    if (quantizer.scheme == QScheme::PerChannelAffineFloatQParams) {
      channel->float_zero_points.push_back(quantizer.channel->float_zero_points[c]);
    } else {
      channel->zero_points.push_back(quantizer.channel->zero_points[c]);
    }
  }
  Quantizer result = quantizer;
  result.channel = std::move(channel);
  return result;
}

// One channel's parameters as a per-tensor quantizer.
Quantizer single_channel(const Quantizer& quantizer, std::int64_t channel, std::string_view op) {
  QUANTA_SUPPORTED(quantizer.scheme == QScheme::PerChannelAffine,
                   "{}: x: expected integer zero points to take out one channel, got {}", op,
                   quantizer.scheme);
  return Quantizer::per_tensor(quantizer.channel->scales[index(channel)],
                               quantizer.channel->zero_points[index(channel)]);
}

// The tape's part of a view of the same elements in the same order.
Tensor recorded_reshape(std::string_view op, const Tensor& x, Tensor view) {
  if (!autograd::needs_grad(x)) return view;
  return autograd::record(op, {x}, std::move(view), {},
                          [sizes = x.sizes()](const autograd::BackwardContext& backward) {
                            return std::vector<Tensor>{backward.grad().reshape(sizes)};
                          });
}

// The tape's part of a view of some elements: `again` takes the same view of another tensor of
// x's sizes.
template <typename Again>
Tensor recorded_part(std::string_view op, const Tensor& x, Tensor view, Again again) {
  if (!autograd::needs_grad(x)) return view;
  return autograd::record(
      op, {x}, std::move(view), {},
      [sizes = x.sizes(), dtype = x.dtype(), again](const autograd::BackwardContext& backward) {
        const Tensor gradient =
            Tensor::empty(sizes, dtype, MemoryFormat::Contiguous, backward.grad().device());
        gradient.fill_(0.0);
        again(gradient).copy_(backward.grad());
        return std::vector<Tensor>{gradient};
      });
}

// A view where the strides allow it, else a contiguous copy.
Tensor reshaped(const Tensor& x, const Dims& wanted, std::string_view op) {
  const Dims sizes = resolve_sizes(x, wanted, op);
  const std::optional<Dims> strides = view_strides(x, sizes);
  const Quantizer quantizer = quantizer_after_view(x, sizes, op);
  const Tensor view = strides ? make_view(x, sizes, *strides, 0, quantizer)
                              : make_view(x.detach().clone(MemoryFormat::Contiguous), sizes,
                                          contiguous_strides(sizes), 0, quantizer);
  return recorded_reshape(op, x, view);
}

}  // namespace

Tensor Tensor::view(const Dims& wanted) const {
  detail::require_tensor("view", *this);
  const Dims sizes = resolve_sizes(*this, wanted, "view");
  const std::optional<Dims> strides = view_strides(*this, sizes);
  QUANTA_CHECK(strides.has_value(),
               "view: sizes: expected sizes that fit the strides {} of {} (use reshape), got {}",
               this->strides(), this->sizes(), wanted);
  return recorded_reshape(
      "view", *this,
      make_view(*this, sizes, *strides, 0, quantizer_after_view(*this, sizes, "view")));
}

Tensor Tensor::reshape(const Dims& wanted) const {
  detail::require_tensor("reshape", *this);
  return reshaped(*this, wanted, "reshape");
}

Tensor Tensor::flatten(std::int64_t start_dim, std::int64_t end_dim) const {
  detail::require_tensor("flatten", *this);
  if (dim() == 0) return reshaped(*this, {1}, "flatten");
  const std::int64_t start = wrap_dim(start_dim, dim(), "flatten", "start_dim");
  const std::int64_t end = wrap_dim(end_dim, dim(), "flatten", "end_dim");
  QUANTA_CHECK(start <= end, "flatten: start_dim: expected at most end_dim {}, got {}", end, start);
  Dims sizes;
  std::int64_t merged = 1;
  for (std::int64_t d = 0; d < dim(); ++d) {
    if (d < start || d > end) {
      sizes.push_back(this->sizes()[index(d)]);
    } else {
      merged *= this->sizes()[index(d)];
      if (d == end) sizes.push_back(merged);
    }
  }
  return reshaped(*this, sizes, "flatten");
}

Tensor Tensor::permute(const Dims& order) const {
  detail::require_tensor("permute", *this);
  require_whole_bytes(*this, "permute");
  QUANTA_CHECK(order.size() == sizes().size(), "permute: order: expected {} dimensions, got {}",
               dim(), order);
  Dims new_sizes;
  Dims new_strides;
  Quantizer quantizer = impl_->quantizer;
  std::array<bool, Dims::kMaxDims> seen{};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int64_t d = wrap_dim(order[i], dim(), "permute", "order");
    QUANTA_CHECK(!seen[index(d)], "permute: order: expected each dimension once, got {}", order);
    seen[index(d)] = true;
    new_sizes.push_back(sizes()[index(d)]);
    new_strides.push_back(strides()[index(d)]);
    if (is_channel_quantized(*this) && d == impl_->quantizer.axis) {
      quantizer.axis = static_cast<std::int64_t>(i);
    }
  }
  Tensor result = make_view(*this, new_sizes, new_strides, 0, quantizer);
  if (!autograd::needs_grad(*this)) return result;
  Dims back = order;
  for (std::size_t i = 0; i < order.size(); ++i) {
    back[index(order[i] < 0 ? order[i] + dim() : order[i])] = static_cast<std::int64_t>(i);
  }
  return autograd::record("permute", {*this}, std::move(result), {},
                          [back](const autograd::BackwardContext& backward) {
                            return std::vector<Tensor>{backward.grad().permute(back)};
                          });
}

Tensor Tensor::transpose(std::int64_t dim0, std::int64_t dim1) const {
  detail::require_tensor("transpose", *this);
  const std::int64_t a = wrap_dim(dim0, dim(), "transpose", "dim0");
  const std::int64_t b = wrap_dim(dim1, dim(), "transpose", "dim1");
  if (dim() == 0) return *this;
  Dims order;
  for (std::int64_t d = 0; d < dim(); ++d) order.push_back(d == a ? b : d == b ? a : d);
  return permute(order);
}

Tensor Tensor::t() const {
  detail::require_tensor("t", *this);
  QUANTA_CHECK(dim() <= 2, "t: x: expected at most 2 dimensions, got {}", sizes());
  return dim() < 2 ? *this : transpose(0, 1);
}

Tensor Tensor::select(std::int64_t dim, std::int64_t position) const {
  detail::require_tensor("select", *this);
  require_whole_bytes(*this, "select");
  QUANTA_CHECK(this->dim() > 0, "select: x: expected a tensor with dimensions, got a 0-d one");
  const std::int64_t d = wrap_dim(dim, this->dim(), "select");
  const std::int64_t length = sizes()[index(d)];
  QUANTA_CHECK(position >= -length && position < length, "select: index: expected {}..{}, got {}",
               -length, length - 1, position);
  const std::int64_t at = position < 0 ? position + length : position;
  Dims new_sizes = sizes();
  Dims new_strides = strides();
  new_sizes.erase(index(d));
  new_strides.erase(index(d));
  Quantizer quantizer = impl_->quantizer;
  if (is_channel_quantized(*this)) {
    if (d == quantizer.axis) {
      quantizer = single_channel(quantizer, at, "select");
    } else if (d < quantizer.axis) {
      --quantizer.axis;
    }
  }
  return recorded_part(
      "select", *this,
      make_view(*this, new_sizes, new_strides, at * strides()[index(d)], quantizer),
      [d, at](const Tensor& x) { return x.select(d, at); });
}

Tensor Tensor::slice(std::int64_t dim, std::int64_t start, std::int64_t end,
                     std::int64_t step) const {
  detail::require_tensor("slice", *this);
  require_whole_bytes(*this, "slice");
  QUANTA_CHECK(this->dim() > 0, "slice: x: expected a tensor with dimensions, got a 0-d one");
  QUANTA_CHECK(step > 0, "slice: step: expected > 0, got {}", step);
  const std::int64_t d = wrap_dim(dim, this->dim(), "slice");
  const std::int64_t length = sizes()[index(d)];
  const auto bound = [length](std::int64_t i) {
    return std::clamp<std::int64_t>(i < 0 ? i + length : i, 0, length);
  };
  const std::int64_t first = bound(start);
  const std::int64_t last = std::max(first, bound(end));
  const std::int64_t count = (last - first) / step + ((last - first) % step != 0 ? 1 : 0);
  Dims new_sizes = sizes();
  Dims new_strides = strides();
  new_sizes[index(d)] = count;
  new_strides[index(d)] = count > 1 ? strides()[index(d)] * step : strides()[index(d)];
  Quantizer quantizer = impl_->quantizer;
  if (is_channel_quantized(*this) && d == quantizer.axis) {
    // One channel has one scale, as in torch; a float zero point needs its own scheme.
    quantizer = count == 1 && quantizer.scheme == QScheme::PerChannelAffine
                    ? single_channel(quantizer, first, "slice")
                    : slice_channels(quantizer, first, count, step);
  }
  return recorded_part(
      "slice", *this,
      make_view(*this, new_sizes, new_strides, count == 0 ? 0 : first * strides()[index(d)],
                quantizer),
      [d, first, last, step](const Tensor& x) { return x.slice(d, first, last, step); });
}

Tensor Tensor::narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const {
  detail::require_tensor("narrow", *this);
  QUANTA_CHECK(this->dim() > 0, "narrow: x: expected a tensor with dimensions, got a 0-d one");
  const std::int64_t d = wrap_dim(dim, this->dim(), "narrow");
  const std::int64_t available = sizes()[index(d)];
  const std::int64_t first = start < 0 ? start + available : start;
  QUANTA_CHECK(first >= 0 && first <= available, "narrow: start: expected {}..{}, got {}",
               -available, available, start);
  QUANTA_CHECK(length >= 0 && length <= available - first, "narrow: length: expected 0..{}, got {}",
               available - first, length);
  return slice(d, first, first + length);
}

Tensor Tensor::expand(const Dims& wanted) const {
  detail::require_tensor("expand", *this);
  require_whole_bytes(*this, "expand");
  QUANTA_CHECK(wanted.size() >= sizes().size(),
               "expand: sizes: expected at least {} numbers, got {}", dim(), wanted);
  const std::size_t added = wanted.size() - sizes().size();
  Dims new_sizes = wanted;
  Dims new_strides;
  new_strides.resize(wanted.size(), 0);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (i < added) {
      QUANTA_CHECK(wanted[i] >= 0, "expand: sizes: expected a size for a new dimension, got {}",
                   wanted);
      continue;
    }
    const std::int64_t size = sizes()[i - added];
    if (wanted[i] == -1) new_sizes[i] = size;
    QUANTA_CHECK(new_sizes[i] == size || (size == 1 && new_sizes[i] >= 0),
                 "expand: sizes: expected sizes that {} broadcasts to, got {}", sizes(), wanted);
    if (new_sizes[i] == size) new_strides[i] = strides()[i - added];
  }
  checked_numel(new_sizes);
  Quantizer quantizer = impl_->quantizer;
  if (is_channel_quantized(*this)) {
    const std::size_t axis = index(quantizer.axis) + added;
    QUANTA_CHECK(new_sizes[axis] == sizes()[axis - added],
                 "expand: sizes: expected to keep the channel axis {} of {}, got {}",
                 quantizer.axis, sizes(), wanted);
    quantizer.axis = static_cast<std::int64_t>(axis);
  }
  Tensor result = make_view(*this, new_sizes, new_strides, 0, quantizer);
  if (!autograd::needs_grad(*this)) return result;
  return autograd::record(
      "expand", {*this}, std::move(result), {},
      [from = sizes()](const autograd::BackwardContext& backward) {
        return std::vector<Tensor>{autograd::sum_to_size(backward.grad(), from)};
      });
}

Tensor Tensor::squeeze() const {
  detail::require_tensor("squeeze", *this);
  Tensor result = *this;
  for (std::int64_t d = dim() - 1; d >= 0; --d) {
    if (sizes()[index(d)] == 1) result = result.squeeze(d);
  }
  return result;
}

Tensor Tensor::squeeze(std::int64_t dim) const {
  detail::require_tensor("squeeze", *this);
  const std::int64_t d = wrap_dim(dim, this->dim(), "squeeze");
  if (this->dim() == 0 || sizes()[index(d)] != 1) return *this;
  Dims new_sizes = sizes();
  Dims new_strides = strides();
  new_sizes.erase(index(d));
  new_strides.erase(index(d));
  Quantizer quantizer = impl_->quantizer;
  if (is_channel_quantized(*this)) {
    if (d == quantizer.axis) {
      quantizer = single_channel(quantizer, 0, "squeeze");
    } else if (d < quantizer.axis) {
      --quantizer.axis;
    }
  }
  return recorded_reshape("squeeze", *this, make_view(*this, new_sizes, new_strides, 0, quantizer));
}

Tensor Tensor::detach() const {
  detail::require_tensor("detach", *this);
  return make_view(*this, sizes(), strides(), 0, impl_->quantizer);
}

Tensor Tensor::unsqueeze(std::int64_t dim) const {
  detail::require_tensor("unsqueeze", *this);
  const std::int64_t d = wrap_dim(dim, this->dim() + 1, "unsqueeze");
  Dims new_sizes = sizes();
  Dims new_strides = strides();
  const std::int64_t stride = d < this->dim() ? sizes()[index(d)] * strides()[index(d)] : 1;
  new_sizes.insert(index(d), 1);
  new_strides.insert(index(d), stride);
  Quantizer quantizer = impl_->quantizer;
  if (is_channel_quantized(*this) && d <= quantizer.axis) ++quantizer.axis;
  return recorded_reshape("unsqueeze", *this,
                          make_view(*this, new_sizes, new_strides, 0, quantizer));
}

}  // namespace quanta
