#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "quanta/observers/modelopt/detail/compressed.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::modelopt::detail {
namespace {

constexpr std::string_view kOp = "dequantize";

/// The fields of one compressed tensor, each against what its kind and sizes ask for.
class Fields {
 public:
  explicit Fields(const CompressedTensor& x) : x_(x) {
    constexpr std::int64_t kMostElements = std::int64_t{1} << 57;  // as of all tensors
    for (const std::int64_t size : x.sizes) {
      QUANTA_CHECK(size >= 1 && size <= kMostElements / elements_,
                   "{}: sizes: expected sizes of at least 1 and at most 2^57 elements, got {}", kOp,
                   x.sizes);
      elements_ *= size;
    }
    QUANTA_CHECK(is_floating_point(x.dtype) && item_bits(x.dtype) >= 16,
                 "{}: dtype: expected a floating one of 16 bits or more, got {}", kOp, x.dtype);
  }

  std::int64_t elements() const noexcept { return elements_; }
  std::int64_t last_size() const {
    QUANTA_CHECK(!x_.sizes.empty(), "{}: sizes: expected at least one axis, got none", kOp);
    return x_.sizes[x_.sizes.size() - 1];
  }
  std::int64_t block_size() const {
    check_block_size(kOp, x_.block_size, elements_);
    return x_.block_size;
  }
  /// The sizes with a last one that is divided.
  Dims divided_last(std::int64_t by) const {
    const std::int64_t last = last_size();
    QUANTA_CHECK(last % by == 0, "{}: sizes: expected a last size that {} divides, got {}", kOp, by,
                 x_.sizes);
    Dims result = x_.sizes;
    result[result.size() - 1] = last / by;
    return result;
  }

  void expect(std::string_view field, const Tensor& tensor, DType dtype, const Dims& sizes) const {
    expect_dtype(field, tensor, dtype);
    QUANTA_CHECK(tensor.sizes() == sizes, "{}: {}: expected sizes {} for a {} of {}, got {}", kOp,
                 field, sizes, to_string(x_.kind), x_.sizes, tensor.sizes());
  }
  void expect_count(std::string_view field, const Tensor& tensor, DType dtype,
                    std::int64_t count) const {
    expect_dtype(field, tensor, dtype);
    QUANTA_CHECK(tensor.numel() == count, "{}: {}: expected {} elements for a {} of {}, got {}",
                 kOp, field, count, to_string(x_.kind), x_.sizes, tensor.numel());
  }

 private:
  void expect_dtype(std::string_view field, const Tensor& tensor, DType dtype) const {
    QUANTA_CHECK(tensor.defined(), "{}: {}: expected a tensor, got an undefined one", kOp, field);
    QUANTA_CHECK(tensor.dtype() == dtype, "{}: {}: expected {} for a {}, got {}", kOp, field, dtype,
                 to_string(x_.kind), tensor.dtype());
  }

  const CompressedTensor& x_;
  std::int64_t elements_ = 1;
};

// NvFp4 and MxFp4: two codes in a byte, and a scale for each block of the last axis.
void check_pairs(const Fields& fields, const CompressedTensor& x, DType scale_dtype) {
  fields.expect("data", x.data, DType::UInt8, fields.divided_last(2));
  fields.expect_count("scale", x.scale, scale_dtype,
                      checked_numel(fields.divided_last(fields.block_size())));
}

// Int8 and Fp8: a scale for all, along axes, or for each block.
void check_scaled(const Fields& fields, const CompressedTensor& x, DType dtype) {
  fields.expect("data", x.data, dtype, x.sizes);
  if (x.block_sizes.empty()) {
    QUANTA_CHECK(x.scale.dtype() == DType::Float32 && x.scale.dim() <= x.data.dim() &&
                     broadcast_sizes(x.scale.sizes(), x.sizes, kOp) == x.sizes,
                 "{}: scale: expected Float32 that broadcasts to {}, got {} {}", kOp, x.sizes,
                 x.scale.dtype(), x.scale.sizes());
    return;
  }
  std::int64_t blocks = fields.elements();
  for (const auto& [axis, size] : x.block_sizes) {
    const auto rank = static_cast<std::int64_t>(x.sizes.size());
    QUANTA_CHECK(axis >= -rank && axis < rank, "{}: block_sizes: expected axes of {}, got {}", kOp,
                 x.sizes, axis);
    const std::int64_t length = x.sizes[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)];
    const std::int64_t block = size.value_or(length);
    check_block_size(kOp, block, length);
    blocks = blocks / length * ceil_div(length, block);
  }
  fields.expect_count("scale", x.scale, DType::Float32, blocks);
}

}  // namespace

void check_block_size(std::string_view op, std::int64_t block_size, std::int64_t elements) {
  const std::int64_t longest = std::max(elements, kLongestPaddedBlock);
  QUANTA_CHECK(block_size >= 1 && block_size <= longest,
               "{}: block_size: expected 1..{} for {} numbers, got {}", op, longest, elements,
               block_size);
}

CompressedTensor checked(const CompressedTensor& x) {
  QUANTA_CHECK(x.data.defined() && x.scale.defined(),
               "{}: data: expected a compressed tensor, got an empty {}", kOp, to_string(x.kind));
  const Fields fields(x);
  const std::int64_t elements = fields.elements();
  switch (x.kind) {
    case CompressedKind::Int8:
      check_scaled(fields, x, DType::Int8);
      break;
    case CompressedKind::Fp8:
      check_scaled(fields, x, DType::Float8E4M3FN);
      break;
    case CompressedKind::Int4:
      fields.expect("data", x.data, DType::UInt8, fields.divided_last(2));
      fields.expect_count("scale", x.scale, DType::Float32,
                          ceil_div(elements, fields.block_size()));
      break;
    case CompressedKind::Nf4: {
      QUANTA_CHECK(elements % 2 == 0, "{}: sizes: expected an even number of elements, got {}", kOp,
                   x.sizes);
      fields.expect_count("data", x.data, DType::UInt8, elements / 2);
      const std::int64_t blocks = ceil_div(elements, fields.block_size());
      QUANTA_CHECK(x.scale.dtype() == DType::Int8 && x.scale.dim() == 2 &&
                       x.scale.numel() >= blocks && x.scale.size(0) > 0,
                   "{}: scale: expected Int8 [groups, scales of a group] with at least {} scales, "
                   "got {} {}",
                   kOp, blocks, x.scale.dtype(), x.scale.sizes());
      fields.expect_count("double_scale", x.double_scale, DType::Float32, x.scale.size(0));
      fields.expect_count("scale_zeros", x.scale_zeros, DType::Float32, 1);
      break;
    }
    case CompressedKind::NvFp4:
      check_pairs(fields, x, DType::Float8E4M3FN);
      fields.expect_count("double_scale", x.double_scale, DType::Float32, 1);
      break;
    case CompressedKind::MxFp4:
      check_pairs(fields, x, DType::UInt8);
      break;
    case CompressedKind::MxFp8:
      fields.expect("data", x.data, DType::Float8E4M3FN, x.sizes);
      // The last block of a row may be shorter.
      fields.expect_count(
          "scale", x.scale, DType::UInt8,
          elements / fields.last_size() * ceil_div(fields.last_size(), fields.block_size()));
      break;
    default:
      throw ArgumentError(fmt::format("{}: kind: expected one of CompressedKind's, got number {}",
                                      kOp, static_cast<int>(x.kind)));
  }
  CompressedTensor dense = x;
  for (Tensor CompressedTensor::*field :
       {&CompressedTensor::data, &CompressedTensor::scale, &CompressedTensor::double_scale,
        &CompressedTensor::scale_zeros}) {
    if ((dense.*field).defined()) dense.*field = (dense.*field).contiguous();
  }
  return dense;
}

}  // namespace quanta::modelopt::detail
