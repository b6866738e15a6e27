#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/fault.h"
#include "quanta/ops/cuda/pick.h"
#include "quanta/ops/cuda/targets.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/scatter.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/indexing/cuda_kernels.h"
#include "quanta/ops/indexing/cuda_scatter.h"
#include "quanta/ops/indexing/index.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/combine_math.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

// Elements and slices that are put where, or taken from where, an index says: ONNX's forms.

namespace quanta {

std::span<const std::string_view> enumerators(ScatterReduce) {
  static constexpr std::array<std::string_view, 5> kNames{"none", "add", "mul", "min", "max"};
  return kNames;
}

namespace indexing {
namespace {

constexpr std::size_t at(std::int64_t d) { return static_cast<std::size_t>(d); }

// The elements of a slice behind the first `dims` dimensions.
std::int64_t slice_length(const Dims& sizes, std::size_t dims) {
  std::int64_t length = 1;
  for (std::size_t d = dims; d < sizes.size(); ++d) length *= sizes[d];
  return length;
}

std::int64_t wrapped(std::string_view op, std::int64_t position, std::int64_t length) {
  QUANTA_CHECK(position >= -length && position < length, "{}: index: expected {}..{}, got {}", op,
               -length, length - 1, position);
  return position < 0 ? position + length : position;
}

// Bool is 0 or 1 before and after.
math::Combine combination(DType dtype, ScatterReduce reduce) {
  const bool is_bool = dtype == DType::Bool;
  switch (reduce) {
    case ScatterReduce::Add:
      return is_bool ? math::Combine::Maximum : math::Combine::Add;
    case ScatterReduce::Multiply:
      return is_bool ? math::Combine::Minimum : math::Combine::Multiply;
    case ScatterReduce::Minimum:
      return math::Combine::Minimum;
    case ScatterReduce::Maximum:
      return math::Combine::Maximum;
    case ScatterReduce::None:
      break;
  }
  return math::Combine::Last;
}

// Update i, `length` elements, goes to slice targets[i] of out; one after the other, as several may
// go to one place.
void apply(ScatterReduce reduce, const std::vector<std::int64_t>& targets, std::int64_t length,
           const Tensor& updates, const Tensor& out, std::string_view op) {
  if (reduce == ScatterReduce::None) {
    const std::size_t bytes = at(length) * item_size(out.dtype());
    const auto* from = static_cast<const std::byte*>(updates.data_ptr());
    auto* to = static_cast<std::byte*>(out.data_ptr());
    for (std::size_t i = 0; i < targets.size(); ++i) {
      std::memcpy(to + at(targets[i]) * bytes, from + i * bytes, bytes);
    }
    return;
  }
  const math::Combine how = combination(out.dtype(), reduce);
  detail::visit_ordered(op, out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto* from = static_cast<const T*>(updates.data_ptr());
    auto* to = static_cast<T*>(out.data_ptr());
    for (const std::int64_t target : targets) {
      T* line = to + target * length;
      for (std::int64_t i = 0; i < length; ++i) line[i] = math::combine(how, line[i], *from++);
    }
  });
}

// The same on a CUDA device; `targets` count the dimensions of out before its slices.
void apply_on_device(ScatterReduce reduce, const Tensor& targets, std::size_t dims,
                     const Tensor& updates, const Tensor& out) {
  if (reduce != ScatterReduce::None) {
    cuda::combine_updates(combination(out.dtype(), reduce), targets,
                          slice_length(out.sizes(), dims), updates, out);
    return;
  }
  const auto part = [&](const Dims& all, std::size_t begin, std::size_t end) {
    Dims result;
    for (std::size_t d = begin; d < end; ++d) result.push_back(all[d]);
    return result;
  };
  const std::size_t rank = out.sizes().size();
  cuda::put_updates(targets, updates, out,
                    {.sizes = part(out.sizes(), 0, dims),
                     .strides = part(out.strides(), 0, dims),
                     .rest = part(out.sizes(), dims, rank),
                     .rest_strides = part(out.strides(), dims, rank)});
}

void check_updates(std::string_view op, std::string_view argument, const Tensor& x,
                   const Tensor& updates) {
  detail::check_uniform(op, argument, updates);
  QUANTA_CHECK(updates.dtype() == x.dtype() &&
                   (!x.is_quantized() || updates.impl()->quantizer == x.impl()->quantizer),
               "{}: {}: expected {} with the parameters of x, got {}", op, argument, x.dtype(),
               updates.dtype());
}

void check_reduce(std::string_view op, const Tensor& x, ScatterReduce reduce) {
  if (reduce == ScatterReduce::None) return;
  QUANTA_SUPPORTED(!x.is_quantized(), "{}: x: expected a plain tensor for a reduction, got {}", op,
                   x.dtype());
  detail::check_ordered(op, x.dtype());
}

template <typename Derived>
struct Scattering : Op<Derived> {
  static constexpr ArgumentCount kArguments{3};
  ScatterReduce reduce = ScatterReduce::None;

  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }

 protected:
  std::string_view kernel() const {
    return reduce == ScatterReduce::None ? "put_items" : "combine_runs";
  }
};

struct Scatter final : Scattering<Scatter> {
  static constexpr std::string_view kName = "scatter";
  std::int64_t dim = 0;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    detail::check_indices(kName, "index", in[1]);
    check_updates(kName, "src", x, in[2]);
    check_reduce(kName, x, reduce);
    QUANTA_CHECK(x.dim() > 0, "{}: x: expected a tensor with dimensions, got a 0-d one", kName);
    const std::int64_t d = wrap_dim(dim, x.dim(), kName);
    QUANTA_CHECK(in[1].dim() == x.dim(), "{}: index: expected {} dimensions as x has, got {}",
                 kName, x.dim(), in[1].sizes());
    QUANTA_CHECK(in[2].sizes() == in[1].sizes(), "{}: src: expected the sizes of index {}, got {}",
                 kName, in[1].sizes(), in[2].sizes());
    for (std::int64_t i = 0; i < x.dim() && in[1].numel() > 0; ++i) {
      QUANTA_CHECK(i == d || in[1].size(i) <= x.size(i),
                   "{}: index: expected sizes up to {} but along dim {}, got {}", kName, x.sizes(),
                   d, in[1].sizes());
    }
    out.arrange(2, MemoryFormat::Contiguous);
    out.add_like(x, x.sizes());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Tensor index = detail::int64_indices(kName, "index", in[1]);
    const std::size_t d = at(wrap_dim(dim, x.dim(), kName));
    const Dims& sizes = index.sizes();
    const Dims& strides = out[0].strides();
    const auto* positions = static_cast<const std::int64_t*>(index.data_ptr());
    std::vector<std::int64_t> targets(at(index.numel()));
    Dims place = Dims::filled(sizes.size(), 0);
    std::int64_t other = 0;  // the target but for what `dim` adds
    for (std::size_t i = 0; i < targets.size(); ++i) {
      targets[i] = other + wrapped(kName, positions[i], x.sizes()[d]) * strides[d];
      for (std::size_t k = sizes.size(); k-- > 0;) {
        const std::int64_t step = k == d ? 0 : strides[k];
        ++place[k];
        other += step;
        if (place[k] < sizes[k]) break;
        other -= step * sizes[k];
        place[k] = 0;
      }
    }
    out[0].copy_(x.detach());
    apply(reduce, targets, 1, in[2], out[0], kName);
    return "scatter";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& index = in[1];
    const std::size_t d = at(wrap_dim(dim, in[0].dim(), kName));
    const std::int64_t length = out[0].sizes()[d];
    Dims steps = out[0].strides();
    steps[d] = 0;
    const cuda::PickedDim picked{index, index.strides(), -length, length, out[0].strides()[d]};
    const auto targets = cuda::checked_targets(index.device(), index.sizes(), steps, {&picked, 1});
    if (!targets) {
      for (const std::int64_t position : index.cpu().to_int64_vector()) {
        wrapped(kName, position, length);
      }
    }
    out[0].copy_(in[0].detach());
    apply_on_device(reduce, *targets, out[0].sizes().size(), in[2], out[0]);
    return kernel();
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Scatter, &Scatter::dim>("dim"),
                                       attribute<Scatter, &Scatter::reduce>("reduce")};
    return kTable;
  }
};

// The slices of x that rows of `index` [count, k] name, by their number among all such slices: those
// behind the first `batch` dimensions, which the rows share out evenly, and k more.
std::vector<std::int64_t> slice_numbers(std::string_view op, const Tensor& x, const Tensor& index,
                                        std::size_t batch, std::size_t k) {
  const std::int64_t rows = index.numel() / std::max<std::int64_t>(1, static_cast<std::int64_t>(k));
  const std::int64_t batches =
      product(x.sizes()) == 0 ? 1 : product(x.sizes()) / slice_length(x.sizes(), batch);
  const std::int64_t together = std::max<std::int64_t>(1, rows / batches);
  std::int64_t of_batch = 1;
  for (std::size_t d = 0; d < k; ++d) of_batch *= x.sizes()[batch + d];
  std::vector<std::int64_t> numbers(at(rows));
  const auto* position = static_cast<const std::int64_t*>(index.data_ptr());
  for (std::size_t row = 0; row < numbers.size(); ++row) {
    std::int64_t number = 0;
    for (std::size_t d = 0; d < k; ++d) {
      const std::int64_t length = x.sizes()[batch + d];
      number = number * length + wrapped(op, *position++, length);
    }
    numbers[row] = static_cast<std::int64_t>(row) / together * of_batch + number;
  }
  return numbers;
}

// What slice_numbers gives, on a CUDA device.
class RowNumbers {
 public:
  RowNumbers(const Dims& sizes, const Tensor& index, std::size_t batch)
      : device_(index.device()), rows_(index.sizes()) {
    const std::size_t k = at(rows_.back());
    rows_.erase(rows_.size() - 1);
    steps_ = Dims::filled(rows_.size(), 0);
    strides_ = index.strides();
    strides_.erase(strides_.size() - 1);
    std::int64_t step = 1;
    std::vector<std::int64_t> step_of(batch + k);
    for (std::size_t d = batch + k; d-- > 0;) {
      step_of[d] = step;
      step *= sizes[d];
    }
    for (std::size_t d = 0; d < batch; ++d) steps_[d] = step_of[d];
    for (std::size_t i = 0; i < k; ++i) {
      columns_.push_back(index.select(-1, static_cast<std::int64_t>(i)));
    }
    for (std::size_t i = 0; i < k; ++i) {
      const std::int64_t length = sizes[batch + i];
      picked_.push_back({columns_[i], strides_, -length, length, step_of[batch + i]});
    }
  }
  RowNumbers(const RowNumbers&) = delete;
  RowNumbers& operator=(const RowNumbers&) = delete;

  /// Nothing when a position is outside. Waits for the device.
  std::optional<Tensor> checked() const {
    return cuda::checked_targets(device_, rows_, steps_, picked_);
  }
  Tensor trusted() const { return cuda::targets_of(device_, rows_, steps_, picked_); }

 private:
  Device device_;
  Dims rows_, steps_, strides_;
  std::vector<Tensor> columns_;
  std::vector<cuda::PickedDim> picked_;  // looks at columns_ and strides_
};

// How many dimensions the rows of `index` name, checked.
std::size_t row_length(std::string_view op, const Tensor& x, const Tensor& index,
                       std::size_t batch) {
  detail::check_indices(op, "index", index);
  QUANTA_CHECK(index.dim() >= 1 && index.sizes().size() > batch,
               "{}: index: expected more than {} dimensions, got {}", op,
               std::max<std::size_t>(batch, 0), index.sizes());
  const std::int64_t k = index.sizes().back();
  QUANTA_CHECK(k >= 1 && at(k) + batch <= x.sizes().size(),
               "{}: index: expected 1..{} numbers in a row, got {}", op, x.sizes().size() - batch,
               k);
  return at(k);
}

struct ScatterNd final : Scattering<ScatterNd> {
  static constexpr std::string_view kName = "scatter_nd";

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    check_updates(kName, "updates", x, in[2]);
    check_reduce(kName, x, reduce);
    const std::size_t k = row_length(kName, x, in[1], 0);
    Dims expected = in[1].sizes();
    expected.erase(expected.size() - 1);
    for (std::size_t d = k; d < x.sizes().size(); ++d) expected.push_back(x.sizes()[d]);
    QUANTA_CHECK(in[2].sizes() == expected, "{}: updates: expected {}, got {}", kName, expected,
                 in[2].sizes());
    out.arrange(2, MemoryFormat::Contiguous);
    out.add_like(x, x.sizes());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor index = detail::int64_indices(kName, "index", in[1]);
    const std::size_t k = at(index.sizes().back());
    const std::vector<std::int64_t> targets = slice_numbers(kName, in[0], index, 0, k);
    out[0].copy_(in[0].detach());
    apply(reduce, targets, slice_length(in[0].sizes(), k), in[2], out[0], kName);
    return "scatter";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const std::size_t k = at(in[1].sizes().back());
    const auto targets = RowNumbers(in[0].sizes(), in[1], 0).checked();
    if (!targets) {
      slice_numbers(kName, in[0], detail::int64_indices(kName, "index", in[1].cpu()), 0, k);
    }
    out[0].copy_(in[0].detach());
    apply_on_device(reduce, *targets, k, in[2], out[0]);
    return kernel();
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<ScatterNd, &ScatterNd::reduce>("reduce")};
    return kTable;
  }
};

struct GatherNd final : Op<GatherNd> {
  static constexpr std::string_view kName = "gather_nd";
  static constexpr ArgumentCount kArguments{2};
  std::int64_t batch_dims = 0;

  GatherNd() = default;
  explicit GatherNd(std::int64_t batch) : batch_dims(batch) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    QUANTA_CHECK(batch_dims >= 0 && batch_dims < std::max<std::int64_t>(1, x.dim()),
                 "{}: batch_dims: expected 0..{}, got {}", kName, x.dim() - 1, batch_dims);
    const std::size_t k = row_length(kName, x, in[1], at(batch_dims));
    Dims sizes = in[1].sizes();
    for (std::size_t d = 0; d < at(batch_dims); ++d) {
      QUANTA_CHECK(sizes[d] == x.sizes()[d],
                   "{}: index: expected the first {} sizes of x {}, got {}", kName, batch_dims,
                   x.sizes(), sizes);
    }
    sizes.erase(sizes.size() - 1);
    for (std::size_t d = at(batch_dims) + k; d < x.sizes().size(); ++d) {
      sizes.push_back(x.sizes()[d]);
    }
    out.arrange(0, MemoryFormat::Contiguous);
    out.add_like(x, sizes);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Tensor index = detail::int64_indices(kName, "index", in[1]);
    const std::size_t k = at(index.sizes().back());
    const std::vector<std::int64_t> sources = slice_numbers(kName, x, index, at(batch_dims), k);
    const std::int64_t length = slice_length(x.sizes(), at(batch_dims) + k);
    const std::size_t bytes = at(length) * item_size(x.dtype());
    const auto* from = static_cast<const std::byte*>(x.data_ptr());
    auto* to = static_cast<std::byte*>(out[0].data_ptr());
    parallel_for(static_cast<std::int64_t>(sources.size()),
                 std::max<std::int64_t>(1, cpu::kElementGrain / std::max<std::int64_t>(1, length)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::size_t i = at(begin); i < at(end); ++i) {
                     std::memcpy(to + i * bytes, from + at(sources[i]) * bytes, bytes);
                   }
                 });
    return "copy";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const std::size_t batch = at(batch_dims);
    const std::size_t rows = in[1].sizes().size() - 1;  // dimensions of the rows
    const std::size_t k = at(in[1].sizes().back());
    Dims strides = Dims::filled(out[0].sizes().size(), 0);
    Dims positions = strides;
    for (std::size_t d = 0; d < batch; ++d) strides[d] = x.strides()[d];
    for (std::size_t d = rows; d < strides.size(); ++d) {
      strides[d] = x.strides()[batch + k + d - rows];
    }
    for (std::size_t d = 0; d < rows; ++d) positions[d] = in[1].strides()[d];
    std::vector<Tensor> numbers;
    for (std::size_t i = 0; i < k; ++i) {
      numbers.push_back(in[1].select(-1, static_cast<std::int64_t>(i)));
    }
    std::vector<cuda::PickedDim> picked;
    for (std::size_t i = 0; i < k; ++i) {
      const std::int64_t length = x.sizes()[batch + i];
      picked.push_back({numbers[i], positions, -length, length, x.strides()[batch + i]});
    }
    if (!cuda::pick(x, out[0], strides, picked)) {
      slice_numbers(kName, x, detail::int64_indices(kName, "index", in[1].cpu()), batch, k);
    }
    return "pick_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b10); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Dims& sizes = context.input_sizes(0);
    const Tensor index = detail::int64_indices(kName, "index", context.input(1));
    const std::size_t k = at(index.sizes().back());
    const std::int64_t length = slice_length(sizes, at(batch_dims) + k);
    if (product(sizes) == 0 || index.numel() == 0) {
      const Tensor zeros = Tensor::empty(sizes, context.grad().dtype(), MemoryFormat::Contiguous,
                                         context.grad().device());
      return {zeros.fill_(0.0), Tensor()};
    }
    const Tensor numbers =
        index.device().is_cuda()
            ? RowNumbers(sizes, index, at(batch_dims)).trusted()
            : Tensor::from_int64(
                  slice_numbers(kName, Tensor::scalar(0).expand(sizes), index, at(batch_dims), k));
    const Tensor slices = context.grad().reshape({numbers.numel(), length});
    return {detail::add_slices(slices, numbers, {product(sizes) / length, length}, 0).view(sizes),
            Tensor()};
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<GatherNd, &GatherNd::batch_dims>("batch_dims")};
    return kTable;
  }
};

// The cache, what is written to it, and where each batch begins (may be left out).
struct ScatterCache final : Op<ScatterCache> {
  static constexpr std::string_view kName = "scatter_cache";
  static constexpr ArgumentCount kArguments{3};
  std::int64_t dim = -2;
  bool circular = false;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    check_updates(kName, "update", x, in[1]);
    QUANTA_CHECK(x.dim() >= 2, "{}: x: expected at least 2 dimensions, got {}", kName, x.sizes());
    const std::int64_t d = wrap_dim(dim, x.dim(), kName);
    QUANTA_CHECK(d > 0, "{}: dim: expected another than the batch dimension, got {}", kName, dim);
    Dims expected = x.sizes();
    if (in[1].dim() == x.dim()) expected[at(d)] = std::min(x.size(d), in[1].size(d));
    QUANTA_CHECK(in[1].sizes() == expected,
                 "{}: update: expected {} with up to {} along dim {}, got {}", kName, x.sizes(),
                 x.size(d), d, in[1].sizes());
    if (in[2].defined()) {
      detail::check_indices(kName, "start", in[2]);
      QUANTA_CHECK(in[2].sizes() == Dims{x.size(0)}, "{}: start: expected [{}], got {}", kName,
                   x.size(0), in[2].sizes());
    }
    out.arrange(1, MemoryFormat::Contiguous);
    out.add_like(x, x.sizes());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Dims& sizes = in[0].sizes();
    const std::size_t d = at(wrap_dim(dim, in[0].dim(), kName));
    const std::int64_t length = sizes[d];
    const std::int64_t count = in[1].sizes()[d];
    const Tensor start = in[2].defined() ? detail::int64_indices(kName, "start", in[2])
                                         : Tensor::zeros({sizes[0]}, DType::Int64);
    const auto* first = static_cast<const std::int64_t*>(start.data_ptr());
    check_starts(start, length, count);
    out[0].copy_(in[0].detach());
    std::int64_t lines = 1;
    for (std::size_t k = 1; k < d; ++k) lines *= sizes[k];
    const std::size_t bytes = at(slice_length(sizes, d + 1)) * item_size(in[0].dtype());
    const auto* from = static_cast<const std::byte*>(in[1].data_ptr());
    auto* to = static_cast<std::byte*>(out[0].data_ptr());
    for (std::int64_t line = 0; line < sizes[0] * lines; ++line) {
      const std::int64_t begin = first[line / lines];
      for (std::int64_t i = 0; i < count; ++i, from += bytes) {
        std::memcpy(to + at(line * length + (begin + i) % length) * bytes, from, bytes);
      }
    }
    return "copy";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Dims& sizes = in[0].sizes();
    const Tensor x = in[0].contiguous();
    const Tensor& start = in[2];
    const std::size_t d = at(wrap_dim(dim, in[0].dim(), kName));
    const cuda::Fault fault(x.device());
    cuda::PutCacheParams params;
    params.x = x.device_ptr();
    params.update = in[1].device_ptr();
    params.to = out[0].device_ptr();
    params.lines = 1;
    for (std::size_t k = 1; k < d; ++k) params.lines *= sizes[k];
    params.length = sizes[d];
    params.count = in[1].sizes()[d];
    const auto bytes = static_cast<int>(item_size(x.dtype()));
    params.inner = slice_length(sizes, d + 1);
    params.item_bytes = cuda::widest_item(bytes, params.inner, params.x, params.update, params.to);
    params.inner /= params.item_bytes / bytes;
    params.items = x.numel() / (params.item_bytes / bytes);
    if (start.defined()) {
      params.start = start.device_ptr();
      params.is_long = start.dtype() == DType::Int64;
      params.start_stride = start.strides()[0];
    }
    params.circular = circular;
    params.fault = fault.flag();
    cuda::put_cache(x.device(), params);
    if (fault.is_raised()) {
      check_starts(detail::int64_indices(kName, "start", start.cpu()), params.length, params.count);
    }
    return "put_cache";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<ScatterCache, &ScatterCache::dim>("dim"),
        attribute<ScatterCache, &ScatterCache::circular>("circular")};
    return kTable;
  }

 private:
  void check_starts(const Tensor& start, std::int64_t length, std::int64_t count) const {
    const auto* first = static_cast<const std::int64_t*>(start.data_ptr());
    const std::int64_t last = circular ? length - 1 : length - count;
    for (std::int64_t b = 0; b < start.numel(); ++b) {
      QUANTA_CHECK(first[b] >= 0 && first[b] <= last, "{}: start: expected 0..{}, got {}", kName,
                   last, first[b]);
    }
  }
};

// On a CUDA device; dense.
cuda::Positions device_positions(const Tensor& index) {
  return {index.device_ptr(), index.dtype() == DType::Int64, index.numel()};
}

struct WrapIndices final : Op<WrapIndices> {
  static constexpr std::string_view kName = "wrap_indices";
  static constexpr ArgumentCount kArguments{1};
  std::int64_t length = 0;

  WrapIndices() = default;
  explicit WrapIndices(std::int64_t count) : length(count) {}

  void infer(const Arguments& in, Results& out) const override {
    detail::check_indices(kName, "index", in[0]);
    QUANTA_CHECK(length >= 0, "{}: length: expected a number >= 0, got {}", kName, length);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(in[0].sizes(), DType::Int64);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    auto* to = static_cast<std::int64_t*>(out[0].data_ptr());
    const auto wrap = [&](const auto* from) {
      for (std::int64_t i = 0; i < out[0].numel(); ++i) {
        const std::int64_t position = from[i];
        to[i] = position < 0 ? position + length : position;
      }
    };
    if (in[0].dtype() == DType::Int64) {
      wrap(static_cast<const std::int64_t*>(in[0].data_ptr()));
    } else {
      wrap(static_cast<const std::int32_t*>(in[0].data_ptr()));
    }
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::wrap_positions(in[0].device(),
                         {.positions = device_positions(in[0]),
                          .length = length,
                          .to = reinterpret_cast<std::int64_t*>(out[0].device_ptr())});
    return "wrap_positions";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kIndices; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<WrapIndices, &WrapIndices::length>("length")};
    return kTable;
  }
};

struct OneHot final : Op<OneHot> {
  static constexpr std::string_view kName = "one_hot";
  static constexpr ArgumentCount kArguments{2};
  std::int64_t depth = 1;
  std::int64_t dim = -1;

  void infer(const Arguments& in, Results& out) const override {
    detail::check_indices(kName, "index", in[0]);
    detail::check_uniform(kName, "values", in[1]);
    QUANTA_CHECK(in[1].sizes() == Dims{2}, "{}: values: expected 2 of them, got {}", kName,
                 in[1].sizes());
    QUANTA_CHECK(depth >= 0, "{}: depth: expected a number >= 0, got {}", kName, depth);
    Dims sizes = in[0].sizes();
    sizes.insert(at(wrap_dim(dim, in[0].dim() + 1, kName)), depth);
    out.arrange(1, MemoryFormat::Contiguous);
    out.add_like(in[1], sizes);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor index = detail::int64_indices(kName, "index", in[0]);
    const auto* position = static_cast<const std::int64_t*>(index.data_ptr());
    const std::size_t axis = at(wrap_dim(dim, index.dim() + 1, kName));
    const std::int64_t inner = slice_length(index.sizes(), axis);
    detail::visit_bits(in[1].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto* values = static_cast<const T*>(in[1].data_ptr());
      auto* to = static_cast<T*>(out[0].data_ptr());
      std::fill_n(to, out[0].numel(), values[0]);
      for (std::int64_t i = 0; i < index.numel(); ++i) {
        const std::int64_t k = position[i] < 0 ? position[i] + depth : position[i];
        if (k >= 0 && k < depth) to[(i / inner * depth + k) * inner + i % inner] = values[1];
      }
    });
    return "fill";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor index = in[0].contiguous();
    const std::size_t axis = at(wrap_dim(dim, index.dim() + 1, kName));
    cuda::one_hot_items(in[0].device(), {.positions = device_positions(index),
                                         .depth = depth,
                                         .inner = slice_length(index.sizes(), axis),
                                         .values = in[1].device_ptr(),
                                         .to = out[0].device_ptr(),
                                         .item_bytes = static_cast<int>(item_size(in[1].dtype()))});
    return "one_hot_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kIndices; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse(); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<OneHot, &OneHot::depth>("depth"),
                                       attribute<OneHot, &OneHot::dim>("dim")};
    return kTable;
  }
};

constexpr std::string_view kHeader = "quanta/ops/indexing.h";

Tensor positions(std::initializer_list<std::int64_t> numbers, const Dims& sizes) {
  return Tensor::from_int64({numbers.begin(), numbers.size()}).view(sizes);
}

}  // namespace

void add_scatter(Catalogue& catalogue) {
  catalogue.add(
      {.name = Scatter::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes}, [](DType dtype) {
        return sample_call(Scatter{}, {sample_tensor({2, 3}, dtype), positions({1, 0, -1}, {1, 3}),
                                       sample_tensor({1, 3}, dtype, 2)});
      });
  catalogue.add({.name = ScatterNd::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes},
                [](DType dtype) {
                  return sample_call(ScatterNd{},
                                     {sample_tensor({2, 3}, dtype), positions({1, 0}, {2, 1}),
                                      sample_tensor({2, 3}, dtype, 2)});
                });
  catalogue.add(
      {.name = GatherNd::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes}, [](DType dtype) {
        return sample_call(GatherNd{},
                           {sample_tensor({2, 3, 2}, dtype), positions({1, 0, 0, -1}, {2, 2})});
      });
  catalogue.add({.name = ScatterCache::kName, .header = kHeader, .dtypes = dtypes::kWholeBytes},
                [](DType dtype) {
                  return sample_call(ScatterCache{},
                                     {sample_tensor({2, 4, 3}, dtype),
                                      sample_tensor({2, 2, 3}, dtype, 2), positions({2, 1}, {2})});
                });
  catalogue.add({.name = WrapIndices::kName, .header = kHeader, .dtypes = dtypes::kIndices},
                [](DType dtype) {
                  return sample_call(WrapIndices{6}, {sample_tensor({2, 3}, dtype)});
                });
  catalogue.add({.name = OneHot::kName, .header = kHeader, .dtypes = dtypes::kIndices},
                [](DType dtype) {
                  OneHot operation;
                  operation.depth = 6;
                  return sample_call(operation, {sample_tensor({2, 3}, dtype), sample_tensor({2})});
                });
}

}  // namespace indexing

Tensor scatter(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src,
               ScatterReduce reduce) {
  indexing::Scatter operation;
  operation.reduce = reduce;
  operation.dim = dim;
  return run(operation, x, index, src);
}
Tensor scatter_nd(const Tensor& x, const Tensor& index, const Tensor& updates,
                  ScatterReduce reduce) {
  indexing::ScatterNd operation;
  operation.reduce = reduce;
  return run(operation, x, index, updates);
}
Tensor gather_nd(const Tensor& x, const Tensor& index, std::int64_t batch_dims) {
  return run(indexing::GatherNd{batch_dims}, x, index);
}
Tensor scatter_cache(const Tensor& x, const Tensor& update, const Tensor& start, std::int64_t dim,
                     bool circular) {
  indexing::ScatterCache operation;
  operation.dim = dim;
  operation.circular = circular;
  return run(operation, x, update, start);
}
Tensor wrap_indices(const Tensor& index, std::int64_t length) {
  return run(indexing::WrapIndices{length}, index);
}
Tensor one_hot(const Tensor& index, std::int64_t depth, const Tensor& values, std::int64_t dim) {
  indexing::OneHot operation;
  operation.depth = depth;
  operation.dim = dim;
  return run(operation, index, values);
}

}  // namespace quanta
