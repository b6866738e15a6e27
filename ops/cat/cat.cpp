#include <cstring>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/code_table.h"
#include "quanta/ops/cpu/quantized_operands.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/shape/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

// torch lets tensors of sizes [0] stand for nothing, whatever the others' rank is.
bool is_skipped(const Tensor& x) { return x.dim() == 1 && x.numel() == 0; }

// The sizes of the result; checks all but the quantization. `dim` becomes non-negative.
template <typename TensorType>
Dims joined_sizes(std::string_view op, std::span<const TensorType> tensors, std::int64_t& dim) {
  QUANTA_CHECK(!tensors.empty(), "{}: tensors: expected at least one, got none", op);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    QUANTA_CHECK(tensors[i].defined(), "{}: tensors[{}]: expected a tensor, got an undefined one",
                 op, i);
    QUANTA_CHECK(tensors[i].dtype() == tensors[0].dtype(),
                 "{}: tensors[{}]: expected {} as the first has, got {}", op, i, tensors[0].dtype(),
                 tensors[i].dtype());
  }
  std::size_t model = 0;
  while (model + 1 < tensors.size() && is_skipped(tensors[model])) ++model;
  const Dims& wanted = tensors[model].sizes();
  QUANTA_CHECK(!wanted.empty(), "{}: tensors[{}]: expected at least 1 dimension, got 0", op, model);
  dim = wrap_dim(dim, static_cast<std::int64_t>(wanted.size()), op);

  const auto joined = static_cast<std::size_t>(dim);
  Dims sizes = wanted;
  sizes[joined] = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Dims& got = tensors[i].sizes();
    if (is_skipped(tensors[i])) continue;
    Dims expected = wanted;
    if (got.size() == wanted.size()) expected[joined] = got[joined];
    QUANTA_CHECK(got == expected, "{}: tensors[{}]: expected {} but along dim {}, got {}", op, i,
                 wanted, dim, got);
    sizes[joined] += got[joined];
  }
  return sizes;
}

template <typename TensorType>
MemoryFormat joined_format(std::span<const TensorType> tensors) {
  for (const TensorType& tensor : tensors) {
    if (!is_skipped(tensor)) return tensor.suggested_format();
  }
  return MemoryFormat::Contiguous;
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

template <typename T>
void copy_elements(const Tensor& src, const Tensor& dst) {
  for_each_pair<T>(
      src, dst,
      [](const T* from, T* to, std::int64_t count) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
      },
      [](const T* from, T* to) { *to = *from; });
}

// The bits of the elements, whatever they mean.
void copy_bits(const Tensor& src, const Tensor& dst) {
  switch (item_size(src.dtype())) {
    case 1:
      return copy_elements<std::uint8_t>(src, dst);
    case 2:
      return copy_elements<std::uint16_t>(src, dst);
    case 4:
      return copy_elements<std::uint32_t>(src, dst);
    default:
      return copy_elements<std::uint64_t>(src, dst);
  }
}

// The part of `out` that piece after piece goes to.
template <typename TensorType, typename Copy>
void fill_pieces(std::span<const TensorType> tensors, const Tensor& out, std::int64_t dim,
                 Copy&& copy) {
  std::int64_t start = 0;
  for (const TensorType& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    const std::int64_t length = tensor.size(dim);
    if (tensor.numel() > 0) copy(tensor, out.narrow(dim, start, length));
    start += length;
  }
}

// copy(piece, part of out, out) for each piece again.
template <typename TensorType, typename Copy>
void record_cat(std::string_view op, std::span<const TensorType> tensors, const Tensor& out,
                std::int64_t dim, Copy copy) {
  if (!replay::is_recording() || out.numel() == 0) return;
  std::vector<Tensor> pieces;
  for (const TensorType& tensor : tensors) {
    if (tensor.numel() > 0) pieces.push_back(tensor);
  }
  const std::size_t count = pieces.size();
  replay::record({.op = op,
                  .inputs = std::move(pieces),
                  .outputs = {out},
                  .run = [count, dim, copy](const replay::Frame& frame) {
                    std::vector<Tensor> given;
                    for (std::size_t i = 0; i < count; ++i) given.push_back(frame.in(i));
                    fill_pieces(std::span<const Tensor>(given), frame.out(), dim,
                                [&](const Tensor& piece, const Tensor& part) {
                                  copy(piece, part, frame.out());
                                });
                  }});
}

}  // namespace

Tensor cat(std::span<const Tensor> tensors, std::int64_t dim) {
  if (!tensors.empty() && tensors[0].defined() && tensors[0].is_quantized()) {
    std::vector<QTensor> quantized_tensors;
    quantized_tensors.reserve(tensors.size());
    for (const Tensor& tensor : tensors) {
      quantized_tensors.push_back(tensor.as_quantized("cat", "tensors"));
    }
    return quantized::cat(quantized_tensors, dim);
  }
  OpScope scope("cat");
  scope.kernel("copy");
  const Dims sizes = joined_sizes("cat", tensors, dim);
  Tensor out = Tensor::empty(sizes, tensors[0].dtype(), joined_format(tensors));
  scope.maps(out);
  fill_pieces(tensors, out, dim, copy_bits);
  record_cat("cat", tensors, out, dim, [](const Tensor& piece, const Tensor& part, const Tensor&) {
    copy_bits(piece, part);
  });
  if (autograd::needs_grad(tensors)) return gradients::record_cat(tensors, dim, out);
  return out;
}

namespace quantized {
namespace {

enum class Relu : bool { No, Yes };

void requantize_piece(const QTensor& src, const Tensor& dst, const QTensor& out, Relu relu) {
  const Quantizer& from = src.quantizer();
  const Quantizer& to = out.quantizer();
  const bool same = from == to;
  if (same && relu == Relu::No) return copy_bits(src, dst);

  const float scale = static_cast<float>(from.scale);
  const auto zero_point = static_cast<std::int32_t>(from.zero_point);
  const auto lowest = static_cast<std::int32_t>(to.zero_point);
  const cpu::ScalarQuantizer quantizer(out);
  const auto function = [&](std::int32_t code) {
    const std::int32_t moved = same ? code : quantizer(math::dequantize(code, scale, zero_point));
    return relu == Relu::Yes ? std::max(moved, lowest) : moved;
  };
  if (src.dtype() == DType::QInt32) {
    const auto one = [&](const std::int32_t* x, std::int32_t* y) { *y = function(*x); };
    for_each_pair<std::int32_t>(
        src, dst,
        [&](const std::int32_t* x, std::int32_t* y, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i) one(x + i, y + i);
        },
        one);
    return;
  }
  const cpu::TableKey key{
      relu == Relu::Yes ? std::string_view("requantize_relu") : std::string_view("requantize"),
      src.dtype(),
      from.scale,
      from.zero_point,
      to.scale,
      to.zero_point};
  const cpu::CodeTable& table = cpu::code_table(key, function);
  for_each_pair<std::uint8_t>(
      src, dst,
      [&](const std::uint8_t* x, std::uint8_t* y, std::int64_t count) {
        cpu::lookup(x, y, count, table, cpu::Store::Cached);
      },
      [&](const std::uint8_t* x, std::uint8_t* y) { *y = table[*x]; });
}

QTensor cat_to(std::string_view op, std::span<const QTensor> tensors, std::int64_t dim,
               std::optional<double> scale, std::optional<std::int64_t> zero_point, Relu relu) {
  OpScope scope(op);
  const Dims sizes = joined_sizes(op, tensors, dim);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    cpu::check_per_tensor(op, fmt::format("tensors[{}]", i), tensors[i]);
  }
  const Quantizer& first = tensors[0].quantizer();
  const Quantizer quantizer =
      Quantizer::per_tensor(scale.value_or(first.scale), zero_point.value_or(first.zero_point));
  check_quantizer(op, quantizer, tensors[0].dtype(), sizes);
  QTensor out = QTensor::empty(sizes, tensors[0].dtype(), quantizer, joined_format(tensors));
  scope.maps(out);

  scope.kernel("lookup");
  fill_pieces(tensors, out, dim, [&](const QTensor& piece, const Tensor& part) {
    requantize_piece(piece, part, out, relu);
  });
  record_cat(op, tensors, out, dim,
             [relu](const Tensor& piece, const Tensor& part, const Tensor& whole) {
               requantize_piece(QTensor(piece), part, QTensor(whole), relu);
             });
  return out;
}

}  // namespace

QTensor cat(std::span<const QTensor> tensors, std::int64_t dim, std::optional<double> scale,
            std::optional<std::int64_t> zero_point) {
  return cat_to("quantized::cat", tensors, dim, scale, zero_point, Relu::No);
}
QTensor cat_relu(std::span<const QTensor> tensors, std::int64_t dim, std::optional<double> scale,
                 std::optional<std::int64_t> zero_point) {
  return cat_to("quantized::cat_relu", tensors, dim, scale, zero_point, Relu::Yes);
}

}  // namespace quantized
}  // namespace quanta
