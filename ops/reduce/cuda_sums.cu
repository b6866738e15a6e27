#include <type_traits>

#include "quanta/ops/cuda/float_elements.h"
#include "quanta/ops/reduce/cuda_kernels.h"
#include "quanta/runtime/cuda/elements.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/norm_math.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {
namespace {

// What an element adds to a sum; `mean` is that of the result it belongs to.
template <typename Sum, typename T>
SIMT_DEVICE Sum term_of(const SumParams& p, T element, double mean) {
  if constexpr (std::is_same_v<Sum, std::uint64_t>) {
    static_cast<void>(p);
    static_cast<void>(mean);
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(element));
  } else {
    auto value = static_cast<double>(element);
    if constexpr (std::is_integral_v<T>) {
      if (p.dequantizes) {
        value = static_cast<double>(
            math::dequantize(static_cast<std::int32_t>(element), p.scale, p.zero_point));
      }
    }
    if (p.means == nullptr) return value;
    const double difference = value - mean;
    return difference * difference;
  }
}

// The block's elements from `first` on, of T; float stands for floats of any width.
template <typename T>
SIMT_DEVICE auto elements_of(const Block& block, std::int64_t first) {
  if constexpr (std::is_same_v<T, float>) {
    return FloatSource{block.dtype, block.x, first};
  } else {
    return static_cast<const T*>(block.x) + first;
  }
}

// Calls visit(Sum{}, T{}): integers are added up as they are, floats in double, and codes either
// way.
template <typename Visit>
SIMT_DEVICE void visit_sums(const SumParams& p, const Visit& visit) {
  visit_ordered(is_float(p.block.dtype) ? DType::Float32 : p.block.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T>) {
      visit(double{}, zero);
    } else {
      constexpr bool kMayBeCode = std::is_same_v<T, std::uint8_t> ||
                                  std::is_same_v<T, std::int8_t> || std::is_same_v<T, std::int32_t>;
      if constexpr (kMayBeCode) {
        if (!p.in_integers) return visit(double{}, zero);
      }
      visit(std::uint64_t{}, zero);
    }
  });
}

// Threads that share a row: element i belongs to thread i % 8.
constexpr int kOctet = 8;

struct SumRows {
  static constexpr const char* kName = "sum_rows";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = true;
  using Params = SumParams;

  template <typename Sum, typename T>
  static SIMT_DEVICE void part_of_row(const Params& p) {
    const std::int64_t all = p.block.outer * p.parts;
    const std::int64_t wanted = simt::global_thread() / kOctet;
    const std::int64_t item = wanted < all ? wanted : all - 1;
    const std::int64_t row = item / p.parts;
    const std::int64_t begin = item % p.parts * p.part;
    const std::int64_t left = p.block.count - begin;
    const std::int64_t count = p.part < left ? p.part : left;
    const auto x = elements_of<T>(p.block, row * p.block.count + begin);
    const double mean = p.means == nullptr ? 0.0 : p.means[row];

    const std::int64_t whole = count - count % kOctet;
    std::int64_t i = simt::thread() % kOctet;
    Sum sum{};
    // Several loads are on their way at once; what they bring is added up in order.
    constexpr int kAhead = 8;
    for (; i + (kAhead - 1) * kOctet < whole; i += kAhead * kOctet) {
      T values[kAhead];
      for (int k = 0; k < kAhead; ++k) values[k] = x[i + k * kOctet];
      for (int k = 0; k < kAhead; ++k) sum += term_of<Sum>(p, values[k], mean);
    }
    for (; i < whole; i += kOctet) sum += term_of<Sum>(p, x[i], mean);
    Sum total{};
    for (std::int64_t k = whole; k < count; ++k) total += term_of<Sum>(p, x[k], mean);
    // Thread by thread; right in the octet's first one only.
    for (int k = 0; k < kOctet; ++k) total += simt::shuffle_xor(sum, k);
    if (wanted >= all || simt::thread() % kOctet != 0) return;
    static_cast<Sum*>(p.sums)[item] = total;
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    visit_sums(p, [&](auto sum, auto zero) { part_of_row<decltype(sum), decltype(zero)>(p); });
  }
};

struct SumColumns {
  static constexpr const char* kName = "sum_columns";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = SumParams;

  template <typename Sum, typename T>
  static SIMT_DEVICE void column(const Params& p, std::int64_t at) {
    const std::int64_t inner = p.block.inner;
    const auto x = elements_of<T>(p.block, at / inner * p.block.count * inner + at % inner);
    const double mean = p.means == nullptr ? 0.0 : p.means[at];
    Sum sum{};
    for (std::int64_t i = 0; i < p.block.count; ++i) sum += term_of<Sum>(p, x[i * inner], mean);
    static_cast<Sum*>(p.sums)[at] = sum;
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t at = simt::global_thread();
    if (at >= p.block.outer * p.block.inner) return;
    visit_sums(p, [&](auto sum, auto zero) { column<decltype(sum), decltype(zero)>(p, at); });
  }
};

struct FinishSums {
  static constexpr const char* kName = "finish_sums";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = FinishParams;

  template <typename Sum>
  static SIMT_DEVICE Sum sum_of(const Params& p, std::int64_t i) {
    Sum sum{};
    for (std::int64_t k = 0; k < p.parts; ++k)
      sum += static_cast<const Sum*>(p.sums)[i * p.parts + k];
    return sum;
  }

  static SIMT_DEVICE std::int32_t code_of(const Params& p, float value) {
    return p.dtype == DType::QInt32
               ? math::quantize_qint32(value, p.inv_scale, p.zero_point)
               : math::quantize(value, p.inv_scale, p.zero_point, p.low, p.high);
  }
  static SIMT_DEVICE void write_code(const Params& p, std::int64_t i, std::int32_t code) {
    if (p.dtype == DType::QInt32) {
      static_cast<std::int32_t*>(p.out)[i] = code;
    } else {
      static_cast<std::uint8_t*>(p.out)[i] = static_cast<std::uint8_t>(code);
    }
  }
  static SIMT_DEVICE void write_number(const Params& p, std::int64_t i, double number) {
    if (is_float(p.dtype)) {
      put_float(p.dtype, p.out, i, static_cast<float>(number));
    } else {
      static_cast<double*>(p.out)[i] = number;
    }
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    if (p.in_integers) {
      const std::uint64_t sum = sum_of<std::uint64_t>(p, i);
      if (p.end == SumEnd::Sum) {
        static_cast<std::uint64_t*>(p.out)[i] = sum;
      } else {
        const auto mean =
            static_cast<float>(static_cast<std::int64_t>(sum)) / static_cast<float>(p.divisor);
        write_code(p, i, math::saturate_int32(math::round_half_even(mean)));
      }
      return;
    }
    const auto sum = sum_of<double>(p, i);
    switch (p.end) {
      case SumEnd::Sum:
        return write_number(p, i, sum);
      case SumEnd::Mean:
      case SumEnd::Variance:
        return write_number(p, i, sum / p.divisor);
      case SumEnd::Deviation:
        return write_number(p, i, math::square_root(sum / p.divisor));
      case SumEnd::CodeOfMean:
        return write_code(p, i,
                          code_of(p, static_cast<float>(sum) / static_cast<float>(p.divisor)));
      case SumEnd::CodeOfDeviation:
        return write_code(
            p, i, code_of(p, static_cast<float>(math::square_root(sum / p.divisor) * p.factor)));
    }
  }
};

struct MultiplyColumns {
  static constexpr const char* kName = "multiply_columns";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ProductParams;

  template <typename T>
  static SIMT_DEVICE void column(const Params& p, std::int64_t at) {
    constexpr bool kIsFloat = std::is_floating_point_v<T>;
    using Value = std::conditional_t<kIsFloat, double, std::uint64_t>;
    const std::int64_t inner = p.block.inner;
    const T* const x =
        static_cast<const T*>(p.block.x) + at / inner * p.block.count * inner + at % inner;
    Value product{1};
    for (std::int64_t i = 0; i < p.block.count; ++i) {
      if constexpr (kIsFloat) {
        product *= static_cast<double>(x[i * inner]);
      } else {
        product *= static_cast<std::uint64_t>(static_cast<std::int64_t>(x[i * inner]));
      }
    }
    using To = std::conditional_t<kIsFloat, T, std::int64_t>;
    static_cast<To*>(p.out)[at] = static_cast<To>(product);
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t at = simt::global_thread();
    if (at >= p.block.outer * p.block.inner) return;
    visit_ordered(p.block.dtype, [&](auto zero) { column<decltype(zero)>(p, at); });
  }
};

struct RunAlong {
  static constexpr const char* kName = "run_along";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = RunningParams;

  template <typename T>
  static SIMT_DEVICE void line(const Params& p, std::int64_t at) {
    using Total = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
    const std::int64_t inner = p.block.inner;
    const std::int64_t first = at / inner * p.block.count * inner + at % inner;
    const T* const x = static_cast<const T*>(p.block.x) + first;
    T* const out = static_cast<T*>(p.out) + first;
    Total total = p.products ? Total{1} : Total{0};
    for (std::int64_t k = 0; k < p.block.count; ++k) {
      const std::int64_t i = (p.reverse ? p.block.count - 1 - k : k) * inner;
      Total term;
      if constexpr (std::is_floating_point_v<T>) {
        term = static_cast<double>(x[i]);
      } else {
        term = static_cast<std::uint64_t>(static_cast<std::int64_t>(x[i]));
      }
      if (p.exclusive) out[i] = static_cast<T>(total);
      total = p.products ? total * term : total + term;
      if (!p.exclusive) out[i] = static_cast<T>(total);
    }
  }
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t at = simt::global_thread();
    if (at >= p.block.outer * p.block.inner) return;
    visit_ordered(p.block.dtype, [&](auto zero) { line<decltype(zero)>(p, at); });
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void sum_rows(Device device, const SumParams& params) {
  const std::int64_t octets = params.block.outer * params.parts;
  simt::launch<SumRows>(device, simt::grid_for(octets * kOctet, SumRows::kThreads), params);
}
void sum_columns(Device device, const SumParams& params) {
  simt::launch<SumColumns>(
      device, simt::grid_for(params.block.outer * params.block.inner, SumColumns::kThreads),
      params);
}
void finish_sums(Device device, const FinishParams& params) {
  simt::launch<FinishSums>(device, simt::grid_for(params.count, FinishSums::kThreads), params);
}
void multiply_columns(Device device, const ProductParams& params) {
  simt::launch<MultiplyColumns>(
      device, simt::grid_for(params.block.outer * params.block.inner, MultiplyColumns::kThreads),
      params);
}
void run_along(Device device, const RunningParams& params) {
  simt::launch<RunAlong>(
      device, simt::grid_for(params.block.outer * params.block.inner, RunAlong::kThreads), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
