#include "quanta/ops/norm/cpu_groups.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/norm/cpu_kernels.h"
#include "quanta/runtime/detail/norm_math.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cpu {
namespace {

constexpr std::int64_t kGrainElements = 16384;

std::int64_t grain_for(std::int64_t elements_per_item) {
  return std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(1, elements_per_item));
}

const std::byte* at(const void* data, std::int64_t index, DType dtype) {
  return static_cast<const std::byte*>(data) + index * static_cast<std::int64_t>(item_size(dtype));
}
std::byte* at(void* data, std::int64_t index, DType dtype) {
  return static_cast<std::byte*>(data) + index * static_cast<std::int64_t>(item_size(dtype));
}

using math::NormMoments;

template <typename T>
GroupMoments moments_in_two_passes(const T* x, std::int64_t count, double eps) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(count);
  double squares = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(x[i]) - mean;
    squares += difference * difference;
  }
  return {mean, 1.0 / std::sqrt(squares / static_cast<double>(count) + eps)};
}

}  // namespace

void norm_per_channel(const NormGeometry& geometry, const NormCall& call, float center) {
  const std::int64_t channels = geometry.channels;
  const std::int64_t volume = geometry.volume;
  if (geometry.channels_last) {
    const std::vector<float> centers(static_cast<std::size_t>(channels), center);
    parallel_for(geometry.batch * volume, grain_for(channels),
                 [&](std::int64_t begin, std::int64_t end) {
                   norm_rows(call.dtype, at(call.src, begin * channels, call.dtype), centers.data(),
                             call.weight, call.bias, end - begin, channels, call.output,
                             at(call.dst, begin * channels, call.dtype));
                 });
    return;
  }
  parallel_for(
      geometry.batch * channels, grain_for(volume), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t plane = begin; plane < end; ++plane) {
          const auto c = static_cast<std::size_t>(plane % channels);
          norm_run(call.dtype, at(call.src, plane * volume, call.dtype), center, call.weight[c],
                   call.bias[c], volume, call.output, at(call.dst, plane * volume, call.dtype));
        }
      });
}

void norm_groups(const NormGeometry& geometry, std::int64_t groups, const NormCall& call,
                 double scale, double eps) {
  const std::int64_t channels = geometry.channels;
  const std::int64_t volume = geometry.volume;
  const std::int64_t members = channels / groups;
  const std::int64_t count = members * volume;
  if (!geometry.channels_last) {
    parallel_for(geometry.batch * groups, grain_for(count),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t item = begin; item < end; ++item) {
                     const NormSums sums =
                         norm_sums(call.dtype, at(call.src, item * count, call.dtype), count);
                     const NormMoments moments =
                         math::norm_moments(sums.sum, sums.squares, count, scale, eps);
                     for (std::int64_t member = 0; member < members; ++member) {
                       const auto c = static_cast<std::size_t>(item % groups * members + member);
                       const std::int64_t offset = item * count + member * volume;
                       norm_run(call.dtype, at(call.src, offset, call.dtype), moments.center,
                                moments.inv_std * call.weight[c], call.bias[c], volume, call.output,
                                at(call.dst, offset, call.dtype));
                     }
                   }
                 });
    return;
  }
  std::vector<NormSums> sums(static_cast<std::size_t>(channels));
  std::vector<float> center(sums.size());
  std::vector<float> factor(sums.size());
  for (std::int64_t image = 0; image < geometry.batch; ++image) {
    const std::int64_t offset = image * volume * channels;
    std::fill(sums.begin(), sums.end(), NormSums{});
    norm_channel_sums(call.dtype, at(call.src, offset, call.dtype), volume, channels, sums.data());
    for (std::int64_t group = 0; group < groups; ++group) {
      const auto first = static_cast<std::size_t>(group * members);
      const auto last = first + static_cast<std::size_t>(members);
      NormSums total;
      for (std::size_t c = first; c < last; ++c) {
        total.sum += sums[c].sum;
        total.squares += sums[c].squares;
      }
      const NormMoments moments = math::norm_moments(total.sum, total.squares, count, scale, eps);
      for (std::size_t c = first; c < last; ++c) {
        center[c] = moments.center;
        factor[c] = moments.inv_std * call.weight[c];
      }
    }
    parallel_for(volume, grain_for(channels), [&](std::int64_t begin, std::int64_t end) {
      norm_rows(call.dtype, at(call.src, offset + begin * channels, call.dtype), center.data(),
                factor.data(), call.bias, end - begin, channels, call.output,
                at(call.dst, offset + begin * channels, call.dtype));
    });
  }
}

void norm_each_row(std::int64_t rows, std::int64_t count, const NormCall& call, double scale,
                   double eps, SharedRange* range) {
  parallel_for(rows, grain_for(count), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> factor(static_cast<std::size_t>(count));
    FloatRange written = kNoRange;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::byte* from = at(call.src, row * count, call.dtype);
      const NormSums sums = norm_sums(call.dtype, from, count);
      const NormMoments moments = math::norm_moments(sums.sum, sums.squares, count, scale, eps);
      float_binary(FloatBinary::Mul, call.weight, &moments.inv_std, factor.data(), count,
                   Rhs::Scalar, Store::Cached);
      std::byte* to = at(call.dst, row * count, call.dtype);
      norm_row(call.dtype, from, moments.center, factor.data(), call.bias, count, call.output, to);
      if (range != nullptr) {
        written = joined_range(written, float_range(reinterpret_cast<const float*>(to), count));
      }
    }
    if (range != nullptr) range->add(written);
  });
}

void norm_groups_double(const GroupShape& shape, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, double eps, const Tensor& out) {
  const auto* src = static_cast<const double*>(x.data_ptr());
  const auto* scale = weight.defined() ? static_cast<const double*>(weight.data_ptr()) : nullptr;
  const auto* shift = bias.defined() ? static_cast<const double*>(bias.data_ptr()) : nullptr;
  auto* dst = static_cast<double*>(out.data_ptr());
  for (std::int64_t item = 0; item < shape.samples * shape.groups; ++item) {
    const std::int64_t offset = item * shape.count();
    const GroupMoments moments = group_moments(src + offset, shape.count(), eps);
    for (std::int64_t i = 0; i < shape.count(); ++i) {
      const std::int64_t c = item % shape.groups * shape.members() + i / shape.volume;
      dst[offset + i] =
          (src[offset + i] - moments.mean) * moments.inv_std * (scale == nullptr ? 1.0 : scale[c]) +
          (shift == nullptr ? 0.0 : shift[c]);
    }
  }
}

GroupMoments group_moments(const float* x, std::int64_t count, double eps) {
  return moments_in_two_passes(x, count, eps);
}
GroupMoments group_moments(const double* x, std::int64_t count, double eps) {
  return moments_in_two_passes(x, count, eps);
}

}  // namespace quanta::cpu
