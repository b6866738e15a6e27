#include "quanta/ops/detail/cuda_code_product.h"

#include <algorithm>
#include <array>

#include "quanta/ops/cuda/codes.h"
#include "quanta/ops/cuda/few_products.h"
#include "quanta/ops/cuda/pack_codes.h"
#include "quanta/ops/detail/cuda_int8_weight.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::detail {
namespace {

using cuda::ActivationProduct;
using cuda::ProductParams;

constexpr std::uint8_t kSignBit = 0x80;

bool is_signed(const Tensor& bytes) {
  return bytes.dtype() == DType::Int8 || bytes.dtype() == DType::QInt8;
}

/// The zero point of an operand whose codes have been moved by `added`.
cuda::ZeroOfBytes zero_of(const ByteOperand& operand, std::int32_t added) {
  cuda::ZeroOfBytes zero;
  zero.number = static_cast<std::int32_t>(operand.zero_point) + added;
  if (!operand.zero_points.defined()) return zero;
  zero.bytes = reinterpret_cast<const std::uint8_t*>(operand.zero_points.device_ptr());
  zero.is_signed = is_signed(operand.bytes);
  zero.added = added;
  zero.step = operand.zero_points.numel() > 1 ? 1 : 0;
  return zero;
}

/// The left side without sign, dense in this order.
Tensor without_sign(const Tensor& bytes, MemoryFormat format) {
  if (!is_signed(bytes)) return bytes.contiguous(format);
  std::array<std::uint8_t, 256> turned{};
  for (std::size_t i = 0; i < turned.size(); ++i) {
    turned[i] = static_cast<std::uint8_t>(i ^ kSignBit);
  }
  const Tensor result = Tensor::empty(bytes.sizes(), DType::UInt8, format, bytes.device());
  cuda::look_up(bytes, result, turned);
  return result;
}

/// All matrices of the batch one behind the other, or the one that all of them are.
Tensor matrices_of(const Tensor& x, const Dims& out) {
  const std::int64_t rows = x.size(-2);
  const std::int64_t columns = x.size(-1);
  if (x.numel() == rows * columns) return x.reshape({1, rows, columns});
  Dims sizes = out;
  sizes[sizes.size() - 2] = rows;
  sizes[sizes.size() - 1] = columns;
  return x.expand(sizes).reshape({-1, rows, columns});
}

/// The right side on the device, packed for one call.
struct PackedBytes {
  cuda::Buffer w, sums, pad;

  PackedBytes(Device device, cuda::PackCodesParams pack, bool with_pad) {
    pack.padded_columns = static_cast<int>(
        round_up(std::int64_t{pack.columns}, std::int64_t{ProductParams::kColumns}));
    pack.depth = static_cast<int>(
        round_up(std::int64_t{pack.channels} * pack.taps, std::int64_t{ProductParams::kDepth}));
    matrix = std::int64_t{pack.padded_columns} * pack.depth;
    depth = pack.depth;
    w = cuda::Buffer(device, static_cast<std::size_t>(pack.groups * matrix));
    const auto sum_bytes = static_cast<std::size_t>(pack.groups * pack.columns) * 4;
    sums = cuda::Buffer(device, sum_bytes);
    cuda::driver(device).fill(sums.as<void>(), 0, sum_bytes);
    if (with_pad) pad = cuda::Buffer(device, 16);
    pack.w = w.as<std::int8_t>();
    pack.sums = sums.as<std::int32_t>();
    pack.pad = with_pad ? pad.as<std::uint8_t>() : nullptr;
    cuda::pack_codes(device, pack);
  }

  std::int64_t matrix = 0;
  int depth = 0;
};

int to_int(std::int64_t value) {
  QUANTA_SUPPORTED(value <= (std::int64_t{1} << 30),
                   "matmul: lhs: expected sizes up to 2^30 on a CUDA device, got {}", value);
  return static_cast<int>(value);
}

bool is_zero(const cuda::ZeroOfBytes& zero) { return zero.bytes == nullptr && zero.number == 0; }

void set_end(ProductParams& params, const ByteProductEnd& end) {
  params.end = cuda::ProductEnd::Activations;
  params.activations.end = end.end;
  params.activations.scale = end.scale;
  params.activations.high = end.high;
  params.inv_scale = end.inv_scale;
  params.zero_point = end.zero_point;
  params.low = end.low;
}

/// All of a batch: the grid holds so many at a time.
void multiply_batch(Device device, const ProductParams& params, std::int64_t matrices,
                    std::int64_t item_bytes) {
  constexpr std::int64_t kMost = 32768;
  for (std::int64_t first = 0; first < matrices; first += kMost) {
    ProductParams some = params;
    some.matrices = static_cast<int>(std::min(kMost, matrices - first));
    some.x += first * params.matrix_x;
    some.w += first * params.matrix_w;
    some.y = static_cast<std::byte*>(params.y) + first * params.matrix_y * item_bytes;
    ActivationProduct& product = some.activations;
    if (product.row_sums != nullptr) {
      ProductParams sums = some;
      sums.y = const_cast<std::int32_t*>(product.row_sums);
      cuda::sum_windows(device, sums);
    }
    if (params.matrix_w != 0) product.column_sums += first * params.columns;
    cuda::multiply_codes(device, some);
  }
}

}  // namespace

void multiply_bytes_on_cuda(const ByteOperand& lhs, const ByteOperand& rhs,
                            const ByteProductEnd& end, const Tensor& out) {
  const Device device = out.device();
  const std::int64_t depth = lhs.bytes.size(-1);
  if (depth == 0) {
    cuda::driver(device).fill(out.device_ptr(), static_cast<unsigned char>(end.zero_point),
                              out.nbytes());
    return;
  }
  const Tensor left = without_sign(matrices_of(lhs.bytes, out.sizes()), MemoryFormat::Contiguous);
  const Tensor right = matrices_of(rhs.bytes, out.sizes());
  std::int64_t rows = left.size(1);
  const std::int64_t columns = right.size(2);
  std::int64_t matrices = out.numel() / (rows * columns);

  ProductParams params;
  set_end(params, end);
  ActivationProduct& product = params.activations;
  product.x = zero_of(lhs, is_signed(lhs.bytes) ? 128 : 0);
  product.w = zero_of(rhs, is_signed(rhs.bytes) ? 0 : -128);
  // One matrix on the right: the batch is more rows.
  const bool is_one = right.size(0) == 1 && left.size(0) == matrices && product.x.step == 0;
  if (is_one) {
    rows *= matrices;
    matrices = 1;
  }
  const PackedBytes packed(device,
                           {.from = reinterpret_cast<const std::uint8_t*>(right.device_ptr()),
                            .group_stride = right.strides()[0],
                            .column_stride = right.strides()[2],
                            .channel_stride = right.strides()[1],
                            .groups = right.size(0),
                            .columns = to_int(columns),
                            .channels = to_int(depth),
                            .mask = is_signed(rhs.bytes) ? std::uint8_t{0} : kSignBit},
                           false);
  set_shape(params, {.batch = rows, .in_channels = depth, .out_channels = columns},
            left.device_ptr());
  params.w = packed.w.as<std::int8_t>();
  params.pad = packed.w.as<std::uint8_t>();  // what is read beyond the depth meets a weight of 0
  params.depth = packed.depth;
  params.y = out.device_ptr();
  params.matrix_x = left.size(0) == 1 ? 0 : rows * depth;
  params.matrix_w = right.size(0) == 1 ? 0 : packed.matrix;
  params.matrix_y = rows * columns;
  product.column_sums = packed.sums.as<std::int32_t>();
  product.depth = static_cast<std::int32_t>(depth);
  cuda::Buffer row_sums;
  if (!is_zero(product.w)) {
    // Of one part of the batch: the next one is calculated when this one has been read.
    const std::int64_t most = std::min<std::int64_t>(matrices, 32768);
    row_sums = cuda::Buffer(device, static_cast<std::size_t>(most * rows) * 4);
    product.row_sums = row_sums.as<std::int32_t>();
  }
  multiply_batch(device, params, matrices, static_cast<std::int64_t>(item_size(out.dtype())));
}

void convolve_bytes_on_cuda(const ByteOperand& x, const ByteOperand& weight,
                            const cpu::ConvShape& shape, const Tensor& out) {
  const Device device = out.device();
  const Tensor image = without_sign(x.bytes, MemoryFormat::ChannelsLast);
  const std::int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const std::int64_t channels = shape.in_channels / shape.groups;
  const std::int64_t columns = shape.out_channels / shape.groups;
  ProductParams params;
  set_end(params, {});
  ActivationProduct& product = params.activations;
  product.x = zero_of(x, is_signed(x.bytes) ? 128 : 0);
  product.w = zero_of(weight, is_signed(weight.bytes) ? 0 : -128);
  const PackedBytes packed(
      device,
      {.from = reinterpret_cast<const std::uint8_t*>(weight.bytes.device_ptr()),
       .group_stride = columns * channels * taps,
       .column_stride = channels * taps,
       .channel_stride = taps,
       .tap_stride = 1,
       .groups = shape.groups,
       .columns = to_int(columns),
       .channels = to_int(channels),
       .taps = to_int(taps),
       .mask = is_signed(weight.bytes) ? std::uint8_t{0} : kSignBit,
       .pad_zero = product.x},
      true);
  set_shape(params, shape, image.device_ptr());
  params.w = packed.w.as<std::int8_t>();
  params.pad = packed.pad.as<std::uint8_t>();
  params.depth = packed.depth;
  params.y = out.device_ptr();
  product.column_sums = packed.sums.as<std::int32_t>();
  product.depth = static_cast<std::int32_t>(channels * taps);
  cuda::Buffer row_sums;
  if (!is_zero(product.w)) {
    row_sums = cuda::Buffer(device, static_cast<std::size_t>(params.pixels * shape.groups) * 4);
    product.row_sums = row_sums.as<std::int32_t>();
  }
  multiply_batch(device, params, 1, 4);
}

}  // namespace quanta::detail
