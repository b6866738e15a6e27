// Rows, and sums, means and maxima of rows, of float tables.

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "quanta/ops/cuda/pick.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/embedding.h"
#include "quanta/ops/embedding/cuda_bags.h"
#include "quanta/ops/embedding/families.h"
#include "quanta/ops/embedding/gradient.h"
#include "quanta/ops/embedding/indices.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {

namespace quantized {

std::span<const std::string_view> enumerators(EmbeddingBagMode) {
  static constexpr std::array<std::string_view, 3> kNames{"sum", "mean", "max"};
  return kNames;
}

}  // namespace quantized

namespace embeddings {
namespace {

using detail::BagCall;
using detail::check_integers;
using detail::checked_indices;
using quantized::EmbeddingBagMode;

void check_table(std::string_view op, const Tensor& weight,
                 const std::optional<std::int64_t>& padding_idx) {
  QUANTA_CHECK(weight.defined(), "{}: weight: expected a tensor, got an undefined one", op);
  QUANTA_SUPPORTED(detail::is_float32_or_64(weight.dtype()) || detail::is_float_of_cuda(weight),
                   "{}: weight: expected Float32 or Float64 on the CPU, got {}", op,
                   weight.dtype());
  QUANTA_CHECK(weight.dim() == 2 && weight.sizes()[1] > 0,
               "{}: weight: expected [rows, columns > 0], got {}", op, weight.sizes());
  QUANTA_CHECK(!padding_idx || (*padding_idx >= 0 && *padding_idx < weight.sizes()[0]),
               "{}: padding_idx: expected 0..{}, got {}", op, weight.sizes()[0] - 1, *padding_idx);
}

/// A table, and indices.
struct Embedding final : Op<Embedding> {
  static constexpr std::string_view kName = "embedding";
  static constexpr ArgumentCount kArguments{2};
  std::optional<std::int64_t> padding_idx;

  explicit Embedding(std::optional<std::int64_t> padding) : padding_idx(padding) {}

  void infer(const Arguments& in, Results& out) const override {
    check_table(kName, in[0], padding_idx);
    check_integers(kName, "indices", in[1]);
    Dims sizes = in[1].sizes();
    sizes.push_back(in[0].sizes()[1]);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(sizes, in[0].dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const std::int64_t columns = in[0].sizes()[1];
    const std::vector<std::int64_t> rows = checked_indices(kName, in[1], in[0].sizes()[0]);
    detail::visit_floats(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const auto* from = in[0].data<T>();
      auto* to = out[0].mutable_data<T>();
      parallel_for(static_cast<std::int64_t>(rows.size()), detail::rows_per_thread(columns),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) {
                       const T* row = from + rows[static_cast<std::size_t>(i)] * columns;
                       std::copy_n(row, columns, to + i * columns);
                     }
                   });
    });
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const std::int64_t columns = in[0].sizes()[1];
    Dims table = Dims::filled(out[0].sizes().size(), 0);
    table[table.size() - 1] = 1;
    Dims positions = in[1].strides();
    positions.push_back(0);
    const cuda::PickedDim rows{in[1], positions, 0, in[0].sizes()[0], columns};
    if (!cuda::pick(in[0], out[0], table, {&rows, 1})) {
      checked_indices(kName, in[1].cpu(), in[0].sizes()[0]);  // throws
    }
    return "pick_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloating; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b10); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {
        embedding_gradient(context.grad(), context.input(1), context.input_sizes(0), padding_idx),
        {}};
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<Embedding, &Embedding::padding_idx>("padding_idx")};
    return kTable;
  }
};

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

/// A table, indices, offsets and per_sample_weights; the latter two may be undefined.
struct EmbeddingBag final : Op<EmbeddingBag> {
  static constexpr std::string_view kName = "embedding_bag";
  static constexpr ArgumentCount kArguments{4};
  enum Argument : std::size_t { kTable, kIndices, kOffsets, kWeights };
  EmbeddingBagMode mode;
  bool include_last_offset;
  std::optional<std::int64_t> padding_idx;

  explicit EmbeddingBag(const quantized::EmbeddingBagOptions& options)
      : mode(options.mode),
        include_last_offset(options.include_last_offset),
        padding_idx(options.padding_idx) {}

  void infer(const Arguments& in, Results& out) const override {
    check_table(kName, in[kTable], padding_idx);
    const std::int64_t bags = call(in[kIndices], in[kOffsets]).count();
    const Tensor& weights = in[kWeights];
    QUANTA_CHECK(!weights.defined() || mode == EmbeddingBagMode::Sum,
                 "{}: per_sample_weights: expected none for mode '{}' (only 'sum' takes them), got "
                 "a tensor",
                 kName, enumerators(mode)[static_cast<std::size_t>(mode)]);
    QUANTA_CHECK(!weights.defined() || (weights.dtype() == in[kTable].dtype() &&
                                        weights.sizes() == in[kIndices].sizes()),
                 "{}: per_sample_weights: expected {} {}, got {} {}", kName, in[kTable].dtype(),
                 in[kIndices].sizes(), weights.dtype(), weights.sizes());
    out.arrange(kTable, MemoryFormat::Contiguous);
    out.arrange(kWeights, MemoryFormat::Contiguous);
    out.add({bags, in[kTable].sizes()[1]}, in[kTable].dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const std::int64_t columns = in[kTable].sizes()[1];
    const std::vector<std::int64_t> rows =
        checked_indices(kName, in[kIndices], in[kTable].sizes()[0]);
    const std::vector<std::int64_t> ends = call(in[kIndices], in[kOffsets]).ends();
    detail::visit_floats(in[kTable].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const T* factors = in[kWeights].defined() ? in[kWeights].data<T>() : nullptr;
      const auto* from = in[kTable].data<T>();
      auto* to = out[0].mutable_data<T>();
      std::fill_n(to, out[0].numel(), T{0});
      parallel_for(out[0].sizes()[0], detail::rows_per_thread(columns * 8),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t bag = begin; bag < end; ++bag) {
                       const std::int64_t first = ends[static_cast<std::size_t>(bag)];
                       const std::int64_t last = ends[static_cast<std::size_t>(bag) + 1];
                       reduce_bag(from, columns, rows.data() + first,
                                  factors == nullptr ? nullptr : factors + first, last - first,
                                  padding_idx, mode, to + bag * columns);
                     }
                   });
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const detail::CudaBags bags(call(in[kIndices], in[kOffsets]), out[0].sizes()[0],
                                in[kTable].sizes()[0], padding_idx);
    const bool has_factors = in[kWeights].defined();
    cuda::reduce_float_bags(out[0].device(),
                            {.bags = bags.rows(),
                             .mode = mode_on_device(),
                             .dtype = in[kTable].dtype(),
                             .table = in[kTable].device_ptr(),
                             .columns = in[kTable].sizes()[1],
                             .factors = has_factors ? in[kWeights].device_ptr() : nullptr,
                             .out = out[0].device_ptr()});
    bags.require_inside();
    return "reduce_float_bags";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0b1111); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor indices = context.input(kIndices);
    if (indices.device().is_cuda()) return gradient_on_device(context, indices);
    const BagLayout layout{indices.to_int64_vector(), call(indices, context.input(kOffsets)).ends(),
                           mode, padding_idx};
    std::vector<Tensor> results =
        bag_gradients(context.grad(), context.input(kTable), context.input(kWeights), layout,
                      context.needs(kWeights));
    return {results[0], {}, {}, results[1]};
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kSettings{
        attribute<EmbeddingBag, &EmbeddingBag::mode>("mode"),
        attribute<EmbeddingBag, &EmbeddingBag::include_last_offset>("include_last_offset"),
        attribute<EmbeddingBag, &EmbeddingBag::padding_idx>("padding_idx")};
    return kSettings;
  }

 private:
  BagCall call(const Tensor& indices, const Tensor& offsets) const {
    return {kName, indices, offsets, include_last_offset};
  }
  std::vector<Tensor> gradient_on_device(const autograd::BackwardContext& context,
                                         const Tensor& indices) const {
    const Tensor table = context.input(kTable);
    const Tensor offsets = context.input(kOffsets);
    const detail::CudaBags bags(call(indices, offsets), context.grad().sizes()[0], table.sizes()[0],
                                padding_idx);
    std::vector<Tensor> results =
        bag_gradients_on_device(context.grad(), table, context.input(kWeights), bags.rows(),
                                mode_on_device(), context.needs(kWeights));
    return {results[0], {}, {}, results[1]};
  }
  cuda::BagMode mode_on_device() const {
    switch (mode) {
      case EmbeddingBagMode::Sum:
        return cuda::BagMode::Sum;
      case EmbeddingBagMode::Mean:
        return cuda::BagMode::Mean;
      case EmbeddingBagMode::Max:
        return cuda::BagMode::Max;
    }
    return {};
  }
};

}  // namespace

void add_float_embeddings(Catalogue& catalogue) {
  constexpr std::string_view kHeader = "quanta/ops/embedding.h";
  catalogue.add(
      {.name = Embedding::kName, .header = kHeader, .dtypes = dtypes::kFloats}, [](DType dtype) {
        return sample_call(Embedding(2),
                           {sample_tensor({6, 4}, dtype), sample_tensor({3, 2}, DType::Int64)});
      });
  catalogue.add(
      {.name = EmbeddingBag::kName, .header = kHeader, .dtypes = dtypes::kFloats}, [](DType dtype) {
        return sample_call(
            EmbeddingBag({.padding_idx = 2}),
            {sample_tensor({6, 4}, dtype), sample_tensor({5}, DType::Int32),
             Tensor::from_int64(std::vector<std::int64_t>{0, 2, 2}), sample_tensor({5}, dtype, 2)});
      });
}

}  // namespace embeddings

Tensor embedding(const Tensor& weight, const Tensor& indices,
                 std::optional<std::int64_t> padding_idx) {
  return run(embeddings::Embedding(padding_idx), weight, indices);
}

Tensor embedding_bag(const Tensor& weight, const Tensor& indices,
                     const quantized::EmbeddingBagOptions& options) {
  return run(embeddings::EmbeddingBag(options), weight, indices, options.offsets,
             options.per_sample_weights);
}

}  // namespace quanta
