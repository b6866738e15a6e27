#include "quanta/ops/embedding.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "quanta/ops/embedding/cpu_kernels.h"
#include "quanta/ops/embedding/indices.h"
#include "quanta/ops/embedding/rows.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta::quantized {
namespace {

using quanta::detail::check_integers;
using quanta::detail::checked_indices;

using detail::EmbeddingRows;
using detail::RowParameters;
using detail::RowRange;

struct PackedTable {
  Tensor rows;  // contiguous
  EmbeddingRows layout;
  const std::uint8_t* data = nullptr;
  std::int64_t count = 0;
};

PackedTable packed_table(std::string_view op, std::string_view argument, const Tensor& weight,
                         int bits) {
  const std::int64_t overhead = EmbeddingRows::parameter_bytes(bits);
  QUANTA_CHECK(weight.defined() && weight.dtype() == DType::UInt8 && weight.dim() == 2 &&
                   weight.sizes()[1] > overhead,
               "{}: {}: expected UInt8 [rows, more than {} bytes], got {} {}", op, argument,
               overhead, weight.defined() ? to_string(weight.dtype()) : "undefined",
               weight.defined() ? weight.sizes() : Dims{});
  PackedTable table;
  table.rows = weight.contiguous();
  table.layout = {bits, (weight.sizes()[1] - overhead) * (8 / bits)};
  table.data = table.rows.data<std::uint8_t>();
  table.count = weight.sizes()[0];
  return table;
}

PackedTable packed_table(std::string_view op, const EmbeddingPackedParams& weight, DType dtype) {
  QUANTA_CHECK(weight.packed_weight().defined() && weight.dtype() == dtype,
               "{}: weight: expected parameters packed from {}, got {}", op, dtype,
               weight.packed_weight().defined() ? to_string(weight.dtype()) : "empty ones");
  PackedTable table;
  table.rows = weight.packed_weight();
  table.layout = {item_bits(dtype), weight.embedding_dim()};
  table.data = table.rows.data<std::uint8_t>();
  table.count = weight.num_embeddings();
  return table;
}

Tensor lookup(std::string_view op, const PackedTable& table, const Tensor& indices) {
  if (replay::is_recording()) {
    return replay::call(
        op,
        [=](const Tensor& rows, const Tensor& at) {
          return lookup(op, {rows, table.layout, rows.data<std::uint8_t>(), table.count}, at);
        },
        table.rows, indices);
  }
  const std::vector<std::int64_t> rows = checked_indices(op, indices, table.count);
  Dims sizes = indices.sizes();
  sizes.push_back(table.layout.columns);
  const Tensor result = Tensor::zeros(sizes);
  auto* to = result.mutable_data<float>();
  const std::int64_t columns = table.layout.columns;
  parallel_for(static_cast<std::int64_t>(rows.size()), std::max<std::int64_t>(1, 8192 / columns),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   cpu::add_embedding_rows(table.layout, table.data, rows.data() + i, nullptr, 1,
                                           to + i * columns);
                 }
               });
  return result;
}

// bag b covers indices [ends[b], ends[b + 1]).
std::vector<std::int64_t> bag_ends(std::string_view op, const Tensor& indices,
                                   const EmbeddingBagOptions& options) {
  std::vector<std::int64_t> ends;
  if (indices.dim() == 2) {
    QUANTA_CHECK(!options.offsets.defined(),
                 "{}: offsets: expected none for 2-d indices, got a tensor", op);
    for (std::int64_t bag = 0; bag <= indices.sizes()[0]; ++bag) {
      ends.push_back(bag * indices.sizes()[1]);
    }
    return ends;
  }
  QUANTA_CHECK(indices.dim() == 1, "{}: indices: expected 1 or 2 dimensions, got {}", op,
               indices.sizes());
  QUANTA_CHECK(options.offsets.defined(),
               "{}: offsets: expected a tensor for 1-d indices, got none", op);
  check_integers(op, "offsets", options.offsets);
  QUANTA_CHECK(options.offsets.dim() == 1, "{}: offsets: expected 1 dimension, got {}", op,
               options.offsets.sizes());
  ends = options.offsets.to_int64_vector();
  QUANTA_CHECK(!options.include_last_offset || !ends.empty(),
               "{}: offsets: expected at least one with include_last_offset, got none", op);
  if (!options.include_last_offset) ends.push_back(indices.numel());
  std::int64_t last = 0;
  for (const std::int64_t end : ends) {
    QUANTA_CHECK(end >= last && end <= indices.numel(),
                 "{}: offsets: expected numbers that do not fall, within 0..{}, got {} after {}",
                 op, indices.numel(), end, last);
    last = end;
  }
  QUANTA_CHECK(ends[0] == 0 || ends.size() == 1, "{}: offsets: expected 0 first, got {}", op,
               ends[0]);
  return ends;
}

Tensor sum_bags(std::string_view op, const PackedTable& table, const Tensor& indices,
                const EmbeddingBagOptions& options) {
  if (replay::is_recording()) {
    return replay::call(
        op,
        [=](const Tensor& rows, const Tensor& at, const Tensor& offsets, const Tensor& weights) {
          EmbeddingBagOptions given = options;
          given.offsets = offsets;
          given.per_sample_weights = weights;
          return sum_bags(op, {rows, table.layout, rows.data<std::uint8_t>(), table.count}, at,
                          given);
        },
        table.rows, indices, options.offsets, options.per_sample_weights);
  }
  QUANTA_SUPPORTED(options.mode == EmbeddingBagMode::Sum,
                   "{}: mode: expected Sum (the only mode of quantized tables), got {}", op,
                   options.mode == EmbeddingBagMode::Mean ? "Mean" : "Max");
  const std::vector<std::int64_t> rows = checked_indices(op, indices, table.count);
  const std::vector<std::int64_t> ends = bag_ends(op, indices, options);
  Tensor weights;
  if (options.per_sample_weights.defined()) {
    QUANTA_CHECK(options.per_sample_weights.dtype() == DType::Float32 &&
                     options.per_sample_weights.sizes() == indices.sizes(),
                 "{}: per_sample_weights: expected Float32 {}, got {} {}", op, indices.sizes(),
                 options.per_sample_weights.dtype(), options.per_sample_weights.sizes());
    weights = options.per_sample_weights.contiguous();
  }
  const float* factors = weights.defined() ? weights.data<float>() : nullptr;
  const auto bags = static_cast<std::int64_t>(ends.size()) - 1;
  const std::int64_t columns = table.layout.columns;
  const Tensor result = Tensor::zeros({bags, columns});
  auto* to = result.mutable_data<float>();
  parallel_for(bags, std::max<std::int64_t>(1, 8192 / (columns * 8)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t bag = begin; bag < end; ++bag) {
                   const auto slot = static_cast<std::size_t>(bag);
                   const std::int64_t first = ends[slot];
                   cpu::add_embedding_rows(table.layout, table.data, rows.data() + first,
                                           factors == nullptr ? nullptr : factors + first,
                                           ends[slot + 1] - first, to + bag * columns);
                 }
               });
  return result;
}

// The table of a float prepack, checked and contiguous.
Tensor checked_float_table(std::string_view op, const Tensor& weight, int bits) {
  QUANTA_CHECK(weight.defined() && weight.dtype() == DType::Float32 && weight.dim() == 2 &&
                   weight.sizes()[1] > 0,
               "{}: weight: expected Float32 [rows, columns > 0], got {} {}", op,
               weight.defined() ? to_string(weight.dtype()) : "undefined",
               weight.defined() ? weight.sizes() : Dims{});
  QUANTA_CHECK(weight.sizes()[1] % (8 / bits) == 0,
               "{}: weight: expected a multiple of {} columns, got {}", op, 8 / bits,
               weight.sizes()[1]);
  return weight.contiguous();
}

RowRange range_of(std::string_view op, const float* row, std::int64_t columns) {
  const auto [low, high] = std::minmax_element(row, row + columns);
  QUANTA_CHECK(std::all_of(row, row + columns, [](float x) { return std::isfinite(x); }),
               "{}: weight: expected finite numbers, got {}..{} or NaN", op, *low, *high);
  return {*low, *high};
}

Tensor prepack_nbit(std::string_view op, const Tensor& weight, int bits,
                    const NBitPrepackOptions& options) {
  if (replay::is_recording()) {
    return replay::call(
        op, [=](const Tensor& t) { return prepack_nbit(op, t, bits, options); }, weight);
  }
  OpScope scope(op);
  const Tensor dense = checked_float_table(op, weight, bits);
  QUANTA_CHECK(options.nbins >= 1 && options.nbins <= 1 << 20, "{}: nbins: expected 1..{}, got {}",
               op, 1 << 20, options.nbins);
  QUANTA_CHECK(options.ratio >= 0.0 && options.ratio <= 1.0, "{}: ratio: expected 0..1, got {}", op,
               options.ratio);
  const EmbeddingRows layout{bits, dense.sizes()[1]};
  const Tensor result = Tensor::zeros({dense.sizes()[0], layout.row_bytes()}, DType::UInt8);
  const auto* from = dense.data<float>();
  auto* to = result.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < dense.sizes()[0]; ++i) {
    const float* values = from + i * layout.columns;
    std::uint8_t* row = to + i * layout.row_bytes();
    RowRange range = range_of(op, values, layout.columns);
    if (options.optimized_qparams) {
      range =
          detail::narrow_range(values, layout.columns, range, bits, options.nbins, options.ratio);
    }
    range.min = detail::round_to_half(range.min);
    const detail::NBitScale scale = detail::nbit_scale(range, bits);
    for (std::int64_t c = 0; c < layout.columns; ++c) {
      layout.set_code(row, c, detail::nbit_code(values[c], range.min, scale.inverse, bits));
    }
    layout.set_parameters(row, {scale.scale, range.min});
  }
  return result;
}

Tensor unpack_rows(std::string_view op, const Tensor& packed_weight, int bits) {
  if (replay::is_recording()) {
    return replay::call(
        op, [=](const Tensor& t) { return unpack_rows(op, t, bits); }, packed_weight);
  }
  OpScope scope(op);
  const PackedTable table = packed_table(op, "packed_weight", packed_weight, bits);
  const std::int64_t columns = table.layout.columns;
  const Tensor result = Tensor::zeros({table.count, columns});
  auto* to = result.mutable_data<float>();
  for (std::int64_t i = 0; i < table.count; ++i) {
    cpu::add_embedding_rows(table.layout, table.data, &i, nullptr, 1, to + i * columns);
  }
  return result;
}

}  // namespace

EmbeddingPackedParams embedding_bag_prepack(const QTensor& weight) {
  constexpr std::string_view kOp = "embedding_bag_prepack";
  OpScope scope(kOp);
  QUANTA_CHECK(weight.defined() && weight.dim() == 2 && weight.sizes()[1] > 0 &&
                   (weight.dtype() == DType::QUInt8 || weight.dtype() == DType::QUInt4x2) &&
                   weight.qscheme() == QScheme::PerChannelAffineFloatQParams &&
                   weight.q_per_channel_axis() == 0,
               "{}: weight: expected QUInt8 or QUInt4x2 [rows, columns] with float zero points "
               "along axis 0, got {} {}",
               kOp, weight.defined() ? to_string(weight.dtype()) : "undefined",
               weight.defined() ? weight.sizes() : Dims{});
  EmbeddingPackedParams params;
  params.sizes_ = weight.sizes();
  params.dtype_ = weight.dtype();
  params.quantizer_ = weight.quantizer();
  const EmbeddingRows layout{item_bits(weight.dtype()), weight.sizes()[1]};
  const EmbeddingRows flat{layout.bits, weight.numel()};
  const Tensor dense = weight.contiguous();
  const auto* from = static_cast<const std::uint8_t*>(dense.data_ptr());
  params.packed_ = Tensor::zeros({weight.sizes()[0], layout.row_bytes()}, DType::UInt8);
  auto* to = params.packed_.mutable_data<std::uint8_t>();
  const ChannelQParams& channel = *weight.quantizer().channel;
  for (std::int64_t i = 0; i < weight.sizes()[0]; ++i) {
    std::uint8_t* row = to + i * layout.row_bytes();
    for (std::int64_t c = 0; c < layout.columns; ++c) {
      layout.set_code(row, c, flat.code(from, i * layout.columns + c));
    }
    const auto slot = static_cast<std::size_t>(i);
    const auto scale = static_cast<float>(channel.scales[slot]);
    layout.set_parameters(row, {scale, -channel.float_zero_points[slot] * scale});
  }
  return params;
}

QTensor EmbeddingPackedParams::unpack() const {
  QUANTA_CHECK(packed_.defined(), "unpack: weight: expected packed parameters, got empty ones");
  const EmbeddingRows layout{item_bits(dtype_), sizes_[1]};
  const std::int64_t numel = product(sizes_);
  const EmbeddingRows flat{layout.bits, numel};
  const Tensor codes = Tensor::zeros({flat.code_bytes()}, DType::UInt8);
  auto* to = codes.mutable_data<std::uint8_t>();
  const auto* from = packed_.data<std::uint8_t>();
  for (std::int64_t i = 0; i < numel; ++i) {
    const std::uint8_t* row = from + i / layout.columns * layout.row_bytes();
    flat.set_code(to, i, layout.code(row, i % layout.columns));
  }
  if (is_sub_byte(dtype_)) return QTensor::from_packed_bytes(codes, sizes_, dtype_, quantizer_);
  return QTensor::from_int_repr(codes.view(sizes_), quantizer_);
}

Tensor embedding_byte(const EmbeddingPackedParams& weight, const Tensor& indices) {
  OpScope scope("embedding_byte");
  return lookup("embedding_byte", packed_table("embedding_byte", weight, DType::QUInt8), indices);
}

Tensor embedding_4bit(const EmbeddingPackedParams& weight, const Tensor& indices) {
  OpScope scope("embedding_4bit");
  return lookup("embedding_4bit", packed_table("embedding_4bit", weight, DType::QUInt4x2), indices);
}

Tensor embedding_bag_byte(const EmbeddingPackedParams& weight, const Tensor& indices,
                          const EmbeddingBagOptions& options) {
  constexpr std::string_view kOp = "embedding_bag_byte";
  OpScope scope(kOp);
  return sum_bags(kOp, packed_table(kOp, weight, DType::QUInt8), indices, options);
}

Tensor embedding_bag_4bit(const EmbeddingPackedParams& weight, const Tensor& indices,
                          const EmbeddingBagOptions& options) {
  constexpr std::string_view kOp = "embedding_bag_4bit";
  OpScope scope(kOp);
  return sum_bags(kOp, packed_table(kOp, weight, DType::QUInt4x2), indices, options);
}

Tensor embedding_bag_byte_rowwise_offsets(const Tensor& weight, const Tensor& indices,
                                          const EmbeddingBagOptions& options) {
  constexpr std::string_view kOp = "embedding_bag_byte_rowwise_offsets";
  OpScope scope(kOp);
  return sum_bags(kOp, packed_table(kOp, "weight", weight, 8), indices, options);
}

Tensor embedding_bag_4bit_rowwise_offsets(const Tensor& weight, const Tensor& indices,
                                          const EmbeddingBagOptions& options) {
  constexpr std::string_view kOp = "embedding_bag_4bit_rowwise_offsets";
  OpScope scope(kOp);
  return sum_bags(kOp, packed_table(kOp, "weight", weight, 4), indices, options);
}

Tensor embedding_bag_2bit_rowwise_offsets(const Tensor& weight, const Tensor& indices,
                                          const EmbeddingBagOptions& options) {
  constexpr std::string_view kOp = "embedding_bag_2bit_rowwise_offsets";
  OpScope scope(kOp);
  return sum_bags(kOp, packed_table(kOp, "weight", weight, 2), indices, options);
}

Tensor embedding_bag_byte_prepack(const Tensor& weight) {
  constexpr std::string_view kOp = "embedding_bag_byte_prepack";
  if (replay::is_recording()) {
    return replay::call(
        kOp, [](const Tensor& t) { return embedding_bag_byte_prepack(t); }, weight);
  }
  OpScope scope(kOp);
  const Tensor dense = checked_float_table(kOp, weight, 8);
  const EmbeddingRows layout{8, dense.sizes()[1]};
  const Tensor result = Tensor::zeros({dense.sizes()[0], layout.row_bytes()}, DType::UInt8);
  const auto* from = dense.data<float>();
  auto* to = result.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < dense.sizes()[0]; ++i) {
    const float* values = from + i * layout.columns;
    std::uint8_t* row = to + i * layout.row_bytes();
    const RowRange range = range_of(kOp, values, layout.columns);
    const float width = range.max - range.min;
    const float inverse = 255.0F / (width + 1e-8F);
    for (std::int64_t c = 0; c < layout.columns; ++c) {
      layout.set_code(row, c, detail::nbit_code(values[c], range.min, inverse, 8));
    }
    layout.set_parameters(row, {width / 255.0F, range.min});
  }
  return result;
}

Tensor embedding_bag_4bit_prepack(const Tensor& weight, const NBitPrepackOptions& options) {
  return prepack_nbit("embedding_bag_4bit_prepack", weight, 4, options);
}

Tensor embedding_bag_2bit_prepack(const Tensor& weight, const NBitPrepackOptions& options) {
  return prepack_nbit("embedding_bag_2bit_prepack", weight, 2, options);
}

Tensor embedding_bag_byte_unpack(const Tensor& packed_weight) {
  return unpack_rows("embedding_bag_byte_unpack", packed_weight, 8);
}
Tensor embedding_bag_4bit_unpack(const Tensor& packed_weight) {
  return unpack_rows("embedding_bag_4bit_unpack", packed_weight, 4);
}
Tensor embedding_bag_2bit_unpack(const Tensor& packed_weight) {
  return unpack_rows("embedding_bag_2bit_unpack", packed_weight, 2);
}

}  // namespace quanta::quantized
