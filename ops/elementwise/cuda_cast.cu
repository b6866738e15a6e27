#include "quanta/ops/elementwise/cuda_cast.h"

#include <type_traits>

#include "quanta/ops/elementwise/functions.h"
#include "quanta/runtime/cuda/elements.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/float_format.h"

namespace quanta::cuda {
namespace {

SIMT_DEVICE bool is_float8(DType dtype) {
  return dtype == DType::Float8E4M3FN || dtype == DType::Float8E5M2;
}
SIMT_DEVICE bool is_float(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Float16 ||
         dtype == DType::BFloat16 || is_float8(dtype);
}

struct CastItems {
  static constexpr const char* kName = "cast_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = CastParams;

  static SIMT_DEVICE void integers(const Params& p, std::int64_t i) {
    const std::int64_t value = integer_at(p.from_dtype, p.from, i);
    visit_integer(p.to_dtype, [&](auto zero) {
      using T = decltype(zero);
      static_cast<T*>(p.to)[i] = elementwise::low_bits<T>(value, p.bits);
    });
  }

  static SIMT_DEVICE void float8(const Params& p, std::int64_t i, double value) {
    constexpr math::FloatFormat kE4M3 = math::kE4M3FN;
    constexpr math::FloatFormat kE5M2 = math::kE5M2;
    const math::Overflow overflow =
        p.saturates ? math::Overflow::Saturate : math::Overflow::Special;
    const auto narrow = static_cast<float>(value);
    static_cast<std::uint8_t*>(p.to)[i] = static_cast<std::uint8_t>(
        p.to_dtype == DType::Float8E4M3FN ? math::encode_float(narrow, kE4M3, overflow)
                                          : math::encode_float(narrow, kE5M2, overflow));
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    if (!is_float(p.from_dtype) && !is_float(p.to_dtype)) return integers(p, i);
    const double value = number_at(p.from_dtype, p.from, i);
    if (is_float8(p.to_dtype)) return float8(p, i, value);
    visit_element(p.to_dtype, [&](auto element) {
      using Element = decltype(element);
      using Storage = typename Element::Storage;
      if constexpr (std::is_same_v<Storage, std::int8_t> || std::is_same_v<Storage, std::uint8_t>) {
        using Whole = quanta::detail::NativeElement<std::int64_t>;
        if (p.bits != 8) {
          static_cast<Storage*>(p.to)[i] =
              elementwise::low_bits<Storage>(Whole::from_double(value), p.bits);
          return;
        }
      }
      write_item(p.to, i, value, element);
    });
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void cast_items(Device device, const CastParams& params) {
  simt::launch<CastItems>(device, simt::grid_for(params.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
