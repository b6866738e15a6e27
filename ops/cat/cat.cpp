#include "quanta/ops/cat.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/cat/cpu_rows.h"
#include "quanta/ops/cpu/code_table.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/codes.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace joining {
namespace {

// torch lets tensors of sizes [0] stand for nothing, whatever the others' rank is.
bool is_skipped(const Dims& sizes) { return sizes.size() == 1 && sizes[0] == 0; }

// The first tensor that is not skipped, or the last one.
const Tensor& find_model(const Arguments& tensors) {
  for (const Tensor* x : tensors) {
    if (!is_skipped(x->sizes())) return *x;
  }
  return tensors[tensors.size() - 1];
}

// Channels-last where all are, as torch has it for codes. Its kernel for the channels of images
// counts what suits both orders as well.
MemoryFormat common_format(const Arguments& tensors, std::int64_t dim) {
  const std::int64_t rank = find_model(tensors).dim();
  const bool are_images = rank == 4 && (dim == 1 || dim == 1 - rank);
  for (const Tensor* x : tensors) {
    if (is_skipped(x->sizes())) continue;
    const bool is_last = are_images ? x->is_contiguous(MemoryFormat::ChannelsLast)
                                    : x->suggested_format() == MemoryFormat::ChannelsLast;
    if (!is_last) return MemoryFormat::Contiguous;
  }
  return rank == 4 || rank == 5 ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous;
}

// The sizes of the result; checks all but the quantization.
Dims joined_sizes(std::string_view op, const Arguments& tensors, std::int64_t dim) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    QUANTA_CHECK(tensors[i].defined(), "{}: tensors[{}]: expected a tensor, got an undefined one",
                 op, i);
    QUANTA_CHECK(tensors[i].dtype() == tensors[0].dtype(),
                 "{}: tensors[{}]: expected {} as the first has, got {}", op, i, tensors[0].dtype(),
                 tensors[i].dtype());
  }
  const Tensor& model = find_model(tensors);
  const Dims& wanted = model.sizes();
  QUANTA_CHECK(!wanted.empty(), "{}: tensors[{}]: expected at least 1 dimension, got 0", op,
               std::find(tensors.begin(), tensors.end(), &model) - tensors.begin());
  const auto joined = static_cast<std::size_t>(wrap_dim(dim, model.dim(), op));

  Dims sizes = wanted;
  sizes[joined] = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Dims& got = tensors[i].sizes();
    if (is_skipped(got)) continue;
    Dims expected = wanted;
    if (got.size() == wanted.size()) expected[joined] = got[joined];
    QUANTA_CHECK(got == expected, "{}: tensors[{}]: expected {} but along dim {}, got {}", op, i,
                 wanted, joined, got);
    sizes[joined] += got[joined];
  }
  return sizes;
}

// row(src, dst, count) over the rows of two tensors of one shape where both are contiguous, and
// one(src, dst) for each element elsewhere.
template <typename T, typename Row, typename One>
void for_each_pair(const Tensor& src, const Tensor& dst, Row&& row, One&& one) {
  const auto* src_data = static_cast<const T*>(src.data_ptr());
  auto* dst_data = static_cast<T*>(dst.data_ptr());
  const cpu::StridedLoop<2> loop(dst.sizes(), {&dst.strides(), &src.strides()});
  const std::int64_t dst_step = loop.inner_strides()[0];
  const std::int64_t src_step = loop.inner_strides()[1];
  loop.run([&](const std::array<std::int64_t, 2>& offsets, std::int64_t count) {
    T* to = dst_data + offsets[0];
    const T* from = src_data + offsets[1];
    if (count == 1 || (dst_step == 1 && src_step == 1)) {
      row(from, to, count);
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) one(from + i * src_step, to + i * dst_step);
  });
}

// The bits of the elements, whatever they mean.
void copy_bits(const Tensor& src, const Tensor& dst) {
  detail::visit_bits(src.dtype(), [&](auto bits) {
    using T = decltype(bits);
    for_each_pair<T>(
        src, dst,
        [](const T* from, T* to, std::int64_t count) {
          std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
        },
        [](const T* from, T* to) { *to = *from; });
  });
}

// copy(piece, part of out) for one piece after the other.
template <typename Copy>
void fill_pieces(const Arguments& tensors, const Tensor& out, std::int64_t dim, Copy&& copy) {
  const std::int64_t joined = wrap_dim(dim, out.dim(), "cat");
  std::int64_t start = 0;
  for (const Tensor* piece : tensors) {
    if (is_skipped(piece->sizes())) continue;
    const std::int64_t length = piece->size(joined);
    if (piece->numel() > 0) copy(*piece, out.narrow(joined, start, length));
    start += length;
  }
}

// Whether the memory of a piece has the order of its part of `out`, which is dense: all that lies
// within a place outside of the joined dimension is together in both.
bool has_order_of(const Tensor& out, const Tensor& piece, std::size_t joined) {
  const std::int64_t step = out.strides()[joined];
  const std::int64_t row = out.sizes()[joined] * step;
  const std::int64_t piece_row = piece.sizes()[joined] * step;
  for (std::size_t d = 0; d < piece.sizes().size(); ++d) {
    if (piece.sizes()[d] == 1) continue;
    const std::int64_t stride = out.strides()[d];
    if (piece.strides()[d] != (stride < row ? stride : stride / row * piece_row)) return false;
  }
  return true;
}

// Fills `out` row by row where the memory of all pieces has its order; whether it has.
// table(piece) says what becomes of the piece's bytes.
template <typename Table>
bool join_by_rows(const Arguments& tensors, const Tensor& out, std::int64_t dim, Table&& table) {
  if (out.numel() == 0 || !out.is_contiguous(out.suggested_format())) return false;
  const auto joined = static_cast<std::size_t>(wrap_dim(dim, out.dim(), "cat"));
  const std::int64_t step =
      out.strides()[joined] * (static_cast<std::int64_t>(out.nbytes()) / out.numel());
  std::vector<cpu::RowPart> parts;
  parts.reserve(tensors.size());
  std::int64_t offset = 0;
  for (const Tensor* piece : tensors) {
    if (piece->numel() == 0) continue;
    if (!has_order_of(out, *piece, joined)) return false;
    const std::int64_t bytes = piece->sizes()[joined] * step;
    parts.push_back(
        {static_cast<const std::uint8_t*>(piece->data_ptr()), bytes, offset, table(*piece)});
    offset += bytes;
  }
  cpu::join_rows(parts, out.numel() / (out.sizes()[joined] * out.strides()[joined]), offset,
                 static_cast<std::uint8_t*>(out.data_ptr()));
  return true;
}

struct Cat final : Op<Cat> {
  static constexpr std::string_view kName = "cat";
  static constexpr ArgumentCount kArguments = ArgumentCount::at_least(1);
  std::int64_t dim = 0;

  Cat() = default;
  explicit Cat(std::int64_t along) : dim(along) {}
  bool works_by_rows() const noexcept override { return dim > 0; }
  void infer(const Arguments& in, Results& out) const override {
    const Dims sizes = joined_sizes(kName, in, dim);
    QUANTA_SUPPORTED(!in[0].is_quantized(),
                     "{}: tensors: expected plain ones (quantized::cat takes others), got {}",
                     kName, in[0].dtype());
    out.add(sizes, in[0].dtype(), find_model(in).suggested_format());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const auto as_they_are = [](const Tensor&) { return std::optional<cpu::CodeTable>(); };
    if (join_by_rows(in, out[0], dim, as_they_are)) return "copy:rows";
    fill_pieces(in, out[0], dim, copy_bits);
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    fill_pieces(in, out[0], dim, [](const Tensor& piece, const Tensor& part) {
      cuda::copy_same_dtype(part, piece);
    });
    return "copy_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kPlain; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor& gradient = context.grad();
    const std::int64_t joined = wrap_dim(dim, gradient.dim(), kName);
    std::vector<Tensor> results;
    std::int64_t start = 0;
    for (std::size_t i = 0; i < context.input_count(); ++i) {
      const Dims& sizes = context.input_sizes(i);
      if (is_skipped(sizes)) {
        results.push_back(Tensor::zeros(sizes, gradient.dtype()));
        continue;
      }
      const std::int64_t length = sizes[static_cast<std::size_t>(joined)];
      results.push_back(context.needs(i) ? gradient.narrow(joined, start, length) : Tensor());
      start += length;
    }
    return results;
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Cat, &Cat::dim>("dim")};
    return kTable;
  }
};

// Codes ----------------------------------------------------------------------------------------

enum class Relu : bool { No, Yes };

// The codes of a tensor in the parameters of another.
class Requantization {
 public:
  Requantization(const Tensor& src, const Tensor& out, Relu relu)
      : dtype_(src.dtype()),
        from_(src.impl()->quantizer),
        to_(out.impl()->quantizer),
        relu_(relu),
        same_(from_ == to_),
        scale_(static_cast<float>(from_.scale)),
        zero_point_(static_cast<std::int32_t>(from_.zero_point)),
        lowest_(static_cast<std::int32_t>(to_.zero_point)),
        quantizer_(out) {}

  bool keeps_all() const { return same_ && relu_ == Relu::No; }
  std::int32_t operator()(std::int32_t code) const {
    const std::int32_t moved =
        same_ ? code : quantizer_(math::dequantize(code, scale_, zero_point_));
    return relu_ == Relu::Yes ? std::max(moved, lowest_) : moved;
  }
  /// Of codes of 8 bits. Valid until the next one.
  const cpu::CodeTable& table() const {
    const std::string_view name = relu_ == Relu::Yes ? "requantize_relu" : "requantize";
    return cpu::code_table({name, dtype_, from_.scale, from_.zero_point, to_.scale, to_.zero_point},
                           *this);
  }

 private:
  DType dtype_;
  const Quantizer &from_, &to_;
  Relu relu_;
  bool same_;
  float scale_;
  std::int32_t zero_point_, lowest_;
  cpu::ScalarQuantizer quantizer_;
};

// The codes of `src` in the parameters of `out`, of which `dst` is a part.
void requantize_piece(const Tensor& src, const Tensor& dst, const Tensor& out, Relu relu) {
  const Requantization requantize(src, out, relu);
  const bool on_cuda = src.device().is_cuda();
  if (requantize.keeps_all()) {
    return on_cuda ? cuda::copy_same_dtype(dst, src) : copy_bits(src, dst);
  }
  if (src.dtype() == DType::QInt32) {
    const auto one = [&](const std::int32_t* x, std::int32_t* y) { *y = requantize(*x); };
    for_each_pair<std::int32_t>(
        src, dst,
        [&](const std::int32_t* x, std::int32_t* y, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i) one(x + i, y + i);
        },
        one);
    return;
  }
  const cpu::CodeTable& table = requantize.table();
  if (on_cuda) return cuda::look_up(src, dst, table);
  for_each_pair<std::uint8_t>(
      src, dst,
      [&](const std::uint8_t* x, std::uint8_t* y, std::int64_t count) {
        cpu::lookup(x, y, count, table, cpu::Store::Cached);
      },
      [&](const std::uint8_t* x, std::uint8_t* y) { *y = table[*x]; });
}

template <Relu kRelu>
struct QuantizedCat final : Op<QuantizedCat<kRelu>> {
  static constexpr std::string_view kName =
      kRelu == Relu::Yes ? "quantized::cat_relu" : "quantized::cat";
  static constexpr ArgumentCount kArguments = ArgumentCount::at_least(1);
  std::int64_t dim = 0;
  std::optional<double> scale;
  std::optional<std::int64_t> zero_point;

  QuantizedCat() = default;
  QuantizedCat(std::int64_t along, std::optional<double> scale_out,
               std::optional<std::int64_t> zero_point_out)
      : dim(along), scale(scale_out), zero_point(zero_point_out) {}
  bool works_by_rows() const noexcept override { return dim > 0; }
  void infer(const Arguments& in, Results& out) const override {
    const Dims sizes = joined_sizes(kName, in, dim);
    for (std::size_t i = 0; i < in.size(); ++i) {
      cpu::check_per_tensor(kName, fmt::format("tensors[{}]", i), in[i]);
    }
    const Quantizer& first = in[0].impl()->quantizer;
    const Quantizer quantizer =
        Quantizer::per_tensor(scale.value_or(first.scale), zero_point.value_or(first.zero_point));
    check_quantizer(kName, quantizer, in[0].dtype(), sizes);
    out.add(sizes, in[0].dtype(), quantizer, common_format(in, dim));
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const auto table = [&](const Tensor& piece) -> std::optional<cpu::CodeTable> {
      const Requantization requantize(piece, out[0], kRelu);
      if (requantize.keeps_all()) return {};
      return requantize.table();
    };
    const bool has_tables =
        in[0].dtype() != DType::QInt32 || std::all_of(in.begin(), in.end(), [&](const Tensor* x) {
          return Requantization(*x, out[0], kRelu).keeps_all();
        });
    if (has_tables && join_by_rows(in, out[0], dim, table)) return "lookup:rows";
    fill(in, out[0]);
    return "lookup";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    fill(in, out[0]);
    return "look_up_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQ8; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<QuantizedCat, &QuantizedCat::dim>("dim"),
        attribute<QuantizedCat, &QuantizedCat::scale>("scale"),
        attribute<QuantizedCat, &QuantizedCat::zero_point>("zero_point")};
    return kTable;
  }

 private:
  void fill(const Arguments& in, const Tensor& out) const {
    fill_pieces(in, out, dim, [&](const Tensor& piece, const Tensor& part) {
      requantize_piece(piece, part, out, kRelu);
    });
  }
};

template <typename TensorType>
Tensor run_list(const Operation& operation, std::span<const TensorType> tensors) {
  QUANTA_CHECK(!tensors.empty(), "{}: tensors: expected at least one, got none", operation.name());
  std::vector<const Tensor*> list(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) list[i] = &tensors[i];
  return std::move(run_all(operation, Arguments(list.data(), list.size()))[0]);
}

}  // namespace
}  // namespace joining

using namespace joining;

Tensor cat(std::span<const Tensor> tensors, std::int64_t dim) {
  if (!tensors.empty() && tensors[0].defined() && tensors[0].is_quantized()) {
    return run_list(QuantizedCat<Relu::No>{dim, {}, {}}, tensors);
  }
  return run_list(Cat{dim}, tensors);
}

QTensor quantized::cat(std::span<const QTensor> tensors, std::int64_t dim,
                       std::optional<double> scale, std::optional<std::int64_t> zero_point) {
  return QTensor(run_list(QuantizedCat<Relu::No>{dim, scale, zero_point}, tensors));
}
QTensor quantized::cat_relu(std::span<const QTensor> tensors, std::int64_t dim,
                            std::optional<double> scale, std::optional<std::int64_t> zero_point) {
  return QTensor(run_list(QuantizedCat<Relu::Yes>{dim, scale, zero_point}, tensors));
}

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/cat.h";

// Pieces of unequal lengths, one of them empty.
std::vector<Tensor> sample_pieces(DType dtype) {
  return {sample_tensor({2, 3, 5, 4}, dtype), sample_tensor({0}, dtype),
          sample_tensor({2, 1, 5, 4}, dtype, 2)};
}

constexpr std::array kPlain{DType::Float32,      DType::Float64,    DType::Float16, DType::BFloat16,
                            DType::Float8E4M3FN, DType::Float8E5M2, DType::UInt8,   DType::Int8,
                            DType::Int16,        DType::UInt16,     DType::Int32,   DType::Int64,
                            DType::Bool};

}  // namespace

void detail::add_cat(Catalogue& catalogue) {
  catalogue.add({.name = Cat::kName, .header = kHeader, .dtypes = kPlain},
                [](DType dtype) { return sample_call(Cat{1}, sample_pieces(dtype)); });
  catalogue.add({.name = QuantizedCat<Relu::No>::kName, .header = kHeader, .dtypes = dtypes::kQ},
                [](DType dtype) {
                  return sample_call(QuantizedCat<Relu::No>{1, {}, {}}, sample_pieces(dtype));
                });
  catalogue.add({.name = QuantizedCat<Relu::Yes>::kName, .header = kHeader, .dtypes = dtypes::kQ},
                [](DType dtype) {
                  return sample_call(QuantizedCat<Relu::Yes>{-3, 0.07, 5}, sample_pieces(dtype));
                });
}

}  // namespace quanta
