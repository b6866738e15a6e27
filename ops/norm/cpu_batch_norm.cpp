#include "quanta/ops/norm/cpu_batch_norm.h"

#include <algorithm>
#include <array>

#include "quanta/ops/cpu/gradient_kernels.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/norm/cpu_kernels.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/norm_math.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

constexpr std::int64_t kGrainElements = 16384;

// The kernels, in vectors for floats and plain for doubles. A step of 0 takes the first parameter
// for all elements.

void apply(const float* x, std::int64_t count, const float* center, const float* scale,
           const float* shift, std::int64_t step, float* dst) {
  if (step == 0) {
    norm_run(DType::Float32, x, *center, *scale, *shift, count, {}, dst);
  } else {
    norm_channels(DType::Float32, x, center, scale, shift, count, {}, dst);
  }
}
void apply(const double* x, std::int64_t count, const double* center, const double* scale,
           const double* shift, std::int64_t step, double* dst) {
  for (std::int64_t i = 0; i < count; ++i) {
    dst[i] = (x[i] - center[i * step]) * scale[i * step] + shift[i * step];
  }
}

void add_gradient_sums(const float* gradient, const float* x, std::int64_t rows,
                       std::int64_t channels, const float* center, double* sums) {
  if (channels == 1) {
    gradient_sums(gradient, x, rows, *center, sums);
  } else {
    gradient_channel_sums(gradient, x, rows, channels, center, sums);
  }
}
void add_gradient_sums(const double* gradient, const double* x, std::int64_t rows,
                       std::int64_t channels, const double* center, double* sums) {
  for (std::int64_t i = 0; i < rows * channels; ++i) {
    const std::int64_t c = i % channels;
    sums[c] += gradient[i];
    sums[channels + c] += gradient[i] * (x[i] - center[c]);
  }
}

void apply_gradient(const float* gradient, const float* x, std::int64_t count,
                    const std::array<const float*, 4>& numbers, std::int64_t step, float* dst) {
  const auto [a, center, b, c] = numbers;
  affine_gradient(gradient, x, dst, count, {a, center, b, c}, step);
}
void apply_gradient(const double* gradient, const double* x, std::int64_t count,
                    const std::array<const double*, 4>& numbers, std::int64_t step, double* dst) {
  const auto [a, center, b, c] = numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t k = i * step;
    dst[i] = gradient[i] * a[k] + (x[i] - center[k]) * b[k] + c[k];
  }
}

// How many rows of channels are taken as one, so that few channels do not make short rows.
std::int64_t rows_at_once(const ChannelGeometry& geometry) {
  constexpr std::int64_t kLongRow = 512;
  return std::clamp<std::int64_t>(kLongRow / std::max<std::int64_t>(1, geometry.channels), 1,
                                  std::max<std::int64_t>(1, geometry.count()));
}

template <typename T>
std::vector<T> repeated(const std::vector<T>& values, std::int64_t times) {
  std::vector<T> result;
  result.reserve(values.size() * static_cast<std::size_t>(times));
  for (std::int64_t i = 0; i < times; ++i)
    result.insert(result.end(), values.begin(), values.end());
  return result;
}

// row(offset, count, first parameter, step): rows of channels side by side with the parameters
// repeated, or planes with one parameter.
template <typename Row>
void for_each_run(const ChannelGeometry& geometry, const Row& row) {
  const std::int64_t channels = geometry.channels;
  if (!geometry.channels_last) {
    const std::int64_t volume = geometry.volume;
    parallel_for(geometry.batch * channels, std::max<std::int64_t>(1, kGrainElements / volume),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t plane = begin; plane < end; ++plane) {
                     row(plane * volume, volume, plane % channels, std::int64_t{0});
                   }
                 });
    return;
  }
  const std::int64_t width = rows_at_once(geometry) * channels;
  const std::int64_t total = geometry.count() * channels;
  parallel_for(ceil_div(total, width), std::max<std::int64_t>(1, kGrainElements / width),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   row(i * width, std::min(width, total - i * width), std::int64_t{0},
                       std::int64_t{1});
                 }
               });
}

// add(offset, rows, columns, sums) over blocks of rows that do not depend on the number of threads;
// the two sums of each channel are added up in the order of the blocks.
template <typename Add>
std::vector<double> sums_over_rows(const ChannelGeometry& geometry, const Add& add) {
  constexpr std::int64_t kBlocks = 32;
  const std::int64_t channels = geometry.channels;
  const std::int64_t at_once = rows_at_once(geometry);
  const std::int64_t rows = geometry.count();
  const std::int64_t most = ceil_div(rows, kBlocks);
  const std::int64_t block_rows = round_up(most, at_once);
  const std::int64_t blocks = block_rows == 0 ? 0 : ceil_div(rows, block_rows);
  const std::int64_t columns = channels * at_once;
  std::vector<double> partial(static_cast<std::size_t>(2 * columns * blocks));
  std::vector<double> sums(static_cast<std::size_t>(2 * channels));
  const std::int64_t work = std::max<std::int64_t>(1, block_rows * channels);
  parallel_for(blocks, std::max<std::int64_t>(1, kGrainElements / work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t block = begin; block < end; ++block) {
                   const std::int64_t first = block * block_rows;
                   add(first * channels, std::min(block_rows, rows - first) / at_once, columns,
                       partial.data() + 2 * columns * block);
                 }
               });
  for (std::size_t i = 0; i < partial.size(); ++i) {
    const std::int64_t column = static_cast<std::int64_t>(i) % (2 * columns);
    const std::int64_t kind = column / columns;
    sums[static_cast<std::size_t>(kind * channels + column % channels)] += partial[i];
  }
  // What did not fill a row of rows.
  const std::int64_t rest = rows % at_once;
  if (rest > 0) add((rows - rest) * channels, rest, channels, sums.data());
  return sums;
}

// add(offset, the plane's two sums) for each plane, in blocks that do not depend on the number of
// threads either.
template <typename Add>
std::vector<double> sums_over_planes(const ChannelGeometry& geometry, const Add& add) {
  constexpr std::int64_t kBlocks = 32;
  const std::int64_t channels = geometry.channels;
  const std::int64_t planes = geometry.batch * channels;
  const auto stride = static_cast<std::size_t>(2 * channels);
  std::vector<double> partial(stride * static_cast<std::size_t>(kBlocks));
  const std::int64_t work = std::max<std::int64_t>(1, planes * geometry.volume / kBlocks);
  parallel_for(kBlocks, std::max<std::int64_t>(1, kGrainElements / work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t block = begin; block < end; ++block) {
                   double* sums = partial.data() + static_cast<std::size_t>(block) * stride;
                   const std::int64_t last = (block + 1) * planes / kBlocks;
                   for (std::int64_t plane = block * planes / kBlocks; plane < last; ++plane) {
                     std::array<double, 2> both{};
                     add(plane * geometry.volume, plane % channels, both.data());
                     sums[plane % channels] += both[0];
                     sums[channels + plane % channels] += both[1];
                   }
                 }
               });
  std::vector<double> sums(stride);
  for (std::size_t i = 0; i < partial.size(); ++i) sums[i % stride] += partial[i];
  return sums;
}

}  // namespace

ChannelGeometry::ChannelGeometry(const Tensor& x) : batch(x.sizes()[0]), channels(x.sizes()[1]) {
  for (std::size_t d = 2; d < x.sizes().size(); ++d) volume *= x.sizes()[d];
  // Without spatial dimensions, or with a single pixel, channels are innermost anyway.
  channels_last = volume == 1 || x.suggested_format() == MemoryFormat::ChannelsLast;
}

template <typename T>
ChannelMoments channel_moments(const ChannelGeometry& geometry, const T* x) {
  // Sums of x and of x * (x - 0).
  const auto channels = static_cast<std::size_t>(geometry.channels);
  const std::vector<double> sums = channel_gradient_sums(geometry, x, x, std::vector<T>(channels));
  ChannelMoments moments;
  for (std::size_t c = 0; c < channels; ++c) {
    const math::MeanAndVariance of_channel =
        math::mean_and_variance(sums[c], sums[channels + c], geometry.count());
    moments.mean.push_back(of_channel.mean);
    moments.variance.push_back(of_channel.variance);
  }
  return moments;
}

template <typename T>
void apply_channels(const ChannelGeometry& geometry, const T* x, const ChannelAffine<T>& affine,
                    T* dst) {
  const std::int64_t times = geometry.channels_last ? rows_at_once(geometry) : 1;
  const std::vector<T> center = repeated(affine.center, times);
  const std::vector<T> scale = repeated(affine.scale, times);
  const std::vector<T> shift = repeated(affine.shift, times);
  for_each_run(geometry,
               [&](std::int64_t offset, std::int64_t count, std::int64_t c, std::int64_t step) {
                 apply(x + offset, count, center.data() + c, scale.data() + c, shift.data() + c,
                       step, dst + offset);
               });
}

template <typename T>
std::vector<double> channel_gradient_sums(const ChannelGeometry& geometry, const T* gradient,
                                          const T* x, const std::vector<T>& center) {
  if (geometry.channels_last) {
    const std::vector<T> centers = repeated(center, rows_at_once(geometry));
    return sums_over_rows(
        geometry, [&](std::int64_t offset, std::int64_t rows, std::int64_t columns, double* to) {
          add_gradient_sums(gradient + offset, x + offset, rows, columns, centers.data(), to);
        });
  }
  return sums_over_planes(geometry, [&](std::int64_t offset, std::int64_t c, double* to) {
    add_gradient_sums(gradient + offset, x + offset, geometry.volume, 1,
                      &center[static_cast<std::size_t>(c)], to);
  });
}

template <typename T>
void apply_channel_gradient(const ChannelGeometry& geometry, const T* gradient, const T* x,
                            const ChannelGradient<T>& numbers, T* dst) {
  const std::int64_t times = geometry.channels_last ? rows_at_once(geometry) : 1;
  const std::vector<T> a = repeated(numbers.a, times);
  const std::vector<T> center = repeated(numbers.center, times);
  const std::vector<T> b = repeated(numbers.b, times);
  const std::vector<T> c = repeated(numbers.c, times);
  for_each_run(geometry, [&](std::int64_t offset, std::int64_t count, std::int64_t channel,
                             std::int64_t step) {
    apply_gradient(
        gradient + offset, x + offset, count,
        {a.data() + channel, center.data() + channel, b.data() + channel, c.data() + channel}, step,
        dst + offset);
  });
}

template ChannelMoments channel_moments<float>(const ChannelGeometry&, const float*);
template ChannelMoments channel_moments<double>(const ChannelGeometry&, const double*);
template void apply_channels<float>(const ChannelGeometry&, const float*,
                                    const ChannelAffine<float>&, float*);
template void apply_channels<double>(const ChannelGeometry&, const double*,
                                     const ChannelAffine<double>&, double*);
template std::vector<double> channel_gradient_sums<float>(const ChannelGeometry&, const float*,
                                                          const float*, const std::vector<float>&);
template std::vector<double> channel_gradient_sums<double>(const ChannelGeometry&, const double*,
                                                           const double*,
                                                           const std::vector<double>&);
template void apply_channel_gradient<float>(const ChannelGeometry&, const float*, const float*,
                                            const ChannelGradient<float>&, float*);
template void apply_channel_gradient<double>(const ChannelGeometry&, const double*, const double*,
                                             const ChannelGradient<double>&, double*);

}  // namespace quanta::cpu
