#include "quanta/ops/cuda/softmax.h"

#include <cmath>
#include <type_traits>

#include "quanta/ops/cuda/float_elements.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/exp_math.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {
namespace {

// Element i of a line belongs to partial sum i % kParts; the CPU's vectors have as many lanes.
constexpr int kParts = 16;

// T is float for all floats, be they stored in 32 or in 16 bits.
template <typename T>
SIMT_DEVICE float read(const SoftmaxParams& p, std::int64_t i) {
  if constexpr (std::is_same_v<T, float>) {
    return float_at(p.dtype, p.x, i);
  } else {
    return math::dequantize(static_cast<const T*>(p.x)[i], p.scale_in, p.zero_point_in);
  }
}

template <typename T>
SIMT_DEVICE void write(const SoftmaxParams& p, std::int64_t i, float value) {
  T* const y = static_cast<T*>(p.y);
  if constexpr (sizeof(T) == 1) {
    y[i] = static_cast<T>(math::quantize(value, p.inv_scale, p.zero_point, p.low, p.high));
  } else if constexpr (std::is_same_v<T, float>) {
    put_float(p.dtype, y, i, value);
  } else {
    y[i] = math::quantize_qint32(value, p.inv_scale, p.zero_point);
  }
}

SIMT_DEVICE float larger(float a, float b) { return a > b ? a : b; }
SIMT_DEVICE float minus_infinity() { return -HUGE_VALF; }

/// The sum of the sixteen lanes' parts, 8, 4, 2 and 1 apart; every lane gets it.
SIMT_DEVICE float join_lanes(float part) {
  for (int mask = kParts / 2; mask > 0; mask /= 2) part += simt::shuffle_xor(part, mask);
  return part;
}

/// What a line's elements become, once its largest element and its sum of exponentials are known.
struct LineEnd {
  SoftmaxKind kind;
  float largest;
  float sum;
  float log_share;

  SIMT_DEVICE LineEnd(SoftmaxKind which, float top, float total)
      : kind(which), largest(top), sum(total), log_share(0.0F) {
    // The share of the largest element: exp(0) is 1.
    if (kind == SoftmaxKind::LogSoftmax) log_share = math::log_float(1.0F / sum);
  }
  SIMT_DEVICE float operator()(float x) const {
    return kind == SoftmaxKind::Softmax ? math::exp_float(x - largest) / sum
                                        : x - largest + log_share;
  }
};

// Rows of at most kEach * 16 elements stay in registers; sixteen lanes for each.
template <typename T, int kEach>
struct SoftmaxShortRows {
  static constexpr const char* kName = "softmax_short_rows";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = true;
  static constexpr int kBlocks = 4;  // the longest rows would be spilled for more
  using Params = SoftmaxParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t wanted = simt::global_thread() / kParts;
    const std::int64_t first = (wanted < p.lines ? wanted : p.lines - 1) * p.length;
    const int lane = simt::thread() % kParts;
    float values[kEach];
    float largest = minus_infinity();
    SIMT_UNROLL
    for (int k = 0; k < kEach; ++k) {
      const int i = k * kParts + lane;
      values[k] = i < p.length ? read<T>(p, first + i) : minus_infinity();
      largest = larger(largest, values[k]);
    }
    for (int mask = kParts / 2; mask > 0; mask /= 2) {
      largest = larger(largest, simt::shuffle_xor(largest, mask));
    }
    // exp(-infinity) is 0, which the sum does not notice.
    const bool keeps_exponentials = p.kind == SoftmaxKind::Softmax;
    float sum = 0.0F;
    SIMT_UNROLL
    for (int k = 0; k < kEach; ++k) {
      if (k * kParts >= p.length) continue;
      const float y = math::exp_float(values[k] - largest);
      sum += y;
      if (keeps_exponentials) values[k] = y;
    }
    sum = join_lanes(sum);
    if (wanted >= p.lines) return;
    const LineEnd end(p.kind, largest, sum);
    SIMT_UNROLL
    for (int k = 0; k < kEach; ++k) {
      const int i = k * kParts + lane;
      if (i >= p.length) continue;
      write<T>(p, first + i, keeps_exponentials ? values[k] / sum : end(values[k]));
    }
  }
};

// A block for each row: all threads take exponentials, which sixteen of them add up meanwhile.
template <typename T>
struct SoftmaxLongRows {
  static constexpr const char* kName = "softmax_long_rows";
  static constexpr int kThreads = 256;
  static constexpr int kEach = 8;
  static constexpr int kPiece = kThreads * kEach;
  static constexpr int kShared = (2 * kPiece + 32) * static_cast<int>(sizeof(float));
  static constexpr bool kTogether = true;
  using Params = SoftmaxParams;

  static SIMT_DEVICE float largest_of(const Params& p, std::int64_t first, float* of_warps) {
    const int t = simt::thread();
    float largest = minus_infinity();
    for (std::int64_t i = t; i < p.length; i += kThreads) {
      largest = larger(largest, read<T>(p, first + i));
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      largest = larger(largest, simt::shuffle_xor(largest, mask));
    }
    if (t % 32 == 0) of_warps[t / 32] = largest;
    simt::sync();
    for (int warp = 0; warp < kThreads / 32; ++warp) largest = larger(largest, of_warps[warp]);
    return largest;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    float* const pieces = reinterpret_cast<float*>(shared);
    float* const few = pieces + 2 * kPiece;
    const int t = simt::thread();
    const std::int64_t first = static_cast<std::int64_t>(simt::block_x()) * p.length;
    const float largest = largest_of(p, first, few);
    float sum = 0.0F;
    float* piece = pieces;
    for (std::int64_t begin = 0; begin < p.length; begin += kPiece) {
      for (int k = 0; k < kEach; ++k) {
        const int at = k * kThreads + t;
        const bool is_there = begin + at < p.length;
        piece[at] = is_there ? math::exp_float(read<T>(p, first + begin + at) - largest) : 0.0F;
      }
      // Whoever fills this half again has met the adding lanes at the other half's barrier.
      simt::sync();
      if (t < kParts) {
        for (int i = t; i < kPiece; i += kParts) sum += piece[i];
      }
      piece = piece == pieces ? pieces + kPiece : pieces;
    }
    if (t < 32) {
      sum = join_lanes(sum);
      if (t == 0) few[16] = sum;
    }
    simt::sync();
    const LineEnd end(p.kind, largest, few[16]);
    for (std::int64_t i = t; i < p.length; i += kThreads) {
      write<T>(p, first + i, end(read<T>(p, first + i)));
    }
  }
};

// A thread for each line: neighbours read neighbours.
template <typename T>
struct SoftmaxLines {
  static constexpr const char* kName = "softmax_lines";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = SoftmaxParams;

  static SIMT_DEVICE float sum_of(const Params& p, std::int64_t first, float largest) {
    float parts[kParts] = {};
    for (std::int64_t i = 0; i < p.length; i += kParts) {
      for (int k = 0; k < kParts; ++k) {
        if (i + k >= p.length) continue;
        parts[k] += math::exp_float(read<T>(p, first + (i + k) * p.inner) - largest);
      }
    }
    for (int width = kParts / 2; width > 0; width /= 2) {
      for (int k = 0; k < kParts / 2; ++k) {
        if (k < width) parts[k] += parts[k + width];
      }
    }
    return parts[0];
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t line = simt::global_thread();
    if (line >= p.lines) return;
    const std::int64_t first = line / p.inner * p.length * p.inner + line % p.inner;
    const std::int64_t last = first + p.length * p.inner;
    float largest = minus_infinity();
    for (std::int64_t i = first; i < last; i += p.inner) largest = larger(largest, read<T>(p, i));
    if (p.kind == SoftmaxKind::Softmax) {
      const LineEnd end(p.kind, largest, sum_of(p, first, largest));
      for (std::int64_t i = first; i < last; i += p.inner) write<T>(p, i, end(read<T>(p, i)));
      return;
    }
    // One after the other and in double, as the CPU does where elements are no neighbours.
    double sum = 0.0;
    for (std::int64_t i = first; i < last; i += p.inner) {
      sum += static_cast<double>(math::exp_float(read<T>(p, i) - largest));
    }
    const auto log_sum = static_cast<float>(log(sum));
    for (std::int64_t i = first; i < last; i += p.inner) {
      write<T>(p, i, read<T>(p, i) - largest - log_sum);
    }
  }
};

template <typename T, int kEach>
void launch_short(Device device, const SoftmaxParams& params) {
  using Kernel = SoftmaxShortRows<T, kEach>;
  simt::launch<Kernel>(device, simt::grid_for(params.lines * kParts, Kernel::kThreads), params);
}

template <typename T>
void launch_rows(Device device, const SoftmaxParams& params) {
  if (params.length <= 4 * kParts) {
    launch_short<T, 4>(device, params);
  } else if (params.length <= 16 * kParts) {
    launch_short<T, 16>(device, params);
  } else if (std::is_same_v<T, float> && params.length <= 32 * kParts) {
    // With codes so many values are not kept in registers.
    launch_short<float, 32>(device, params);
  } else {
    simt::launch<SoftmaxLongRows<T>>(device, {params.lines, 1, 1}, params);
  }
}

template <typename T>
void launch_lines(Device device, const SoftmaxParams& params) {
  using Kernel = SoftmaxLines<T>;
  simt::launch<Kernel>(device, simt::grid_for(params.lines, Kernel::kThreads), params);
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void softmax_rows(Device device, const SoftmaxParams& params) {
  switch (params.dtype) {
    case DType::QUInt8:
      return launch_rows<std::uint8_t>(device, params);
    case DType::QInt8:
      return launch_rows<std::int8_t>(device, params);
    case DType::QInt32:
      return launch_rows<std::int32_t>(device, params);
    default:
      return launch_rows<float>(device, params);
  }
}
void softmax_lines(Device device, const SoftmaxParams& params) {
  switch (params.dtype) {
    case DType::QUInt8:
      return launch_lines<std::uint8_t>(device, params);
    case DType::QInt8:
      return launch_lines<std::int8_t>(device, params);
    case DType::QInt32:
      return launch_lines<std::int32_t>(device, params);
    default:
      return launch_lines<float>(device, params);
  }
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
