#include "quanta/ops/norm/cuda_gradient_kernels.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

struct TwoSums {
  double first = 0.0;
  double second = 0.0;
};

struct FindChannelSums {
  static constexpr const char* kName = "find_channel_sums";
  static constexpr int kThreads = 256;
  static constexpr int kShared = kThreads * static_cast<int>(sizeof(TwoSums));
  static constexpr bool kTogether = true;
  using Params = ChannelSumsParams;

  // Neighbouring threads read neighbouring floats: as many channels side by side, or one.
  static SIMT_DEVICE int channels_of_block(const Params& p) { return p.channels_last ? 32 : 1; }

  static SIMT_DEVICE void add(const Params& p, std::int64_t k, std::int64_t c, TwoSums& sums) {
    const std::int64_t sample = k / p.volume;
    const std::int64_t at = p.channels_last
                                ? k * p.channels + c
                                : (sample * p.channels + c) * p.volume + k - sample * p.volume;
    const auto gradient = static_cast<double>(p.gradient[at]);
    auto x = static_cast<double>(p.x[at]);
    if (p.moments != nullptr) {
      const WideMoments moments = p.moments[sample * p.groups + c / (p.channels / p.groups)];
      x = (x - moments.mean) * moments.inv_std;
    } else if (p.center != nullptr) {
      x -= static_cast<double>(static_cast<float>(p.center[c]));  // as on the CPU
    }
    sums.first += gradient;
    sums.second += gradient * x;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const int t = simt::thread();
    const int beside = channels_of_block(p);
    const std::int64_t c = static_cast<std::int64_t>(simt::block_x()) * beside + t % beside;
    const int chunk = simt::block_y();
    TwoSums mine;
    if (c < p.channels) {
      const std::int64_t end = p.count * (chunk + 1) / p.chunks;
      for (std::int64_t k = p.count * chunk / p.chunks + t / beside; k < end;
           k += kThreads / beside) {
        add(p, k, c, mine);
      }
    }
    auto* const all = reinterpret_cast<TwoSums*>(shared);
    all[t] = mine;
    simt::sync();
    for (int half = kThreads / 2; half >= beside; half /= 2) {
      if (t < half) {
        all[t].first += all[t + half].first;
        all[t].second += all[t + half].second;
      }
      simt::sync();
    }
    if (t >= beside || c >= p.channels) return;
    double* const to = p.sums + static_cast<std::int64_t>(chunk) * 2 * p.channels;
    to[c] = all[t].first;
    to[p.channels + c] = all[t].second;
  }
};

SIMT_DEVICE TwoSums joined(const double* sums, int chunks, std::int64_t channels, std::int64_t c) {
  TwoSums result;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const double* const from = sums + static_cast<std::int64_t>(chunk) * 2 * channels;
    result.first += from[c];
    result.second += from[channels + c];
  }
  return result;
}

SIMT_DEVICE double number_of(const float* numbers, std::int64_t c, double fallback) {
  return numbers == nullptr ? fallback : static_cast<double>(numbers[c]);
}

struct FindBatchNormTraining {
  static constexpr const char* kName = "find_batch_norm_training";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ChannelTermsParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t c = simt::global_thread();
    if (c >= p.channels) return;
    const TwoSums sums = joined(p.sums, p.chunks, p.channels, c);
    const math::MeanAndVariance of_x = math::mean_and_variance(sums.first, sums.second, p.count);
    const double divisor = number_of(p.divisor, c, 1.0);
    const double inv_std = math::inverse_std_of_quotient(of_x.variance, divisor, p.eps);
    p.mean[c] = of_x.mean;
    p.inv_std[c] = inv_std;
    p.moments[c] = {static_cast<float>(of_x.mean), 1.0F};
    p.scale[c] = static_cast<float>(number_of(p.weight, c, 1.0) * inv_std);
    const math::MeanAndVariance now = math::statistics_of_quotient(
        of_x, p.count, divisor, number_of(p.shift, c, 0.0),
        {number_of(p.running_mean, c, 0.0), number_of(p.running_var, c, 0.0)});
    const double momentum = p.count == 0 ? 0.0 : p.momentum;
    if (p.running_mean != nullptr) {
      p.moved_mean[c] = math::moved_statistic(p.running_mean[c], now.mean, momentum);
    }
    if (p.running_var != nullptr) {
      p.moved_var[c] = math::moved_statistic(p.running_var[c], now.variance, momentum);
    }
  }
};

struct FindChannelSlopes {
  static constexpr const char* kName = "find_channel_slopes";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ChannelSlopesParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t c = simt::global_thread();
    if (c >= p.channels) return;
    const TwoSums sums = p.sums == nullptr ? TwoSums{} : joined(p.sums, p.chunks, p.channels, c);
    const double inv_std = p.inv_std == nullptr ? 1.0 : p.inv_std[c];
    const double weight = number_of(p.weight, c, 1.0);
    if (p.slopes != nullptr) {
      p.slopes[c] = p.of_batch
                        ? math::batch_norm_slope(sums.first, sums.second, p.count, inv_std, weight)
                        : math::BatchNormSlope{weight * inv_std, 0.0, 0.0};
    }
    if (p.for_weight != nullptr) p.for_weight[c] = static_cast<float>(sums.second * inv_std);
    if (p.for_bias != nullptr) p.for_bias[c] = static_cast<float>(sums.first);
    if (p.for_divisor != nullptr) {
      p.for_divisor[c] = static_cast<float>(
          math::divisor_slope(number_of(p.divisor, c, 1.0), p.eps, inv_std, weight, sums.second));
    }
  }
};

struct ApplyChannelSlopes {
  static constexpr const char* kName = "apply_channel_slopes";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ApplySlopesParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    const std::int64_t c = i / p.inner % p.channels;
    const math::BatchNormSlope slope = p.slopes[c];
    const float along = p.gradient[i] * static_cast<float>(slope.a);
    if (p.x == nullptr) {
      p.y[i] = along;
      return;
    }
    const float centred = p.x[i] - static_cast<float>(p.mean[c]);
    p.y[i] = along + centred * static_cast<float>(slope.b) + static_cast<float>(slope.c);
  }
};

// A block for each group, which is read four times: its elements are likely to be in a cache.
struct FindGroupSlopes {
  static constexpr const char* kName = "find_group_slopes";
  static constexpr int kThreads = 128;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kShared = kWarps * static_cast<int>(sizeof(TwoSums));
  static constexpr bool kTogether = true;
  using Params = GroupSlopesParams;

  // Every thread gets the sums of the block.
  static SIMT_DEVICE TwoSums sum_of_block(TwoSums mine, unsigned char* shared) {
    auto* const of_warps = reinterpret_cast<TwoSums*>(shared);
    mine.first = simt::warp_sum(mine.first);
    mine.second = simt::warp_sum(mine.second);
    if (simt::thread() % 32 == 0) of_warps[simt::thread() / 32] = mine;
    simt::sync();
    TwoSums all;
    for (int warp = 0; warp < kWarps; ++warp) {
      all.first += of_warps[warp].first;
      all.second += of_warps[warp].second;
    }
    simt::sync();  // before the next sums take this one's place
    return all;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const std::int64_t group = simt::block_x();
    const std::int64_t count = p.members * p.volume;
    const float* const x = p.x + group * count;
    const float* const gradient = p.gradient + group * count;
    const std::int64_t first_channel = group % (p.channels / p.members) * p.members;
    const int t = simt::thread();
    TwoSums sums;
    for (std::int64_t i = t; i < count; i += kThreads) sums.first += static_cast<double>(x[i]);
    const double mean = sum_of_block(sums, shared).first / static_cast<double>(count);
    sums = {};
    for (std::int64_t i = t; i < count; i += kThreads) {
      const double distance = static_cast<double>(x[i]) - mean;
      sums.first += distance * distance;
    }
    const double variance = sum_of_block(sums, shared).first / static_cast<double>(count);
    const double inv_std = 1.0 / math::square_root(variance + p.eps);
    const auto weighted = [&](std::int64_t i) {
      return static_cast<double>(gradient[i]) *
             number_of(p.weight, first_channel + i / p.volume, 1.0);
    };
    sums = {};
    for (std::int64_t i = t; i < count; i += kThreads) {
      sums.first += weighted(i);
      sums.second += weighted(i) * ((static_cast<double>(x[i]) - mean) * inv_std);
    }
    sums = sum_of_block(sums, shared);
    const double of_gradient = sums.first / static_cast<double>(count);
    const double slope = sums.second / static_cast<double>(count);
    for (std::int64_t i = t; i < count; i += kThreads) {
      const double normalized = (static_cast<double>(x[i]) - mean) * inv_std;
      p.y[group * count + i] =
          static_cast<float>(inv_std * (weighted(i) - of_gradient - normalized * slope));
    }
    if (t == 0) p.moments[group] = {mean, inv_std};
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void find_channel_sums(Device device, const ChannelSumsParams& params) {
  const std::int64_t beside = params.channels_last ? 32 : 1;
  simt::launch<FindChannelSums>(
      device, simt::Grid{(params.channels + beside - 1) / beside, params.chunks, 1}, params);
}
void find_batch_norm_training(Device device, const ChannelTermsParams& params) {
  simt::launch<FindBatchNormTraining>(
      device, simt::grid_for(params.channels, FindBatchNormTraining::kThreads), params);
}
void find_channel_slopes(Device device, const ChannelSlopesParams& params) {
  simt::launch<FindChannelSlopes>(
      device, simt::grid_for(params.channels, FindChannelSlopes::kThreads), params);
}
void apply_channel_slopes(Device device, const ApplySlopesParams& params) {
  simt::launch<ApplyChannelSlopes>(device, simt::grid_for(params.count), params);
}
void find_group_slopes(Device device, const GroupSlopesParams& params) {
  simt::launch<FindGroupSlopes>(device, simt::Grid{params.groups, 1, 1}, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
