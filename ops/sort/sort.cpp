#include "quanta/ops/sort.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quanta/ops/cuda/sort.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/reduce/gradient.h"
#include "quanta/ops/sort/unique.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/order_math.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {
namespace ordering {
namespace {

enum class Order : std::uint8_t { Ascending, Descending };

// Bytes in the order of their values: one pass counts, one places. Writes the first `k` positions.
template <typename T>
void order_bytes(const T* row, std::int64_t count, std::int64_t k, Order order,
                 std::int64_t* indices) {
  constexpr std::size_t kCodes = 256;
  const auto rank = [order](T value) {
    const int from_low = static_cast<int>(value) - static_cast<int>(std::numeric_limits<T>::min());
    return static_cast<std::size_t>(order == Order::Ascending ? from_low : 255 - from_low);
  };
  std::array<std::int64_t, kCodes + 1> start{};
  for (std::int64_t i = 0; i < count; ++i) ++start[rank(row[i]) + 1];
  for (std::size_t code = 0; code < kCodes; ++code) start[code + 1] += start[code];
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = start[rank(row[i])]++;
    if (at < k) indices[at] = i;
  }
}

// The first `k` of `items` in order.
template <typename Items, typename... Before>
void sort_first(Items& items, std::int64_t k, const Before&... before) {
  if (k < static_cast<std::int64_t>(items.size())) {
    std::partial_sort(items.begin(), items.begin() + k, items.end(), before...);
  } else {
    std::sort(items.begin(), items.end(), before...);
  }
}

struct Scratch {
  std::vector<std::uint64_t> keys;
  std::vector<std::int64_t> positions;
};

// Positions of the first `k` elements in order; equal elements by position.
template <typename T>
void order_row(const T* row, std::int64_t count, std::int64_t k, Order order, Scratch& scratch,
               std::int64_t* indices) {
  if constexpr (sizeof(T) == 1) {
    // A short row is sorted faster than 256 counts are cleared.
    if (count > 32) return order_bytes(row, count, k, order, indices);
  }
  if constexpr (sizeof(T) <= 4) {
    // Key and position in one number, which sorts without looking elements up.
    constexpr std::int64_t kPositions = std::int64_t{1} << 32;
    if (count <= kPositions) {
      scratch.keys.resize(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t key = math::order_key(row[i]);
        scratch.keys[static_cast<std::size_t>(i)] =
            std::uint64_t{order == Order::Ascending ? key : ~key} << 32 |
            static_cast<std::uint64_t>(i);
      }
      sort_first(scratch.keys, k);
      for (std::int64_t i = 0; i < k; ++i) {
        indices[i] =
            static_cast<std::int64_t>(scratch.keys[static_cast<std::size_t>(i)] & 0xFFFFFFFFU);
      }
      return;
    }
  }
  const auto before = [row, order](std::int64_t a, std::int64_t b) {
    const T left = order == Order::Ascending ? row[a] : row[b];
    const T right = order == Order::Ascending ? row[b] : row[a];
    if (detail::is_less(left, right)) return true;
    return !detail::is_less(right, left) && a < b;
  };
  scratch.positions.resize(static_cast<std::size_t>(count));
  std::iota(scratch.positions.begin(), scratch.positions.end(), std::int64_t{0});
  sort_first(scratch.positions, k, before);
  std::copy_n(scratch.positions.begin(), k, indices);
}

template <typename T>
void order_rows(const Tensor& rows, const Tensor& values, const Tensor& indices, Order order) {
  const std::int64_t count = rows.sizes().back();
  const std::int64_t k = values.sizes().back();
  if (k == 0 || rows.numel() == 0) return;
  const auto* from = static_cast<const T*>(rows.data_ptr());
  auto* to = static_cast<T*>(values.data_ptr());
  auto* at = static_cast<std::int64_t*>(indices.data_ptr());
  parallel_for(rows.numel() / count, std::max<std::int64_t>(1, 4096 / count),
               [&](std::int64_t begin, std::int64_t end) {
                 Scratch scratch;
                 for (std::int64_t row = begin; row < end; ++row) {
                   const T* row_from = from + row * count;
                   std::int64_t* row_at = at + row * k;
                   order_row(row_from, count, k, order, scratch, row_at);
                   for (std::int64_t i = 0; i < k; ++i) to[row * k + i] = row_from[row_at[i]];
                 }
               });
}

// The same on a CUDA device.
void order_rows_on_device(const Tensor& rows, const Tensor& values, const Tensor& indices,
                          Order order) {
  cuda::SortCall call;
  call.dtype = rows.dtype();
  call.x = rows.device_ptr();
  call.length = rows.sizes().back();
  call.rows = rows.numel() / call.length;
  call.keep = values.sizes().back();
  call.descending = order == Order::Descending;
  call.values = values.device_ptr();
  call.positions = reinterpret_cast<std::int64_t*>(indices.device_ptr());
  cuda::sort_rows(rows.device(), call);
}

// Memory where x is, with its dtype and parameters.
Tensor empty_rows_like(const Tensor& x, const Dims& sizes) {
  const DType dtype = x.is_quantized() ? int_repr_dtype(x.dtype()) : x.dtype();
  const Tensor memory = Tensor::empty(sizes, dtype, MemoryFormat::Contiguous, x.device());
  return x.is_quantized() ? QTensor::from_int_repr(memory, x.impl()->quantizer) : memory;
}

// As many first elements along `dim` as the results hold, best first.
void order_along(const Tensor& x, std::int64_t dim, Order order, const Tensor& values,
                 const Tensor& indices) {
  const std::int64_t d = wrap_dim(dim, x.dim(), "sort");
  const bool is_scalar = x.dim() == 0;
  const Tensor rows = is_scalar ? x.reshape({1}) : x.transpose(d, -1).contiguous();
  const bool in_place = is_scalar || d == x.dim() - 1;
  // Results along another dimension are made as rows and turned round.
  const Tensor sorted = is_scalar  ? values.reshape({1})
                        : in_place ? values
                                   : empty_rows_like(x, values.transpose(d, -1).sizes());
  const Tensor positions = is_scalar  ? indices.reshape({1})
                           : in_place ? indices
                                      : Tensor::empty(sorted.sizes(), DType::Int64,
                                                      MemoryFormat::Contiguous, x.device());
  if (x.device().is_cuda()) {
    order_rows_on_device(rows, sorted, positions, order);
  } else {
    detail::visit_ordered("sort", x.dtype(), [&](auto element) {
      order_rows<decltype(element)>(rows, sorted, positions, order);
    });
  }
  if (in_place) return;
  values.copy_(sorted.transpose(d, -1));
  indices.copy_(positions.transpose(d, -1));
}

void infer_ordered(std::string_view op, const Tensor& x, const Dims& sizes, Results& out) {
  detail::check_ordered(op, x.dtype());
  out.add_like(x, sizes);
  out.add(sizes, DType::Int64);
}

struct Sort final : Op<Sort> {
  static constexpr std::string_view kName = "sort";
  static constexpr ArgumentCount kArguments{1};
  std::int64_t dim = -1;
  bool descending = false;

  Sort() = default;
  explicit Sort(const SortOptions& options) : dim(options.dim), descending(options.descending) {}
  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    wrap_dim(dim, x.dim(), kName);
    infer_ordered(kName, x, x.sizes(), out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    order_along(in[0], dim, order(), out[0], out[1]);
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    order_along(in[0], dim, order(), out[0], out[1]);
    return "sort_tiles";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kOrdered; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0, 0b10); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {reduction::picked_gradient(context, dim)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Sort, &Sort::dim>("dim"),
                                       attribute<Sort, &Sort::descending>("descending")};
    return kTable;
  }

 private:
  Order order() const { return descending ? Order::Descending : Order::Ascending; }
};

// The indices of sort.
struct Argsort final : ComposedOp<Argsort> {
  static constexpr std::string_view kName = "argsort";
  static constexpr ArgumentCount kArguments{1};
  std::int64_t dim = -1;
  bool descending = false;

  Argsort() = default;
  explicit Argsort(const SortOptions& options) : dim(options.dim), descending(options.descending) {}
  std::vector<Tensor> compose(const Arguments& in) const override {
    return {sort(in[0], {.dim = dim, .descending = descending}).indices};
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kOrdered; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Argsort, &Argsort::dim>("dim"),
                                       attribute<Argsort, &Argsort::descending>("descending")};
    return kTable;
  }
};

// The values of sort along dimension 0.
struct Msort final : ComposedOp<Msort> {
  static constexpr std::string_view kName = "msort";
  static constexpr ArgumentCount kArguments{1};
  std::vector<Tensor> compose(const Arguments& in) const override {
    return {sort(in[0], {.dim = 0}).values};
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kOrdered; }
};

struct Topk final : Op<Topk> {
  static constexpr std::string_view kName = "topk";
  static constexpr ArgumentCount kArguments{1};
  std::int64_t k = 1;
  std::int64_t dim = -1;
  bool largest = true;
  bool sorted = true;

  Topk() = default;
  Topk(std::int64_t count, const TopkOptions& options)
      : k(count), dim(options.dim), largest(options.largest), sorted(options.sorted) {}
  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    const std::int64_t d = wrap_dim(dim, x.dim(), kName);
    const std::int64_t length = x.dim() == 0 ? 1 : x.size(d);
    QUANTA_CHECK(k >= 0 && k <= length, "{}: k: expected 0..{} along dim {} of {}, got {}", kName,
                 length, d, x.sizes(), k);
    Dims sizes = x.sizes();
    if (x.dim() > 0) sizes[static_cast<std::size_t>(d)] = k;
    if (x.dim() == 0 && k == 0) sizes = {0};
    infer_ordered(kName, x, sizes, out);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    order_along(in[0], dim, order(), out[0], out[1]);
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    order_along(in[0], dim, order(), out[0], out[1]);
    return "sort_tiles";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kOrdered; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0, 0b10); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {reduction::picked_gradient(context, dim)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<Topk, &Topk::k>("k"), attribute<Topk, &Topk::dim>("dim"),
        attribute<Topk, &Topk::largest>("largest"), attribute<Topk, &Topk::sorted>("sorted")};
    return kTable;
  }

 private:
  Order order() const { return largest ? Order::Descending : Order::Ascending; }
};

ValuesIndices values_and_indices(Results results) {
  return {std::move(results[0]), std::move(results[1])};
}

}  // namespace
}  // namespace ordering

using namespace ordering;

ValuesIndices sort(const Tensor& x, const SortOptions& options) {
  return values_and_indices(run_all(Sort{options}, x));
}
Tensor argsort(const Tensor& x, const SortOptions& options) { return run(Argsort{options}, x); }
Tensor msort(const Tensor& x) { return run(Msort{}, x); }
ValuesIndices topk(const Tensor& x, std::int64_t k, const TopkOptions& options) {
  return values_and_indices(run_all(Topk{k, options}, x));
}

// The catalogue --------------------------------------------------------------------------------

namespace {

template <typename Kind, typename... Settings>
Sample make_sample(DType dtype, const Settings&... settings) {
  return sample_call(Kind(settings...), {sample_tensor({2, 3, 5, 4}, dtype)});
}

}  // namespace

void detail::add_sort(Catalogue& catalogue) {
  constexpr std::string_view kHeader = "quanta/ops/sort.h";
  catalogue.add({.name = Sort::kName, .header = kHeader, .dtypes = dtypes::kOrdered},
                [](DType dtype) {
                  return make_sample<Sort>(dtype, SortOptions{2, true});
                });
  catalogue.add({.name = Argsort::kName, .header = kHeader, .dtypes = dtypes::kOrdered},
                [](DType dtype) { return make_sample<Argsort>(dtype); });
  catalogue.add({.name = Msort::kName, .header = kHeader, .dtypes = dtypes::kOrdered},
                [](DType dtype) { return make_sample<Msort>(dtype); });
  catalogue.add({.name = Topk::kName, .header = kHeader, .dtypes = dtypes::kOrdered},
                [](DType dtype) { return make_sample<Topk>(dtype, 2, TopkOptions{}); });
  ordering::add_unique(catalogue);
}

}  // namespace quanta
