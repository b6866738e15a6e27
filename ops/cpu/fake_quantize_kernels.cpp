#include "quanta/ops/cpu/fake_quantize_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/fake_quantize_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>

#include "quanta/ops/cpu/simd.h"
#include "quanta/ops/cpu/strided_loop.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

// The elements from `begin` (a multiple of 8) on that do not fill a vector.
void fake_quantize_tail(const float* src, std::int64_t begin, std::int64_t count,
                        const FakeQuantizeChannels& channels, std::int64_t channel,
                        std::int64_t channel_step, float* dst, std::uint8_t* mask) {
  if (mask != nullptr) std::fill(mask + begin / 8, mask + (count + 7) / 8, std::uint8_t{0});
  for (std::int64_t i = begin; i < count; ++i) {
    const auto result = math::fake_quantize(src[i], channels.at(channel + i * channel_step));
    dst[i] = result.value;
    if (mask != nullptr && result.inside) {
      mask[i / 8] = static_cast<std::uint8_t>(mask[i / 8] | (1U << (i % 8)));
    }
  }
}

void masked_tail(const float* grad, std::int64_t begin, std::int64_t count,
                 const std::uint8_t* mask, float* dst) {
  for (std::int64_t i = begin; i < count; ++i) {
    dst[i] = (mask[i / 8] >> (i % 8) & 1) != 0 ? grad[i] : 0.0F;
  }
}

#if HWY_TARGET != HWY_SCALAR
static_assert(kLanes % 8 == 0, "a vector's mask bits begin with a byte");

// One channel's parameters in every lane.
class UniformChannel {
 public:
  UniformChannel(const FakeQuantizeChannels& channels, std::int64_t channel)
      : scale_(hn::Set(FloatTag(), channels.at(channel).scale)),
        inv_scale_(hn::Set(FloatTag(), channels.at(channel).inv_scale)),
        zero_point_(hn::Set(FloatTag(), channels.at(channel).zero_point)) {}
  HWY_INLINE hn::Vec<FloatTag> scale(std::int64_t) const { return scale_; }
  HWY_INLINE hn::Vec<FloatTag> inv_scale(std::int64_t) const { return inv_scale_; }
  HWY_INLINE hn::Vec<FloatTag> zero_point(std::int64_t) const { return zero_point_; }

 private:
  hn::Vec<FloatTag> scale_, inv_scale_, zero_point_;
};

// Neighbouring channels in neighbouring lanes.
class NeighbourChannels {
 public:
  explicit NeighbourChannels(const FakeQuantizeChannels& channels) : channels_(channels) {}
  HWY_INLINE hn::Vec<FloatTag> scale(std::int64_t i) const {
    return hn::LoadU(FloatTag(), channels_.scale.data() + i);
  }
  HWY_INLINE hn::Vec<FloatTag> inv_scale(std::int64_t i) const {
    return hn::LoadU(FloatTag(), channels_.inv_scale.data() + i);
  }
  HWY_INLINE hn::Vec<FloatTag> zero_point(std::int64_t i) const {
    return hn::LoadU(FloatTag(), channels_.zero_point.data() + i);
  }

 private:
  const FakeQuantizeChannels& channels_;
};

template <bool kStreaming, class Parameters>
HWY_INLINE std::int64_t fake_quantize_vectors(const float* src, std::int64_t count,
                                              const Parameters& parameters,
                                              const FakeQuantizeChannels& channels, float* dst,
                                              std::uint8_t* mask) {
  const FloatTag d;
  const auto min = hn::Set(d, channels.min);
  const auto max = hn::Set(d, channels.max);
  const bool float_zero_point = channels.float_zero_point;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto zero_point = parameters.zero_point(i);
    const auto scaled = hn::Mul(hn::LoadU(d, src + i), parameters.inv_scale(i));
    const auto code = float_zero_point ? hn::Round(hn::Add(scaled, zero_point))
                                       : hn::Add(hn::Round(scaled), zero_point);
    // x86's maximum answers its second operand when the first is NaN: the lowest code.
    const auto clamped = hn::Min(hn::Max(code, min), max);
    put<kStreaming>(d, hn::Mul(hn::Sub(clamped, zero_point), parameters.scale(i)), dst + i);
    if (mask != nullptr) hn::StoreMaskBits(d, hn::Eq(clamped, code), mask + i / 8);
  }
  if constexpr (kStreaming) hwy::FlushStream();
  return i;
}

template <bool kStreaming>
HWY_INLINE std::int64_t masked_vectors(const float* grad, std::int64_t count,
                                       const std::uint8_t* mask, float* dst) {
  const FloatTag d;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto inside = hn::LoadMaskBits(d, mask + i / 8);
    put<kStreaming>(d, hn::IfThenElseZero(inside, hn::LoadU(d, grad + i)), dst + i);
  }
  if constexpr (kStreaming) hwy::FlushStream();
  return i;
}
#endif  // HWY_TARGET != HWY_SCALAR

void fake_quantize_one_channel(const float* src, std::int64_t count,
                               const FakeQuantizeChannels& channels, std::int64_t channel,
                               float* dst, std::uint8_t* mask, Store store) {
  std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  const UniformChannel parameters(channels, channel);
  done = store == Store::Streaming
             ? fake_quantize_vectors<true>(src, count, parameters, channels, dst, mask)
             : fake_quantize_vectors<false>(src, count, parameters, channels, dst, mask);
#else
  static_cast<void>(store);
#endif
  fake_quantize_tail(src, done, count, channels, channel, 0, dst, mask);
}

void fake_quantize_all_channels(const float* src, const FakeQuantizeChannels& channels, float* dst,
                                std::uint8_t* mask) {
  const std::int64_t count = channels.count();
  std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  const NeighbourChannels parameters(channels);
  done = fake_quantize_vectors<false>(src, count, parameters, channels, dst, mask);
#endif
  fake_quantize_tail(src, done, count, channels, 0, 1, dst, mask);
}

void fake_quantize_row_range(const float* src, const FakeQuantizeRows& rows, std::int64_t begin,
                             std::int64_t end, const FakeQuantizeChannels& channels, float* dst,
                             std::uint8_t* mask, Store store) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * rows.length;
    std::uint8_t* row_mask = mask == nullptr ? nullptr : mask + row * rows.mask_row_bytes();
    if (rows.kind == FakeQuantizeRows::Kind::AllChannels) {
      fake_quantize_all_channels(src + at, channels, dst + at, row_mask);
    } else {
      fake_quantize_one_channel(src + at, rows.length, channels, row % channels.count(), dst + at,
                                row_mask, store);
    }
  }
}

void masked_row(const float* grad, std::int64_t count, const std::uint8_t* mask, float* dst,
                Store store) {
  std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  done = store == Store::Streaming ? masked_vectors<true>(grad, count, mask, dst)
                                   : masked_vectors<false>(grad, count, mask, dst);
#else
  static_cast<void>(store);
#endif
  masked_tail(grad, done, count, mask, dst);
}

void masked_row_range(const float* grad, const FakeQuantizeRows& rows, std::int64_t begin,
                      std::int64_t end, const std::uint8_t* mask, float* dst, Store store) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * rows.length;
    masked_row(grad + at, rows.length, mask + row * rows.mask_row_bytes(), dst + at, store);
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(fake_quantize_one_channel);
HWY_EXPORT(fake_quantize_row_range);
HWY_EXPORT(masked_row);
HWY_EXPORT(masked_row_range);

namespace {

// Streaming stores need aligned rows.
Store row_store(const FakeQuantizeRows& rows) {
  constexpr std::int64_t kCacheLine = 16;
  if (rows.kind == FakeQuantizeRows::Kind::AllChannels || rows.length % kCacheLine != 0) {
    return Store::Cached;
  }
  return store_for(static_cast<std::size_t>(rows.count * rows.length) * sizeof(float));
}

// body(begin, end) over the rows.
template <typename Body>
void parallel_rows(const FakeQuantizeRows& rows, Body&& body) {
  const std::int64_t length = std::max<std::int64_t>(rows.length, 1);
  parallel_for(rows.count, std::max<std::int64_t>(1, kElementGrain / length), body);
}

// The plain form, element by element: element(index, channel), and the mask's bits if there is one.
template <typename Element>
void for_each_element(const FakeQuantizeRows& rows, std::int64_t channels, Element&& element) {
  parallel_rows(rows, [&](std::int64_t begin, std::int64_t end) {
    const bool all = rows.kind == FakeQuantizeRows::Kind::AllChannels;
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t i = 0; i < rows.length; ++i) {
        element(row, i, all ? i : row % channels);
      }
    }
  });
}

}  // namespace

template <>
void fake_quantize(const float* src, const FakeQuantizeRows& rows,
                   const FakeQuantizeChannels& channels, float* dst, std::uint8_t* mask) {
  if (rows.count == 1 && rows.kind == FakeQuantizeRows::Kind::OneChannel) {
    const auto run = HWY_DYNAMIC_DISPATCH(fake_quantize_one_channel);
    const Store store = store_for(static_cast<std::size_t>(rows.length) * sizeof(float));
    parallel_elements(rows.length, [&](std::int64_t begin, std::int64_t end) {
      run(src + begin, end - begin, channels, 0, dst + begin,
          mask == nullptr ? nullptr : mask + begin / 8, store);
    });
    return;
  }
  const auto run = HWY_DYNAMIC_DISPATCH(fake_quantize_row_range);
  const Store store = row_store(rows);
  parallel_rows(rows, [&](std::int64_t begin, std::int64_t end) {
    run(src, rows, begin, end, channels, dst, mask, store);
  });
}

template <>
void fake_quantize(const double* src, const FakeQuantizeRows& rows,
                   const FakeQuantizeChannels& channels, double* dst, std::uint8_t* mask) {
  if (mask != nullptr) std::fill(mask, mask + rows.mask_bytes(), std::uint8_t{0});
  for_each_element(
      rows, channels.count(), [&](std::int64_t row, std::int64_t i, std::int64_t channel) {
        const std::int64_t at = row * rows.length + i;
        const auto result = math::fake_quantize(src[at], channels.at(channel));
        dst[at] = result.value;
        if (mask == nullptr || !result.inside) return;
        std::uint8_t& byte = mask[row * rows.mask_row_bytes() + i / 8];
        byte = static_cast<std::uint8_t>(byte | (1U << (i % 8)));
      });
}

template <>
void masked_gradient(const float* grad, const FakeQuantizeRows& rows, const std::uint8_t* mask,
                     float* dst) {
  // Rows whose bits fill their bytes are one long row.
  if (rows.count == 1 || rows.length % 8 == 0) {
    const std::int64_t count = rows.count * rows.length;
    const auto run = HWY_DYNAMIC_DISPATCH(masked_row);
    const Store store = store_for(static_cast<std::size_t>(count) * sizeof(float));
    parallel_elements(count, [&](std::int64_t begin, std::int64_t end) {
      run(grad + begin, end - begin, mask + begin / 8, dst + begin, store);
    });
    return;
  }
  const auto run = HWY_DYNAMIC_DISPATCH(masked_row_range);
  const Store store = row_store(rows);
  parallel_rows(rows, [&](std::int64_t begin, std::int64_t end) {
    run(grad, rows, begin, end, mask, dst, store);
  });
}

template <>
void masked_gradient(const double* grad, const FakeQuantizeRows& rows, const std::uint8_t* mask,
                     double* dst) {
  for_each_element(rows, 1, [&](std::int64_t row, std::int64_t i, std::int64_t) {
    const std::int64_t at = row * rows.length + i;
    const std::uint8_t byte = mask[row * rows.mask_row_bytes() + i / 8];
    dst[at] = (byte >> (i % 8) & 1) != 0 ? grad[at] : 0.0;
  });
}

namespace {

// The sums of the rows' (or, of a single long row, the blocks') gradients.
struct LearnedSums {
  double scale = 0.0;
  double zero_point = 0.0;
};

template <typename T>
LearnedSums learned_block(const T* x, const T* grad, std::int64_t count,
                          const math::FakeQuantizeParams& params, T* dst) {
  LearnedSums sums;
  for (std::int64_t i = 0; i < count; ++i) {
    const math::LearnedGradient<T> one = math::learned_gradient(x[i], params);
    dst[i] = one.x != T{0} ? grad[i] : T{0};
    sums.scale += static_cast<double>(grad[i] * one.scale);
    sums.zero_point += static_cast<double>(grad[i] * one.zero_point);
  }
  return sums;
}

// Channels innermost: sums by column, each over all rows in order.
template <typename T>
void learned_columns(const T* x, const T* grad, const FakeQuantizeRows& rows,
                     const FakeQuantizeChannels& channels, T* dst, double* scale_grad,
                     double* zero_point_grad) {
  parallel_for(rows.length, std::max<std::int64_t>(1, kElementGrain / (rows.count + 1)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = 0; row < rows.count; ++row) {
                   for (std::int64_t c = begin; c < end; ++c) {
                     const std::int64_t at = row * rows.length + c;
                     const LearnedSums one =
                         learned_block(x + at, grad + at, 1, channels.at(c), dst + at);
                     scale_grad[c] += one.scale;
                     zero_point_grad[c] += one.zero_point;
                   }
                 }
               });
}

}  // namespace

template <typename T>
void learned_gradients(const T* x, const T* grad, const FakeQuantizeRows& rows,
                       const FakeQuantizeChannels& channels, T* dst, double* scale_grad,
                       double* zero_point_grad) {
  std::fill(scale_grad, scale_grad + channels.count(), 0.0);
  std::fill(zero_point_grad, zero_point_grad + channels.count(), 0.0);
  if (rows.kind == FakeQuantizeRows::Kind::AllChannels) {
    learned_columns(x, grad, rows, channels, dst, scale_grad, zero_point_grad);
    return;
  }
  // Blocks of a fixed length, so that the sums do not depend on the threads.
  const std::int64_t block = std::max<std::int64_t>(1, std::min(rows.length, kElementGrain));
  const std::int64_t blocks = (rows.length + block - 1) / block;
  std::vector<LearnedSums> sums(static_cast<std::size_t>(rows.count * blocks));
  parallel_for(rows.count * blocks, std::max<std::int64_t>(1, kElementGrain / block),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t row = item / blocks;
                   const std::int64_t start = item % blocks * block;
                   const std::int64_t at = row * rows.length + start;
                   sums[static_cast<std::size_t>(item)] =
                       learned_block(x + at, grad + at, std::min(block, rows.length - start),
                                     channels.at(row % channels.count()), dst + at);
                 }
               });
  for (std::size_t item = 0; item < sums.size(); ++item) {
    const std::int64_t channel = static_cast<std::int64_t>(item) / blocks % channels.count();
    scale_grad[channel] += sums[item].scale;
    zero_point_grad[channel] += sums[item].zero_point;
  }
}

template void learned_gradients(const float*, const float*, const FakeQuantizeRows&,
                                const FakeQuantizeChannels&, float*, double*, double*);
template void learned_gradients(const double*, const double*, const FakeQuantizeRows&,
                                const FakeQuantizeChannels&, double*, double*, double*);

}  // namespace quanta::cpu
#endif  // HWY_ONCE
