#include "quanta/nn/embedding.h"

#include <array>

#include "quanta/nn/detail/layer_options.h"
#include "quanta/ops/detail/floating.h"

namespace quanta::nn {
namespace {

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

// Members are open to everybody, so the table is looked at before its rows are.
template <typename Options>
Tensor checked_table(std::string_view op, const Tensor& weight, const Options& options) {
  const Dims sizes{options.num_embeddings, options.embedding_dim};
  const bool is_taken = weight.defined() && (quanta::detail::is_float32_or_64(weight.dtype()) ||
                                             quanta::detail::is_float_of_cuda(weight));
  QUANTA_CHECK(is_taken && weight.sizes() == sizes, "{}: weight: expected Float32 {}, got {} {}",
               op, sizes, weight.defined() ? to_string(weight.dtype()) : "undefined",
               weight.defined() ? weight.sizes() : Dims{});
  return weight;
}

}  // namespace

Embedding::Embedding(const EmbeddingOptions& options) : options_(checked("Embedding", options)) {
  weight = new_table(options_);
  register_parameter("weight", weight);
}

Tensor Embedding::forward(const Tensor& indices) const {
  return quanta::embedding(checked_table("Embedding", lookup_table(), options_), indices,
                           options_.padding_idx);
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
  QUANTA_CHECK(!indices.defined() || indices.dim() != 1 || offsets.defined(),
               "EmbeddingBag: offsets: expected a tensor for 1-d indices (call forward(indices, "
               "offsets)), got none");
  return quanta::embedding_bag(checked_table("EmbeddingBag", lookup_table(), options_), indices,
                               {.offsets = offsets,
                                .mode = options_.mode,
                                .per_sample_weights = per_sample_weights,
                                .include_last_offset = options_.include_last_offset,
                                .padding_idx = options_.padding_idx});
}

std::string EmbeddingBag::extra_repr() const {
  std::string text =
      fmt::format("{}, {}, mode='{}'", options_.num_embeddings, options_.embedding_dim,
                  kModeNames[static_cast<std::size_t>(options_.mode)]);
  if (options_.padding_idx) text += fmt::format(", padding_idx={}", *options_.padding_idx);
  return text;
}

}  // namespace quanta::nn
