#include "quanta/ops/embedding/gradient.h"

#include <utility>

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/indexing/gradient.h"
#include "quanta/runtime/autograd.h"

namespace quanta::gradients {
namespace {

using autograd::BackwardContext;
using quantized::EmbeddingBagMode;

Tensor index_tensor(const std::vector<std::int64_t>& rows) { return Tensor::from_int64(rows); }

// One bag: `rows` are the places in `layout` of those that count.
template <typename T>
class BagGradient {
 public:
  BagGradient(const BagLayout& layout, const T* table, const T* factors, std::int64_t columns)
      : layout_(layout), table_(table), factors_(factors), columns_(columns) {}

  // Adds the gradient [columns] of bag b to the table's and to the factors'.
  void add(std::size_t b, const T* gradient, T* to_table, T* to_factors) const {
    std::vector<std::int64_t> used;
    for (std::int64_t i = layout_.ends[b]; i < layout_.ends[b + 1]; ++i) {
      if (row(i) != layout_.padding_idx) used.push_back(i);
    }
    if (used.empty()) return;
    if (layout_.mode == EmbeddingBagMode::Max) return add_to_largest(used, gradient, to_table);
    const T share =
        layout_.mode == EmbeddingBagMode::Mean ? T{1} / static_cast<T>(used.size()) : T{1};
    for (const std::int64_t i : used) {
      const T factor = factors_ == nullptr ? share : factors_[i] * share;
      T* to = to_table + row(i) * columns_;
      for (std::int64_t c = 0; c < columns_; ++c) to[c] += gradient[c] * factor;
      if (to_factors == nullptr) continue;
      T sum{};
      const T* from = table_ + row(i) * columns_;
      for (std::int64_t c = 0; c < columns_; ++c) sum += gradient[c] * from[c];
      to_factors[i] += sum;
    }
  }

 private:
  std::int64_t row(std::int64_t i) const { return layout_.rows[static_cast<std::size_t>(i)]; }

  // The first of the largest has it all, column by column.
  void add_to_largest(const std::vector<std::int64_t>& used, const T* gradient, T* to_table) const {
    for (std::int64_t c = 0; c < columns_; ++c) {
      std::int64_t best = row(used[0]);
      for (const std::int64_t i : used) {
        if (table_[row(i) * columns_ + c] > table_[best * columns_ + c]) best = row(i);
      }
      to_table[best * columns_ + c] += gradient[c];
    }
  }

  const BagLayout& layout_;
  const T* table_;
  const T* factors_;
  std::int64_t columns_;
};

template <typename T>
std::vector<Tensor> bags_backward(const BackwardContext& backward, const BagLayout& layout) {
  const Tensor table = backward.saved(0).contiguous();
  const Tensor factors =
      backward.saved(1).defined() ? backward.saved(1).contiguous() : backward.saved(1);
  const Tensor gradient = backward.grad().contiguous();
  const std::int64_t columns = table.sizes()[1];
  std::vector<Tensor> results{Tensor::zeros(table.sizes(), table.dtype()), Tensor()};
  if (backward.needs(1)) results[1] = Tensor::zeros(factors.sizes(), factors.dtype());
  const BagGradient<T> bags(layout, table.data<T>(),
                            factors.defined() ? factors.data<T>() : nullptr, columns);
  auto* to_table = results[0].mutable_data<T>();
  auto* to_factors = backward.needs(1) ? results[1].mutable_data<T>() : nullptr;
  for (std::size_t b = 0; b + 1 < layout.ends.size(); ++b) {
    bags.add(b, gradient.data<T>() + static_cast<std::int64_t>(b) * columns, to_table, to_factors);
  }
  return results;
}

}  // namespace

Tensor record_embedding(const Tensor& table, const std::vector<std::int64_t>& rows,
                        std::optional<std::int64_t> padding_idx, Tensor y) {
  return autograd::record("embedding", {table}, std::move(y), {index_tensor(rows)},
                          [sizes = table.sizes(), padding_idx](const BackwardContext& backward) {
                            const Tensor sum =
                                add_slices(backward.grad(), backward.saved(0), sizes, 0);
                            if (padding_idx) sum.select(0, *padding_idx).fill_(0.0);
                            return std::vector<Tensor>{sum};
                          });
}

Tensor record_bags(const Tensor& table, const Tensor& factors, BagLayout layout, Tensor y) {
  return autograd::record("embedding_bag", {table, factors}, std::move(y), {table, factors},
                          [layout = std::move(layout)](const BackwardContext& backward) {
                            return detail::visit_floats(backward.saved(0).dtype(), [&](auto zero) {
                              return bags_backward<decltype(zero)>(backward, layout);
                            });
                          });
}

}  // namespace quanta::gradients
