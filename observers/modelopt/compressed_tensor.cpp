#include "quanta/observers/modelopt/compressed_tensor.h"

#include <algorithm>
#include <cmath>

#include "quanta/observers/modelopt/detail/compressed.h"
#include "quanta/ops/cpu/float_formats.h"
#include "quanta/ops/pad.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt {

std::string_view to_string(CompressedKind kind) {
  switch (kind) {
    case CompressedKind::Int8:
      return "INT8QTensor";
    case CompressedKind::Fp8:
      return "FP8QTensor";
    case CompressedKind::Int4:
      return "INT4QTensor";
    case CompressedKind::Nf4:
      return "NF4QTensor";
    case CompressedKind::NvFp4:
      return "NVFP4QTensor";
    case CompressedKind::MxFp4:
      return "MXFP4QTensor";
    case CompressedKind::MxFp8:
      return "MXFP8QTensor";
  }
  return "";
}

Tensor CompressedTensor::dequantize() const {
  const CompressedTensor self = detail::checked(*this);
  const Tensor values = [&] {
    switch (kind) {
      case CompressedKind::Int8:
        return detail::dequantize_int8(self);
      case CompressedKind::Fp8:
        return detail::dequantize_fp8(self);
      case CompressedKind::Int4:
        return detail::dequantize_int4(self);
      case CompressedKind::Nf4:
        return detail::dequantize_nf4(self);
      case CompressedKind::NvFp4:
        return detail::dequantize_nvfp4(self);
      case CompressedKind::MxFp4:
        return detail::dequantize_mxfp4(self);
      case CompressedKind::MxFp8:
        return detail::dequantize_mxfp8(self);
    }
    return Tensor();
  }();
  return values.to(dtype);
}

namespace {

cpu::FirstCode first_code(FirstNibble first) {
  return first == FirstNibble::High ? cpu::FirstCode::High : cpu::FirstCode::Low;
}

}  // namespace

Tensor pack_nibbles(const Tensor& codes, FirstNibble first) {
  QUANTA_CHECK(codes.defined() && codes.dtype() == DType::UInt8 && codes.dim() >= 1,
               "pack_nibbles: codes: expected UInt8 with at least one axis, got {}",
               codes.defined() ? to_string(codes.dtype()) : "an undefined tensor");
  QUANTA_CHECK(codes.size(-1) % 2 == 0, "pack_nibbles: codes: expected an even last size, got {}",
               codes.sizes());
  Dims sizes = codes.sizes();
  sizes[sizes.size() - 1] /= 2;
  Tensor bytes = Tensor::empty(sizes, DType::UInt8);
  const Tensor dense = codes.contiguous();
  const auto* from = static_cast<const std::uint8_t*>(dense.data_ptr());
  auto* to = static_cast<std::uint8_t*>(bytes.data_ptr());
  const std::uint8_t* largest = std::max_element(from, from + dense.numel());
  QUANTA_CHECK(dense.numel() == 0 || *largest < 16, "pack_nibbles: codes: expected 0..15, got {}",
               *largest);
  cpu::pack_pairs(from, bytes.numel(), first_code(first), to);
  return bytes;
}

Tensor unpack_nibbles(const Tensor& bytes, FirstNibble first) {
  QUANTA_CHECK(bytes.defined() && bytes.dtype() == DType::UInt8 && bytes.dim() >= 1,
               "unpack_nibbles: bytes: expected UInt8 with at least one axis, got {}",
               bytes.defined() ? to_string(bytes.dtype()) : "an undefined tensor");
  Dims sizes = bytes.sizes();
  sizes[sizes.size() - 1] *= 2;
  Tensor codes = Tensor::empty(sizes, DType::UInt8);
  const Tensor dense = bytes.contiguous();
  const auto* from = static_cast<const std::uint8_t*>(dense.data_ptr());
  auto* to = static_cast<std::uint8_t*>(codes.data_ptr());
  cpu::unpack_pairs(from, bytes.numel(), first_code(first), to);
  return codes;
}

namespace detail {

Tensor compressible(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined() && x.is_floating_point() && item_bits(x.dtype()) >= 16,
               "{}: x: expected Float32, Float64, Float16 or BFloat16, got {}", op,
               x.defined() ? to_string(x.dtype()) : "an undefined tensor");
  QUANTA_CHECK(x.numel() > 0, "{}: x: expected at least one element, got {}", op, x.sizes());
  const Tensor values = x.detach().to(DType::Float32).contiguous();
  const double amax = reduce_amax(values).item();
  QUANTA_CHECK(std::isfinite(amax), "{}: x: expected finite values, got amax {}", op, amax);
  return values;
}

Tensor crop(const Tensor& x, const Dims& sizes) {
  Tensor result = x;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    result = result.narrow(static_cast<std::int64_t>(d), 0, sizes[d]);
  }
  return result.contiguous();
}

Tensor flat_blocks(std::string_view op, const Tensor& x, std::int64_t block_size) {
  check_block_size(op, block_size, x.numel());
  return reduce_block_padding(x.reshape({-1}), {{0, block_size}}).reshape({-1, block_size});
}

Tensor last_axis_blocks(std::string_view op, const Tensor& x, std::int64_t block_size) {
  QUANTA_CHECK(block_size >= 1, "{}: block_size: expected at least 1, got {}", op, block_size);
  QUANTA_CHECK(x.dim() >= 1 && x.size(-1) % block_size == 0,
               "{}: x: expected a last size that blocks of {} divide, got {}", op, block_size,
               x.sizes());
  return split_blocks(x, {{-1, block_size}}).values;
}

Tensor row_amax(const Tensor& blocks) {
  Dims kept;
  Dims sizes;
  for (std::int64_t axis = 0; axis + 1 < blocks.dim(); ++axis) {
    kept.push_back(axis);
    sizes.push_back(blocks.size(axis));
  }
  return reduce_amax(blocks, kept).reshape(sizes);
}

}  // namespace detail
}  // namespace quanta::modelopt
