#include "quanta/ops/cuda/codes.h"

#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/cuda/walk.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {
namespace {

struct LookUpCodes {
  static constexpr const char* kName = "look_up_codes";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = LookUpParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    const Places at = places_of(p.walk, i);
    p.to[at.first] = p.table[p.from[at.second]];
  }
};

SIMT_DEVICE std::int32_t read_code(const void* codes, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::QUInt8:
      return static_cast<const std::uint8_t*>(codes)[i];
    case DType::QInt8:
      return static_cast<const std::int8_t*>(codes)[i];
    case DType::QUInt4x2:
      return (static_cast<const std::uint8_t*>(codes)[i / 2] >> (i % 2 * 4)) & 15;
    case DType::QUInt2x4:
      return (static_cast<const std::uint8_t*>(codes)[i / 4] >> (i % 4 * 2)) & 3;
    default:
      return static_cast<const std::int32_t*>(codes)[i];
  }
}

SIMT_DEVICE void write_code(void* codes, DType dtype, std::int64_t i, std::int32_t code) {
  switch (dtype) {
    case DType::QUInt8:
      static_cast<std::uint8_t*>(codes)[i] = static_cast<std::uint8_t>(code);
      return;
    case DType::QInt8:
      static_cast<std::int8_t*>(codes)[i] = static_cast<std::int8_t>(code);
      return;
    default:
      static_cast<std::int32_t*>(codes)[i] = code;
      return;
  }
}

SIMT_DEVICE std::int32_t quantize_one(const QuantizeParams& p, std::int64_t i) {
  const float x = p.floats[i];
  const CodeParams& q = p.qparams;
  if (q.scales == nullptr) {
    const float inverse = math::inverse_scale(static_cast<float>(q.scale));
    return p.dtype == DType::QInt32
               ? math::quantize_qint32(x, inverse, q.zero_point)
               : math::quantize(x, inverse, static_cast<std::int32_t>(q.zero_point), p.low, p.high);
  }
  const std::int64_t c = i / q.inner % q.channels;
  if (q.float_zero_points != nullptr) {
    return math::quantize_float_qparams(x, static_cast<float>(q.scales[c]), q.float_zero_points[c],
                                        p.low, p.high);
  }
  const float inverse = math::inverse_scale(static_cast<float>(q.scales[c]));
  if (p.dtype == DType::QInt32) return math::quantize_qint32(x, inverse, q.zero_points[c]);
  return math::quantize(x, inverse, static_cast<std::int32_t>(q.zero_points[c]), p.low, p.high, 0);
}

struct QuantizeFloats {
  static constexpr const char* kName = "quantize_floats";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = QuantizeParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i < p.count) write_code(p.codes, p.dtype, i, quantize_one(p, i));
  }
};

// Codes of less than a byte: a thread makes all of one, so that nobody else writes to it. The first
// code has the lowest bits; those behind the last one are 0.
struct QuantizePacked {
  static constexpr const char* kName = "quantize_packed";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = QuantizeParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const int bits = p.dtype == DType::QUInt4x2 ? 4 : 2;
    const int codes = 8 / bits;
    const std::int64_t first = simt::global_thread() * codes;
    if (first >= p.count) return;
    std::int32_t packed = 0;
    for (int k = 0; k < codes && first + k < p.count; ++k) {
      packed |= quantize_one(p, first + k) << (k * bits);
    }
    static_cast<std::uint8_t*>(p.codes)[first / codes] = static_cast<std::uint8_t>(packed);
  }
};

SIMT_DEVICE float dequantize_one(const QuantizeParams& p, std::int64_t i) {
  const std::int32_t code = read_code(p.codes, p.dtype, i);
  const CodeParams& q = p.qparams;
  if (q.scales == nullptr) {
    return math::dequantize(code, static_cast<float>(q.scale),
                            static_cast<std::int32_t>(q.zero_point));
  }
  const std::int64_t c = i / q.inner % q.channels;
  return q.float_zero_points != nullptr
             ? math::dequantize_float_qparams(code, static_cast<float>(q.scales[c]),
                                              q.float_zero_points[c])
             : math::dequantize_per_channel(code, q.scales[c], q.zero_points[c]);
}

struct DequantizeCodes {
  static constexpr const char* kName = "dequantize_codes";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = QuantizeParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i < p.count) p.results[i] = dequantize_one(p, i);
  }
};

struct CombineCodes {
  static constexpr const char* kName = "combine_codes";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = CodeBinaryParams;

  static SIMT_DEVICE std::int32_t combine(const Params& p, std::int32_t left, std::int32_t right) {
    if (p.is_product) {
      const std::int32_t product = (left - p.lhs_zero_point) * (right - p.rhs_zero_point);
      return math::quantize(static_cast<float>(product), p.inv_scale, p.zero_point, p.low, p.high);
    }
    const float sum = math::dequantize_fused(left, p.lhs_scale, p.lhs_offset) +
                      math::dequantize_fused(right, p.rhs_scale, p.rhs_offset);
    return math::quantize(sum, p.inv_scale, p.zero_point, p.low, p.high);
  }

  static SIMT_DEVICE void four(const Params& p, std::int64_t first) {
    const auto lhs = simt::load<std::uint32_t>(static_cast<const std::uint8_t*>(p.lhs) + first);
    const auto rhs = simt::load<std::uint32_t>(static_cast<const std::uint8_t*>(p.rhs) + first);
    std::uint32_t codes = 0;
    for (int shift = 0; shift < 32; shift += 8) {
      const auto left = static_cast<std::uint8_t>(lhs >> shift);
      const auto right = static_cast<std::uint8_t>(rhs >> shift);
      const std::int32_t code = p.dtype == DType::QInt8 ? combine(p, static_cast<std::int8_t>(left),
                                                                  static_cast<std::int8_t>(right))
                                                        : combine(p, left, right);
      codes |= std::uint32_t{static_cast<std::uint8_t>(code)} << shift;
    }
    simt::store(static_cast<std::uint8_t*>(p.out) + first, codes);
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t first = simt::global_thread() * p.at_once;
    if (p.at_once == 4 && first + 4 <= p.walk.count) return four(p, first);
    for (std::int64_t i = first; i < first + p.at_once && i < p.walk.count; ++i) {
      std::int64_t at[3];
      p.walk.places(i, at);
      const std::int32_t left = read_code(p.lhs, p.dtype, at[1]);
      const std::int32_t right = read_code(p.rhs, p.dtype, at[2]);
      write_code(p.out, p.dtype, at[0], combine(p, left, right));
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void look_up_codes(Device device, const LookUpParams& params) {
  simt::launch<LookUpCodes>(device, simt::grid_for(params.walk.count), params);
}
void quantize_floats(Device device, const QuantizeParams& params) {
  if (params.dtype == DType::QUInt4x2 || params.dtype == DType::QUInt2x4) {
    const int codes = params.dtype == DType::QUInt4x2 ? 2 : 4;
    simt::launch<QuantizePacked>(device, simt::grid_for(params.count, 256, codes), params);
    return;
  }
  simt::launch<QuantizeFloats>(device, simt::grid_for(params.count), params);
}
void dequantize_codes(Device device, const QuantizeParams& params) {
  simt::launch<DequantizeCodes>(device, simt::grid_for(params.count), params);
}
void combine_codes(Device device, const CodeBinaryParams& params) {
  simt::launch<CombineCodes>(device, simt::grid_for(params.walk.count, 256, params.at_once),
                             params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
