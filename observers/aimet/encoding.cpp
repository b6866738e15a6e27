#include "quanta/observers/aimet/encoding.h"

#include <cmath>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize_affine.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::aimet {
namespace {

AffineOptions op_options(const AffineEncoding& encoding) {
  AffineOptions options;
  options.qmin = encoding.grid().qmin();
  options.qmax = encoding.grid().qmax();
  options.block_size = encoding.block_size();
  return options;
}

void require_no_shift(std::string_view op, const AffineEncoding& encoding) {
  QUANTA_CHECK(encoding.zero_point_shift() == 0.0,
               "{}: zero_point_shift: expected 0 (codes with a shift are only used together with "
               "dequantizing), got {}",
               op, encoding.zero_point_shift());
}

// The dimensions of size > 1.
std::vector<std::int64_t> wide_axes(const Tensor& x) {
  std::vector<std::int64_t> axes;
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    if (x.size(d) > 1) axes.push_back(d);
  }
  return axes;
}

void check_floating_dtype(DType dtype) {
  QUANTA_CHECK(quanta::is_floating_point(dtype),
               "Encoding.to: dtype: expected a floating dtype, got {}", dtype);
}

}  // namespace

Encoding::Encoding(std::string_view name, Tensor scale, Dims block_size)
    : scale_(std::move(scale)), block_size_(std::move(block_size)) {
  QUANTA_CHECK(scale_.defined() && scale_.is_floating_point(),
               "{}: scale: expected a floating tensor, got {}", name,
               scale_.defined() ? to_string(scale_.dtype()) : "an undefined one");
}

std::string_view Encoding::granularity() const noexcept {
  if (scale_.dim() == 0) return "pertensor";
  if (!block_size_.empty()) return "blockwise";
  return wide_axes(scale_).size() <= 1 ? "perchannel" : "unknown";
}

AffineEncoding::AffineEncoding(Tensor scale, Tensor offset, const Grid& grid, Options options)
    : Encoding("AffineEncoding", std::move(scale), options.block_size),
      offset_(std::move(offset)),
      grid_(grid),
      options_(std::move(options)) {
  QUANTA_CHECK(
      offset_.defined() && offset_.is_floating_point() && offset_.sizes() == scale_.sizes(),
      "AffineEncoding: offset: expected a floating tensor of the sizes of scale, {}, got {}",
      scale_.sizes(), offset_.defined() ? to_string(offset_.sizes()) : "an undefined one");
  QUANTA_CHECK(options_.zero_point_shift == 0.0 || options_.zero_point_shift == 0.5,
               "AffineEncoding: zero_point_shift: expected 0 or 0.5, got {}",
               options_.zero_point_shift);
  QUANTA_CHECK(block_size_.empty() || block_size_.size() == scale_.sizes().size(),
               "AffineEncoding: block_size: expected one entry for each dimension of scale {}, got "
               "{}",
               scale_.sizes(), block_size_);
}

Tensor AffineEncoding::min() const {
  return mul(add_scalar(offset_, static_cast<double>(grid_.qmin())), scale_);
}

Tensor AffineEncoding::max() const {
  return mul(add_scalar(offset_, static_cast<double>(grid_.qmax())), scale_);
}

Tensor AffineEncoding::quantize(const Tensor& x) const {
  require_no_shift("AffineEncoding.quantize", *this);
  return quantize_affine(x, scale_.to(x.dtype()), offset_.to(x.dtype()), op_options(*this));
}

Tensor AffineEncoding::dequantize(const Tensor& codes) const {
  require_no_shift("AffineEncoding.dequantize", *this);
  return dequantize_affine(codes, scale_.to(codes.dtype()), offset_.to(codes.dtype()),
                           op_options(*this));
}

EncodingPtr AffineEncoding::scaled_by(double factor) const {
  const std::int64_t sum = grid_.qmin() + grid_.qmax();
  if (factor == 0.0 || !std::isfinite(factor)) return nullptr;
  if (factor < 0.0 && symmetric() && sum % 2 != 0) return nullptr;
  const Tensor scale = mul_scalar(scale_, std::fabs(factor));
  const Tensor offset =
      factor < 0.0 ? add_scalar(mul_scalar(offset_, -1.0), static_cast<double>(-sum)) : offset_;
  return std::make_shared<AffineEncoding>(scale, offset, grid_, options_);
}

EncodingPtr AffineEncoding::to(DType dtype) const {
  check_floating_dtype(dtype);
  return std::make_shared<AffineEncoding>(scale_.to(dtype), offset_.to(dtype), grid_, options_);
}

GroupedBlockEncoding::GroupedBlockEncoding(Tensor scale, Tensor offset, const Grid& grid,
                                           Dims block_size, Groups groups)
    : AffineEncoding(std::move(scale), std::move(offset), grid,
                     {.symmetric = true, .block_size = std::move(block_size)}),
      groups_(std::move(groups)) {
  QUANTA_CHECK(groups_.per_channel_scale.defined() && groups_.per_block_int_scale.defined(),
               "GroupedBlockEncoding: groups: expected scales per channel and per block, got {}",
               "an undefined tensor");
  QUANTA_CHECK(groups_.decompressed_bw >= grid.bitwidth(),
               "GroupedBlockEncoding: decompressed_bw: expected at least the bitwidth {}, got {}",
               grid.bitwidth(), groups_.decompressed_bw);
  QUANTA_CHECK(
      groups_.per_block_int_scale.numel() == this->scale().numel(),
      "GroupedBlockEncoding: per_block_int_scale: expected {} numbers as of the scale, got {}",
      this->scale().numel(), groups_.per_block_int_scale.sizes());
}

EncodingPtr GroupedBlockEncoding::scaled_by(double factor) const {
  const EncodingPtr scaled = AffineEncoding::scaled_by(factor);
  if (scaled == nullptr) return nullptr;
  Groups groups = groups_;
  groups.per_channel_scale = mul_scalar(groups.per_channel_scale, std::fabs(factor));
  const auto& affine = static_cast<const AffineEncoding&>(*scaled);
  return std::make_shared<GroupedBlockEncoding>(affine.scale(), affine.offset(), grid(),
                                                block_size(), groups);
}

EncodingPtr GroupedBlockEncoding::to(DType dtype) const {
  check_floating_dtype(dtype);
  Groups groups = groups_;
  groups.per_channel_scale = groups.per_channel_scale.to(dtype);
  groups.per_block_int_scale = groups.per_block_int_scale.to(dtype);
  return std::make_shared<GroupedBlockEncoding>(scale().to(dtype), offset().to(dtype), grid(),
                                                block_size(), groups);
}

// QTensor ----------------------------------------------------------------------------------------

std::shared_ptr<const AffineEncoding> AffineEncoding::from_quantizer(const QTensor& x) {
  constexpr std::string_view kOp = "AffineEncoding.from_quantizer";
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", kOp);
  QUANTA_CHECK(x.qscheme() != QScheme::PerChannelAffineFloatQParams,
               "{}: x: expected integer zero points, got {}", kOp, x.qscheme());
  const IntRange range = quant_range(x.dtype());
  const Grid grid(range.min, range.max);
  if (!x.is_per_channel()) {
    return std::make_shared<AffineEncoding>(
        Tensor::scalar(x.q_scale()), Tensor::scalar(-static_cast<double>(x.q_zero_point())), grid);
  }
  Dims sizes = Dims::filled(static_cast<std::size_t>(x.dim() - x.q_per_channel_axis()), 1);
  sizes[0] = x.size(x.q_per_channel_axis());
  const Tensor scale = x.q_per_channel_scales().to(DType::Float32).reshape(sizes);
  const Tensor zero_point = x.q_per_channel_zero_points().to(DType::Float32).reshape(sizes);
  return std::make_shared<AffineEncoding>(scale, mul_scalar(zero_point, -1.0), grid);
}

QTensor to_qtensor(const Tensor& codes, const AffineEncoding& encoding) {
  constexpr std::string_view kOp = "to_qtensor";
  require_no_shift(kOp, encoding);
  QUANTA_CHECK(encoding.block_size().empty(), "{}: encoding: expected no blocks, got block_size {}",
               kOp, encoding.block_size());
  const DType integer = encoding.integer_dtype();
  QUANTA_CHECK(integer == DType::UInt8 || integer == DType::Int8 || integer == DType::Int32,
               "{}: encoding: expected a grid within 8 or 32 bits, got {}..{}", kOp,
               encoding.grid().qmin(), encoding.grid().qmax());
  const std::vector<std::int64_t> axes = wide_axes(encoding.scale());
  QUANTA_CHECK(axes.size() <= 1, "{}: encoding: expected scales along one axis, got {}", kOp,
               encoding.scale().sizes());
  const std::vector<float> scales = encoding.scale().detach().to_float_vector();
  const std::vector<float> offsets = encoding.offset().detach().to_float_vector();
  std::vector<std::int64_t> zero_points;
  for (const float offset : offsets) {
    QUANTA_CHECK(offset == std::trunc(offset) && std::fabs(offset) < 0x1p31F,
                 "{}: encoding: expected whole offsets, got {}", kOp, offset);
    zero_points.push_back(static_cast<std::int64_t>(-offset));
  }
  const Tensor integers = codes.detach().to(integer).contiguous();
  if (axes.empty()) {
    return QTensor::from_int_repr(
        integers, Quantizer::per_tensor(static_cast<double>(scales.at(0)), zero_points.at(0)));
  }
  const std::int64_t axis = codes.dim() - encoding.scale().dim() + axes[0];
  return QTensor::from_int_repr(
      integers, Quantizer::per_channel({scales.begin(), scales.end()}, zero_points, axis));
}

}  // namespace quanta::aimet
