#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/elementwise/cuda_cast.h"
#include "quanta/ops/elementwise/families.h"
#include "quanta/ops/elementwise/functions.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/detail/element.h"
#include "quanta/runtime/detail/float_casts.h"
#include "quanta/runtime/float_format.h"
#include "quanta/runtime/operation.h"

// One dtype to another. Integers travel as Int64, which holds them all, floats as doubles: blocks of
// either keep the number of loops to one for each dtype and direction.

namespace quanta {
namespace elementwise {
namespace {

constexpr std::int64_t kBlock = 256;

bool is_integral(DType dtype) { return !is_floating_point(dtype); }

template <typename T>
void load(const void* from, std::int64_t begin, std::int64_t count, T* block, DType dtype) {
  quanta::detail::visit_plain(dtype, "cast", [&](auto element) {
    using Element = decltype(element);
    const auto* src = static_cast<const typename Element::Storage*>(from) + begin;
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, double>) {
        block[i] = Element::to_double(src[i]);
      } else {
        block[i] = static_cast<T>(src[i]);  // only integers and Bool come here
      }
    }
  });
}

template <typename T>
void store_integers(const std::int64_t* block, std::int64_t count, T* to, std::int64_t bits) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = low_bits<T>(block[i], bits);
}

std::uint8_t to_float8(double value, const math::FloatFormat& format, math::Overflow overflow) {
  return static_cast<std::uint8_t>(math::encode_float(static_cast<float>(value), format, overflow));
}

struct Target {
  DType dtype;
  math::Overflow overflow;
  std::int64_t bits;
};

void store_floats(const double* block, std::int64_t begin, std::int64_t count, void* out,
                  const Target& target) {
  if (target.dtype == DType::Float8E4M3FN || target.dtype == DType::Float8E5M2) {
    const math::FloatFormat& format =
        target.dtype == DType::Float8E4M3FN ? math::kE4M3FN : math::kE5M2;
    auto* to = static_cast<std::uint8_t*>(out) + begin;
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_float8(block[i], format, target.overflow);
    return;
  }
  quanta::detail::visit_plain(target.dtype, "cast", [&](auto element) {
    using Element = decltype(element);
    using Storage = typename Element::Storage;
    auto* to = static_cast<Storage*>(out) + begin;
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<Storage, std::int8_t> || std::is_same_v<Storage, std::uint8_t>) {
        // Narrower than a byte: the low bits of the whole number, -9 is 7 in 4 of them.
        using Whole = quanta::detail::NativeElement<std::int64_t>;
        to[i] = target.bits == 8 ? Element::from_double(block[i])
                                 : low_bits<Storage>(Whole::from_double(block[i]), target.bits);
      } else {
        to[i] = Element::from_double(block[i]);
      }
    }
  });
}

void store(const std::int64_t* block, std::int64_t begin, std::int64_t count, void* out,
           const Target& target) {
  switch (target.dtype) {
    case DType::UInt8:
      return store_integers(block, count, static_cast<std::uint8_t*>(out) + begin, target.bits);
    case DType::Int8:
      return store_integers(block, count, static_cast<std::int8_t*>(out) + begin, target.bits);
    case DType::Int16:
      return store_integers(block, count, static_cast<std::int16_t*>(out) + begin, 8);
    case DType::UInt16:
      return store_integers(block, count, static_cast<std::uint16_t*>(out) + begin, 8);
    case DType::Int32:
      return store_integers(block, count, static_cast<std::int32_t*>(out) + begin, 8);
    case DType::Int64:
      return store_integers(block, count, static_cast<std::int64_t*>(out) + begin, 8);
    default:
      return store_integers(block, count, static_cast<bool*>(out) + begin, 8);
  }
}

// Between Float32 and 16-bit floats, whole vectors at a time. Answers whether that is asked for.
bool cast_half(const Tensor& x, const Tensor& result) {
  const DType narrow = x.dtype() == DType::Float32 ? result.dtype() : x.dtype();
  if (narrow != DType::Float16 && narrow != DType::BFloat16) return false;
  const math::FloatFormat& format = narrow == DType::Float16 ? math::kFloat16 : math::kBFloat16;
  if (x.dtype() == DType::Float32) {
    quanta::detail::encode_floats(static_cast<const float*>(x.data_ptr()), x.numel(), format,
                                  math::Overflow::Special,
                                  static_cast<std::uint16_t*>(result.data_ptr()));
    return true;
  }
  if (result.dtype() != DType::Float32) return false;
  quanta::detail::decode_floats(static_cast<const std::uint16_t*>(x.data_ptr()), x.numel(), format,
                                static_cast<float*>(result.data_ptr()));
  return true;
}

struct Cast final : Op<Cast> {
  static constexpr std::string_view kName = "cast";
  static constexpr ArgumentCount kArguments{1};
  DType dtype = DType::Float32;
  CastOptions options;

  Cast() = default;
  Cast(DType to, const CastOptions& given) : dtype(to), options(given) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    QUANTA_CHECK(x.defined(), "cast: x: expected a tensor, got an undefined one");
    QUANTA_SUPPORTED(!x.is_quantized(),
                     "cast: x: expected a plain tensor (dequantize first), got {}", x.dtype());
    QUANTA_CHECK(!is_quantized(dtype),
                 "cast: dtype: expected a plain dtype (quantize_per_tensor makes codes), got {}",
                 dtype);
    const bool is_byte = dtype == DType::Int8 || dtype == DType::UInt8;
    QUANTA_CHECK(options.bits == 8 || (is_byte && (options.bits == 2 || options.bits == 4)),
                 "cast: bits: expected 8, or 2 or 4 for Int8 and UInt8, got {} for {}",
                 options.bits, dtype);
    const MemoryFormat format = x.suggested_format();
    out.arrange(0, format);
    out.add(x.sizes(), dtype, format);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    if (cast_half(x, out[0])) return "simd";
    const Target target{
        dtype, options.saturate ? math::Overflow::Saturate : math::Overflow::Special, options.bits};
    const bool integers = is_integral(x.dtype()) && is_integral(dtype);
    cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
      std::array<double, kBlock> numbers;
      std::array<std::int64_t, kBlock> whole;
      for (std::int64_t i = begin; i < end; i += kBlock) {
        const std::int64_t count = std::min(kBlock, end - i);
        if (integers) {
          load(x.data_ptr(), i, count, whole.data(), x.dtype());
          store(whole.data(), i, count, out[0].data_ptr(), target);
        } else {
          load(x.data_ptr(), i, count, numbers.data(), x.dtype());
          store_floats(numbers.data(), i, count, out[0].data_ptr(), target);
        }
      }
    });
    return "scalar";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::cast_items(in[0].device(), {.count = in[0].numel(),
                                      .from_dtype = in[0].dtype(),
                                      .to_dtype = dtype,
                                      .saturates = options.saturate,
                                      .bits = static_cast<int>(options.bits),
                                      .from = in[0].device_ptr(),
                                      .to = out[0].device_ptr()});
    return "cast_items";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kPlain; }

  GradientUse gradient_use(std::uint64_t) const override {
    return is_floating_point(dtype) ? GradientUse::of(0) : GradientUse::none();
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {context.grad().to(context.input_dtype(0))};
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<Cast, &Cast::dtype>("dtype"),
        attribute<Cast, &Cast::options, &CastOptions::saturate>("saturate"),
        attribute<Cast, &Cast::options, &CastOptions::bits>("bits")};
    return kTable;
  }
};

}  // namespace

void add_cast(Catalogue& catalogue) {
  catalogue.add(
      {.name = Cast::kName, .header = "quanta/ops/elementwise.h", .dtypes = dtypes::kPlain},
      [](DType dtype) {
        const DType to = dtype == DType::Float32 ? DType::Float64 : DType::Float32;
        return sample_call(Cast{to, {}}, {sample_tensor({2, 3, 5, 4}, dtype)});
      });
}

}  // namespace elementwise

using namespace elementwise;

Tensor cast(const Tensor& x, DType dtype, const CastOptions& options) {
  if (x.defined() && x.dtype() == dtype && options.bits == 8) return x;
  return run(Cast{dtype, options}, x);
}

}  // namespace quanta
