#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <optional>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/detail/element.h"
#include "quanta/runtime/detail/float_casts.h"
#include "quanta/runtime/detail/interleave.h"
#include "quanta/runtime/detail/overlap.h"
#include "quanta/runtime/detail/require_tensor.h"
#include "quanta/runtime/detail/strided.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/tensor.h"

namespace quanta {
namespace {

template <typename T>
void copy_items(T* dst, const T* src, const detail::StridedPair& pair) {
  const std::int64_t dst_step = pair.first.back();
  const std::int64_t src_step = pair.second.back();
  pair.for_each_run([&](std::int64_t dst_offset, std::int64_t src_offset, std::int64_t count) {
    T* to = dst + dst_offset;
    const T* from = src + src_offset;
    if (dst_step == 1 && src_step == 1) {
      std::memmove(to, from, static_cast<std::size_t>(count) * sizeof(T));
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i * dst_step] = from[i * src_step];
    }
  });
}

// Planes to pixels, [outer][channels][positions] to [outer][positions][channels], as contiguous
// order becomes channels-last. Answers whether that is what the pair describes.
template <typename T>
bool copy_planes_to_pixels(T* dst, const T* src, const detail::StridedPair& pair) {
  const std::size_t rank = pair.sizes.size();
  if (rank < 2 || rank > 3) return false;
  const std::int64_t channels = pair.sizes[rank - 1];
  const std::int64_t positions = pair.sizes[rank - 2];
  const std::int64_t plane = pair.second[rank - 1];
  if (pair.first[rank - 1] != 1 || pair.first[rank - 2] != channels || pair.second[rank - 2] != 1) {
    return false;
  }
  const std::int64_t outer = rank == 3 ? pair.sizes[0] : 1;
  for (std::int64_t o = 0; o < outer; ++o) {
    T* to = dst + (rank == 3 ? o * pair.first[0] : 0);
    const T* from = src + (rank == 3 ? o * pair.second[0] : 0);
    parallel_for(positions, std::max<std::int64_t>(1, 65536 / channels),
                 [&](std::int64_t begin, std::int64_t end) {
                   detail::interleave_planes(from + begin, plane, channels, end - begin,
                                             to + begin * channels);
                 });
  }
  return true;
}

// Same dtype, same sizes, any strides.
void copy_same_dtype(const Tensor& dst, const Tensor& src) {
  if (dst.numel() == 0) return;
  if (is_sub_byte(dst.dtype())) {
    std::memmove(dst.data_ptr(), src.data_ptr(), dst.nbytes());
    return;
  }
  const detail::StridedPair pair(dst.sizes(), dst.strides(), src.strides());
  switch (item_size(dst.dtype())) {
    case 1: {
      auto* to = static_cast<std::uint8_t*>(dst.data_ptr());
      const auto* from = static_cast<const std::uint8_t*>(src.data_ptr());
      if (!copy_planes_to_pixels(to, from, pair)) copy_items(to, from, pair);
      return;
    }
    case 2:
      return copy_items(static_cast<std::uint16_t*>(dst.data_ptr()),
                        static_cast<const std::uint16_t*>(src.data_ptr()), pair);
    case 4: {
      auto* to = static_cast<std::uint32_t*>(dst.data_ptr());
      const auto* from = static_cast<const std::uint32_t*>(src.data_ptr());
      if (!copy_planes_to_pixels(to, from, pair)) copy_items(to, from, pair);
      return;
    }
    default:
      return copy_items(static_cast<std::uint64_t*>(dst.data_ptr()),
                        static_cast<const std::uint64_t*>(src.data_ptr()), pair);
  }
}

std::optional<math::FloatFormat> small_float(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return math::kFloat16;
    case DType::BFloat16:
      return math::kBFloat16;
    case DType::Float8E4M3FN:
      return math::kE4M3FN;
    case DType::Float8E5M2:
      return math::kE5M2;
    default:
      return std::nullopt;
  }
}

template <typename Code>
void encode_runs(const Tensor& dst, const Tensor& src, const detail::StridedPair& pair,
                 const math::FloatFormat& format) {
  const auto* from = static_cast<const float*>(src.data_ptr());
  auto* to = static_cast<Code*>(dst.data_ptr());
  pair.for_each_run([&](std::int64_t dst_offset, std::int64_t src_offset, std::int64_t count) {
    detail::encode_floats(from + src_offset, count, format, math::Overflow::Special,
                          to + dst_offset);
  });
}

template <typename Code>
void decode_runs(const Tensor& dst, const Tensor& src, const detail::StridedPair& pair,
                 const math::FloatFormat& format) {
  const auto* from = static_cast<const Code*>(src.data_ptr());
  auto* to = static_cast<float*>(dst.data_ptr());
  pair.for_each_run([&](std::int64_t dst_offset, std::int64_t src_offset, std::int64_t count) {
    detail::decode_floats(from + src_offset, count, format, to + dst_offset);
  });
}

// Float32 to a smaller float or back, where the innermost elements of both lie next to each other.
// Answers whether that was so.
bool copy_small_floats(const Tensor& dst, const Tensor& src, const detail::StridedPair& pair) {
  if (pair.first.back() != 1 || pair.second.back() != 1) return false;
  if (src.dtype() == DType::Float32) {
    const std::optional<math::FloatFormat> format = small_float(dst.dtype());
    if (!format) return false;
    if (format->bits() > 8) {
      encode_runs<std::uint16_t>(dst, src, pair, *format);
    } else {
      encode_runs<std::uint8_t>(dst, src, pair, *format);
    }
    return true;
  }
  const std::optional<math::FloatFormat> format = small_float(src.dtype());
  if (!format || dst.dtype() != DType::Float32) return false;
  if (format->bits() > 8) {
    decode_runs<std::uint16_t>(dst, src, pair, *format);
  } else {
    decode_runs<std::uint8_t>(dst, src, pair, *format);
  }
  return true;
}

// Plain to plain with conversion, in blocks through double.
void copy_converting(const Tensor& dst, const Tensor& src) {
  const detail::StridedPair pair(dst.sizes(), dst.strides(), src.strides());
  if (copy_small_floats(dst, src, pair)) return;
  const std::int64_t dst_step = pair.first.back();
  const std::int64_t src_step = pair.second.back();
  constexpr std::int64_t kBlock = 256;
  pair.for_each_run([&](std::int64_t dst_offset, std::int64_t src_offset, std::int64_t count) {
    std::array<double, kBlock> block;
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      const std::int64_t length = std::min(kBlock, count - begin);
      detail::visit_plain(src.dtype(), "copy", [&](auto element) {
        using Element = decltype(element);
        const auto* from = static_cast<const typename Element::Storage*>(src.data_ptr()) +
                           src_offset + begin * src_step;
        for (std::int64_t i = 0; i < length; ++i) {
          block[static_cast<std::size_t>(i)] = Element::to_double(from[i * src_step]);
        }
      });
      detail::visit_plain(dst.dtype(), "copy", [&](auto element) {
        using Element = decltype(element);
        auto* to =
            static_cast<typename Element::Storage*>(dst.data_ptr()) + dst_offset + begin * dst_step;
        for (std::int64_t i = 0; i < length; ++i) {
          to[i * dst_step] = Element::from_double(block[static_cast<std::size_t>(i)]);
        }
      });
    }
  });
}

// Calls body(flat_index, element_offset, channel) for each element in logical order.
template <typename Body>
void for_each_element(const Tensor& x, Body&& body) {
  const std::int64_t axis = x.is_quantized() && is_per_channel(x.impl()->quantizer.scheme)
                                ? x.impl()->quantizer.axis
                                : -1;
  std::array<std::int64_t, Dims::kMaxDims> position{};
  for (std::int64_t flat = 0; flat < x.numel(); ++flat) {
    std::int64_t offset = 0;
    std::int64_t rest = flat;
    for (std::size_t d = x.sizes().size(); d-- > 0;) {
      position[d] = rest % x.sizes()[d];
      rest /= x.sizes()[d];
      offset += position[d] * x.strides()[d];
    }
    body(flat, is_sub_byte(x.dtype()) ? flat : offset,
         axis < 0 ? 0 : position[static_cast<std::size_t>(axis)]);
  }
}

std::int64_t load_code(const Tensor& x, std::int64_t offset) {
  switch (x.dtype()) {
    case DType::QUInt8:
      return static_cast<const std::uint8_t*>(x.data_ptr())[offset];
    case DType::QInt8:
      return static_cast<const std::int8_t*>(x.data_ptr())[offset];
    case DType::QInt32:
      return static_cast<const std::int32_t*>(x.data_ptr())[offset];
    default: {  // packed, lowest index in the lowest bits
      const int bits = item_bits(x.dtype());
      const std::int64_t per_byte = 8 / bits;
      const auto byte = static_cast<const std::uint8_t*>(x.data_ptr())[offset / per_byte];
      return (byte >> (static_cast<int>(offset % per_byte) * bits)) & ((1 << bits) - 1);
    }
  }
}

void store_code(const Tensor& x, std::int64_t offset, std::int64_t code) {
  switch (x.dtype()) {
    case DType::QUInt8:
      static_cast<std::uint8_t*>(x.data_ptr())[offset] = static_cast<std::uint8_t>(code);
      return;
    case DType::QInt8:
      static_cast<std::int8_t*>(x.data_ptr())[offset] = static_cast<std::int8_t>(code);
      return;
    case DType::QInt32:
      static_cast<std::int32_t*>(x.data_ptr())[offset] = static_cast<std::int32_t>(code);
      return;
    default: {
      const int bits = item_bits(x.dtype());
      const std::int64_t per_byte = 8 / bits;
      auto& byte = static_cast<std::uint8_t*>(x.data_ptr())[offset / per_byte];
      const int shift = static_cast<int>(offset % per_byte) * bits;
      const int mask = ((1 << bits) - 1) << shift;
      byte = static_cast<std::uint8_t>((byte & ~mask) | (static_cast<int>(code) << shift));
    }
  }
}

float dequantize_code(const Quantizer& quantizer, std::int64_t code, std::int64_t channel) {
  const auto q = static_cast<std::int32_t>(code);
  const auto c = static_cast<std::size_t>(channel);
  if (quantizer.scheme == QScheme::PerChannelAffineFloatQParams) {
    return math::dequantize_float_qparams(q, static_cast<float>(quantizer.channel->scales[c]),
                                          quantizer.channel->float_zero_points[c]);
  }
  if (is_per_channel(quantizer.scheme)) {
    return math::dequantize_per_channel(q, quantizer.channel->scales[c],
                                        quantizer.channel->zero_points[c]);
  }
  return math::dequantize(q, static_cast<float>(quantizer.scale),
                          static_cast<std::int32_t>(quantizer.zero_point));
}

std::int64_t quantize_value(const Quantizer& quantizer, DType dtype, float value,
                            std::int64_t channel) {
  const IntRange range = quant_range(dtype);
  const auto c = static_cast<std::size_t>(channel);
  const auto low = static_cast<std::int32_t>(range.min);
  const auto high = static_cast<std::int32_t>(range.max);
  if (quantizer.scheme == QScheme::PerChannelAffineFloatQParams) {
    return math::quantize_float_qparams(value, static_cast<float>(quantizer.channel->scales[c]),
                                        quantizer.channel->float_zero_points[c], low, high);
  }
  const bool per_channel = is_per_channel(quantizer.scheme);
  const double scale = per_channel ? quantizer.channel->scales[c] : quantizer.scale;
  const std::int64_t zero_point =
      per_channel ? quantizer.channel->zero_points[c] : quantizer.zero_point;
  const float inverse = math::inverse_scale(static_cast<float>(scale));
  if (dtype == DType::QInt32) return math::quantize_qint32(value, inverse, zero_point);
  const auto zero = static_cast<std::int32_t>(zero_point);
  return per_channel ? math::quantize(value, inverse, zero, low, high)
                     : math::quantize_wrapping(value, inverse, zero, low, high);
}

// math::quantize_wrapping over contiguous rows, in operations that every vector unit has: adding
// and taking away 1.5 * 2^23 rounds to nearest even below 2^22, and codes of 8 bits saturate long
// before that.
template <typename T>
struct RowQuantizer {
  explicit RowQuantizer(const Quantizer& quantizer)
      : inverse(math::inverse_scale(static_cast<float>(quantizer.scale))),
        zero_point(static_cast<std::int32_t>(quantizer.zero_point)),
        wrapped(math::quantize_wrapping(std::numeric_limits<float>::quiet_NaN(), inverse,
                                        zero_point, kLow, kHigh)) {}

  void operator()(const float* from, T* to, std::int64_t count) const {
    constexpr float kRound = 12582912.0F;
    constexpr float kExact = 4194304.0F;
    for (std::int64_t i = 0; i < count; ++i) {
      const float steps = from[i] * inverse;
      const bool fits = (steps > -2147483648.0F) & (steps < end);
      const float near = steps > -kExact ? (steps < kExact ? steps : kExact) : -kExact;
      const std::int32_t rounded = static_cast<std::int32_t>((near + kRound) - kRound) + zero_point;
      const std::int32_t above = rounded > kLow ? rounded : kLow;
      const std::int32_t code = above < kHigh ? above : kHigh;
      to[i] = static_cast<T>(fits ? code : wrapped);
    }
  }

  static constexpr std::int32_t kLow = std::numeric_limits<T>::min();
  static constexpr std::int32_t kHigh = std::numeric_limits<T>::max();
  float inverse;
  std::int32_t zero_point;
  // The sum with the largest float below 2^31, which is 2^31 - 128, can wrap as well.
  float end = zero_point < 128 ? 2147483648.0F : 2147483520.0F;
  std::int32_t wrapped;  // of all that does not fit into int32
};

// Float32 into codes of one byte, per tensor.
template <typename T>
void quantize_bytes(const Tensor& dst, const Tensor& src) {
  const RowQuantizer<T> quantize(dst.impl()->quantizer);
  const detail::StridedPair pair(dst.sizes(), dst.strides(), src.strides());
  const std::int64_t dst_step = pair.first.back();
  const std::int64_t src_step = pair.second.back();
  auto* to = static_cast<T*>(dst.data_ptr());
  const auto* from = static_cast<const float*>(src.data_ptr());
  pair.for_each_run([&](std::int64_t dst_offset, std::int64_t src_offset, std::int64_t count) {
    if (dst_step == 1 && src_step == 1) {
      quantize(from + src_offset, to + dst_offset, count);
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      quantize(from + src_offset + i * src_step, to + dst_offset + i * dst_step, 1);
    }
  });
}

}  // namespace

// The operations -------------------------------------------------------------------------------

namespace {

// Float32 values into codes of x's parameters.
void quantize_into(const Tensor& x, const Tensor& src) {
  const bool per_tensor = !is_per_channel(x.impl()->quantizer.scheme);
  if (per_tensor && x.dtype() == DType::QUInt8) return quantize_bytes<std::uint8_t>(x, src);
  if (per_tensor && x.dtype() == DType::QInt8) return quantize_bytes<std::int8_t>(x, src);
  const Tensor values = src.contiguous();
  const auto* from = values.data<float>();
  for_each_element(x, [&](std::int64_t flat, std::int64_t offset, std::int64_t channel) {
    store_code(x, offset, quantize_value(x.impl()->quantizer, x.dtype(), from[flat], channel));
  });
}

// What copy_ does after its checks; the parameters of x are the right ones.
void copy_into(const Tensor& x, const Tensor& src) {
  if (x.numel() == 0) return;
  if (x.is_quantized() && !src.is_quantized()) return quantize_into(x, src);
  const Tensor expanded = src.sizes() == x.sizes() ? src : src.expand(x.sizes());
  if (src.dtype() == x.dtype()) {
    copy_same_dtype(x, expanded);
  } else {
    copy_converting(x, expanded);
  }
}

// Into plain elements, or into quantized ones that have no codes of whole bytes and one scale.
void fill_elements(const Tensor& x, double value) {
  if (x.is_quantized()) {
    const Quantizer& quantizer = x.impl()->quantizer;
    for_each_element(x, [&](std::int64_t, std::int64_t offset, std::int64_t channel) {
      store_code(x, offset,
                 quantize_value(quantizer, x.dtype(), static_cast<float>(value), channel));
    });
    return;
  }
  const detail::StridedPair pair(x.sizes(), x.strides(), x.strides());
  if (x.numel() == 0) return;
  detail::visit_plain(x.dtype(), "fill_", [&](auto element) {
    using Element = decltype(element);
    const auto item = Element::from_double(value);
    auto* data = static_cast<typename Element::Storage*>(x.data_ptr());
    const std::int64_t step = pair.first.back();
    pair.for_each_run([&](std::int64_t offset, std::int64_t, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) data[offset + i * step] = item;
    });
  });
}

// All dtypes: copies look at widths only.
constexpr std::array kAllDTypes{
    DType::Float32,    DType::Float64,  DType::Float16, DType::BFloat16, DType::Float8E4M3FN,
    DType::Float8E5M2, DType::UInt8,    DType::Int8,    DType::Int16,    DType::UInt16,
    DType::Int32,      DType::Int64,    DType::Bool,    DType::QUInt8,   DType::QInt8,
    DType::QInt32,     DType::QUInt4x2, DType::QUInt2x4};
constexpr std::span<const DType> kPlainDTypes = std::span(kAllDTypes).first<13>();

struct Clone final : Op<Clone> {
  static constexpr std::string_view kName = "clone";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  MemoryFormat format = MemoryFormat::Preserve;

  Clone() = default;
  explicit Clone(MemoryFormat wanted) : format(wanted) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    QUANTA_CHECK(x.defined(), "clone: x: expected a tensor, got an undefined one");
    Dims strides;
    if (format == MemoryFormat::Preserve) {
      strides = x.is_dense() ? x.strides() : contiguous_strides(x.sizes(), x.suggested_format());
    } else {
      strides = contiguous_strides(x.sizes(), format);
    }
    out.add_like(x, x.sizes(), strides);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    copy_same_dtype(out[0], in[0]);
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::copy_same_dtype(out[0], in[0]);
    return "copy_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kAllDTypes; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {context.grad()};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Clone, &Clone::format>("memory_format")};
    return kTable;
  }
};

struct To final : Op<To> {
  static constexpr std::string_view kName = "to";
  static constexpr ArgumentCount kArguments{1};
  DType dtype = DType::Float32;

  To() = default;
  explicit To(DType wanted) : dtype(wanted) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    QUANTA_CHECK(x.defined(), "to: x: expected a tensor, got an undefined one");
    QUANTA_CHECK(
        !x.is_quantized() && !is_quantized(dtype),
        "to: dtype: expected plain dtypes (use quantize_per_tensor or dequantize), got {} to {}",
        x.dtype(), dtype);
    out.add(x.sizes(), dtype, x.suggested_format());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    copy_converting(out[0], in[0]);
    return "convert";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::copy_converting(out[0], in[0]);
    return "convert_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kPlainDTypes; }
  GradientUse gradient_use(std::uint64_t) const override {
    return is_floating_point(dtype) ? GradientUse::of(0) : GradientUse::none();
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {context.grad().to(context.input_dtype(0))};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<To, &To::dtype>("dtype")};
    return kTable;
  }
};

// The same elements on another device. Dense arguments only: Tensor::to sees to that.
struct ToDevice final : Op<ToDevice> {
  static constexpr std::string_view kName = "to_device";
  static constexpr ArgumentCount kArguments{1};
  Device device;

  ToDevice() = default;
  explicit ToDevice(Device wanted) : device(wanted) {}

  void infer(const Arguments& in, Results& out) const override {
    out.add_like(in[0], in[0].sizes(), in[0].strides());
    out.place(device);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::transfer(out[0], in[0]);
    return "transfer";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::transfer(out[0], in[0]);
    return "transfer";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kAllDTypes; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {context.grad().to(from)};
  }

  // Where the argument was: gradients go back there.
  Device from;
};

// The argument is `src`; the target is the result.
class CopyInto final : public Op<CopyInto> {
 public:
  static constexpr std::string_view kName = "copy_";
  static constexpr ArgumentCount kArguments{1};
  explicit CopyInto(const Tensor& target) : target_(target) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& src = in[0];
    if (src.is_quantized()) {
      QUANTA_CHECK(target_.is_quantized(),
                   "copy_: src: expected a plain tensor for {} (dequantize it), got {}",
                   target_.dtype(), src.dtype());
      QUANTA_CHECK(target_.dtype() == src.dtype() && target_.sizes() == src.sizes(),
                   "copy_: src: expected {} {}, got {} {}", target_.dtype(), target_.sizes(),
                   src.dtype(), src.sizes());
    } else if (target_.is_quantized()) {
      QUANTA_CHECK(src.dtype() == DType::Float32, "copy_: src: expected Float32, got {}",
                   src.dtype());
      QUANTA_CHECK(target_.sizes() == src.sizes(), "copy_: src: expected sizes {}, got {}",
                   target_.sizes(), src.sizes());
    } else if (src.sizes() != target_.sizes()) {
      src.expand(target_.sizes());
    }
    out.add_in_place(target_);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    if (in[0].is_quantized()) out[0].impl()->quantizer = in[0].impl()->quantizer;
    copy_into(out[0], in[0]);
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& to = out[0];
    QUANTA_SUPPORTED(to.is_quantized() == in[0].is_quantized(),
                     "copy_: src: expected {} on {} (quantize it with quantize_per_tensor), got {}",
                     to.dtype(), to_string(to.device()), in[0].dtype());
    if (in[0].is_quantized()) to.impl()->quantizer = in[0].impl()->quantizer;
    if (to.numel() == 0) return "copy_items";
    const Tensor src = in[0].sizes() == to.sizes() ? in[0] : in[0].expand(to.sizes());
    if (src.dtype() == to.dtype()) {
      cuda::copy_same_dtype(to, src);
      return "copy_items";
    }
    cuda::copy_converting(to, src);
    return "convert_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kAllDTypes; }
  /// A recording keeps the operation, but not the tensor of the recorded run.
  std::shared_ptr<Operation> clone() const override { return std::make_shared<CopyInto>(Tensor()); }

 private:
  Tensor target_;
};

// No argument: what was there does not matter.
class Fill final : public Op<Fill> {
 public:
  static constexpr std::string_view kName = "fill_";
  static constexpr ArgumentCount kArguments{0};
  Fill(const Tensor& target, double value) : target_(target), value_(value) {}

  void infer(const Arguments&, Results& out) const override { out.add_in_place(target_); }
  std::string_view cpu(const Arguments&, std::span<const Tensor> out) const override {
    fill_elements(out[0], value_);
    return "fill";
  }
  std::string_view cuda(const Arguments&, std::span<const Tensor> out) const override {
    cuda::fill(out[0], value_);
    return "fill_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kPlainDTypes; }
  /// A recording keeps the operation, but not the tensor of the recorded run.
  std::shared_ptr<Operation> clone() const override {
    return std::make_shared<Fill>(Tensor(), value_);
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Fill, &Fill::value_>("value")};
    return kTable;
  }

 private:
  Tensor target_;
  double value_;
};

}  // namespace

Tensor Tensor::clone(MemoryFormat format) const { return run(Clone{format}, *this); }

Tensor Tensor::to(DType wanted) const {
  detail::require_tensor("to", *this);
  if (wanted == dtype()) return *this;
  return run(To{wanted}, *this);
}

Tensor Tensor::to(Device wanted) const {
  QUANTA_CHECK(defined(), "to: x: expected a tensor, got an undefined one");
  if (wanted == device()) return *this;
  if (!is_dense()) return clone().to(wanted);
  ToDevice operation(wanted);
  operation.from = device();
  return run(operation, *this);
}

const Tensor& Tensor::copy_(const Tensor& src) const {
  detail::require_tensor("copy_", *this);
  QUANTA_CHECK(src.defined(), "copy_: src: expected a tensor, got an undefined one");
  if (src.device() != device()) return copy_(src.to(device()));
  if (is_same(src)) return *this;
  detail::check_writable("copy_", "x", *this);
  autograd::require_no_grad("copy_", src);
  if (detail::memory_meets(*this, src)) return copy_(src.clone());
  run(CopyInto(*this), src);
  if (src.is_quantized()) impl_->quantizer = src.impl_->quantizer;  // without elements too
  return *this;
}

const Tensor& Tensor::fill_(double value) const {
  detail::require_tensor("fill_", *this);
  autograd::require_changeable("fill_", *this);
  if (is_quantized() && !is_per_channel(impl_->quantizer.scheme) && !is_sub_byte(dtype())) {
    const auto code = quantize_value(impl_->quantizer, dtype(), static_cast<float>(value), 0);
    QTensor(*this).int_repr_view().fill_(static_cast<double>(code));
    return *this;
  }
  run(Fill(*this, value));
  return *this;
}

std::vector<float> Tensor::to_float_vector() const {
  detail::require_tensor("to_float_vector", *this);
  if (!device().is_cpu()) return cpu().to_float_vector();
  replay::check_read("to_float_vector", *this);
  std::vector<float> result(static_cast<std::size_t>(numel()));
  if (is_quantized()) {
    for_each_element(*this, [&](std::int64_t flat, std::int64_t offset, std::int64_t channel) {
      result[static_cast<std::size_t>(flat)] =
          dequantize_code(impl_->quantizer, load_code(*this, offset), channel);
    });
  } else {
    detail::visit_plain(dtype(), "to_float_vector", [&](auto element) {
      using Element = decltype(element);
      const auto* data = static_cast<const typename Element::Storage*>(data_ptr());
      for_each_element(*this, [&](std::int64_t flat, std::int64_t offset, std::int64_t) {
        result[static_cast<std::size_t>(flat)] =
            static_cast<float>(Element::to_double(data[offset]));
      });
    });
  }
  return result;
}

std::vector<std::int64_t> Tensor::to_int64_vector() const {
  detail::require_tensor("to_int64_vector", *this);
  if (!device().is_cpu()) return cpu().to_int64_vector();
  replay::check_read("to_int64_vector", *this);
  QUANTA_CHECK(!is_floating_point(), "to_int64_vector: x: expected integers or codes, got {}",
               dtype());
  std::vector<std::int64_t> result(static_cast<std::size_t>(numel()));
  if (is_quantized()) {
    for_each_element(*this, [&](std::int64_t flat, std::int64_t offset, std::int64_t) {
      result[static_cast<std::size_t>(flat)] = load_code(*this, offset);
    });
  } else {
    detail::visit_plain(dtype(), "to_int64_vector", [&](auto element) {
      using Element = decltype(element);
      const auto* data = static_cast<const typename Element::Storage*>(data_ptr());
      for_each_element(*this, [&](std::int64_t flat, std::int64_t offset, std::int64_t) {
        result[static_cast<std::size_t>(flat)] = static_cast<std::int64_t>(data[offset]);
      });
    });
  }
  return result;
}

bool Tensor::equal(const Tensor& other) const {
  detail::require_tensor("equal", *this);
  detail::require_tensor("equal", other, "other");
  if (!device().is_cpu() || !other.device().is_cpu()) return cpu().equal(other.cpu());
  if (dtype() != other.dtype() || sizes() != other.sizes()) return false;
  if (is_quantized() && !(impl_->quantizer == other.impl_->quantizer)) return false;
  if (numel() == 0 || (is_same(other) && !is_floating_point())) return true;
  if (is_sub_byte(dtype())) return to_int64_vector() == other.to_int64_vector();
  if (is_quantized()) {
    return QTensor(*this).int_repr_view().equal(QTensor(other).int_repr_view());
  }
  const detail::StridedPair pair(sizes(), strides(), other.strides());
  std::atomic<bool> same = true;
  detail::visit_plain(dtype(), "equal", [&](auto element) {
    using Element = decltype(element);
    const auto* lhs = static_cast<const typename Element::Storage*>(data_ptr());
    const auto* rhs = static_cast<const typename Element::Storage*>(other.data_ptr());
    pair.for_each_run([&](std::int64_t a, std::int64_t b, std::int64_t count) {
      bool equal_run = true;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto x = lhs[a + i * pair.first.back()];
        const auto y = rhs[b + i * pair.second.back()];
        if constexpr (std::is_same_v<Element, detail::NativeElement<std::int64_t>>) {
          equal_run = equal_run && x == y;
        } else {
          equal_run = equal_run && Element::to_double(x) == Element::to_double(y);
        }
      }
      if (!equal_run) {
        same.store(false, std::memory_order_relaxed);
      }
    });
  });
  return same;
}

}  // namespace quanta
