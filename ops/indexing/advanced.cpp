#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/indexing/gradient.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/overlap.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

// A view with all slices, integers and new axes applied, and the index tensor of each of its
// dimensions (undefined where there is none).
struct Indexed {
  Tensor view;
  std::vector<Tensor> tensors;

  bool has_tensors() const {
    return std::any_of(tensors.begin(), tensors.end(),
                       [](const Tensor& tensor) { return tensor.defined(); });
  }
};

// Dimensions of x that an entry stands for.
std::int64_t consumed_by(const TensorIndex& entry) {
  if (std::holds_alternative<Ellipsis>(entry) || std::holds_alternative<NewAxis>(entry)) return 0;
  const auto* tensor = std::get_if<Tensor>(&entry);
  return tensor != nullptr && tensor->defined() && tensor->dtype() == DType::Bool ? tensor->dim()
                                                                                  : 1;
}

// A Bool mask as one index tensor for each of its dimensions.
void add_mask(std::string_view op, Indexed& indexed, std::size_t& d, const Tensor& mask) {
  QUANTA_CHECK(mask.dim() > 0, "{}: indices: expected a mask with dimensions, got a 0-d Bool", op);
  const Tensor positions = nonzero(mask);
  for (std::int64_t i = 0; i < mask.dim(); ++i, ++d) {
    QUANTA_CHECK(mask.size(i) == indexed.view.sizes()[d],
                 "{}: indices: expected a mask of size {} along dim {}, got {}", op,
                 indexed.view.sizes()[d], d, mask.sizes());
    indexed.tensors[d] = positions.select(1, i).contiguous();
  }
}

Indexed apply_views(std::string_view op, const Tensor& x, std::span<const TensorIndex> indices) {
  detail::check_defined(op, "x", x);
  std::int64_t consumed = 0;
  std::int64_t ellipses = 0;
  for (const TensorIndex& entry : indices) {
    consumed += consumed_by(entry);
    ellipses += std::holds_alternative<Ellipsis>(entry) ? 1 : 0;
  }
  QUANTA_CHECK(ellipses <= 1, "{}: indices: expected at most one Ellipsis, got {}", op, ellipses);
  QUANTA_CHECK(consumed <= x.dim(), "{}: indices: expected at most {} for {}, got {}", op, x.dim(),
               x.sizes(), consumed);
  Indexed indexed{x, std::vector<Tensor>(x.sizes().size())};
  std::size_t d = 0;
  for (const TensorIndex& entry : indices) {
    const auto dim = static_cast<std::int64_t>(d);
    if (std::holds_alternative<Ellipsis>(entry)) {
      d += static_cast<std::size_t>(x.dim() - consumed);
    } else if (std::holds_alternative<NewAxis>(entry)) {
      indexed.view = indexed.view.unsqueeze(dim);
      indexed.tensors.insert(indexed.tensors.begin() + dim, Tensor());
      ++d;
    } else if (const auto* slice = std::get_if<Slice>(&entry)) {
      const std::int64_t length = indexed.view.sizes()[d];
      indexed.view = indexed.view.slice(dim, slice->start.value_or(0), slice->stop.value_or(length),
                                        slice->step);
      ++d;
    } else if (const auto* position = std::get_if<std::int64_t>(&entry)) {
      indexed.view = indexed.view.select(dim, *position);
      indexed.tensors.erase(indexed.tensors.begin() + dim);
    } else {
      const auto& tensor = std::get<Tensor>(entry);
      detail::check_defined(op, "indices", tensor);
      if (tensor.dtype() == DType::Bool) {
        add_mask(op, indexed, d, tensor);
      } else {
        indexed.tensors[d++] = detail::int64_indices(op, "indices", tensor);
      }
    }
  }
  return indexed;
}

// The memory offsets that index tensors pick, and how the result's dimensions lie around them.
struct Picked {
  std::vector<std::int64_t> offsets;       // one for each element of `picked`
  std::vector<std::int64_t> rest_offsets;  // of the dimensions without an index tensor
  Dims picked;                             // the broadcast sizes of the index tensors
  Dims rest;
  std::size_t position = 0;  // where `picked` stands among `rest` in the result

  // [picked, rest] -> the result's order.
  Dims to_result() const {
    Dims order;
    const auto count = static_cast<std::int64_t>(picked.size());
    for (std::size_t i = 0; i < position; ++i) {
      order.push_back(count + static_cast<std::int64_t>(i));
    }
    for (std::int64_t i = 0; i < count; ++i) order.push_back(i);
    for (std::size_t i = position; i < rest.size(); ++i) {
      order.push_back(count + static_cast<std::int64_t>(i));
    }
    return order;
  }
  Dims block_sizes() const {
    Dims sizes = picked;
    for (const std::int64_t size : rest) sizes.push_back(size);
    return sizes;
  }
  Dims result_sizes() const {
    const Dims block = block_sizes();
    Dims sizes;
    for (const std::int64_t d : to_result()) sizes.push_back(block[static_cast<std::size_t>(d)]);
    return sizes;
  }
};

std::vector<std::int64_t> offsets_of(const Dims& sizes, const Dims& strides) {
  std::vector<std::int64_t> offsets{0};
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    std::vector<std::int64_t> next;
    next.reserve(offsets.size() * static_cast<std::size_t>(sizes[d]));
    for (const std::int64_t offset : offsets) {
      for (std::int64_t i = 0; i < sizes[d]; ++i) next.push_back(offset + i * strides[d]);
    }
    offsets = std::move(next);
  }
  return offsets;
}

Picked pick(std::string_view op, const Indexed& indexed) {
  const Tensor& x = indexed.view;
  Picked result;
  Dims rest_strides;
  bool first = true;
  bool adjacent = true;
  std::size_t last = 0;
  for (std::size_t d = 0; d < indexed.tensors.size(); ++d) {
    if (!indexed.tensors[d].defined()) {
      result.rest.push_back(x.sizes()[d]);
      rest_strides.push_back(x.strides()[d]);
      continue;
    }
    result.picked = first ? indexed.tensors[d].sizes()
                          : broadcast_sizes(result.picked, indexed.tensors[d].sizes(), op);
    if (first) result.position = result.rest.size();
    adjacent = adjacent && (first || d == last + 1);
    first = false;
    last = d;
  }
  if (!adjacent) result.position = 0;
  result.rest_offsets = offsets_of(result.rest, rest_strides);
  result.offsets.resize(static_cast<std::size_t>(product(result.picked)));
  for (std::size_t d = 0; d < indexed.tensors.size(); ++d) {
    if (!indexed.tensors[d].defined()) continue;
    const Tensor positions = indexed.tensors[d].expand(result.picked).contiguous();
    const auto* at = static_cast<const std::int64_t*>(positions.data_ptr());
    const std::int64_t length = x.sizes()[d];
    for (std::size_t i = 0; i < result.offsets.size(); ++i) {
      QUANTA_CHECK(at[i] >= -length && at[i] < length,
                   "{}: indices: expected {}..{} along dim {}, got {}", op, -length, length - 1, d,
                   at[i]);
      result.offsets[i] += (at[i] < 0 ? at[i] + length : at[i]) * x.strides()[d];
    }
  }
  return result;
}

// `values` with the dtype and parameters of `x`.
Tensor values_for(std::string_view op, const Tensor& x, const Tensor& values) {
  detail::check_uniform(op, "values", values);
  if (!x.is_quantized()) {
    QUANTA_CHECK(!values.is_quantized(), "{}: values: expected a plain tensor for {}, got {}", op,
                 x.dtype(), values.dtype());
    return values.to(x.dtype());
  }
  const Quantizer& quantizer = x.impl()->quantizer;
  if (values.is_quantized()) {
    QUANTA_CHECK(values.dtype() == x.dtype() && values.impl()->quantizer == quantizer,
                 "{}: values: expected Float32, or {} with scale {} and zero_point {} as x has, "
                 "got {} with {} and {}",
                 op, x.dtype(), quantizer.scale, quantizer.zero_point, values.dtype(),
                 values.impl()->quantizer.scale, values.impl()->quantizer.zero_point);
    return values;
  }
  QUANTA_CHECK(values.dtype() == DType::Float32, "{}: values: expected Float32 for {}, got {}", op,
               x.dtype(), values.dtype());
  return quantize_per_tensor(values, quantizer.scale, quantizer.zero_point, x.dtype());
}

// The same pick from a tensor that holds the positions in the view.
Tensor positions_in_view(const Indexed& indexed) {
  std::vector<TensorIndex> entries;
  for (const Tensor& tensor : indexed.tensors) {
    entries.push_back(tensor.defined() ? TensorIndex(tensor) : TensorIndex(Slice{}));
  }
  return index(gradients::positions_of(indexed.view.sizes()), entries);
}

}  // namespace

namespace {

// The index tensors of a call, and the call with others in their places.
struct IndexCall {
  std::vector<TensorIndex> entries;
  std::vector<Tensor> tensors;

  explicit IndexCall(std::span<const TensorIndex> indices)
      : entries(indices.begin(), indices.end()) {
    for (TensorIndex& entry : entries) {
      if (auto* tensor = std::get_if<Tensor>(&entry)) tensors.push_back(std::exchange(*tensor, {}));
    }
  }
  std::vector<TensorIndex> with(const Tensor* given) const {
    std::vector<TensorIndex> result = entries;
    for (TensorIndex& entry : result) {
      if (auto* tensor = std::get_if<Tensor>(&entry)) *tensor = *given++;
    }
    return result;
  }
};

Tensor recorded_index(const Tensor& x, std::span<const TensorIndex> indices) {
  Tensor result = [&] {
    const replay::PauseRecording pause;
    return index(x, indices);
  }();
  IndexCall call(indices);
  // How many elements a mask picks is a question of its values.
  for (const Tensor& tensor : call.tensors) {
    if (tensor.dtype() == DType::Bool) replay::check_read("index", tensor);
  }
  std::vector<Tensor> arguments{x};
  arguments.insert(arguments.end(), call.tensors.begin(), call.tensors.end());
  call.tensors.clear();
  replay::detail::record_call("index", std::move(arguments), {result},
                              [call = std::move(call)](const Tensor* given) {
                                return std::vector{index(given[0], call.with(given + 1))};
                              });
  return result;
}

}  // namespace

Tensor index(const Tensor& x, std::span<const TensorIndex> indices) {
  constexpr std::string_view kOp = "index";
  if (replay::is_recording()) return recorded_index(x, indices);
  OpScope scope(kOp);
  const Indexed indexed = apply_views(kOp, x, indices);
  if (!indexed.has_tensors()) return indexed.view;
  detail::check_uniform(kOp, "x", indexed.view);
  const Picked picked = pick(kOp, indexed);
  const Tensor block = detail::empty_with_parameters_of(indexed.view, picked.block_sizes(),
                                                        MemoryFormat::Contiguous);
  detail::visit_bits(x.dtype(), [&](auto bits) {
    using T = decltype(bits);
    const auto* from = static_cast<const T*>(indexed.view.data_ptr());
    auto* to = static_cast<T*>(block.data_ptr());
    for (const std::int64_t offset : picked.offsets) {
      for (const std::int64_t rest : picked.rest_offsets) *to++ = from[offset + rest];
    }
  });
  const Tensor result = block.permute(picked.to_result()).contiguous();
  if (!autograd::needs_grad(indexed.view)) return result;
  return gradients::record_taken(kOp, indexed.view, result, positions_in_view(indexed));
}

Tensor index(const Tensor& x, std::initializer_list<TensorIndex> indices) {
  return index(x, std::span(indices.begin(), indices.size()));
}

namespace {

void record_index_put(const Tensor& x, std::span<const TensorIndex> indices, const Tensor& values) {
  replay::before_write("index_put_", x);
  {
    const replay::PauseRecording pause;
    index_put_(x, indices, values);
  }
  IndexCall call(indices);
  std::vector<Tensor> inputs{x, values};
  inputs.insert(inputs.end(), call.tensors.begin(), call.tensors.end());
  call.tensors.clear();
  const std::size_t count = inputs.size();
  replay::record({.op = "index_put_",
                  .inputs = std::move(inputs),
                  .outputs = {x},
                  .run = [call = std::move(call), count](const replay::Frame& frame) {
                    std::vector<Tensor> rest;
                    for (std::size_t i = 2; i < count; ++i) rest.push_back(frame.in(i));
                    index_put_(frame.out(), std::span<const TensorIndex>(call.with(rest.data())),
                               frame.in(1));
                  }});
}

}  // namespace

const Tensor& index_put_(const Tensor& x, std::span<const TensorIndex> indices,
                         const Tensor& values) {
  constexpr std::string_view kOp = "index_put_";
  if (replay::is_recording() && x.defined() && values.defined() && x.numel() > 0) {
    record_index_put(x, indices, values);
    return x;
  }
  OpScope scope(kOp);
  detail::check_uniform(kOp, "x", x);
  detail::check_writable(kOp, "x", x);
  const Indexed indexed = apply_views(kOp, x, indices);
  const Picked picked = pick(kOp, indexed);
  const Dims sizes = picked.result_sizes();
  detail::check_defined(kOp, "values", values);
  autograd::require_no_grad(kOp, values);
  QUANTA_CHECK(detail::broadcasts_to(values.sizes(), sizes),
               "{}: values: expected sizes that broadcast to {}, got {}", kOp, sizes,
               values.sizes());
  const Dims to_result = picked.to_result();
  Dims to_block = to_result;
  for (std::size_t i = 0; i < to_result.size(); ++i) {
    to_block[static_cast<std::size_t>(to_result[i])] = static_cast<std::int64_t>(i);
  }
  Tensor block = values_for(kOp, x, values).expand(sizes).permute(to_block).contiguous();
  if (detail::memory_meets(x, block)) block = block.clone();
  x.storage()->bump_version();
  detail::visit_bits(x.dtype(), [&](auto bits) {
    using T = decltype(bits);
    const auto* from = static_cast<const T*>(block.data_ptr());
    auto* to = static_cast<T*>(indexed.view.data_ptr());
    for (const std::int64_t offset : picked.offsets) {
      for (const std::int64_t rest : picked.rest_offsets) to[offset + rest] = *from++;
    }
  });
  return x;
}

const Tensor& index_put_(const Tensor& x, std::initializer_list<TensorIndex> indices,
                         const Tensor& values) {
  return index_put_(x, std::span(indices.begin(), indices.size()), values);
}

const Tensor& index_put_(const Tensor& x, std::initializer_list<TensorIndex> indices,
                         double value) {
  detail::check_uniform("index_put_", "x", x);
  const Tensor one = detail::empty_with_parameters_of(x, {}, MemoryFormat::Contiguous);
  one.fill_(value);
  return index_put_(x, indices, one);
}

}  // namespace quanta
