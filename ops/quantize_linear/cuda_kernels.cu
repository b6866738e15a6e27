#include "quanta/ops/quantize_linear/cuda_kernels.h"

#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/quotient_math.h"

namespace quanta::cuda {
namespace {

constexpr int kEach = 4;  // neighbours of a thread, read and written at once where they are aligned

template <typename T>
struct alignas(kEach * sizeof(T)) Four {
  T at[kEach];
};

template <typename T>
SIMT_DEVICE bool is_aligned(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(Four<T>) == 0;
}

// Up to kEach neighbours from `first` on.
template <typename T>
SIMT_DEVICE Four<T> load_four(const T* data, std::int64_t first, std::int64_t count) {
  if (first + kEach <= count && is_aligned(data)) return simt::load<Four<T>>(data + first);
  Four<T> four{};
  for (int i = 0; i < kEach && first + i < count; ++i) four.at[i] = data[first + i];
  return four;
}
template <typename T>
SIMT_DEVICE void store_four(T* data, std::int64_t first, std::int64_t count, const Four<T>& four) {
  if (first + kEach <= count && is_aligned(data)) return simt::store(data + first, four);
  for (int i = 0; i < kEach && first + i < count; ++i) data[first + i] = four.at[i];
}

SIMT_DEVICE std::int64_t scale_index(const QuotientLayout& layout, std::int64_t i) {
  if (layout.single) return 0;
  const std::int64_t row = i / layout.inner;
  const std::int64_t along = row % layout.length;
  if (layout.block == 0) return along;
  return (row / layout.length * layout.groups + along / layout.block) * layout.inner +
         i % layout.inner;
}

struct OneScale {
  float scale;
  std::int32_t zero_point;
};

template <typename T>
SIMT_DEVICE OneScale scale_of(const QuotientParams& p, std::int64_t i) {
  if (p.scales == nullptr) return {p.scale, p.zero_point};
  const std::int64_t at = scale_index(p.layout, i);
  return {p.scales[at], p.zero_points == nullptr
                            ? 0
                            : static_cast<std::int32_t>(static_cast<const T*>(p.zero_points)[at])};
}

template <typename T>
struct QuantizeQuotients {
  static constexpr const char* kName = "quantize_quotients";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = QuotientParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t first = simt::global_thread() * kEach;
    if (first >= p.count) return;
    const Four<float> x = load_four(p.floats, first, p.count);
    Four<T> codes{};
    for (int i = 0; i < kEach && first + i < p.count; ++i) {
      const OneScale q = scale_of<T>(p, first + i);
      codes.at[i] =
          static_cast<T>(math::quantize_quotient(x.at[i], q.scale, q.zero_point, p.low, p.high));
    }
    store_four(static_cast<T*>(p.codes), first, p.count, codes);
  }
};

template <typename T>
struct DequantizeQuotients {
  static constexpr const char* kName = "dequantize_quotients";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = QuotientParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t first = simt::global_thread() * kEach;
    if (first >= p.count) return;
    const Four<T> codes = load_four(static_cast<const T*>(p.codes), first, p.count);
    Four<float> x{};
    for (int i = 0; i < kEach && first + i < p.count; ++i) {
      const OneScale q = scale_of<T>(p, first + i);
      x.at[i] = math::dequantize(static_cast<std::int32_t>(codes.at[i]), q.scale, q.zero_point);
    }
    store_four(p.results, first, p.count, x);
  }
};

struct ChooseQuotient {
  static constexpr const char* kName = "choose_quotient";
  static constexpr int kThreads = 32;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ChooseQuotientParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    if (simt::global_thread() != 0) return;
    const float min = p.min_max == nullptr ? 0.0F : p.min_max[0];
    const float max = p.min_max == nullptr ? 0.0F : p.min_max[1];
    const math::QuotientParams chosen = math::choose_quotient(min, max);
    *p.scale = chosen.scale;
    *p.zero_point = static_cast<std::uint8_t>(chosen.zero_point);
  }
};

struct MapCodesToFloats {
  static constexpr const char* kName = "map_codes_to_floats";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 1024;  // the table: threads ask for different places
  static constexpr bool kTogether = true;
  using Params = MapToFloatParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* const table = reinterpret_cast<float*>(shared);
    table[simt::thread()] = p.table[simt::thread()];
    simt::sync();
    const std::int64_t first = simt::global_thread() * kEach;
    if (first >= p.count) return;
    const Four<std::uint8_t> codes = load_four(p.from, first, p.count);
    Four<float> results{};
    for (int i = 0; i < kEach; ++i) results.at[i] = table[codes.at[i]];
    store_four(p.to, first, p.count, results);
  }
};

struct TurnBytes {
  static constexpr const char* kName = "turn_bytes";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = TurnBytesParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t first = simt::global_thread() * kEach;
    if (first >= p.count) return;
    Four<std::uint8_t> bytes = load_four(p.from, first, p.count);
    for (std::uint8_t& byte : bytes.at) byte = static_cast<std::uint8_t>(byte ^ p.mask);
    store_four(p.to, first, p.count, bytes);
  }
};

struct UnpackBytes {
  static constexpr const char* kName = "unpack_bytes";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = UnpackBitsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    // A thread writes kEach neighbours, from one byte or from two.
    const int of_byte = 8 / p.bits;
    const std::int64_t first = simt::global_thread() * kEach;
    const std::int64_t count = p.count * of_byte;
    if (first >= count) return;
    const std::uint32_t mask = (1U << p.bits) - 1U;
    Four<std::uint8_t> codes{};
    for (int i = 0; i < kEach && first + i < count; ++i) {
      const std::int64_t at = first + i;
      const std::uint32_t byte = p.from[at / of_byte];
      codes.at[i] = static_cast<std::uint8_t>(byte >> (at % of_byte * p.bits) & mask);
    }
    store_four(p.to, first, count, codes);
  }
};

template <template <typename> typename Kernel>
void launch_for(Device device, const QuotientParams& params) {
  const simt::Grid grid = simt::grid_for(params.count, 256, kEach);
  switch (params.dtype) {
    case DType::UInt8:
    case DType::QUInt8:
      return simt::launch<Kernel<std::uint8_t>>(device, grid, params);
    case DType::Int8:
    case DType::QInt8:
      return simt::launch<Kernel<std::int8_t>>(device, grid, params);
    case DType::UInt16:
      return simt::launch<Kernel<std::uint16_t>>(device, grid, params);
    case DType::Int16:
      return simt::launch<Kernel<std::int16_t>>(device, grid, params);
    default:
      return simt::launch<Kernel<std::int32_t>>(device, grid, params);
  }
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void quantize_quotients(Device device, const QuotientParams& params) {
  launch_for<QuantizeQuotients>(device, params);
}
void dequantize_quotients(Device device, const QuotientParams& params) {
  launch_for<DequantizeQuotients>(device, params);
}
void choose_quotient(Device device, const ChooseQuotientParams& params) {
  simt::launch<ChooseQuotient>(device, simt::Grid{}, params);
}
void map_codes_to_floats(Device device, const MapToFloatParams& params) {
  simt::launch<MapCodesToFloats>(device, simt::grid_for(params.count, 256, kEach), params);
}
void turn_bytes(Device device, const TurnBytesParams& params) {
  simt::launch<TurnBytes>(device, simt::grid_for(params.count, 256, kEach), params);
}
void unpack_bytes(Device device, const UnpackBitsParams& params) {
  simt::launch<UnpackBytes>(device, simt::grid_for(params.count * (8 / params.bits), 256, kEach),
                            params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
