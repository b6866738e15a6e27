// Packed tables of codes: packing, unpacking, rows and sums of rows.

#include "quanta/ops/embedding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/cuda/fault.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/embedding/cpu_kernels.h"
#include "quanta/ops/embedding/cuda_bags.h"
#include "quanta/ops/embedding/cuda_prepack.h"
#include "quanta/ops/embedding/families.h"
#include "quanta/ops/embedding/indices.h"
#include "quanta/ops/embedding/rows.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {

namespace embeddings {
namespace {

using detail::BagCall;
using detail::check_integers;
using detail::checked_indices;
using detail::EmbeddingRows;
using detail::RowRange;
using quantized::EmbeddingBagMode;
using quantized::EmbeddingBagOptions;
using quantized::EmbeddingPackedParams;
using quantized::NBitPrepackOptions;

// A table for a call: rows of bytes.
struct PackedTable {
  const std::uint8_t* data;
  EmbeddingRows layout;
  std::int64_t count;
};

void check_packed(std::string_view op, std::string_view argument, const Tensor& weight, int bits) {
  const std::int64_t overhead = EmbeddingRows::parameter_bytes(bits);
  QUANTA_CHECK(weight.defined() && weight.dtype() == DType::UInt8 && weight.dim() == 2 &&
                   weight.sizes()[1] > overhead,
               "{}: {}: expected UInt8 [rows, more than {} bytes], got {} {}", op, argument,
               overhead, weight.defined() ? to_string(weight.dtype()) : "undefined",
               weight.defined() ? weight.sizes() : Dims{});
}

EmbeddingRows layout_of(const Tensor& packed, int bits) {
  return {bits, (packed.sizes()[1] - EmbeddingRows::parameter_bytes(bits)) * (8 / bits)};
}

PackedTable table_of(const Tensor& packed, int bits) {
  return {packed.data<std::uint8_t>(), layout_of(packed, bits), packed.sizes()[0]};
}

PackedTable table_of(const EmbeddingPackedParams& weight) {
  return {weight.packed_weight().data<std::uint8_t>(),
          {item_bits(weight.dtype()), weight.embedding_dim()},
          weight.num_embeddings()};
}

void check_packed(std::string_view op, const EmbeddingPackedParams& weight, DType dtype) {
  QUANTA_CHECK(weight.packed_weight().defined() && weight.dtype() == dtype,
               "{}: weight: expected parameters packed from {}, got {}", op, dtype,
               weight.packed_weight().defined() ? to_string(weight.dtype()) : "empty ones");
}

void sum_rows(const PackedTable& table, const std::int64_t* rows, const float* factors,
              std::int64_t count, float* to) {
  std::fill_n(to, table.layout.columns, 0.0F);
  cpu::add_embedding_rows(table.layout, table.data, rows, factors, count, to);
}

/// The same on a CUDA device.
PackedTable device_table(const Tensor& packed, const EmbeddingRows& layout) {
  return {reinterpret_cast<const std::uint8_t*>(packed.device_ptr()), layout, packed.sizes()[0]};
}

PackedTable device_table(const EmbeddingPackedParams& weight, Device device) {
  return device_table(weight.packed_weight(device),
                      {item_bits(weight.dtype()), weight.embedding_dim()});
}

std::string_view sum_on_device(const PackedTable& table, const detail::CudaBags& bags,
                               const Tensor& factors, const Tensor& out) {
  cuda::CodeBagParams params;
  params.bags = bags.rows();
  params.layout = table.layout;
  params.table = table.data;
  if (factors.defined()) params.factors = reinterpret_cast<const float*>(factors.device_ptr());
  params.out = reinterpret_cast<float*>(out.device_ptr());
  cuda::sum_code_bags(out.device(), params);
  bags.require_inside();
  return "sum_code_bags";
}

// By bits of the codes.
std::string_view name_of(DType dtype, std::string_view byte, std::string_view nibble) {
  return dtype == DType::QUInt8 ? byte : nibble;
}

Tensor rows_of(const EmbeddingPackedParams& weight) { return weight.packed_weight(); }

/// Of indices.
struct Lookup final : Op<Lookup> {
  static constexpr ArgumentCount kArguments{1};
  static constexpr std::string_view kByte = "embedding_byte";
  static constexpr std::string_view k4Bit = "embedding_4bit";
  DType dtype;  ///< that the function is for
  EmbeddingPackedParams weight;

  Lookup(DType of_table, EmbeddingPackedParams packed)
      : dtype(of_table), weight(std::move(packed)) {}
  std::string_view name() const noexcept override { return name_of(dtype, kByte, k4Bit); }

  void infer(const Arguments& in, Results& out) const override {
    check_packed(name(), weight, dtype);
    check_integers(name(), "indices", in[0]);
    Dims sizes = in[0].sizes();
    sizes.push_back(weight.embedding_dim());
    out.add(sizes, DType::Float32);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const PackedTable table = table_of(weight);
    const std::vector<std::int64_t> rows = checked_indices(name(), in[0], table.count);
    const std::int64_t columns = table.layout.columns;
    auto* to = out[0].mutable_data<float>();
    parallel_for(static_cast<std::int64_t>(rows.size()), detail::rows_per_thread(columns),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     sum_rows(table, rows.data() + i, nullptr, 1, to + i * columns);
                   }
                 });
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const PackedTable table = device_table(weight, in[0].device());
    return sum_on_device(table, detail::CudaBags(name(), in[0], table.count), {}, out[0]);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kIndices; }

  static Tensor rows(const Lookup& self) { return rows_of(self.weight); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{read_only_attribute<Lookup, &Lookup::rows>("weight")};
    return kTable;
  }
};

/// Sums of bags. `Derived` has kFirst, the position of the indices, which offsets and weights
/// follow, and check_table(), columns() and table().
template <typename Derived>
struct BagSum : Op<Derived> {
  bool include_last_offset;
  EmbeddingBagMode mode;
  std::optional<std::int64_t> padding_idx;

  explicit BagSum(const EmbeddingBagOptions& options)
      : include_last_offset(options.include_last_offset),
        mode(options.mode),
        padding_idx(options.padding_idx) {}

  void infer(const Arguments& in, Results& out) const override {
    const std::string_view op = this->name();
    derived().check_table(in);
    QUANTA_SUPPORTED(mode == EmbeddingBagMode::Sum,
                     "{}: mode: expected Sum (the only mode of quantized tables), got {}", op,
                     mode == EmbeddingBagMode::Mean ? "Mean" : "Max");
    const std::int64_t bags = call(in).count();
    const Tensor& indices = in[Derived::kFirst];
    const Tensor& weights = in[Derived::kFirst + 2];
    QUANTA_CHECK(!weights.defined() ||
                     (weights.dtype() == DType::Float32 && weights.sizes() == indices.sizes()),
                 "{}: per_sample_weights: expected Float32 {}, got {} {}", op, indices.sizes(),
                 weights.dtype(), weights.sizes());
    out.arrange(Derived::kFirst + 2, MemoryFormat::Contiguous);
    out.add({bags, derived().columns(in)}, DType::Float32);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const PackedTable table = derived().table(in);
    const std::vector<std::int64_t> rows =
        checked_indices(this->name(), in[Derived::kFirst], table.count);
    const std::vector<std::int64_t> ends = call(in).ends();
    const Tensor& weights = in[Derived::kFirst + 2];
    const float* factors = weights.defined() ? weights.data<float>() : nullptr;
    std::vector<float> without_padding;
    if (padding_idx) {
      // A factor of zero leaves the row out of the sum; rows are finite.
      without_padding.assign(rows.size(), 1.0F);
      if (factors != nullptr) std::copy_n(factors, rows.size(), without_padding.data());
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i] == *padding_idx) without_padding[i] = 0.0F;
      }
      factors = without_padding.data();
    }
    const std::int64_t columns = table.layout.columns;
    auto* to = out[0].mutable_data<float>();
    parallel_for(out[0].sizes()[0], detail::rows_per_thread(columns * 8),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t bag = begin; bag < end; ++bag) {
                     const auto slot = static_cast<std::size_t>(bag);
                     const std::int64_t first = ends[slot];
                     sum_rows(table, rows.data() + first,
                              factors == nullptr ? nullptr : factors + first,
                              ends[slot + 1] - first, to + bag * columns);
                   }
                 });
    return "simd";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const PackedTable table = derived().table_on_device(in);
    const detail::CudaBags bags(call(in), out[0].sizes()[0], table.count, padding_idx);
    return sum_on_device(table, bags, in[Derived::kFirst + 2], out[0]);
  }

 private:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }
  BagCall call(const Arguments& in) const {
    return {this->name(), in[Derived::kFirst], in[Derived::kFirst + 1], include_last_offset};
  }
};

template <typename Kind>
constexpr std::array<AttributeInfo, 2> bag_settings() {
  return {attribute<Kind, &Kind::include_last_offset>("include_last_offset"),
          attribute<Kind, &Kind::padding_idx>("padding_idx")};
}

/// Of indices, offsets and per_sample_weights; the latter two may be undefined.
struct PackedBags final : BagSum<PackedBags> {
  static constexpr ArgumentCount kArguments{3};
  static constexpr std::size_t kFirst = 0;
  static constexpr std::string_view kByte = "embedding_bag_byte";
  static constexpr std::string_view k4Bit = "embedding_bag_4bit";
  DType dtype;
  EmbeddingPackedParams weight;

  PackedBags(DType of_table, EmbeddingPackedParams packed, const EmbeddingBagOptions& options)
      : BagSum(options), dtype(of_table), weight(std::move(packed)) {}
  std::string_view name() const noexcept override { return name_of(dtype, kByte, k4Bit); }

  void check_table(const Arguments&) const { check_packed(name(), weight, dtype); }
  std::int64_t columns(const Arguments&) const { return weight.embedding_dim(); }
  PackedTable table(const Arguments&) const { return table_of(weight); }
  PackedTable table_on_device(const Arguments& in) const {
    return device_table(weight, in[kFirst].device());
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kIndices; }

  static Tensor rows(const PackedBags& self) { return rows_of(self.weight); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{read_only_attribute<PackedBags, &PackedBags::rows>("weight"),
                                       bag_settings<PackedBags>()[0],
                                       bag_settings<PackedBags>()[1]};
    return kTable;
  }
};

/// Of packed rows and the same.
struct RowwiseBags final : BagSum<RowwiseBags> {
  static constexpr ArgumentCount kArguments{4};
  static constexpr std::size_t kFirst = 1;
  static constexpr std::string_view kByte = "embedding_bag_byte_rowwise_offsets";
  static constexpr std::string_view k4Bit = "embedding_bag_4bit_rowwise_offsets";
  static constexpr std::string_view k2Bit = "embedding_bag_2bit_rowwise_offsets";
  int bits;

  RowwiseBags(int of_codes, const EmbeddingBagOptions& options) : BagSum(options), bits(of_codes) {}
  std::string_view name() const noexcept override {
    return bits == 8 ? kByte : bits == 4 ? k4Bit : k2Bit;
  }

  void check_table(const Arguments& in) const { check_packed(name(), "weight", in[0], bits); }
  std::int64_t columns(const Arguments& in) const { return layout_of(in[0], bits).columns; }
  PackedTable table(const Arguments& in) const { return table_of(in[0], bits); }
  PackedTable table_on_device(const Arguments& in) const {
    return device_table(in[0], layout_of(in[0], bits));
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kUInt8; }

  void infer(const Arguments& in, Results& out) const override {
    BagSum::infer(in, out);
    out.arrange(0, MemoryFormat::Contiguous);
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr auto kTable = bag_settings<RowwiseBags>();
    return kTable;
  }
};

// Packing ---------------------------------------------------------------------------------------

RowRange find_range(std::string_view op, const float* row, std::int64_t columns) {
  const auto [low, high] = std::minmax_element(row, row + columns);
  QUANTA_CHECK(std::all_of(row, row + columns, [](float x) { return std::isfinite(x); }),
               "{}: weight: expected finite numbers, got {}..{} or NaN", op, *low, *high);
  return {*low, *high};
}

/// Float rows to codes, scale and bias.
struct Prepack final : Op<Prepack> {
  static constexpr ArgumentCount kArguments{1};
  static constexpr std::string_view kByte = "embedding_bag_byte_prepack";
  static constexpr std::string_view k4Bit = "embedding_bag_4bit_prepack";
  static constexpr std::string_view k2Bit = "embedding_bag_2bit_prepack";
  int bits;
  NBitPrepackOptions options;  ///< not for bytes

  explicit Prepack(int of_codes, const NBitPrepackOptions& given = {})
      : bits(of_codes), options(given) {}
  std::string_view name() const noexcept override {
    return bits == 8 ? kByte : bits == 4 ? k4Bit : k2Bit;
  }

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& weight = in[0];
    QUANTA_CHECK(weight.defined() && weight.dtype() == DType::Float32 && weight.dim() == 2 &&
                     weight.sizes()[1] > 0,
                 "{}: weight: expected Float32 [rows, columns > 0], got {} {}", name(),
                 weight.defined() ? to_string(weight.dtype()) : "undefined",
                 weight.defined() ? weight.sizes() : Dims{});
    QUANTA_CHECK(weight.sizes()[1] % (8 / bits) == 0,
                 "{}: weight: expected a multiple of {} columns, got {}", name(), 8 / bits,
                 weight.sizes()[1]);
    QUANTA_CHECK(options.nbins >= 1 && options.nbins <= 1 << 20,
                 "{}: nbins: expected 1..{}, got {}", name(), 1 << 20, options.nbins);
    QUANTA_CHECK(options.ratio >= 0.0 && options.ratio <= 1.0, "{}: ratio: expected 0..1, got {}",
                 name(), options.ratio);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add({weight.sizes()[0], EmbeddingRows{bits, weight.sizes()[1]}.row_bytes()}, DType::UInt8);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const EmbeddingRows layout{bits, in[0].sizes()[1]};
    const auto* from = in[0].data<float>();
    auto* to = out[0].mutable_data<std::uint8_t>();
    std::fill_n(to, out[0].numel(), std::uint8_t{0});
    for (std::int64_t i = 0; i < in[0].sizes()[0]; ++i) {
      const float* values = from + i * layout.columns;
      std::uint8_t* row = to + i * layout.row_bytes();
      if (bits == 8) {
        pack_bytes(layout, values, row);
      } else {
        pack_few_bits(layout, values, row);
      }
    }
    return "scalar";
  }
  // Waits for the host once, as numbers that are not finite are refused.
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& weight = in[0];
    const cuda::Fault fault(weight.device());
    cuda::prepack_rows(weight.device(),
                       {.layout = {bits, weight.sizes()[1]},
                        .rows = weight.sizes()[0],
                        .weight = reinterpret_cast<const float*>(weight.device_ptr()),
                        .narrows = bits != 8 && options.optimized_qparams,
                        .nbins = options.nbins,
                        .ratio = options.ratio,
                        .packed = reinterpret_cast<std::uint8_t*>(out[0].device_ptr()),
                        .fault = fault.flag()});
    if (!fault.is_raised()) return "prepack_rows";
    const Tensor rows = weight.cpu();
    for (std::int64_t i = 0; i < rows.sizes()[0]; ++i) {
      find_range(name(), rows.data<float>() + i * rows.sizes()[1], rows.sizes()[1]);
    }
    throw InternalError(
        fmt::format("{}: weight: expected numbers that the host finds not finite "
                    "as well",
                    name()));
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }

  static std::span<const AttributeInfo> attribute_table() {
    using Options = NBitPrepackOptions;
    static constexpr std::array kTable{
        attribute<Prepack, &Prepack::options, &Options::optimized_qparams>("optimized_qparams"),
        attribute<Prepack, &Prepack::options, &Options::nbins>("nbins"),
        attribute<Prepack, &Prepack::options, &Options::ratio>("ratio")};
    return kTable;
  }

 private:
  void pack_bytes(const EmbeddingRows& layout, const float* values, std::uint8_t* row) const {
    const RowRange range = find_range(name(), values, layout.columns);
    set_codes(layout, values, range.min, detail::byte_inverse(range), row);
    layout.set_parameters(row, detail::byte_parameters(range));
  }
  void pack_few_bits(const EmbeddingRows& layout, const float* values, std::uint8_t* row) const {
    RowRange range = find_range(name(), values, layout.columns);
    if (options.optimized_qparams) range = narrow_range(values, layout.columns, range);
    range.min = detail::round_to_half(range.min);
    const detail::NBitScale scale = detail::nbit_scale(range, bits);
    set_codes(layout, values, range.min, scale.inverse, row);
    layout.set_parameters(row, {scale.scale, range.min});
  }
  RowRange narrow_range(const float* values, std::int64_t columns, const RowRange& range) const {
    const auto loss_of = [&](const RowRange& tried) {
      const detail::NBitLoss loss(tried, bits);
      float sum = 0.0F;
      for (std::int64_t c = 0; c < columns; ++c) sum += loss(values[c]);
      return std::sqrt(sum);
    };
    detail::RangeSearch search(range, loss_of(range), options.nbins, options.ratio);
    while (search.goes_on()) {
      search.take(loss_of(search.from_below()), loss_of(search.from_above()));
    }
    return search.best();
  }
  void set_codes(const EmbeddingRows& layout, const float* values, float min, float inverse,
                 std::uint8_t* row) const {
    for (std::int64_t c = 0; c < layout.columns; ++c) {
      layout.set_code(row, c, detail::nbit_code(values[c], min, inverse, bits));
    }
  }
};

/// Packed rows to floats.
struct Unpack final : Op<Unpack> {
  static constexpr ArgumentCount kArguments{1};
  static constexpr std::string_view kByte = "embedding_bag_byte_unpack";
  static constexpr std::string_view k4Bit = "embedding_bag_4bit_unpack";
  static constexpr std::string_view k2Bit = "embedding_bag_2bit_unpack";
  int bits;

  explicit Unpack(int of_codes) : bits(of_codes) {}
  std::string_view name() const noexcept override {
    return bits == 8 ? kByte : bits == 4 ? k4Bit : k2Bit;
  }
  void infer(const Arguments& in, Results& out) const override {
    check_packed(name(), "packed_weight", in[0], bits);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add({in[0].sizes()[0], layout_of(in[0], bits).columns}, DType::Float32);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const PackedTable table = table_of(in[0], bits);
    auto* to = out[0].mutable_data<float>();
    for (std::int64_t i = 0; i < table.count; ++i) {
      sum_rows(table, &i, nullptr, 1, to + i * table.layout.columns);
    }
    return "simd";
  }
  // A bag for each row: no indices are read.
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const PackedTable table = device_table(in[0], layout_of(in[0], bits));
    cuda::CodeBagParams params;
    params.bags.bag_size = 1;
    params.bags.bags = table.count;
    params.bags.rows = table.count;
    params.layout = table.layout;
    params.table = table.data;
    params.out = reinterpret_cast<float*>(out[0].device_ptr());
    cuda::sum_code_bags(out[0].device(), params);
    return "sum_code_bags";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kUInt8; }
};

/// The codes of a table with float zero points along axis 0 to packed rows.
struct PackCodes final : Op<PackCodes> {
  static constexpr std::string_view kName = "embedding_bag_prepack";
  static constexpr ArgumentCount kArguments{1};

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& weight = in[0];
    QUANTA_CHECK(weight.defined() && weight.dim() == 2 && weight.sizes()[1] > 0 &&
                     (weight.dtype() == DType::QUInt8 || weight.dtype() == DType::QUInt4x2) &&
                     weight.impl()->quantizer.scheme == QScheme::PerChannelAffineFloatQParams &&
                     weight.impl()->quantizer.axis == 0,
                 "{}: weight: expected QUInt8 or QUInt4x2 [rows, columns] with float zero points "
                 "along axis 0, got {} {}",
                 kName, weight.defined() ? to_string(weight.dtype()) : "undefined",
                 weight.defined() ? weight.sizes() : Dims{});
    const EmbeddingRows layout{item_bits(weight.dtype()), weight.sizes()[1]};
    out.arrange(0, MemoryFormat::Contiguous);
    out.add({weight.sizes()[0], layout.row_bytes()}, DType::UInt8);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& weight = in[0];
    const EmbeddingRows layout{item_bits(weight.dtype()), weight.sizes()[1]};
    const EmbeddingRows flat{layout.bits, weight.numel()};
    const auto* from = static_cast<const std::uint8_t*>(weight.data_ptr());
    auto* to = out[0].mutable_data<std::uint8_t>();
    std::fill_n(to, out[0].numel(), std::uint8_t{0});
    const ChannelQParams& channel = *weight.impl()->quantizer.channel;
    for (std::int64_t i = 0; i < weight.sizes()[0]; ++i) {
      std::uint8_t* row = to + i * layout.row_bytes();
      for (std::int64_t c = 0; c < layout.columns; ++c) {
        layout.set_code(row, c, flat.code(from, i * layout.columns + c));
      }
      const auto slot = static_cast<std::size_t>(i);
      const auto scale = static_cast<float>(channel.scales[slot]);
      layout.set_parameters(row, {scale, -channel.float_zero_points[slot] * scale});
    }
    return "scalar";
  }
};

// The catalogue --------------------------------------------------------------------------------

constexpr std::string_view kHeader = "quanta/ops/embedding.h";

EmbeddingPackedParams sample_table(DType dtype) {
  const QTensor codes(sample_tensor({6, 4}, dtype));
  return quantized::embedding_bag_prepack(codes.with_quantizer(Quantizer::per_channel_float_qparams(
      {0.1F, 0.2F, 0.3F, 0.1F, 0.2F, 0.3F}, {0.5F, 0.0F, 1.5F, 0.5F, 0.0F, 1.5F}, 0)));
}

template <DType of_table>
Sample lookup_sample(DType dtype) {
  return sample_call(Lookup(of_table, sample_table(of_table)), {sample_tensor({3, 2}, dtype)});
}

template <DType of_table>
Sample bags_sample(DType dtype) {
  return sample_call(PackedBags(of_table, sample_table(of_table), {.padding_idx = 1}),
                     {sample_tensor({3, 2}, dtype), Tensor(), sample_tensor({3, 2})});
}

template <int bits>
Tensor packed_sample() {
  return run(Prepack(bits), sample_tensor({6, 8}));
}
template <int bits>
Sample rowwise_sample(DType) {
  return sample_call(RowwiseBags(bits, {}),
                     {packed_sample<bits>(), sample_tensor({5}, DType::Int64),
                      Tensor::from_int64(std::vector<std::int64_t>{0, 2, 2}), Tensor()});
}
template <int bits>
Sample prepack_sample(DType dtype) {
  return sample_call(Prepack(bits, {.optimized_qparams = bits != 8, .nbins = 20}),
                     {sample_tensor({6, 8}, dtype)});
}
template <int bits>
Sample unpack_sample(DType) {
  return sample_call(Unpack(bits), {packed_sample<bits>()});
}

template <typename Kind>
void add_each(Catalogue& catalogue, std::span<const DType> dtypes, SampleFunction byte,
              SampleFunction four, SampleFunction two) {
  catalogue.add({.name = Kind::kByte, .header = kHeader, .dtypes = dtypes}, byte);
  catalogue.add({.name = Kind::k4Bit, .header = kHeader, .dtypes = dtypes}, four);
  catalogue.add({.name = Kind::k2Bit, .header = kHeader, .dtypes = dtypes}, two);
}

}  // namespace
}  // namespace embeddings

void detail::add_embeddings(Catalogue& catalogue) {
  using namespace embeddings;
  using dtypes::kIndices;
  const auto add = [&](std::string_view name, SampleFunction sample) {
    catalogue.add({.name = name, .header = kHeader, .dtypes = kIndices}, sample);
  };
  add_float_embeddings(catalogue);
  add(Lookup::kByte, lookup_sample<DType::QUInt8>);
  add(Lookup::k4Bit, lookup_sample<DType::QUInt4x2>);
  add(PackedBags::kByte, bags_sample<DType::QUInt8>);
  add(PackedBags::k4Bit, bags_sample<DType::QUInt4x2>);
  add_each<RowwiseBags>(catalogue, dtypes::kUInt8, rowwise_sample<8>, rowwise_sample<4>,
                        rowwise_sample<2>);
  add_each<Prepack>(catalogue, dtypes::kFloat, prepack_sample<8>, prepack_sample<4>,
                    prepack_sample<2>);
  add_each<Unpack>(catalogue, dtypes::kUInt8, unpack_sample<8>, unpack_sample<4>, unpack_sample<2>);
}

using namespace embeddings;

namespace quantized {

struct EmbeddingPackedParams::Copies {
  std::mutex mutex;
  std::map<std::int8_t, Tensor> of_device;
};

Tensor EmbeddingPackedParams::packed_weight(Device device) const {
  QUANTA_CHECK(packed_.defined(),
               "packed_weight: weight: expected packed parameters, got empty ones");
  if (packed_.device() == device) return packed_;
  const std::lock_guard lock(copies_->mutex);
  Tensor& copy = copies_->of_device[device.index];
  if (!copy.defined()) copy = packed_.to(device);
  return copy;
}

EmbeddingPackedParams embedding_bag_prepack(const QTensor& weight) {
  EmbeddingPackedParams params;
  params.packed_ = run(PackCodes{}, weight);
  params.copies_ = std::make_shared<EmbeddingPackedParams::Copies>();
  params.sizes_ = weight.sizes();
  params.dtype_ = weight.dtype();
  params.quantizer_ = weight.quantizer();
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
  return run(Lookup(DType::QUInt8, weight), indices);
}

Tensor embedding_4bit(const EmbeddingPackedParams& weight, const Tensor& indices) {
  return run(Lookup(DType::QUInt4x2, weight), indices);
}

Tensor embedding_bag_byte(const EmbeddingPackedParams& weight, const Tensor& indices,
                          const EmbeddingBagOptions& options) {
  return run(PackedBags(DType::QUInt8, weight, options), indices, options.offsets,
             options.per_sample_weights);
}

Tensor embedding_bag_4bit(const EmbeddingPackedParams& weight, const Tensor& indices,
                          const EmbeddingBagOptions& options) {
  return run(PackedBags(DType::QUInt4x2, weight, options), indices, options.offsets,
             options.per_sample_weights);
}

Tensor embedding_bag_byte_rowwise_offsets(const Tensor& weight, const Tensor& indices,
                                          const EmbeddingBagOptions& options) {
  return run(RowwiseBags(8, options), weight, indices, options.offsets, options.per_sample_weights);
}

Tensor embedding_bag_4bit_rowwise_offsets(const Tensor& weight, const Tensor& indices,
                                          const EmbeddingBagOptions& options) {
  return run(RowwiseBags(4, options), weight, indices, options.offsets, options.per_sample_weights);
}

Tensor embedding_bag_2bit_rowwise_offsets(const Tensor& weight, const Tensor& indices,
                                          const EmbeddingBagOptions& options) {
  return run(RowwiseBags(2, options), weight, indices, options.offsets, options.per_sample_weights);
}

Tensor embedding_bag_byte_prepack(const Tensor& weight) { return run(Prepack(8), weight); }
Tensor embedding_bag_4bit_prepack(const Tensor& weight, const NBitPrepackOptions& options) {
  return run(Prepack(4, options), weight);
}
Tensor embedding_bag_2bit_prepack(const Tensor& weight, const NBitPrepackOptions& options) {
  return run(Prepack(2, options), weight);
}

Tensor embedding_bag_byte_unpack(const Tensor& packed_weight) {
  return run(Unpack(8), packed_weight);
}
Tensor embedding_bag_4bit_unpack(const Tensor& packed_weight) {
  return run(Unpack(4), packed_weight);
}
Tensor embedding_bag_2bit_unpack(const Tensor& packed_weight) {
  return run(Unpack(2), packed_weight);
}

}  // namespace quantized
}  // namespace quanta
