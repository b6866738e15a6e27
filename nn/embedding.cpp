#include "quanta/nn/embedding.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "quanta/nn/detail/layer_options.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/embedding/gradient.h"
#include "quanta/ops/embedding/indices.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/recorder.h"

namespace quanta::nn {
namespace {

using quanta::detail::check_integers;
using quanta::detail::checked_indices;

constexpr std::array<std::string_view, 3> kModeNames = {"sum", "mean", "max"};

template <typename Options>
Options checked(std::string_view op, Options options) {
  QUANTA_CHECK(options.num_embeddings >= 1, "{}: num_embeddings: expected at least 1, got {}", op,
               options.num_embeddings);
  QUANTA_CHECK(options.embedding_dim >= 1, "{}: embedding_dim: expected at least 1, got {}", op,
               options.embedding_dim);
  if (options.padding_idx) {
    const std::int64_t rows = options.num_embeddings;
    QUANTA_CHECK(*options.padding_idx >= -rows && *options.padding_idx < rows,
                 "{}: padding_idx: expected {}..{}, got {}", op, -rows, rows - 1,
                 *options.padding_idx);
    if (*options.padding_idx < 0) *options.padding_idx += rows;
  }
  return options;
}

template <typename Options>
Tensor new_table(const Options& options) {
  Tensor table = detail::normal({options.num_embeddings, options.embedding_dim});
  if (options.padding_idx) table.select(0, *options.padding_idx).fill_(0.0);
  return table;
}

// Bag b covers indices [ends[b], ends[b + 1]).
std::vector<std::int64_t> bag_ends(const Tensor& indices, const Tensor& offsets,
                                   bool include_last_offset) {
  constexpr std::string_view kOp = "EmbeddingBag";
  std::vector<std::int64_t> ends;
  if (indices.dim() == 2) {
    QUANTA_CHECK(!offsets.defined(), "{}: offsets: expected none for 2-d indices, got a tensor",
                 kOp);
    for (std::int64_t bag = 0; bag <= indices.sizes()[0]; ++bag) {
      ends.push_back(bag * indices.sizes()[1]);
    }
    return ends;
  }
  QUANTA_CHECK(indices.dim() == 1, "{}: indices: expected 1 or 2 dimensions, got {}", kOp,
               indices.sizes());
  QUANTA_CHECK(offsets.defined(),
               "{}: offsets: expected a tensor for 1-d indices (call forward(indices, offsets)), "
               "got none",
               kOp);
  check_integers(kOp, "offsets", offsets);
  QUANTA_CHECK(offsets.dim() == 1, "{}: offsets: expected 1 dimension, got {}", kOp,
               offsets.sizes());
  ends = offsets.to_int64_vector();
  QUANTA_CHECK(!include_last_offset || !ends.empty(),
               "{}: offsets: expected at least one with include_last_offset, got none", kOp);
  if (!include_last_offset) ends.push_back(indices.numel());
  std::int64_t last = 0;
  for (const std::int64_t end : ends) {
    QUANTA_CHECK(end >= last && end <= indices.numel(),
                 "{}: offsets: expected numbers that do not fall, within 0..{}, got {} after {}",
                 kOp, indices.numel(), end, last);
    last = end;
  }
  QUANTA_CHECK(ends[0] == 0 || ends.size() == 1, "{}: offsets: expected 0 first, got {}", kOp,
               ends[0]);
  return ends;
}

// Members are open to everybody, so the table is looked at before its rows are.
template <typename Options>
Tensor checked_table(std::string_view op, const Tensor& weight, const Options& options) {
  const Dims sizes{options.num_embeddings, options.embedding_dim};
  QUANTA_CHECK(weight.defined() && quanta::detail::is_float32_or_64(weight.dtype()) &&
                   weight.sizes() == sizes,
               "{}: weight: expected Float32 {}, got {} {}", op, sizes,
               weight.defined() ? to_string(weight.dtype()) : "undefined",
               weight.defined() ? weight.sizes() : Dims{});
  return weight.contiguous();
}

// Rows of a contiguous table, as many at a time as make a task worth a thread.
std::int64_t grain(std::int64_t columns) { return std::max<std::int64_t>(1, 8192 / columns); }

// One bag: rows[0..count) reduced into `to`, which holds zeros.
template <typename T>
void reduce_bag(const T* table, std::int64_t columns, const std::int64_t* rows, const T* factors,
                std::int64_t count, std::optional<std::int64_t> padding_idx, EmbeddingBagMode mode,
                T* to) {
  std::int64_t used = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (padding_idx && rows[i] == *padding_idx) continue;
    const T* row = table + rows[i] * columns;
    if (mode == EmbeddingBagMode::Max) {
      for (std::int64_t c = 0; c < columns; ++c) {
        if (used == 0 || row[c] > to[c]) to[c] = row[c];
      }
    } else {
      const T factor = factors == nullptr ? T{1} : factors[i];
      for (std::int64_t c = 0; c < columns; ++c) to[c] += row[c] * factor;
    }
    ++used;
  }
  if (mode == EmbeddingBagMode::Mean && used > 1) {
    for (std::int64_t c = 0; c < columns; ++c) to[c] /= static_cast<T>(used);
  }
}

// Where each bag of a call begins, and the rows of all.
struct Bags {
  std::vector<std::int64_t> rows, ends;
};

Tensor picked_rows(const EmbeddingOptions& options, const Tensor& source,
                   const std::vector<std::int64_t>& rows, Dims sizes) {
  const std::int64_t columns = options.embedding_dim;
  sizes.push_back(columns);
  const Tensor table = checked_table("Embedding", source, options);
  const Tensor result = Tensor::empty(sizes, table.dtype());
  quanta::detail::visit_floats(table.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto* from = table.data<T>();
    auto* to = result.mutable_data<T>();
    parallel_for(static_cast<std::int64_t>(rows.size()), grain(columns),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const T* row = from + rows[static_cast<std::size_t>(i)] * columns;
                     std::copy_n(row, columns, to + i * columns);
                   }
                 });
  });
  return result;
}

Bags bags_of(const EmbeddingBagOptions& options, const Tensor& indices, const Tensor& offsets) {
  std::vector<std::int64_t> rows = checked_indices("EmbeddingBag", indices, options.num_embeddings);
  return {std::move(rows), bag_ends(indices, offsets, options.include_last_offset)};
}

Tensor reduced_bags(const EmbeddingBagOptions& options, const Tensor& source, const Bags& given,
                    const Tensor& indices, const Tensor& per_sample_weights) {
  const Tensor table = checked_table("EmbeddingBag", source, options);
  Tensor weights;
  if (per_sample_weights.defined()) {
    QUANTA_CHECK(options.mode == EmbeddingBagMode::Sum,
                 "EmbeddingBag: per_sample_weights: expected none for mode '{}' (only 'sum' takes "
                 "them), got a tensor",
                 kModeNames[static_cast<std::size_t>(options.mode)]);
    QUANTA_CHECK(per_sample_weights.dtype() == source.dtype() &&
                     per_sample_weights.sizes() == indices.sizes(),
                 "EmbeddingBag: per_sample_weights: expected {} {}, got {} {}", source.dtype(),
                 indices.sizes(), per_sample_weights.dtype(), per_sample_weights.sizes());
    weights = per_sample_weights.contiguous();
  }
  const std::int64_t columns = options.embedding_dim;
  const auto bags = static_cast<std::int64_t>(given.ends.size()) - 1;
  const Tensor result = Tensor::zeros({bags, columns}, table.dtype());
  quanta::detail::visit_floats(table.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* factors = weights.defined() ? weights.data<T>() : nullptr;
    const auto* from = table.data<T>();
    auto* to = result.mutable_data<T>();
    parallel_for(bags, grain(columns * 8), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t bag = begin; bag < end; ++bag) {
        const std::int64_t first = given.ends[static_cast<std::size_t>(bag)];
        const std::int64_t last = given.ends[static_cast<std::size_t>(bag) + 1];
        reduce_bag(from, columns, given.rows.data() + first,
                   factors == nullptr ? nullptr : factors + first, last - first,
                   options.padding_idx, options.mode, to + bag * columns);
      }
    });
  });
  return result;
}

}  // namespace

Embedding::Embedding(const EmbeddingOptions& options) : options_(checked("Embedding", options)) {
  weight = new_table(options_);
  register_parameter("weight", weight);
}

Tensor Embedding::forward(const Tensor& indices) const {
  const Tensor source = lookup_table();
  if (replay::is_recording()) {
    return replay::call(
        "embedding",
        [options = options_](const Tensor& table, const Tensor& at) {
          return picked_rows(options, table,
                             checked_indices("Embedding", at, options.num_embeddings), at.sizes());
        },
        source, indices);
  }
  const std::vector<std::int64_t> rows =
      checked_indices("Embedding", indices, options_.num_embeddings);
  const Tensor result = picked_rows(options_, source, rows, indices.sizes());
  if (!autograd::needs_grad(source)) return result;
  return gradients::record_embedding(source, rows, options_.padding_idx, result);
}

std::string Embedding::extra_repr() const {
  std::string text = fmt::format("{}, {}", options_.num_embeddings, options_.embedding_dim);
  if (options_.padding_idx) text += fmt::format(", padding_idx={}", *options_.padding_idx);
  return text;
}

EmbeddingBag::EmbeddingBag(const EmbeddingBagOptions& options) : EmbeddingBag(options, NoTable{}) {
  weight = new_table(options_);
}

EmbeddingBag::EmbeddingBag(const EmbeddingBagOptions& options, NoTable)
    : options_(checked("EmbeddingBag", options)) {
  register_parameter("weight", weight);
}

Tensor EmbeddingBag::forward(const Tensor& indices, const Tensor& offsets,
                             const Tensor& per_sample_weights) const {
  const detail::PathScope scope(this);
  Tensor y = run(indices, offsets, per_sample_weights);
  const std::shared_ptr<Observer>& observer = activation_post_process();
  return observer != nullptr ? observer->forward(y) : y;
}

Tensor EmbeddingBag::run(const Tensor& indices, const Tensor& offsets,
                         const Tensor& per_sample_weights) const {
  if (replay::is_recording()) {
    return replay::call(
        "embedding_bag",
        [options = options_](const Tensor& table, const Tensor& at, const Tensor& starts,
                             const Tensor& weights) {
          return reduced_bags(options, table, bags_of(options, at, starts), at, weights);
        },
        lookup_table(), indices, offsets, per_sample_weights);
  }
  const Bags bags = bags_of(options_, indices, offsets);
  const Tensor source = lookup_table();
  const Tensor result = reduced_bags(options_, source, bags, indices, per_sample_weights);
  if (!autograd::needs_grad(source, per_sample_weights)) return result;
  return gradients::record_bags(source, per_sample_weights,
                                {bags.rows, bags.ends, options_.mode, options_.padding_idx},
                                result);
}

std::string EmbeddingBag::extra_repr() const {
  std::string text =
      fmt::format("{}, {}, mode='{}'", options_.num_embeddings, options_.embedding_dim,
                  kModeNames[static_cast<std::size_t>(options_.mode)]);
  if (options_.padding_idx) text += fmt::format(", padding_idx={}", *options_.padding_idx);
  return text;
}

}  // namespace quanta::nn
