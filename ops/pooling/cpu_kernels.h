#pragma once

// Private: pooling over dense memory. The op has checked and sized everything.

#include <algorithm>
#include <array>
#include <cstdint>

#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/dtype.h"
#include "quanta/runtime/host_device.h"

namespace quanta::cpu {

/// Input positions begin, begin + dilation, ... below end that one output position sees.
struct PoolWindow {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t padded = 0;  ///< taps with padding, clipped to the padded input (average pooling)
};

/// Output positions first..last; none where last < first.
struct PoolOutputs {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// One spatial dimension of a pooling.
struct PoolAxis {
  std::int64_t input = 1;
  std::int64_t output = 1;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;      ///< before the input
  std::int64_t padding_end = 0;  ///< behind it
  std::int64_t dilation = 1;
  bool adaptive = false;

  QUANTA_HOST_DEVICE PoolWindow window(std::int64_t position) const noexcept {
    if (adaptive) {
      const std::int64_t begin = position * input / output;
      const std::int64_t end = ceil_div((position + 1) * input, output);
      return {begin, end, end - begin};
    }
    const std::int64_t start = position * stride - padding;
    const std::int64_t reach = start + (kernel - 1) * dilation + 1;
    const std::int64_t padded = std::min(reach, input + padding_end) - start;
    const std::int64_t begin = start >= 0 ? start : start + round_up(-start, dilation);
    // Divisions are slow, and this one is taken for each output pixel.
    return {begin, std::max(begin, std::min(reach, input)),
            dilation == 1 ? padded : ceil_div(padded, dilation)};
  }

  /// The outputs that may see an input position: no others do, and with a dilation some of these
  /// do not (sees()).
  QUANTA_HOST_DEVICE PoolOutputs outputs(std::int64_t position) const noexcept {
    if (adaptive) {
      return {position * output / input, ceil_div((position + 1) * output, input) - 1};
    }
    const std::int64_t last = position + padding;
    const std::int64_t first = last - (kernel - 1) * dilation;
    return {first <= 0 ? 0 : ceil_div(first, stride), std::min(output - 1, last / stride)};
  }
  /// Whether a window has a tap there.
  QUANTA_HOST_DEVICE bool sees(const PoolWindow& window, std::int64_t position) const noexcept {
    return position >= window.begin && position < window.end &&
           (dilation == 1 || (position - window.begin) % dilation == 0);
  }
};

enum class PoolLayout { ChannelsLast, Contiguous };

/// Batch, channels and up to three spatial dimensions (depth, height, width; unused ones are 1).
struct PoolGeometry {
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::array<PoolAxis, 3> axes;
  PoolLayout layout = PoolLayout::Contiguous;

  std::int64_t input_volume() const noexcept {
    return axes[0].input * axes[1].input * axes[2].input;
  }
  std::int64_t output_volume() const noexcept {
    return axes[0].output * axes[1].output * axes[2].output;
  }
};

/// How the mean of codes is rounded; all three agree but at ties. torch's kernels differ by layout.
///   Centred:        zero_point + rne((sum - n * zero_point) / divisor)
///   ZeroPointFirst: rne(zero_point + (sum - n * zero_point) / divisor)
///   RawCodes:       rne(sum / divisor)
enum class AverageRounding { Centred, ZeroPointFirst, RawCodes };

enum class AverageDivisor {
  PaddedWindow,  ///< the window with padding, clipped to the padded input
  ValidWindow,   ///< the elements of the input in the window
  Fixed,         ///< `fixed_divisor`
};

struct AverageRule {
  AverageDivisor divisor = AverageDivisor::PaddedWindow;
  std::int64_t fixed_divisor = 1;
  AverageRounding rounding = AverageRounding::Centred;
  std::int32_t zero_point = 0;
};

/// Float32, Float64, QUInt8, QInt8, QInt32, or UInt8 and Int8, which are compared as codes are. A
/// window without any element gives the type's lowest value.
/// NaN wins over numbers. Returns the name of the kernel for verbose output.
const char* max_pool(const PoolGeometry& geometry, DType dtype, const void* src, void* dst);

/// Float32, QUInt8 or QInt8.
const char* avg_pool(const PoolGeometry& geometry, const AverageRule& rule, DType dtype,
                     const void* src, void* dst);

/// Where the largest element of each window stands: its offset in the whole input, the first of
/// equals; NaN wins. -1 for a window without any element. `column_major` counts within each
/// channel's plane with the first spatial dimension as the fastest. `src` and `dst` are contiguous. dtypes as for max_pool.
const char* max_pool_indices(const PoolGeometry& geometry, DType dtype, bool column_major,
                             const void* src, std::int64_t* dst);

/// (sum of |x|^p)^(1/p) of each window. Float32 or Float64.
const char* lp_pool(const PoolGeometry& geometry, double p, DType dtype, const void* src,
                    void* dst);

/// max_pool and avg_pool of codes in contiguous order, where takes_planes() allows it.
bool takes_planes(const PoolGeometry& geometry, DType dtype);
void max_pool_planes(const PoolGeometry& geometry, DType dtype, const void* src, void* dst);
void avg_pool_planes(const PoolGeometry& geometry, const AverageRule& rule, DType dtype,
                     const void* src, void* dst);

/// max_pool and avg_pool one element at a time, for what the others leave and for tests.
void max_pool_reference(const PoolGeometry& geometry, DType dtype, const void* src, void* dst);
void avg_pool_reference(const PoolGeometry& geometry, const AverageRule& rule, DType dtype,
                        const void* src, void* dst);

}  // namespace quanta::cpu
