#include "quanta/ops/quantize_linear.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/range.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/quantize_linear/cpu_kernels.h"
#include "quanta/ops/quantize_linear/cuda_kernels.h"
#include "quanta/ops/quantize_linear/families.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/quotient_math.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace linear_quantization {
namespace {

constexpr std::array kCodeTypes{DType::UInt8, DType::Int8, DType::UInt16, DType::Int16,
                                DType::Int32};

template <typename Visitor>
void visit_codes(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::UInt8:
      return visitor(std::uint8_t{});
    case DType::Int8:
      return visitor(std::int8_t{});
    case DType::UInt16:
      return visitor(std::uint16_t{});
    case DType::Int16:
      return visitor(std::int16_t{});
    default:
      return visitor(std::int32_t{});
  }
}

bool are_plain_codes(DType dtype) {
  return std::ranges::find(kCodeTypes, dtype) != kCodeTypes.end();
}

/// Where an element's scale lies: x is [outer, length, inner], row-major, and the scales are
/// [outer, groups, inner] with blocks, else [length] or one.
struct ScaleLayout {
  std::int64_t outer = 1, length = 1, inner = 1;
  std::int64_t block = 0;  ///< 0: one for each index along the axis
  bool single = true;

  std::int64_t groups() const { return ceil_div(length, block); }
  /// The scale of the first element of a row of `inner`, and the step to those of the others.
  std::int64_t row(std::int64_t o, std::int64_t a) const {
    if (single) return 0;
    return block == 0 ? a : (o * groups() + a / block) * inner;
  }
  std::int64_t step() const { return single || block == 0 ? 0 : 1; }
};

struct LinearSettings {
  std::int64_t axis = 1;
  std::int64_t block_size = 0;
};

ScaleLayout scale_layout(std::string_view op, const Tensor& x, const Tensor& scale,
                         const LinearSettings& settings) {
  ScaleLayout layout;
  QUANTA_CHECK(settings.block_size >= 0, "{}: block_size: expected at least 0, got {}", op,
               settings.block_size);
  if (scale.numel() == 1 && settings.block_size == 0) {
    layout.inner = x.numel();
    return layout;
  }
  const std::int64_t rank = x.dim();
  const std::int64_t axis = settings.axis < 0 ? settings.axis + rank : settings.axis;
  QUANTA_CHECK(axis >= 0 && axis < rank, "{}: axis: expected {}..{} for sizes {}, got {}", op,
               -rank, rank - 1, x.sizes(), settings.axis);
  layout.single = false;
  layout.block = settings.block_size;
  layout.length = x.size(axis);
  for (std::int64_t d = 0; d < axis; ++d) layout.outer *= x.size(d);
  for (std::int64_t d = axis + 1; d < rank; ++d) layout.inner *= x.size(d);
  Dims expected{layout.length};
  if (layout.block > 0) {
    expected = x.sizes();
    expected[static_cast<std::size_t>(axis)] = layout.groups();
  }
  QUANTA_CHECK(scale.sizes() == expected, "{}: scale: expected sizes {} or one element, got {}", op,
               expected, scale.sizes());
  return layout;
}

/// Checks both, and has them dense where they have more than one element.
ScaleLayout check_scales(std::string_view op, const Arguments& in, DType codes,
                         const LinearSettings& settings, Results& out) {
  require_tensor(op, "scale", in[1], {DType::Float32});
  const ScaleLayout layout = scale_layout(op, in[0], in[1], settings);
  out.arrange(1, MemoryFormat::Contiguous);
  const Tensor& zero_point = in[2];
  if (!zero_point.defined()) return layout;
  QUANTA_CHECK(zero_point.dtype() == codes, "{}: zero_point: expected {} as the codes are, got {}",
               op, codes, zero_point.dtype());
  QUANTA_CHECK(zero_point.numel() == in[1].numel(),
               "{}: zero_point: expected {} elements as scale has, got {}", op, in[1].numel(),
               zero_point.numel());
  out.arrange(2, MemoryFormat::Contiguous);
  return layout;
}

/// body(first element, count, first scale, step of scales) over rows, in several threads.
template <typename Body>
void for_each_row(const ScaleLayout& layout, Body&& body) {
  if (layout.single) {
    cpu::parallel_elements(layout.inner, [&](std::int64_t begin, std::int64_t end) {
      body(begin, end - begin, std::int64_t{0}, std::int64_t{0});
    });
    return;
  }
  const std::int64_t grain =
      std::max<std::int64_t>(1, cpu::kElementGrain / std::max<std::int64_t>(layout.inner, 1));
  parallel_for(layout.outer * layout.length, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      body(r * layout.inner, layout.inner, layout.row(r / layout.length, r % layout.length),
           layout.step());
    }
  });
}

template <typename T>
std::int32_t zero_point_at(const T* zero_points, std::int64_t i) {
  return zero_points == nullptr ? 0 : static_cast<std::int32_t>(zero_points[i]);
}

/// What kernels on a device are told of the scales of arguments 1 and 2.
cuda::QuotientParams quotient_params(const ScaleLayout& layout, const Arguments& in,
                                     const Tensor& codes) {
  cuda::QuotientParams params;
  params.count = codes.numel();
  params.codes = codes.device_ptr();
  params.dtype = codes.dtype();
  params.layout = {.length = layout.length,
                   .inner = layout.inner,
                   .block = layout.block,
                   .groups = layout.block == 0 ? 1 : layout.groups(),
                   .single = layout.single};
  params.scales = reinterpret_cast<const float*>(in[1].device_ptr());
  params.zero_points = in[2].defined() ? in[2].device_ptr() : nullptr;
  return params;
}

struct QuantizeLinear final : Op<QuantizeLinear> {
  static constexpr std::string_view kName = "quantize_linear";
  static constexpr ArgumentCount kArguments{3};
  std::int64_t axis = 1;
  std::int64_t block_size = 0;
  DType dtype = DType::UInt8;
  std::int64_t bits = 0;

  QuantizeLinear() = default;
  explicit QuantizeLinear(const QuantizeLinearOptions& options)
      : axis(options.axis),
        block_size(options.block_size),
        dtype(options.dtype),
        bits(options.bits) {}
  bool works_by_rows() const noexcept override { return axis > 0 && block_size == 0; }

  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "x", in[0], {DType::Float32});
    QUANTA_CHECK(are_plain_codes(dtype) && dtype != DType::Int32,
                 "{}: dtype: expected UInt8, Int8, UInt16 or Int16, got {}", kName, dtype);
    QUANTA_CHECK(bits >= 0 && bits <= item_bits(dtype), "{}: bits: expected 0..{}, got {}", kName,
                 item_bits(dtype), bits);
    const ScaleLayout layout = check_scales(kName, in, dtype, {axis, block_size}, out);
    const MemoryFormat format = layout.single ? in[0].suggested_format() : MemoryFormat::Contiguous;
    out.arrange(0, format);
    out.add(in[0].sizes(), dtype, format);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const ScaleLayout layout = scale_layout(kName, in[0], in[1], {axis, block_size});
    visit_codes(dtype, [&](auto code) {
      using T = decltype(code);
      const auto* src = static_cast<const float*>(in[0].data_ptr());
      const auto* scales = static_cast<const float*>(in[1].data_ptr());
      const auto* zeros = in[2].defined() ? static_cast<const T*>(in[2].data_ptr()) : nullptr;
      auto* dst = static_cast<T*>(out[0].data_ptr());
      const CodeRange codes = range(std::numeric_limits<T>::is_signed);
      for_each_row(
          layout, [&](std::int64_t first, std::int64_t count, std::int64_t at, std::int64_t step) {
            if constexpr (sizeof(T) == 1) {
              if (step == 0 && (bits == 0 || bits == 8)) {
                cpu::quantize_quotients(src + first, dst + first, count, scales[at],
                                        zero_point_at(zeros, at));
                return;
              }
            }
            for (std::int64_t i = 0; i < count; ++i) {
              const std::int64_t s = at + i * step;
              dst[first + i] = static_cast<T>(math::quantize_quotient(
                  src[first + i], scales[s], zero_point_at(zeros, s), codes.low, codes.high));
            }
          });
    });
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const ScaleLayout layout = scale_layout(kName, in[0], in[1], {axis, block_size});
    cuda::QuotientParams params = quotient_params(layout, in, out[0]);
    const auto [low, high] = range(dtype == DType::Int8 || dtype == DType::Int16);
    params.floats = reinterpret_cast<const float*>(in[0].device_ptr());
    params.low = low;
    params.high = high;
    cuda::quantize_quotients(out[0].device(), params);
    return "quantize_quotients";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = QuantizeLinear;
    static constexpr std::array kTable{
        attribute<Self, &Self::axis>("axis"), attribute<Self, &Self::block_size>("block_size"),
        attribute<Self, &Self::dtype>("dtype"), attribute<Self, &Self::bits>("bits")};
    return kTable;
  }

 private:
  struct CodeRange {
    std::int32_t low, high;
  };
  CodeRange range(bool is_signed) const {
    const std::int64_t used = bits == 0 ? item_bits(dtype) : bits;
    const std::int32_t count = std::int32_t{1} << used;
    return is_signed ? CodeRange{-count / 2, count / 2 - 1} : CodeRange{0, count - 1};
  }
};

struct DequantizeLinear final : Op<DequantizeLinear> {
  static constexpr std::string_view kName = "dequantize_linear";
  static constexpr ArgumentCount kArguments{3};
  std::int64_t axis = 1;
  std::int64_t block_size = 0;

  DequantizeLinear() = default;
  explicit DequantizeLinear(const QuantizeLinearOptions& options)
      : axis(options.axis), block_size(options.block_size) {}
  bool works_by_rows() const noexcept override { return axis > 0 && block_size == 0; }

  void infer(const Arguments& in, Results& out) const override {
    detail::check_defined(kName, "q", in[0]);
    QUANTA_SUPPORTED(are_plain_codes(in[0].dtype()),
                     "{}: q: expected UInt8, Int8, UInt16, Int16 or Int32, got {}", kName,
                     in[0].dtype());
    const ScaleLayout layout = check_scales(kName, in, in[0].dtype(), {axis, block_size}, out);
    const MemoryFormat format = layout.single ? in[0].suggested_format() : MemoryFormat::Contiguous;
    out.arrange(0, format);
    out.add(in[0].sizes(), DType::Float32, format);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const ScaleLayout layout = scale_layout(kName, in[0], in[1], {axis, block_size});
    visit_codes(in[0].dtype(), [&](auto code) {
      using T = decltype(code);
      const auto* src = static_cast<const T*>(in[0].data_ptr());
      const auto* scales = static_cast<const float*>(in[1].data_ptr());
      const auto* zeros = in[2].defined() ? static_cast<const T*>(in[2].data_ptr()) : nullptr;
      auto* dst = static_cast<float*>(out[0].data_ptr());
      for_each_row(
          layout, [&](std::int64_t first, std::int64_t count, std::int64_t at, std::int64_t step) {
            if constexpr (sizeof(T) == 1) {
              if (step == 0) {
                cpu::dequantize(src + first, dst + first, count, scales[at],
                                zero_point_at(zeros, at), cpu::Store::Cached);
                return;
              }
            }
            for (std::int64_t i = 0; i < count; ++i) {
              const std::int64_t s = at + i * step;
              dst[first + i] = math::dequantize(src[first + i], scales[s], zero_point_at(zeros, s));
            }
          });
    });
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const ScaleLayout layout = scale_layout(kName, in[0], in[1], {axis, block_size});
    cuda::QuotientParams params = quotient_params(layout, in, in[0]);
    params.results = reinterpret_cast<float*>(out[0].device_ptr());
    cuda::dequantize_quotients(out[0].device(), params);
    return "dequantize_quotients";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kCodeTypes; }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = DequantizeLinear;
    static constexpr std::array kTable{attribute<Self, &Self::axis>("axis"),
                                       attribute<Self, &Self::block_size>("block_size")};
    return kTable;
  }
};

struct DynamicQuantizeLinear final : Op<DynamicQuantizeLinear> {
  static constexpr std::string_view kName = "dynamic_quantize_linear";
  static constexpr ArgumentCount kArguments{1};

  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "x", in[0], {DType::Float32});
    const MemoryFormat format = in[0].suggested_format();
    out.arrange(0, format);
    out.add(in[0].sizes(), DType::UInt8, format);
    out.add({}, DType::Float32);
    out.add({}, DType::UInt8);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const auto* src = static_cast<const float*>(in[0].data_ptr());
    const std::int64_t count = in[0].numel();
    cpu::FloatRange range{0.0F, 0.0F};
    if (count > 0) range = cpu::float_range(src, count);
    const math::QuotientParams chosen = math::choose_quotient(range.min, range.max);
    *static_cast<float*>(out[1].data_ptr()) = chosen.scale;
    *static_cast<std::uint8_t*>(out[2].data_ptr()) = static_cast<std::uint8_t>(chosen.zero_point);
    auto* dst = static_cast<std::uint8_t*>(out[0].data_ptr());
    cpu::parallel_elements(count, [&](std::int64_t begin, std::int64_t end) {
      cpu::quantize_quotients(src + begin, dst + begin, end - begin, chosen.scale,
                              chosen.zero_point);
    });
    return "simd";
  }
  /// Nobody waits for the device: what comes next reads scale and zero point there.
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Device device = out[0].device();
    const auto* floats = reinterpret_cast<const float*>(in[0].device_ptr());
    const std::int64_t count = in[0].numel();
    const cuda::Buffer range(device, sizeof(cuda::RangeOfFloats));
    if (count > 0) {
      cuda::find_range(device, floats, count, cuda::RangeOver::All,
                       range.as<cuda::RangeOfFloats>());
    }
    auto* scale = reinterpret_cast<float*>(out[1].device_ptr());
    auto* zero_point = reinterpret_cast<std::uint8_t*>(out[2].device_ptr());
    cuda::choose_quotient(device, {.min_max = count > 0 ? range.as<float>() : nullptr,
                                   .scale = scale,
                                   .zero_point = zero_point});
    cuda::quantize_quotients(device, {.count = count,
                                      .floats = floats,
                                      .codes = out[0].device_ptr(),
                                      .dtype = DType::UInt8,
                                      .low = 0,
                                      .high = 255,
                                      .scales = scale,
                                      .zero_points = zero_point});
    return "quantize_quotients";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }
};

/// The same numbers as codes that carry scale and zero point.
struct QuantizeToCodes final : Op<QuantizeToCodes> {
  static constexpr std::string_view kName = "quantized::quantize_linear";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  double scale = 1.0;
  std::int64_t zero_point = 0;
  DType dtype = DType::QUInt8;

  QuantizeToCodes() = default;
  QuantizeToCodes(double one_scale, std::int64_t one_zero_point, DType codes)
      : scale(one_scale), zero_point(one_zero_point), dtype(codes) {}

  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "x", in[0], {DType::Float32});
    QUANTA_CHECK(dtype == DType::QUInt8 || dtype == DType::QInt8,
                 "{}: dtype: expected QUInt8 or QInt8, got {}", kName, dtype);
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer(kName, quantizer, dtype, in[0].sizes());
    const MemoryFormat format = in[0].suggested_format();
    out.arrange(0, format);
    out.add(in[0].sizes(), dtype, quantizer, format);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const auto* src = static_cast<const float*>(in[0].data_ptr());
    const auto divisor = static_cast<float>(scale);
    const auto zero = static_cast<std::int32_t>(zero_point);
    cpu::parallel_elements(in[0].numel(), [&](std::int64_t begin, std::int64_t end) {
      if (dtype == DType::QUInt8) {
        auto* dst = static_cast<std::uint8_t*>(out[0].data_ptr());
        cpu::quantize_quotients(src + begin, dst + begin, end - begin, divisor, zero);
      } else {
        auto* dst = static_cast<std::int8_t*>(out[0].data_ptr());
        cpu::quantize_quotients(src + begin, dst + begin, end - begin, divisor, zero);
      }
    });
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const IntRange range = quant_range(dtype);
    cuda::quantize_quotients(out[0].device(),
                             {.count = in[0].numel(),
                              .floats = reinterpret_cast<const float*>(in[0].device_ptr()),
                              .codes = out[0].device_ptr(),
                              .dtype = dtype,
                              .low = static_cast<std::int32_t>(range.min),
                              .high = static_cast<std::int32_t>(range.max),
                              .scale = static_cast<float>(scale),
                              .zero_point = static_cast<std::int32_t>(zero_point)});
    return "quantize_quotients";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = QuantizeToCodes;
    static constexpr std::array kTable{attribute<Self, &Self::scale>("scale"),
                                       attribute<Self, &Self::zero_point>("zero_point"),
                                       attribute<Self, &Self::dtype>("dtype")};
    return kTable;
  }
};

struct UnpackBits final : Op<UnpackBits> {
  static constexpr std::string_view kName = "unpack_bits";
  static constexpr ArgumentCount kArguments{1};
  std::int64_t bits = 4;

  UnpackBits() = default;
  explicit UnpackBits(std::int64_t given) : bits(given) {}

  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "bytes", in[0], {DType::UInt8});
    QUANTA_CHECK(bits == 2 || bits == 4, "{}: bits: expected 2 or 4, got {}", kName, bits);
    QUANTA_CHECK(in[0].dim() >= 1, "{}: bytes: expected at least 1 dimension", kName);
    Dims sizes = in[0].sizes();
    QUANTA_CHECK(sizes.back() <= std::numeric_limits<std::int64_t>::max() / 8,
                 "{}: bytes: too many in a row: {}", kName, sizes.back());
    sizes[sizes.size() - 1] *= 8 / bits;
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(sizes, DType::UInt8);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const auto* src = static_cast<const std::uint8_t*>(in[0].data_ptr());
    auto* dst = static_cast<std::uint8_t*>(out[0].data_ptr());
    const auto mask = static_cast<std::uint8_t>((1U << bits) - 1U);
    const std::int64_t each = 8 / bits;
    cpu::parallel_elements(in[0].numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::int64_t e = 0; e < each; ++e) {
          dst[i * each + e] = static_cast<std::uint8_t>(src[i] >> (e * bits)) & mask;
        }
      }
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::unpack_bytes(out[0].device(),
                       {.count = in[0].numel(),
                        .from = reinterpret_cast<const std::uint8_t*>(in[0].device_ptr()),
                        .to = reinterpret_cast<std::uint8_t*>(out[0].device_ptr()),
                        .bits = static_cast<int>(bits)});
    return "unpack_bytes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kUInt8; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<UnpackBits, &UnpackBits::bits>("bits")};
    return kTable;
  }
};

/// dst = src ^ mask: what is signed has its highest bit turned round.
void copy_bytes(const Tensor& from, const Tensor& to, std::uint8_t mask) {
  if (!to.device().is_cpu()) {
    cuda::turn_bytes(to.device(), {.count = to.numel(),
                                   .from = reinterpret_cast<const std::uint8_t*>(from.device_ptr()),
                                   .to = reinterpret_cast<std::uint8_t*>(to.device_ptr()),
                                   .mask = mask});
    return;
  }
  const auto* src = static_cast<const std::uint8_t*>(from.data_ptr());
  auto* dst = static_cast<std::uint8_t*>(to.data_ptr());
  cpu::parallel_elements(from.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) dst[i] = static_cast<std::uint8_t>(src[i] ^ mask);
  });
}

constexpr std::uint8_t kSignBit = 0x80;
constexpr std::array kBytes{DType::UInt8, DType::Int8};

struct FromCodes final : Op<FromCodes> {
  static constexpr std::string_view kName = "quantized::from_codes";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  double scale = 1.0;
  std::int64_t zero_point = 0;

  FromCodes() = default;
  FromCodes(double one_scale, std::int64_t one_zero_point)
      : scale(one_scale), zero_point(one_zero_point) {}

  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "codes", in[0], {DType::UInt8, DType::Int8});
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer(kName, quantizer, DType::QUInt8, in[0].sizes());
    const MemoryFormat format = in[0].suggested_format();
    out.arrange(0, format);
    out.add(in[0].sizes(), DType::QUInt8, quantizer, format);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    copy_bytes(in[0], out[0], in[0].dtype() == DType::Int8 ? kSignBit : std::uint8_t{0});
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return cpu(in, out);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kBytes; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<FromCodes, &FromCodes::scale>("scale"),
                                       attribute<FromCodes, &FromCodes::zero_point>("zero_point")};
    return kTable;
  }
};

struct ToCodes final : Op<ToCodes> {
  static constexpr std::string_view kName = "quantized::to_codes";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  DType dtype = DType::UInt8;

  ToCodes() = default;
  explicit ToCodes(DType codes) : dtype(codes) {}

  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "x", in[0], {DType::QUInt8});
    QUANTA_CHECK(dtype == DType::UInt8 || dtype == DType::Int8,
                 "{}: dtype: expected UInt8 or Int8, got {}", kName, dtype);
    const MemoryFormat format = in[0].suggested_format();
    out.arrange(0, format);
    out.add(in[0].sizes(), dtype, format);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    copy_bytes(in[0], out[0], dtype == DType::Int8 ? kSignBit : std::uint8_t{0});
    return "copy";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    return cpu(in, out);
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQUInt8; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<ToCodes, &ToCodes::dtype>("dtype")};
    return kTable;
  }
};

}  // namespace
}  // namespace linear_quantization

using namespace linear_quantization;

Tensor quantize_linear(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                       const QuantizeLinearOptions& options) {
  return run(QuantizeLinear(options), x, scale, zero_point);
}

Tensor dequantize_linear(const Tensor& q, const Tensor& scale, const Tensor& zero_point,
                         const QuantizeLinearOptions& options) {
  return run(DequantizeLinear(options), q, scale, zero_point);
}

DynamicCodes dynamic_quantize_linear(const Tensor& x) {
  const Results results = run_all(DynamicQuantizeLinear{}, x);
  return {results[0], results[1], results[2]};
}

Tensor unpack_bits(const Tensor& bytes, std::int64_t bits) { return run(UnpackBits(bits), bytes); }

QTensor quantized::quantize_linear(const Tensor& x, double scale, std::int64_t zero_point,
                                   DType dtype) {
  return QTensor(run(QuantizeToCodes(scale, zero_point, dtype), x));
}

QTensor quantized::from_codes(const Tensor& codes, double scale, std::int64_t zero_point) {
  return QTensor(run(FromCodes(scale, zero_point), codes));
}

Tensor quantized::to_codes(const QTensor& x, DType dtype) { return run(ToCodes(dtype), x); }

// The catalogue --------------------------------------------------------------------------------

namespace {

constexpr std::string_view kHeader = "quanta/ops/quantize_linear.h";

}  // namespace

void detail::add_quantize_linear(Catalogue& catalogue) {
  catalogue.add({.name = QuantizeLinear::kName, .header = kHeader, .dtypes = dtypes::kFloat},
                [](DType dtype) {
                  return sample_call(
                      QuantizeLinear({.axis = 1, .dtype = DType::Int8}),
                      {sample_tensor({2, 3, 5, 4}, dtype),
                       Tensor::from_values({0.03F, 0.05F, 0.1F}), Tensor::zeros({3}, DType::Int8)});
                });
  catalogue.add(
      {.name = DequantizeLinear::kName, .header = kHeader, .dtypes = kCodeTypes}, [](DType dtype) {
        return sample_call(DequantizeLinear({.axis = 1}),
                           {sample_tensor({2, 3, 5, 4}, dtype),
                            Tensor::from_values({0.03F, 0.05F, 0.1F}), Tensor::ones({3}, dtype)});
      });
  catalogue.add({.name = DynamicQuantizeLinear::kName, .header = kHeader, .dtypes = dtypes::kFloat},
                [](DType dtype) {
                  return sample_call(DynamicQuantizeLinear{}, {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  catalogue.add({.name = UnpackBits::kName, .header = kHeader, .dtypes = dtypes::kUInt8},
                [](DType dtype) {
                  return sample_call(UnpackBits(4), {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  catalogue.add({.name = QuantizeToCodes::kName, .header = kHeader, .dtypes = dtypes::kFloat},
                [](DType dtype) {
                  return sample_call(QuantizeToCodes(0.05, 120, DType::QUInt8),
                                     {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  catalogue.add({.name = FromCodes::kName, .header = kHeader, .dtypes = kBytes}, [](DType dtype) {
    return sample_call(FromCodes(0.05, 120), {sample_tensor({2, 3, 5, 4}, dtype)});
  });
  linear_quantization::add_tables(catalogue);
  catalogue.add({.name = ToCodes::kName, .header = kHeader, .dtypes = dtypes::kQUInt8},
                [](DType dtype) {
                  return sample_call(ToCodes(DType::Int8), {sample_tensor({2, 3, 5, 4}, dtype)});
                });
}

}  // namespace quanta
