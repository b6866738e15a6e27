#include "quanta/ops/indexing/index.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "quanta/ops/cuda/pick.h"
#include "quanta/ops/cuda/targets.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/scatter.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/indexing/cuda_scatter.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/overlap.h"
#include "quanta/runtime/operation.h"

// index and index_put_: slices, integers and new axes are views; what index tensors pick from a
// view is an operation on the view and the index tensor of each of its dimensions.

namespace quanta {
namespace indexing {
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

// The permutation that undoes another.
Dims inverse_of(const Dims& order) {
  Dims inverse = order;
  for (std::size_t i = 0; i < order.size(); ++i) {
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return inverse;
}

// How the dimensions of a result lie: those of the index tensors among the others.
struct Layout {
  Dims picked;               // the broadcast sizes of the index tensors
  Dims rest;                 // the dimensions without an index tensor
  Dims rest_strides;         // theirs in x
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
  Dims to_block() const { return inverse_of(to_result()); }
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

std::vector<std::int64_t> compute_offsets(const Dims& sizes, const Dims& strides) {
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

// tensors[d] is the index tensor of dimension d of x, or undefined.
Layout make_layout(std::string_view op, const Dims& sizes, const Dims& strides,
                   std::span<const Tensor* const> tensors) {
  Layout result;
  bool first = true;
  bool adjacent = true;
  std::size_t last = 0;
  for (std::size_t d = 0; d < tensors.size(); ++d) {
    if (!tensors[d]->defined()) {
      result.rest.push_back(sizes[d]);
      result.rest_strides.push_back(strides[d]);
      continue;
    }
    result.picked =
        first ? tensors[d]->sizes() : broadcast_sizes(result.picked, tensors[d]->sizes(), op);
    if (first) result.position = result.rest.size();
    adjacent = adjacent && (first || d == last + 1);
    first = false;
    last = d;
  }
  if (!adjacent) result.position = 0;
  return result;
}

Layout make_layout(std::string_view op, const Tensor& x, std::span<const Tensor* const> tensors) {
  return make_layout(op, x.sizes(), x.strides(), tensors);
}

// The memory offset of each pick. Throws for a position outside the dimension.
std::vector<std::int64_t> picked_offsets(std::string_view op, const Tensor& x,
                                         std::span<const Tensor* const> tensors,
                                         const Dims& picked) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(product(picked)));
  for (std::size_t d = 0; d < tensors.size(); ++d) {
    if (!tensors[d]->defined()) continue;
    const Tensor positions =
        detail::int64_indices(op, "indices", *tensors[d]).expand(picked).contiguous();
    const auto* at = static_cast<const std::int64_t*>(positions.data_ptr());
    const std::int64_t length = x.sizes()[d];
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      QUANTA_CHECK(at[i] >= -length && at[i] < length,
                   "{}: indices: expected {}..{} along dim {}, got {}", op, -length, length - 1, d,
                   at[i]);
      offsets[i] += (at[i] < 0 ? at[i] + length : at[i]) * x.strides()[d];
    }
  }
  return offsets;
}

// The host finds the position outside that the device has found, and says which.
void throw_outside(std::string_view op, const Tensor& x, std::span<const Tensor* const> tensors,
                   const Dims& picked) {
  std::vector<Tensor> copies;
  for (const Tensor* tensor : tensors) {
    copies.push_back(tensor->defined() ? tensor->cpu() : Tensor());
  }
  std::vector<const Tensor*> on_host;
  for (const Tensor& copy : copies) on_host.push_back(&copy);
  picked_offsets(op, x, on_host, picked);
}

// What the index tensors pick, by numbers that count the dimensions they pick from in their order,
// on a CUDA device.
class PickedNumbers {
 public:
  PickedNumbers(const Dims& sizes, std::span<const Tensor* const> tensors, const Dims& picked)
      : picked_(picked) {
    strides_.reserve(tensors.size());  // indices_ looks at them
    for (std::size_t d = tensors.size(); d-- > 0;) {
      if (!tensors[d]->defined()) continue;
      strides_.push_back(tensors[d]->expand(picked).strides());
      indices_.push_back({*tensors[d], strides_.back(), -sizes[d], sizes[d], count_});
      count_ *= sizes[d];
      dims_.insert(0, static_cast<std::int64_t>(d));
    }
  }
  PickedNumbers(const PickedNumbers&) = delete;
  PickedNumbers& operator=(const PickedNumbers&) = delete;

  /// Nothing when a position is outside. Waits for the device.
  std::optional<Tensor> checked(Device device) const {
    return cuda::checked_targets(device, picked_, Dims::filled(picked_.size(), 0), indices_);
  }
  Tensor trusted(Device device) const {
    return cuda::targets_of(device, picked_, Dims::filled(picked_.size(), 0), indices_);
  }
  const Dims& dims() const noexcept { return dims_; }
  std::int64_t count() const noexcept { return count_; }

 private:
  Dims picked_, dims_;
  std::vector<Dims> strides_;
  std::vector<cuda::PickedDim> indices_;
  std::int64_t count_ = 1;
};

// visitor(offset) for each element of the block [picked, rest], in its order.
template <typename Visitor>
void visit_block(std::string_view op, const Tensor& x, std::span<const Tensor* const> tensors,
                 const Layout& layout, Visitor&& visitor) {
  const std::vector<std::int64_t> offsets = picked_offsets(op, x, tensors, layout.picked);
  const std::vector<std::int64_t> rest = compute_offsets(layout.rest, layout.rest_strides);
  for (const std::int64_t offset : offsets) {
    for (const std::int64_t each : rest) visitor(offset + each);
  }
}

std::span<const Tensor* const> index_tensors(const Arguments& in, std::size_t first) {
  return {in.begin() + first, in.size() - first};
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

// The view, then the index tensor of each of its dimensions.
struct Index final : Op<Index> {
  static constexpr std::string_view kName = "index";
  static constexpr ArgumentCount kArguments = ArgumentCount::at_least(1);

  void infer(const Arguments& in, Results& out) const override {
    detail::check_uniform(kName, "x", in[0]);
    QUANTA_CHECK(in.size() == in[0].sizes().size() + 1,
                 "{}: indices: expected one for each of {} dimensions, got {}", kName, in[0].dim(),
                 in.size() - 1);
    out.add_like(in[0], make_layout(kName, in[0], index_tensors(in, 1)).result_sizes());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const auto tensors = index_tensors(in, 1);
    const Layout layout = make_layout(kName, x, tensors);
    // What index tensors pick comes first, and then goes to its place.
    const bool in_order = layout.position == 0;
    const Tensor block = in_order ? out[0]
                                  : detail::empty_with_parameters_of(x, layout.block_sizes(),
                                                                     MemoryFormat::Contiguous);
    detail::visit_bits(x.dtype(), [&](auto bits) {
      using T = decltype(bits);
      const auto* from = static_cast<const T*>(x.data_ptr());
      auto* to = static_cast<T*>(block.data_ptr());
      visit_block(kName, x, tensors, layout, [&](std::int64_t offset) { *to++ = from[offset]; });
    });
    if (!in_order) out[0].copy_(block.permute(layout.to_result()));
    return "pick";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const auto tensors = index_tensors(in, 1);
    const Layout layout = make_layout(kName, x, tensors);
    const Dims order = layout.to_result();
    // [picked, rest] in the result's order: the strides of x, or those of an index tensor.
    const auto in_result = [&](const Dims& of_picked, const Dims& of_rest) {
      Dims strides = Dims::filled(order.size(), 0);
      for (std::size_t i = 0; i < order.size(); ++i) {
        const auto d = static_cast<std::size_t>(order[i]);
        strides[i] = d < of_picked.size() ? of_picked[d] : of_rest[d - of_picked.size()];
      }
      return strides;
    };
    const Dims no_picked = Dims::filled(layout.picked.size(), 0);
    const Dims no_rest = Dims::filled(layout.rest.size(), 0);
    std::vector<Dims> strides;
    std::vector<cuda::PickedDim> picked;
    strides.reserve(tensors.size());  // picked looks at them
    for (std::size_t d = 0; d < tensors.size(); ++d) {
      if (!tensors[d]->defined()) continue;
      strides.push_back(in_result(tensors[d]->expand(layout.picked).strides(), no_rest));
      const std::int64_t length = x.sizes()[d];
      picked.push_back({*tensors[d], strides.back(), -length, length, x.strides()[d]});
    }
    if (!cuda::pick(x, out[0], in_result(no_picked, layout.rest_strides), picked)) {
      throw_outside(kName, x, tensors, layout.picked);
    }
    return "pick_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
  GradientUse gradient_use(std::uint64_t) const override {
    return GradientUse::of(~std::uint64_t{1});
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Dims& sizes = context.input_sizes(0);
    std::vector<Tensor> results(context.input_count());
    if (context.grad().device().is_cuda()) {
      results[0] = gradient_on_device(context, sizes);
      return results;
    }
    // The same pick from a tensor that holds the positions in the view.
    std::vector<Tensor> arguments{detail::positions_of(sizes, Device::cpu())};
    for (std::size_t i = 1; i < context.input_count(); ++i) arguments.push_back(context.input(i));
    results[0] =
        detail::scatter_add(context.grad(), run(*this, std::span<const Tensor>(arguments)), sizes);
    return results;
  }

 private:
  // The slices of the gradient go where the picks came from: fewer places than there are elements.
  static Tensor gradient_on_device(const autograd::BackwardContext& context, const Dims& sizes) {
    std::vector<Tensor> copies;
    std::vector<const Tensor*> tensors;
    for (std::size_t i = 1; i < context.input_count(); ++i) copies.push_back(context.input(i));
    for (const Tensor& copy : copies) tensors.push_back(&copy);
    const Tensor& gradient = context.grad();
    const Layout layout = make_layout(kName, sizes, contiguous_strides(sizes), tensors);
    const PickedNumbers picked(sizes, tensors, layout.picked);
    const Tensor slices = gradient.permute(layout.to_block());
    const Tensor sum = detail::add_slices(slices, picked.trusted(gradient.device()),
                                          {picked.count(), product(layout.rest)}, 0);
    Dims order = picked.dims();
    Dims sorted_sizes;
    for (std::size_t d = 0; d < tensors.size(); ++d) {
      if (!tensors[d]->defined()) order.push_back(static_cast<std::int64_t>(d));
    }
    for (const std::int64_t d : order) sorted_sizes.push_back(sizes[static_cast<std::size_t>(d)]);
    return sum.view(sorted_sizes).permute(inverse_of(order));
  }
};

// The view, the values as [picked, rest] in its dtype and parameters, then the index tensor of each
// dimension.
struct IndexPut final : Op<IndexPut> {
  static constexpr std::string_view kName = "index_put_";
  static constexpr ArgumentCount kArguments = ArgumentCount::at_least(2);

  void infer(const Arguments& in, Results& out) const override {
    detail::check_uniform(kName, "x", in[0]);
    detail::check_uniform(kName, "values", in[1]);
    QUANTA_CHECK(in.size() == in[0].sizes().size() + 2,
                 "{}: indices: expected one for each of {} dimensions, got {}", kName, in[0].dim(),
                 in.size() - 2);
    const Dims sizes = make_layout(kName, in[0], index_tensors(in, 2)).block_sizes();
    QUANTA_CHECK(in[1].dtype() == in[0].dtype() && in[1].sizes() == sizes,
                 "{}: values: expected {} {}, got {} {}", kName, in[0].dtype(), sizes,
                 in[1].dtype(), in[1].sizes());
    out.arrange(1, MemoryFormat::Contiguous);
    out.add_in_place(in[0]);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = out[0];
    const auto tensors = index_tensors(in, 2);
    const Layout layout = make_layout(kName, x, tensors);
    const Tensor values = detail::memory_meets(x, in[1]) ? in[1].clone() : in[1];
    // All positions are checked before the first is written.
    picked_offsets(kName, x, tensors, layout.picked);
    detail::visit_bits(x.dtype(), [&](auto bits) {
      using T = decltype(bits);
      const auto* from = static_cast<const T*>(values.data_ptr());
      auto* to = static_cast<T*>(x.data_ptr());
      visit_block(kName, x, tensors, layout, [&](std::int64_t offset) { to[offset] = *from++; });
    });
    return "put";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = out[0];
    const auto tensors = index_tensors(in, 2);
    const Layout layout = make_layout(kName, x, tensors);
    const Tensor values = detail::memory_meets(x, in[1]) ? in[1].clone() : in[1];
    const PickedNumbers picked(x.sizes(), tensors, layout.picked);
    // All positions are checked before the first is written.
    const auto targets = picked.checked(x.device());
    if (!targets) throw_outside(kName, x, tensors, layout.picked);
    Dims sizes;  // of the dimensions that are picked from
    Dims strides;
    for (const std::int64_t d : picked.dims()) {
      sizes.push_back(x.sizes()[static_cast<std::size_t>(d)]);
      strides.push_back(x.strides()[static_cast<std::size_t>(d)]);
    }
    cuda::put_updates(*targets, values, x,
                      {.sizes = sizes,
                       .strides = strides,
                       .rest = layout.rest,
                       .rest_strides = layout.rest_strides});
    return "put_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
};

std::vector<Tensor> join_arguments(std::initializer_list<Tensor> first, const Indexed& indexed) {
  std::vector<Tensor> arguments(first);
  arguments.insert(arguments.end(), indexed.tensors.begin(), indexed.tensors.end());
  return arguments;
}

}  // namespace

void add_index(Catalogue& catalogue) {
  constexpr std::string_view kHeader = "quanta/ops/indexing.h";
  static const auto positions = [] {
    return Tensor::from_int64(std::array<std::int64_t, 3>{2, 0, -1});
  };
  catalogue.add({.name = Index::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes},
                [](DType dtype) {
                  return sample_call(
                      Index{}, {sample_tensor({2, 3, 4}, dtype), Tensor(), positions(), Tensor()});
                });
  catalogue.add(
      {.name = IndexPut::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes}, [](DType dtype) {
        return sample_call(IndexPut{},
                           {sample_tensor({2, 3, 4}, dtype), sample_tensor({3, 2, 4}, dtype, 2),
                            Tensor(), positions(), Tensor()});
      });
}

}  // namespace indexing

using namespace indexing;

Tensor index(const Tensor& x, std::span<const TensorIndex> indices) {
  const Indexed indexed = apply_views(Index::kName, x, indices);
  if (!indexed.has_tensors()) return indexed.view;
  return run(Index{}, std::span<const Tensor>(join_arguments({indexed.view}, indexed)));
}

Tensor index(const Tensor& x, std::initializer_list<TensorIndex> indices) {
  return index(x, std::span(indices.begin(), indices.size()));
}

const Tensor& index_put_(const Tensor& x, std::span<const TensorIndex> indices,
                         const Tensor& values) {
  constexpr std::string_view kOp = IndexPut::kName;
  detail::check_uniform(kOp, "x", x);
  detail::check_writable(kOp, "x", x);
  const Indexed indexed = apply_views(kOp, x, indices);
  std::vector<const Tensor*> tensors;
  for (const Tensor& tensor : indexed.tensors) tensors.push_back(&tensor);
  const Layout layout = make_layout(kOp, indexed.view, tensors);
  const Dims sizes = layout.result_sizes();
  detail::check_defined(kOp, "values", values);
  autograd::require_no_grad(kOp, values);
  QUANTA_CHECK(detail::broadcasts_to(values.sizes(), sizes),
               "{}: values: expected sizes that broadcast to {}, got {}", kOp, sizes,
               values.sizes());
  const Tensor block = values_for(kOp, x, values).expand(sizes).permute(layout.to_block());
  run(IndexPut{}, std::span<const Tensor>(join_arguments({indexed.view, block}, indexed)));
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
  return index_put_(x, std::span(indices.begin(), indices.size()), one.to(x.device()));
}

}  // namespace quanta
