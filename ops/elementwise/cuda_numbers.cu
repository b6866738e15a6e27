#include "quanta/ops/elementwise/cuda_numbers.h"

#include <cmath>

#include "quanta/ops/cuda/float_elements.h"
#include "quanta/ops/elementwise/functions.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

template <typename T>
SIMT_DEVICE bool holds(NumberFunction function, T x) {
  if constexpr (std::is_floating_point_v<T>) {
    constexpr auto kInfinity = static_cast<T>(HUGE_VALF);
    if (function == NumberFunction::IsNan) return x != x;
    const bool is_positive = x == kInfinity;
    const bool is_negative = x == -kInfinity;
    if (function == NumberFunction::IsPositiveInfinity) return is_positive;
    if (function == NumberFunction::IsNegativeInfinity) return is_negative;
    if (function == NumberFunction::IsInfinity) return is_positive || is_negative;
  }
  return x == T{0};
}

/// An element of T, or of floats of 16 bits as the float that it is.
template <typename T>
SIMT_DEVICE T element_at(DType dtype, const void* from, std::int64_t at) {
  if constexpr (std::is_same_v<T, float>) {
    return float_at(dtype, from, at);
  } else {
    return static_cast<const T*>(from)[at];
  }
}

template <typename T>
struct MapNumbers {
  static constexpr const char* kName = "map_numbers";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = MapNumbersParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    const T x = element_at<T>(p.dtype, p.x, i);
    T* const y = static_cast<T*>(p.y);
    switch (p.function) {
      case NumberFunction::Neg:
        y[i] = elementwise::Neg::value(x);
        return;
      case NumberFunction::Abs:
        y[i] = elementwise::Abs::value(x);
        return;
      case NumberFunction::Sign:
        y[i] = elementwise::Sign::value(x);
        return;
      case NumberFunction::BitwiseNot:
        y[i] = p.dtype == DType::Bool ? static_cast<T>(x == T{0}) : elementwise::Not::value(x);
        return;
      case NumberFunction::LogicalNot:
      case NumberFunction::IsNan:
      case NumberFunction::IsPositiveInfinity:
      case NumberFunction::IsNegativeInfinity:
      case NumberFunction::IsInfinity:
        break;
    }
    static_cast<bool*>(p.y)[i] = holds(p.function, x);
  }
};

/// Functions of integers alone; floats do not come here.
template <typename F, typename T>
SIMT_DEVICE T of_integers(T lhs, T rhs) {
  if constexpr (std::is_integral_v<T>) {
    return F::value(lhs, rhs);
  } else {
    return lhs;
  }
}

template <typename T>
SIMT_DEVICE T value_of(NumberPairFunction function, T lhs, T rhs) {
  switch (function) {
    case NumberPairFunction::Pow:
      return elementwise::Pow::value(lhs, rhs);
    case NumberPairFunction::Maximum:
      return elementwise::Maximum::value(lhs, rhs);
    case NumberPairFunction::Minimum:
      return elementwise::Minimum::value(lhs, rhs);
    case NumberPairFunction::Fmod:
      return elementwise::Fmod::value(lhs, rhs);
    case NumberPairFunction::Remainder:
      return elementwise::Remainder::value(lhs, rhs);
    case NumberPairFunction::DivTrunc:
      return of_integers<elementwise::DivTrunc>(lhs, rhs);
    case NumberPairFunction::BitwiseAnd:
      return of_integers<elementwise::BitwiseAnd>(lhs, rhs);
    case NumberPairFunction::BitwiseOr:
      return of_integers<elementwise::BitwiseOr>(lhs, rhs);
    case NumberPairFunction::BitwiseXor:
      return of_integers<elementwise::BitwiseXor>(lhs, rhs);
    case NumberPairFunction::LeftShift:
      return of_integers<elementwise::LeftShift>(lhs, rhs);
    case NumberPairFunction::RightShift:
      break;
  }
  return of_integers<elementwise::RightShift>(lhs, rhs);
}

template <typename T>
struct CombineNumbers {
  static constexpr const char* kName = "combine_numbers";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = CombineNumbersParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    std::int64_t at[3];
    p.walk.places(i, at);
    const T value = value_of(p.function, element_at<T>(p.dtype, p.lhs, at[1]),
                             element_at<T>(p.dtype, p.rhs, at[2]));
    if constexpr (std::is_same_v<T, float>) {
      put_float(p.dtype, p.out, at[0], value);
    } else {
      static_cast<T*>(p.out)[at[0]] = value;
    }
  }
};

template <template <typename> typename Kernel, typename Params>
void launch_for(DType dtype, Device device, const Params& params, std::int64_t count) {
  const simt::Grid grid = simt::grid_for(count);
  switch (dtype) {
    case DType::Float32:
    case DType::Float16:
    case DType::BFloat16:
      return simt::launch<Kernel<float>>(device, grid, params);
    case DType::Float64:
      return simt::launch<Kernel<double>>(device, grid, params);
    case DType::Int8:
      return simt::launch<Kernel<std::int8_t>>(device, grid, params);
    case DType::Int16:
      return simt::launch<Kernel<std::int16_t>>(device, grid, params);
    case DType::UInt16:
      return simt::launch<Kernel<std::uint16_t>>(device, grid, params);
    case DType::Int32:
      return simt::launch<Kernel<std::int32_t>>(device, grid, params);
    case DType::Int64:
      return simt::launch<Kernel<std::int64_t>>(device, grid, params);
    default:  // UInt8, and Bool as the bytes 0 and 1
      return simt::launch<Kernel<std::uint8_t>>(device, grid, params);
  }
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void map_numbers(Device device, const MapNumbersParams& params) {
  launch_for<MapNumbers>(params.dtype, device, params, params.count);
}
void combine_numbers(Device device, const CombineNumbersParams& params) {
  launch_for<CombineNumbers>(params.dtype, device, params, params.walk.count);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
