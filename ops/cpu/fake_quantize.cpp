#include "quanta/ops/cpu/fake_quantize.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/fake_quantize.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <utility>

#include "quanta/ops/cpu/per_channel.h"
#include "quanta/ops/cpu/simd/simd.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/operation.h"

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

#if QUANTA_VECTORS
static_assert(kLanes % 8 == 0, "a vector's mask bits begin with a byte");
static_assert(LearnedLanes::kCount % kLanes == 0, "lanes of sums come in whole vectors");

using DoubleTag = hn::ScalableTag<double>;

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

// A float vector's lanes as two vectors of doubles, each added to its sum.
template <class V>
HWY_INLINE void add_lanes(V terms, hn::Vec<DoubleTag>* sums) {
  const hn::Half<FloatTag> half;
  sums[0] = hn::Add(sums[0], hn::PromoteTo(DoubleTag(), hn::LowerHalf(half, terms)));
  sums[1] = hn::Add(sums[1], hn::PromoteTo(DoubleTag(), hn::UpperHalf(half, terms)));
}

std::int64_t learned_vectors(const float* x, const float* grad, std::int64_t count,
                             const math::FakeQuantizeParams& params, float* dst,
                             LearnedLanes& lanes) {
  constexpr std::int64_t kParts = LearnedLanes::kCount / kLanes;
  const FloatTag d;
  const DoubleTag dd;
  const auto scale = hn::Set(d, params.scale);
  const auto inv_scale = hn::Set(d, params.inv_scale);
  const auto zero_point = hn::Set(d, params.zero_point);
  const auto min = hn::Set(d, params.min);
  const auto max = hn::Set(d, params.max);
  const auto minus_scale = hn::Set(d, -params.scale);
  hn::Vec<DoubleTag> scale_sums[2 * kParts];
  hn::Vec<DoubleTag> zero_point_sums[2 * kParts];
  for (std::int64_t k = 0; k < 2 * kParts; ++k) {
    scale_sums[k] = hn::Zero(dd);
    zero_point_sums[k] = hn::Zero(dd);
  }
  std::int64_t i = 0;
  for (; i + LearnedLanes::kCount <= count; i += LearnedLanes::kCount) {
    for (std::int64_t part = 0; part < kParts; ++part) {
      const std::int64_t at = i + part * kLanes;
      const auto value = hn::LoadU(d, x + at);
      const auto upstream = hn::LoadU(d, grad + at);
      const auto code = hn::Add(hn::Round(hn::Mul(value, inv_scale)), zero_point);
      const auto clamped = hn::Min(hn::Max(code, min), max);
      const auto inside = hn::Eq(clamped, code);
      const auto steps = hn::Sub(clamped, zero_point);
      const auto error = hn::Mul(hn::Sub(hn::Mul(steps, scale), value), inv_scale);
      hn::StoreU(hn::IfThenElseZero(inside, upstream), d, dst + at);
      add_lanes(hn::Mul(upstream, hn::IfThenElse(inside, error, steps)), scale_sums + 2 * part);
      add_lanes(hn::IfThenZeroElse(inside, hn::Mul(upstream, minus_scale)),
                zero_point_sums + 2 * part);
    }
  }
  for (std::int64_t k = 0; k < 2 * kParts; ++k) {
    hn::StoreU(scale_sums[k], dd, lanes.scale + k * kLanes / 2);
    hn::StoreU(zero_point_sums[k], dd, lanes.zero_point + k * kLanes / 2);
  }
  return i;
}
#endif  // QUANTA_VECTORS

void learned_block(const float* x, const float* grad, std::int64_t count,
                   const math::FakeQuantizeParams& params, float* dst, LearnedLanes& lanes) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = learned_vectors(x, grad, count, params, dst, lanes);
#endif
  for (; i < count; ++i) {
    const std::int64_t lane = i % LearnedLanes::kCount;
    dst[i] = add_learned(x[i], grad[i], params, lanes.scale[lane], lanes.zero_point[lane]);
  }
}

void fake_quantize_one_channel(const float* src, std::int64_t count,
                               const FakeQuantizeChannels& channels, std::int64_t channel,
                               float* dst, std::uint8_t* mask, Store store) {
  std::int64_t done = 0;
#if QUANTA_VECTORS
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
#if QUANTA_VECTORS
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
#if QUANTA_VECTORS
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
HWY_EXPORT(learned_block);
HWY_EXPORT(masked_row);
HWY_EXPORT(masked_row_range);

namespace {

// Streaming needs rows of whole cache lines.
Store row_store(const FakeQuantizeRows& rows, const float* dst) {
  constexpr std::int64_t kCacheLine = 16;
  if (rows.kind == FakeQuantizeRows::Kind::AllChannels || rows.length % kCacheLine != 0) {
    return Store::Cached;
  }
  return store_for(static_cast<std::size_t>(rows.count * rows.length) * sizeof(float), dst);
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
    const Store store = store_for(static_cast<std::size_t>(rows.length) * sizeof(float), dst);
    parallel_elements(rows.length, [&](std::int64_t begin, std::int64_t end) {
      run(src + begin, end - begin, channels, 0, dst + begin,
          mask == nullptr ? nullptr : mask + begin / 8, store);
    });
    return;
  }
  const auto run = HWY_DYNAMIC_DISPATCH(fake_quantize_row_range);
  const Store store = row_store(rows, dst);
  parallel_rows(rows, [&](std::int64_t begin, std::int64_t end) {
    run(src, rows, begin, end, channels, dst, mask, store);
  });
}

template <>
void fake_quantize(const double* src, const FakeQuantizeRows& rows,
                   const FakeQuantizeChannels& channels, double* dst, std::uint8_t* mask) {
  if (mask != nullptr) std::fill(mask, mask + rows.mask_bytes(), std::uint8_t{0});
  for_each_element(rows, channels.count(),
                   [&](std::int64_t row, std::int64_t i, std::int64_t channel) {
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
    const Store store = store_for(static_cast<std::size_t>(count) * sizeof(float), dst);
    parallel_elements(count, [&](std::int64_t begin, std::int64_t end) {
      run(grad + begin, end - begin, mask + begin / 8, dst + begin, store);
    });
    return;
  }
  const auto run = HWY_DYNAMIC_DISPATCH(masked_row_range);
  const Store store = row_store(rows, dst);
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

struct LearnedSums {
  double scale = 0.0;
  double zero_point = 0.0;
};

LearnedSums sum_lanes(const LearnedLanes& lanes) {
  LearnedSums sums;
  for (std::int64_t lane = 0; lane < LearnedLanes::kCount; ++lane) {
    sums.scale += lanes.scale[lane];
    sums.zero_point += lanes.zero_point[lane];
  }
  return sums;
}

// A part of a row, which belongs to one channel.
LearnedSums learned_part(const float* x, const float* grad, std::int64_t count,
                         const math::FakeQuantizeParams& params, float* dst) {
  LearnedLanes lanes;
  HWY_DYNAMIC_DISPATCH(learned_block)(x, grad, count, params, dst, lanes);
  return sum_lanes(lanes);
}

LearnedSums learned_part(const double* x, const double* grad, std::int64_t count,
                         const math::FakeQuantizeParams& params, double* dst) {
  LearnedLanes lanes;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t lane = i % LearnedLanes::kCount;
    dst[i] = add_learned(x[i], grad[i], params, lanes.scale[lane], lanes.zero_point[lane]);
  }
  return sum_lanes(lanes);
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
                     dst[at] = add_learned(x[at], grad[at], channels.at(c), scale_grad[c],
                                           zero_point_grad[c]);
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
  const std::int64_t blocks = ceil_div(rows.length, block);
  std::vector<LearnedSums> sums(static_cast<std::size_t>(rows.count * blocks));
  parallel_for(rows.count * blocks, std::max<std::int64_t>(1, kElementGrain / block),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t row = item / blocks;
                   const std::int64_t start = item % blocks * block;
                   const std::int64_t at = row * rows.length + start;
                   sums[static_cast<std::size_t>(item)] =
                       learned_part(x + at, grad + at, std::min(block, rows.length - start),
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

FakeQuantizeChannels fake_quantize_channels(std::vector<float> scale, std::vector<float> zero_point,
                                            std::int64_t quant_min, std::int64_t quant_max) {
  FakeQuantizeChannels channels;
  channels.inv_scale.reserve(scale.size());
  for (const float one : scale) channels.inv_scale.push_back(math::inverse_scale(one));
  channels.scale = std::move(scale);
  channels.zero_point = std::move(zero_point);
  channels.min = static_cast<float>(quant_min);
  channels.max = static_cast<float>(quant_max);
  return channels;
}

FakeQuantizeRows fake_quantize_rows(const Tensor& dense, std::int64_t axis) {
  if (axis == kAllChannels) return {FakeQuantizeRows::Kind::OneChannel, 1, dense.numel()};
  const ChannelLayout layout(dense, axis);
  if (layout.inner == 1 && layout.channels > 1) {
    return {FakeQuantizeRows::Kind::AllChannels, layout.outer, layout.channels};
  }
  return {FakeQuantizeRows::Kind::OneChannel, layout.outer * layout.channels, layout.inner};
}

void fake_quantize_tensor(const Tensor& x, std::int64_t axis, const FakeQuantizeChannels& channels,
                          const Tensor& out, std::uint8_t* mask) {
  const Tensor src = in_real(x);
  const bool is_direct = src.dtype() == out.dtype();
  const Tensor dst =
      is_direct ? out : Tensor::empty(src.sizes(), src.dtype(), src.suggested_format());
  quanta::detail::visit_floats(src.dtype(), [&](auto zero) {
    using T = decltype(zero);
    fake_quantize<T>(src.data<T>(), fake_quantize_rows(src, axis), channels,
                     static_cast<T*>(dst.data_ptr()), mask);
  });
  if (!is_direct) copy_result(dst.to(out.dtype()), out);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
