#include "quanta/ops/shape.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/gather.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/shape/reorder.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace {

constexpr std::size_t at(std::int64_t d) { return static_cast<std::size_t>(d); }

// `dim` of a tensor that has dimensions, counted from the front.
std::int64_t checked_dim(std::string_view op, const Tensor& x, std::int64_t dim) {
  detail::check_defined(op, "x", x);
  QUANTA_SUPPORTED(!is_sub_byte(x.dtype()), "{}: x: expected a whole-byte dtype, got {}", op,
                   x.dtype());
  QUANTA_CHECK(x.dim() > 0, "{}: x: expected a tensor with dimensions, got a 0-d one", op);
  return wrap_dim(dim, x.dim(), op);
}

std::vector<Tensor> split_parts(const Tensor& x, std::int64_t dim, std::int64_t part) {
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

// Views along one dimension: the tape and a recording see the views.
template <typename Derived>
struct Parts : ComposedOp<Derived> {
  static constexpr ArgumentCount kArguments{1};
  std::int64_t dim = 0;

  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
};

struct Chunk final : Parts<Chunk> {
  static constexpr std::string_view kName = "chunk";
  std::int64_t chunks = 1;

  std::vector<Tensor> compose(const Arguments& in) const override {
    const Tensor& x = in[0];
    const std::int64_t d = checked_dim(kName, x, dim);
    QUANTA_CHECK(chunks > 0, "{}: chunks: expected > 0, got {}", kName, chunks);
    const std::int64_t length = x.sizes()[at(d)];
    constexpr std::int64_t kMostEmpty = 1 << 20U;
    QUANTA_CHECK(length != 0 || chunks <= kMostEmpty,
                 "{}: chunks: expected at most {} of a dimension without elements, got {}", kName,
                 kMostEmpty, chunks);
    if (length == 0) return std::vector<Tensor>(static_cast<std::size_t>(chunks), x);
    return split_parts(x, d, length / chunks + (length % chunks != 0 ? 1 : 0));
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Chunk, &Chunk::chunks>("chunks"),
                                       attribute<Chunk, &Chunk::dim>("dim")};
    return kTable;
  }
};

struct Split final : Parts<Split> {
  static constexpr std::string_view kName = "split";
  std::int64_t split_size = 1;

  std::vector<Tensor> compose(const Arguments& in) const override {
    const Tensor& x = in[0];
    const std::int64_t d = checked_dim(kName, x, dim);
    const std::int64_t length = x.sizes()[at(d)];
    QUANTA_CHECK(split_size > 0 || (split_size == 0 && length == 0),
                 "{}: split_size: expected > 0, got {}", kName, split_size);
    return split_parts(x, d,
                       std::clamp<std::int64_t>(split_size, 1, std::max<std::int64_t>(1, length)));
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Split, &Split::split_size>("split_size"),
                                       attribute<Split, &Split::dim>("dim")};
    return kTable;
  }
};

struct SplitWithSizes final : Parts<SplitWithSizes> {
  static constexpr std::string_view kName = "split_with_sizes";
  std::vector<std::int64_t> split_sizes;

  std::vector<Tensor> compose(const Arguments& in) const override {
    const Tensor& x = in[0];
    const std::int64_t d = checked_dim(kName, x, dim);
    std::int64_t left = x.sizes()[at(d)];
    const auto check = [&](bool holds) {
      QUANTA_CHECK(holds, "{}: split_sizes: expected sizes >= 0 that add up to {}, got {}", kName,
                   x.sizes()[at(d)], fmt::join(split_sizes, ", "));
    };
    for (const std::int64_t size : split_sizes) {
      check(size >= 0 && size <= left);
      left -= size;
    }
    check(left == 0);
    std::vector<Tensor> parts;
    std::int64_t start = 0;
    for (const std::int64_t size : split_sizes) {
      parts.push_back(x.narrow(d, start, size));
      start += size;
    }
    return parts;
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<SplitWithSizes, &SplitWithSizes::split_sizes>("split_sizes"),
        attribute<SplitWithSizes, &SplitWithSizes::dim>("dim")};
    return kTable;
  }
};

struct Unbind final : Parts<Unbind> {
  static constexpr std::string_view kName = "unbind";

  std::vector<Tensor> compose(const Arguments& in) const override {
    const Tensor& x = in[0];
    const std::int64_t d = checked_dim(kName, x, dim);
    std::vector<Tensor> parts;
    for (std::int64_t i = 0; i < x.sizes()[at(d)]; ++i) parts.push_back(x.select(d, i));
    return parts;
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Unbind, &Unbind::dim>("dim")};
    return kTable;
  }
};

struct Stack final : Parts<Stack> {
  static constexpr std::string_view kName = "stack";
  static constexpr ArgumentCount kArguments = ArgumentCount::at_least(1);

  std::vector<Tensor> compose(const Arguments& in) const override {
    std::vector<Tensor> expanded;
    expanded.reserve(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const Tensor& tensor = in[i];
      detail::check_uniform(kName, fmt::format("tensors[{}]", i), tensor);
      QUANTA_CHECK(tensor.dtype() == in[0].dtype(),
                   "{}: tensors[{}]: expected {} as the first has, got {}", kName, i, in[0].dtype(),
                   tensor.dtype());
      QUANTA_CHECK(tensor.sizes() == in[0].sizes(),
                   "{}: tensors[{}]: expected {} as the first has, got {}", kName, i, in[0].sizes(),
                   tensor.sizes());
      expanded.push_back(tensor.unsqueeze(wrap_dim(dim, tensor.dim() + 1, kName)));
    }
    return {cat(expanded, wrap_dim(dim, in[0].dim() + 1, kName))};
  }
  // As cat and quantized::cat have them: all but QInt32.
  std::span<const DType> cuda_dtypes() const noexcept override {
    return std::span(dtypes::kWholeBytes).first(dtypes::kWholeBytes.size() - 1);
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Stack, &Stack::dim>("dim")};
    return kTable;
  }
};

struct Unfold final : Op<Unfold> {
  static constexpr std::string_view kName = "unfold";
  static constexpr ArgumentCount kArguments{1};
  std::int64_t dimension = 0;
  std::int64_t size = 1;
  std::int64_t step = 1;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    const std::int64_t d = wrap_dim(dimension, x.dim(), kName, "dimension");
    const std::int64_t length = x.dim() == 0 ? 1 : x.sizes()[at(d)];
    QUANTA_CHECK(size >= 0 && size <= length, "{}: size: expected 0..{}, got {}", kName, length,
                 size);
    QUANTA_CHECK(step > 0, "{}: step: expected > 0, got {}", kName, step);
    Dims sizes = x.sizes();
    Dims strides = x.strides();
    sizes.push_back(size);
    strides.push_back(x.dim() == 0 ? 1 : x.strides()[at(d)]);
    if (x.dim() > 0) {
      sizes[at(d)] = (length - size) / step + 1;
      strides[at(d)] *= sizes[at(d)] > 1 ? step : 1;
    }
    out.add_view(x.detach().as_strided(sizes, strides, x.storage_offset()));
  }
  std::string_view cpu(const Arguments&, std::span<const Tensor>) const override { return "view"; }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor& gradient = context.grad();
    const Tensor result = Tensor::zeros(context.input_sizes(0), gradient.dtype());
    if (result.dim() == 0) {
      if (gradient.numel() > 0) result.copy_(gradient.reshape({}));
      return {result};
    }
    // The elements at one place of all windows are different ones.
    const std::int64_t d = wrap_dim(dimension, result.dim(), kName, "dimension");
    const std::int64_t windows = gradient.size(d);
    for (std::int64_t i = 0; i < gradient.size(-1); ++i) {
      const Tensor places = result.slice(d, i, i + (windows - 1) * step + 1, step);
      places.copy_(add(places, gradient.select(-1, i)));
    }
    return {result};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Unfold, &Unfold::dimension>("dimension"),
                                       attribute<Unfold, &Unfold::size>("size"),
                                       attribute<Unfold, &Unfold::step>("step")};
    return kTable;
  }
};

struct Flip final : Op<Flip> {
  static constexpr std::string_view kName = "flip";
  static constexpr ArgumentCount kArguments{1};
  Dims dims;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    std::array<bool, Dims::kMaxDims> flipped{};
    for (const std::int64_t dim : dims) {
      const std::size_t d = at(wrap_dim(dim, x.dim(), kName, "dims"));
      QUANTA_CHECK(!flipped[d], "{}: dims: expected each dimension once, got {}", kName, dims);
      flipped[d] = true;
    }
    out.add_like(x, x.sizes(), x.suggested_format());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    Dims strides = x.strides();
    std::int64_t start = 0;
    for (const std::int64_t dim : dims) {
      if (x.dim() == 0) continue;
      const std::size_t d = at(wrap_dim(dim, x.dim(), kName, "dims"));
      start += (x.sizes()[d] - 1) * x.strides()[d];
      strides[d] = -x.strides()[d];
    }
    const cpu::StridedLoop<2> loop(x.sizes(), {&out[0].strides(), &strides});
    const auto& step = loop.inner_strides();
    detail::visit_bits(x.dtype(), [&](auto bits) {
      using T = decltype(bits);
      const auto* from = static_cast<const T*>(x.data_ptr()) + start;
      auto* to = static_cast<T*>(out[0].data_ptr());
      loop.run([&](const std::array<std::int64_t, 2>& offsets, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          to[offsets[0] + i * step[0]] = from[offsets[1] + i * step[1]];
        }
      });
    });
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    std::array<cuda::GatherAxis, Dims::kMaxDims> axes;
    for (std::size_t d = 0; d < x.sizes().size(); ++d) {
      axes[d] = cuda::kept_axis(x.sizes()[d], x.strides()[d]);
    }
    for (const std::int64_t dim : dims) {
      if (x.dim() == 0) continue;
      axes[at(wrap_dim(dim, x.dim(), kName, "dims"))].source.rule = math::SourceRule::Reversed;
    }
    cuda::gather(x, std::span(axes).first(x.sizes().size()), out[0]);
    return "gather_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {flip(context.grad(), dims)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Flip, &Flip::dims>("dims")};
    return kTable;
  }
};

struct Repeat final : Op<Repeat> {
  static constexpr std::string_view kName = "repeat";
  static constexpr ArgumentCount kArguments{1};
  Dims repeats;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    QUANTA_CHECK(repeats.size() >= x.sizes().size(),
                 "{}: repeats: expected at least {} numbers, got {}", kName, x.dim(), repeats);
    Dims sizes = repeats;
    const std::size_t added = repeats.size() - x.sizes().size();
    for (std::size_t d = 0; d < repeats.size(); ++d) {
      QUANTA_CHECK(repeats[d] >= 0, "{}: repeats: expected numbers >= 0, got {}", kName, repeats);
      const std::int64_t size = d < added ? 1 : x.sizes()[d - added];
      QUANTA_CHECK(size == 0 || repeats[d] <= std::numeric_limits<std::int64_t>::max() / size,
                   "{}: repeats: expected a result that fits memory, got {}", kName, repeats);
      sizes[d] *= size;
    }
    out.add_like(x, sizes);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    fill_repeated(in[0], repeats, out[0]);
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const std::size_t added = repeats.size() - x.sizes().size();
    std::array<cuda::GatherAxis, Dims::kMaxDims> axes;
    for (std::size_t d = 0; d < repeats.size(); ++d) {
      axes[d] = d < added ? cuda::kept_axis(1, 0)
                          : cuda::kept_axis(x.sizes()[d - added], x.strides()[d - added]);
      axes[d].source.output = out[0].sizes()[d];
      if (repeats[d] != 1) axes[d].source.rule = math::SourceRule::Circular;
    }
    cuda::gather(x, std::span(axes).first(repeats.size()), out[0]);
    return "gather_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Dims& sizes = context.input_sizes(0);
    Tensor rest = context.grad();
    if (rest.numel() == 0) return {Tensor::zeros(sizes, rest.dtype())};
    // One dimension after the other: [before, copies, what was repeated], the copies summed.
    const std::size_t added = repeats.size() - sizes.size();
    std::int64_t before = 1;
    for (std::size_t d = 0; d < repeats.size(); ++d) {
      if (repeats[d] != 1) rest = sum(rest.reshape({before, repeats[d], -1}), {1});
      before *= d < added ? 1 : sizes[d - added];
    }
    return {rest.reshape(sizes)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Repeat, &Repeat::repeats>("repeats")};
    return kTable;
  }
};

// Bytes that are no bool must not be read as one.
void zero_from(Storage& storage, std::size_t begin) {
  const std::size_t bytes = storage.bytes() - begin;
  if (storage.device().is_cpu()) {
    std::memset(storage.data() + begin, 0, bytes);
  } else {
    cuda::driver(storage.device()).fill(storage.data() + begin, 0, bytes);
  }
}

// It changes the tensor itself, not its elements, so there is nothing to replay.
struct Resize final : ComposedOp<Resize> {
  static constexpr std::string_view kName = "resize_";
  static constexpr ArgumentCount kArguments{1};
  Dims sizes;

  std::vector<Tensor> compose(const Arguments& in) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    autograd::require_changeable(kName, x);
    const std::int64_t numel = checked_numel(sizes);
    if (sizes == x.sizes()) return {x};
    TensorImpl& impl = *x.impl();
    const auto bytes = storage_bytes(x.dtype(), numel);
    const auto offset = static_cast<std::size_t>(impl.data - impl.storage->data());
    if (numel > 0 && offset + bytes > impl.storage->bytes()) {
      IntrusivePtr<Storage> storage(new Storage(offset + bytes, x.device()));
      if (x.device().is_cpu()) {
        std::memcpy(storage->data(), impl.storage->data(), impl.storage->bytes());
      } else {
        cuda::driver(x.device())
            .copy_on_device(storage->data(), impl.storage->data(), impl.storage->bytes());
      }
      if (x.dtype() == DType::Bool) zero_from(*storage, impl.storage->bytes());
      impl.data = storage->data() + offset;
      impl.storage = std::move(storage);
    }
    impl.storage->bump_version();
    impl.sizes = sizes;
    impl.strides = contiguous_strides(sizes);
    impl.numel = numel;
    return {x};
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Resize, &Resize::sizes>("sizes")};
    return kTable;
  }
};

template <typename Kind>
std::vector<Tensor> run_parts(Kind operation, std::int64_t dim, const Tensor& x) {
  operation.dim = dim;
  Results parts = run_all(operation, x);
  return {parts.begin(), parts.end()};
}

template <typename Kind, typename Value>
Kind with(Value Kind::*member, const Value& value) {
  Kind operation;
  operation.*member = value;
  return operation;
}

}  // namespace

Tensor stack(std::span<const Tensor> tensors, std::int64_t dim) {
  QUANTA_CHECK(!tensors.empty(), "stack: tensors: expected at least one, got none");
  Stack operation;
  operation.dim = dim;
  return run(operation, tensors);
}
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim) {
  return run_parts(with(&Chunk::chunks, chunks), dim, x);
}
std::vector<Tensor> split(const Tensor& x, std::int64_t split_size, std::int64_t dim) {
  return run_parts(with(&Split::split_size, split_size), dim, x);
}
std::vector<Tensor> split_with_sizes(const Tensor& x, const std::vector<std::int64_t>& split_sizes,
                                     std::int64_t dim) {
  return run_parts(with(&SplitWithSizes::split_sizes, split_sizes), dim, x);
}
std::vector<Tensor> unbind(const Tensor& x, std::int64_t dim) {
  return run_parts(Unbind{}, dim, x);
}
Tensor unfold(const Tensor& x, std::int64_t dimension, std::int64_t size, std::int64_t step) {
  Unfold operation;
  operation.dimension = dimension;
  operation.size = size;
  operation.step = step;
  return run(operation, x);
}
Tensor flip(const Tensor& x, const Dims& dims) { return run(with(&Flip::dims, dims), x); }
Tensor repeat(const Tensor& x, const Dims& repeats) {
  return run(with(&Repeat::repeats, repeats), x);
}
const Tensor& resize_(const Tensor& x, const Dims& sizes) {
  run(with(&Resize::sizes, sizes), x);
  return x;
}

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/shape.h";

Stack stacked() {
  Stack operation;
  operation.dim = 1;
  return operation;
}

// A row whose sample call is `operation` on a [2, 4, 6] tensor.
template <auto make>
void add_row(Catalogue& catalogue) {
  catalogue.add({.name = decltype(make())::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes},
                [](DType dtype) {
                  return sample_call(make(), {sample_tensor({2, 4, 6}, dtype)});
                });
}

}  // namespace

void detail::add_shape(Catalogue& catalogue) {
  add_row<[] { return with(&Chunk::chunks, std::int64_t{2}); }>(catalogue);
  add_row<[] { return with(&Split::split_size, std::int64_t{1}); }>(catalogue);
  add_row<[] {
    return with(&SplitWithSizes::split_sizes, std::vector<std::int64_t>{1, 1});
  }>(catalogue);
  add_row<[] { return Unbind{}; }>(catalogue);
  add_row<[] {
    Unfold operation;
    operation.dimension = 1;
    operation.size = 3;
    return operation;
  }>(catalogue);
  add_row<[] { return with(&Flip::dims, Dims{0, 2}); }>(catalogue);
  add_row<[] { return with(&Repeat::repeats, Dims{2, 1, 3, 1}); }>(catalogue);
  add_row<[] { return with(&Resize::sizes, Dims{4, 3}); }>(catalogue);
  shapes::add_reorder(catalogue);
  catalogue.add({.name = Stack::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes},
                [](DType dtype) {
                  return sample_call(
                      stacked(), {sample_tensor({2, 3}, dtype), sample_tensor({2, 3}, dtype, 2)});
                });
}

}  // namespace quanta
