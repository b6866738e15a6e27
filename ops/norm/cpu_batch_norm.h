#pragma once

// Private: what is done to all elements of a channel at once, for Float32 and Float64.

#include <cstdint>
#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// x [N, C, spatial...], dense in its suggested order.
struct ChannelGeometry {
  explicit ChannelGeometry(const Tensor& x);

  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::int64_t volume = 1;
  bool channels_last = false;

  std::int64_t count() const noexcept { return batch * volume; }  ///< of each channel
};

/// Mean and variance of each channel. The variance is divided by the number of elements.
struct ChannelMoments {
  std::vector<double> mean;
  std::vector<double> variance;
};
template <typename T>
ChannelMoments channel_moments(const ChannelGeometry& geometry, const T* x);

/// dst = (x - center[c]) * scale[c] + shift[c].
template <typename T>
struct ChannelAffine {
  std::vector<T> center;
  std::vector<T> scale;
  std::vector<T> shift;
};
template <typename T>
void apply_channels(const ChannelGeometry& geometry, const T* x, const ChannelAffine<T>& affine,
                    T* dst);

/// The sums of gradient [c] and of gradient * (x - center[c]) [C + c], taken in double.
template <typename T>
std::vector<double> channel_gradient_sums(const ChannelGeometry& geometry, const T* gradient,
                                          const T* x, const std::vector<T>& center);

/// dst = gradient * a[c] + (x - center[c]) * b[c] + c[c].
template <typename T>
struct ChannelGradient {
  std::vector<T> a;
  std::vector<T> center;
  std::vector<T> b;
  std::vector<T> c;
};
template <typename T>
void apply_channel_gradient(const ChannelGeometry& geometry, const T* gradient, const T* x,
                            const ChannelGradient<T>& numbers, T* dst);

}  // namespace quanta::cpu
