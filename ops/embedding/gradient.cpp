#include "quanta/ops/embedding/gradient.h"

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/scatter.h"

namespace quanta::embeddings {
namespace {

using quantized::EmbeddingBagMode;

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
std::vector<Tensor> bags_backward(const Tensor& given, const Tensor& weight, const Tensor& weights,
                                  const BagLayout& layout, bool wants_factors) {
  const Tensor table = weight.contiguous();
  const Tensor factors = weights.defined() ? weights.contiguous() : weights;
  const Tensor gradient = given.contiguous();
  const std::int64_t columns = table.sizes()[1];
  std::vector<Tensor> results{Tensor::zeros(table.sizes(), table.dtype()), Tensor()};
  if (wants_factors) results[1] = Tensor::zeros(factors.sizes(), factors.dtype());
  const BagGradient<T> bags(layout, table.data<T>(),
                            factors.defined() ? factors.data<T>() : nullptr, columns);
  auto* to_table = results[0].mutable_data<T>();
  auto* to_factors = wants_factors ? results[1].mutable_data<T>() : nullptr;
  for (std::size_t b = 0; b + 1 < layout.ends.size(); ++b) {
    bags.add(b, gradient.data<T>() + static_cast<std::int64_t>(b) * columns, to_table, to_factors);
  }
  return results;
}

}  // namespace

Tensor embedding_gradient(const Tensor& gradient, const Tensor& indices, const Dims& sizes,
                          std::optional<std::int64_t> padding_idx) {
  const Tensor rows = indices.to(DType::Int64).contiguous();
  const Tensor sum = detail::add_slices(gradient, rows, sizes, 0);
  if (padding_idx) sum.select(0, *padding_idx).fill_(0.0);
  return sum;
}

std::vector<Tensor> bag_gradients(const Tensor& gradient, const Tensor& table,
                                  const Tensor& factors, const BagLayout& layout,
                                  bool wants_factors) {
  return detail::visit_floats(table.dtype(), [&](auto zero) {
    return bags_backward<decltype(zero)>(gradient, table, factors, layout, wants_factors);
  });
}

}  // namespace quanta::embeddings
