#include "quanta/ops/norm/cuda_kernels.h"

#include "quanta/ops/cuda/float_elements.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {
namespace {

SIMT_DEVICE std::int32_t code_at(DType dtype, const void* x, std::int64_t i) {
  return dtype == DType::QUInt8 ? static_cast<const std::uint8_t*>(x)[i]
                                : static_cast<const std::int8_t*>(x)[i];
}

// Rows that share a warp: element i of a row belongs to lane i % 8.
constexpr int kOctet = 8;

/// The numbers of the eight lanes, one after the other, added to `total`; right in the octet's first
/// lane only.
SIMT_DEVICE double add_lanes(double total, double of_lane) {
  for (int lane = 0; lane < kOctet; ++lane) total += simt::shuffle_xor(of_lane, lane);
  return total;
}

/// Every eighth element from the first on.
template <int kCount>
SIMT_DEVICE void read_ahead(const FloatSource& x, float (&values)[kCount]) {
  if (x.dtype == DType::Float32) {
    const float* const floats = static_cast<const float*>(x.data) + x.at;
    SIMT_UNROLL
    for (int k = 0; k < kCount; ++k) values[k] = floats[k * kOctet];
  } else {
    SIMT_UNROLL
    for (int k = 0; k < kCount; ++k) values[k] = x[k * kOctet];
  }
}

struct FindMoments {
  static constexpr const char* kName = "find_norm_moments";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = true;
  using Params = NormMomentsParams;

  // Whole numbers: any order. A warp for each group.
  static SIMT_DEVICE void of_codes(const Params& p) {
    const std::int64_t wanted = simt::global_thread() / 32;
    const std::int64_t group = wanted < p.groups ? wanted : p.groups - 1;
    std::int64_t sum = 0;
    std::int64_t squares = 0;
    for (std::int64_t i = simt::thread() % 32; i < p.count; i += 32) {
      const std::int32_t code = code_at(p.dtype, p.x, group * p.count + i);
      sum += code;
      squares += code * code;
    }
    sum = simt::warp_sum(sum);
    squares = simt::warp_sum(squares);
    if (wanted >= p.groups || simt::thread() % 32 != 0) return;
    p.moments[group] = math::norm_moments(static_cast<double>(sum), static_cast<double>(squares),
                                          p.count, p.scale, p.eps);
  }

  // Eight running sums, element i in sum i % 8; then the rest and these eight.
  static SIMT_DEVICE void of_floats(const Params& p) {
    const std::int64_t wanted = simt::global_thread() / kOctet;
    const std::int64_t group = wanted < p.groups ? wanted : p.groups - 1;
    const FloatSource x{p.dtype, p.x, group * p.count};
    const std::int64_t whole = p.count - p.count % kOctet;
    double sum = 0.0;
    double squares = 0.0;
    const auto add = [&](float element) {
      const auto value = static_cast<double>(element);
      sum += value;
      squares += value * value;
    };
    // Several are on their way while one is added.
    constexpr int kAhead = 8;
    std::int64_t i = simt::thread() % kOctet;
    for (; i + (kAhead - 1) * kOctet < whole; i += kAhead * kOctet) {
      float ahead[kAhead];
      read_ahead(x + i, ahead);
      SIMT_UNROLL
      for (int k = 0; k < kAhead; ++k) add(ahead[k]);
    }
    for (; i < whole; i += kOctet) add(x[i]);
    NormSums total;
    for (std::int64_t k = whole; k < p.count; ++k) {
      const auto value = static_cast<double>(x[k]);
      total.sum += value;
      total.squares += value * value;
    }
    total.sum = add_lanes(total.sum, sum);
    total.squares = add_lanes(total.squares, squares);
    if (wanted >= p.groups || simt::thread() % kOctet != 0) return;
    p.moments[group] = math::norm_moments(total.sum, total.squares, p.count, p.scale, p.eps);
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    is_float(p.dtype) ? of_floats(p) : of_codes(p);
  }
};

struct FindChannelSums {
  static constexpr const char* kName = "find_norm_channel_sums";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = NormMomentsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    const std::int64_t samples = p.groups / (p.channels / p.members);
    if (i >= samples * p.channels) return;
    const std::int64_t first = i / p.channels * p.channels * p.volume + i % p.channels;
    NormSums sums;
    for (std::int64_t k = 0; k < p.volume; ++k) {
      const std::int64_t at = first + k * p.channels;
      const auto value = is_float(p.dtype) ? static_cast<double>(float_at(p.dtype, p.x, at))
                                           : static_cast<double>(code_at(p.dtype, p.x, at));
      sums.sum += value;
      sums.squares += value * value;
    }
    p.sums[i] = sums;
  }
};

struct JoinChannelSums {
  static constexpr const char* kName = "join_norm_channel_sums";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = NormMomentsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t group = simt::global_thread();
    if (group >= p.groups) return;
    NormSums total;
    for (std::int64_t c = group * p.members; c < (group + 1) * p.members; ++c) {
      total.sum += p.sums[c].sum;
      total.squares += p.sums[c].squares;
    }
    p.moments[group] = math::norm_moments(total.sum, total.squares, p.count, p.scale, p.eps);
  }
};

struct Normalize {
  static constexpr const char* kName = "normalize";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = NormalizeParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    const std::int64_t line = simt::quotient(i, p.inner);
    const std::int64_t c = line - simt::quotient(line, p.channels) * p.channels;
    math::NormMoments moments{p.center, 1.0F};
    if (p.moments != nullptr) {
      moments = p.moments[simt::quotient(i, p.sample) * p.groups +
                          simt::quotient(c, p.channels / p.groups)];
    }
    const float scale = moments.inv_std * float_or(p.parameters, p.scale, c, 1.0F);
    const float shift = float_or(p.parameters, p.shift, c, 0.0F);
    const float x = is_float(p.dtype) ? float_at(p.dtype, p.x, i)
                                      : static_cast<float>(code_at(p.dtype, p.x, i));
    const float value = (x - moments.center) * scale + shift;
    if (is_float(p.dtype)) {
      put_float(p.dtype, p.y, i, value);
    } else {
      static_cast<std::uint8_t*>(p.y)[i] = static_cast<std::uint8_t>(
          math::quantize(value, p.inv_scale, p.zero_point, p.low, p.high));
    }
  }
};

struct FindBatchNormTerms {
  static constexpr const char* kName = "find_batch_norm_terms";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = BatchNormTermsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t c = simt::global_thread();
    if (c >= p.channels) return;
    const float mean = float_at(p.dtype, p.mean, c);
    const float var = float_at(p.dtype, p.var, c);
    const float weight = float_or(p.dtype, p.weight, c, 1.0F);
    const float bias = float_or(p.dtype, p.bias, c, 0.0F);
    const math::BatchNormLine<float> line =
        p.of_codes ? math::batch_norm_line_of_codes(mean, var, weight, bias, p.eps, p.scale_in,
                                                    p.scale_out)
                   : math::batch_norm_line(mean, var, weight, bias, p.eps);
    p.scale[c] = line.scale;
    p.shift[c] = line.shift;
    if (p.statistics == nullptr) return;
    p.statistics[c] = static_cast<double>(mean);
    p.statistics[p.channels + c] = 1.0 / math::square_root(static_cast<double>(var) + p.eps);
  }
};

struct NormalizeRows {
  static constexpr const char* kName = "normalize_rows";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = true;
  using Params = NormRowsParams;

  // The sum of the squares of x - center, or of x, in eight sums of which the first takes the rest.
  // Right in the octet's first lane only.
  template <bool kSquares>
  static SIMT_DEVICE double sum_of(const FloatSource& x, std::int64_t width, double center) {
    const int lane = simt::thread() % kOctet;
    double sum = 0.0;
    const std::int64_t whole = width - width % kOctet;
    const auto term = [&](std::int64_t i) {
      const double value = static_cast<double>(x[i]) - center;
      return kSquares ? value * value : value;
    };
    for (std::int64_t i = lane; i < whole; i += kOctet) sum += term(i);
    for (std::int64_t i = whole; lane == 0 && i < width; ++i) sum += term(i);
    double of_lane[kOctet];
    for (int k = 0; k < kOctet; ++k) of_lane[k] = simt::shuffle_xor(sum, k);
    return (of_lane[0] + of_lane[1] + of_lane[2] + of_lane[3]) +
           (of_lane[4] + of_lane[5] + of_lane[6] + of_lane[7]);
  }
  // What the octet's first lane has.
  static SIMT_DEVICE double first_of(double value) {
    for (int mask = 1; mask < kOctet; mask *= 2) {
      const double other = simt::shuffle_xor(value, mask);
      if ((simt::thread() & mask) != 0) value = other;
    }
    return value;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t wanted = simt::global_thread() / kOctet;
    const std::int64_t row = wanted < p.rows ? wanted : p.rows - 1;
    const int lane = simt::thread() % kOctet;
    const FloatSource x{p.dtype, p.x, row * p.width};
    const auto count = static_cast<double>(p.width);
    if (p.step == RowStep::Statistics) {
      const double mean = first_of(sum_of<false>(x, p.width, 0.0) / count);
      const double squares = sum_of<true>(x, p.width, mean);
      if (wanted >= p.rows || lane != 0) return;
      put_float(p.dtype, p.y, row, static_cast<float>(mean));
      put_float(p.dtype, p.second, row,
                static_cast<float>(1.0 / math::square_root(squares / count + p.eps)));
      return;
    }
    const double squares = first_of(sum_of<true>(x, p.width, 0.0));
    if (wanted >= p.rows) return;
    const auto factor = static_cast<float>(1.0 / math::square_root(squares / count + p.eps));
    for (std::int64_t i = lane; i < p.width; i += kOctet) {
      const float value = x[i] * factor * float_or(p.dtype, p.weight, i, 1.0F);
      put_float(p.dtype, p.y, row * p.width + i, value);
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void find_norm_moments(Device device, const NormMomentsParams& params) {
  const int lanes = is_float(params.dtype) ? kOctet : 32;
  simt::launch<FindMoments>(device, simt::grid_for(params.groups * lanes, FindMoments::kThreads),
                            params);
}
void find_norm_channel_sums(Device device, const NormMomentsParams& params) {
  simt::launch<FindChannelSums>(
      device, simt::grid_for(params.groups * params.members, FindChannelSums::kThreads), params);
}
void join_norm_channel_sums(Device device, const NormMomentsParams& params) {
  simt::launch<JoinChannelSums>(device, simt::grid_for(params.groups, JoinChannelSums::kThreads),
                                params);
}
void normalize(Device device, const NormalizeParams& params) {
  simt::launch<Normalize>(device, simt::grid_for(params.count), params);
}
void find_batch_norm_terms(Device device, const BatchNormTermsParams& params) {
  simt::launch<FindBatchNormTerms>(
      device, simt::grid_for(params.channels, FindBatchNormTerms::kThreads), params);
}
void normalize_rows(Device device, const NormRowsParams& params) {
  simt::launch<NormalizeRows>(device, simt::grid_for(params.rows * kOctet, NormalizeRows::kThreads),
                              params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
