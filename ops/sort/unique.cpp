#include "quanta/ops/sort/unique.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "quanta/ops/cuda/pick.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/sort.h"
#include "quanta/ops/sort/cuda_groups.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace ordering {
namespace {

using Positions = std::vector<std::int64_t>;

// The groups of equal slices, in the order of the result.
struct Groups {
  Positions first;
  Positions inverse;
  Positions counts;
};

// `count` slices of `length` elements, one behind the other.
template <typename T>
Groups groups_of(const T* data, std::int64_t count, std::int64_t length, bool sorted) {
  const auto slice_less = [&](std::int64_t a, std::int64_t b) {
    const T* left = data + a * length;
    const T* right = data + b * length;
    return std::lexicographical_compare(left, left + length, right, right + length,
                                        detail::is_less<T>);
  };
  Positions order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, slice_less);
  Groups groups;
  groups.inverse.resize(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || slice_less(order[i - 1], order[i])) {
      groups.first.push_back(order[i]);  // the sort is stable
      groups.counts.push_back(0);
    }
    ++groups.counts.back();
    groups.inverse[static_cast<std::size_t>(order[i])] =
        static_cast<std::int64_t>(groups.first.size()) - 1;
  }
  if (sorted) return groups;
  Positions by_first(groups.first.size());
  std::iota(by_first.begin(), by_first.end(), 0);
  std::ranges::sort(by_first, {}, [&](std::int64_t group) {
    return groups.first[static_cast<std::size_t>(group)];
  });
  Groups result;
  Positions number(by_first.size());
  for (std::size_t i = 0; i < by_first.size(); ++i) {
    const auto group = static_cast<std::size_t>(by_first[i]);
    result.first.push_back(groups.first[group]);
    result.counts.push_back(groups.counts[group]);
    number[group] = static_cast<std::int64_t>(i);
  }
  for (const std::int64_t group : groups.inverse) {
    result.inverse.push_back(number[static_cast<std::size_t>(group)]);
  }
  return result;
}

struct Unique final : Op<Unique> {
  static constexpr std::string_view kName = "unique";
  static constexpr ArgumentCount kArguments{1};
  std::optional<std::int64_t> dim;
  bool sorted = true;

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    detail::check_ordered(kName, x.dtype());
    if (dim) {
      QUANTA_CHECK(x.dim() > 0, "{}: x: expected a tensor with dimensions, got a 0-d one", kName);
      wrap_dim(*dim, x.dim(), kName);
    }
    out.reads_values(kName, x);
    const Tensor slices = slices_of(x);
    const std::int64_t all = count_of(slices);
    const std::int64_t count = count_groups(slices);
    Dims sizes{count};
    if (dim) {
      sizes = x.sizes();
      sizes[static_cast<std::size_t>(wrap_dim(*dim, x.dim(), kName))] = count;
    }
    out.add_like(x, sizes);
    out.add({count}, DType::Int64);
    out.add({all}, DType::Int64);
    out.add({count}, DType::Int64);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Groups groups = find(slices_of(in[0]));
    const Tensor source = dim ? in[0].detach() : in[0].detach().reshape({-1});
    const std::int64_t d = dim ? wrap_dim(*dim, source.dim(), kName) : 0;
    for (std::size_t i = 0; i < groups.first.size(); ++i) {
      const auto to = static_cast<std::int64_t>(i);
      out[0].select(d, to).copy_(source.select(d, groups.first[i]));
    }
    put(groups.first, out[1]);
    put(groups.inverse, out[2]);
    put(groups.counts, out[3]);
    return "sort";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const auto numbers = [](const Tensor& x) {
      return reinterpret_cast<std::int64_t*>(x.device_ptr());
    };
    const Tensor slices = slices_of(in[0]);
    using Order = cuda::Groups::Order;
    find_on_device(slices).write(out[1].numel(), sorted ? Order::ByValue : Order::ByFirst,
                                 numbers(out[1]), numbers(out[3]), numbers(out[2]));
    const Tensor source = dim ? in[0].detach() : slices.reshape({-1});
    const auto d = static_cast<std::size_t>(dim ? wrap_dim(*dim, source.dim(), kName) : 0);
    Dims strides = source.strides();
    strides[d] = 0;
    Dims positions = Dims::filled(strides.size(), 0);
    positions[d] = 1;
    const cuda::PickedDim first{out[1], positions, 0, source.sizes()[d], source.strides()[d]};
    if (!cuda::pick(source, out[0], strides, {&first, 1})) {
      throw InternalError("unique: first: expected places within x");
    }
    return "sort_tiles";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kOrdered; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse(); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Unique, &Unique::dim>("dim"),
                                       attribute<Unique, &Unique::sorted>("sorted")};
    return kTable;
  }

 private:
  // One behind the other.
  Tensor slices_of(const Tensor& x) const {
    return (dim ? x.detach().transpose(0, wrap_dim(*dim, x.dim(), kName)) : x.detach())
        .contiguous();
  }
  std::int64_t count_of(const Tensor& slices) const {
    return dim ? slices.size(0) : slices.numel();
  }
  Groups find(const Tensor& slices) const {
    const std::int64_t count = count_of(slices);
    const std::int64_t length = count == 0 ? 0 : slices.numel() / count;
    Groups groups;
    detail::visit_ordered(kName, slices.dtype(), [&](auto zero) {
      using T = decltype(zero);
      groups = groups_of(static_cast<const T*>(slices.data_ptr()), count, length, sorted);
    });
    return groups;
  }
  cuda::Groups find_on_device(const Tensor& slices) const {
    const std::int64_t count = count_of(slices);
    return {slices.device(), slices.dtype(), slices.device_ptr(), count, slices.numel() / count};
  }
  // On a device that waits: how many there are decides about the sizes of the results.
  std::int64_t count_groups(const Tensor& slices) const {
    if (count_of(slices) == 0) return 0;
    if (slices.device().is_cuda()) return find_on_device(slices).total();
    return static_cast<std::int64_t>(find(slices).first.size());
  }
  static void put(const Positions& numbers, const Tensor& out) {
    std::ranges::copy(numbers, static_cast<std::int64_t*>(out.data_ptr()));
  }
};

}  // namespace

void add_unique(Catalogue& catalogue) {
  catalogue.add({.name = Unique::kName, .header = "quanta/ops/sort.h", .dtypes = dtypes::kOrdered},
                [](DType dtype) {
                  return sample_call(Unique{}, {sample_tensor({2, 3}, dtype)});
                });
}

}  // namespace ordering

UniqueResult unique(const Tensor& x, const UniqueOptions& options) {
  ordering::Unique operation;
  operation.dim = options.dim;
  operation.sorted = options.sorted;
  const Results results = run_all(operation, x);
  return {results[0], results[1], results[2], results[3]};
}

}  // namespace quanta
