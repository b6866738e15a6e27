#pragma once

// Private: fake quantization as torch has it (x * (1 / scale)) and its backward.
//
// Memory is seen as rows. Either a row belongs to one channel (per tensor: there is one channel),
// or, where channels are innermost, it holds an element of each.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {

/// The parameters of all channels.
struct FakeQuantizeChannels {
  std::vector<float> scale;
  std::vector<float> inv_scale;
  std::vector<float> zero_point;
  float min = 0.0F;
  float max = 255.0F;
  bool float_zero_point = false;

  std::int64_t count() const noexcept { return static_cast<std::int64_t>(scale.size()); }
  math::FakeQuantizeParams at(std::int64_t channel) const {
    const auto c = static_cast<std::size_t>(channel);
    return {scale[c], inv_scale[c], zero_point[c], min, max, float_zero_point};
  }
};

/// `float_zero_point` is false.
FakeQuantizeChannels fake_quantize_channels(std::vector<float> scale, std::vector<float> zero_point,
                                            std::int64_t quant_min, std::int64_t quant_max);

/// A dense tensor as rows.
struct FakeQuantizeRows {
  enum class Kind : std::uint8_t { OneChannel, AllChannels };
  Kind kind = Kind::OneChannel;
  std::int64_t count = 0;   ///< OneChannel: row r belongs to channel r % channels
  std::int64_t length = 0;  ///< AllChannels: the number of channels

  /// Where gradients pass is noted in bits; every row begins with a byte of its own.
  std::int64_t mask_row_bytes() const noexcept { return (length + 7) / 8; }
  /// All rows, and the bytes that vector loads may touch behind the last one.
  std::int64_t mask_bytes() const noexcept { return count * mask_row_bytes() + 8; }
};

/// In place of an axis: one scale for all elements.
inline constexpr std::int64_t kAllChannels = -1;
FakeQuantizeRows fake_quantize_rows(const Tensor& dense, std::int64_t axis);

/// Float64 as it is, else Float32: what small floats are calculated in.
inline Tensor in_real(const Tensor& x) {
  return x.dtype() == DType::Float64 ? x : x.to(DType::Float32);
}

/// out = x, fake quantized; dense, of the same memory order and dtype: Float32, Float64, Float16 or
/// BFloat16. `mask` may be null.
void fake_quantize_tensor(const Tensor& x, std::int64_t axis, const FakeQuantizeChannels& channels,
                          const Tensor& out, std::uint8_t* mask);

/// dst = math::fake_quantize of every element; `mask` may be null. T is float or double; float runs
/// in vectors and gives the scalar function's numbers bit for bit on every instruction set.
template <typename T>
void fake_quantize(const T* src, const FakeQuantizeRows& rows, const FakeQuantizeChannels& channels,
                   T* dst, std::uint8_t* mask);

/// dst = grad where the mask has a bit, else 0.
template <typename T>
void masked_gradient(const T* grad, const FakeQuantizeRows& rows, const std::uint8_t* mask, T* dst);

/// Sums of gradients, spread over as many lanes as the widest vector has: element i adds to lane
/// i % kCount, so that every instruction set sums in the same order.
struct LearnedLanes {
  static constexpr std::int64_t kCount = 16;
  double scale[kCount] = {};
  double zero_point[kCount] = {};
};

/// Adds what one element gives (math::learned_gradient) to the sums; returns its gradient for x.
template <typename T>
T add_learned(T x, T grad, const math::FakeQuantizeParams& params, double& scale_sum,
              double& zero_point_sum) {
  const math::LearnedGradient<T> one = math::learned_gradient(x, params);
  const bool inside = one.x != T{0};
  scale_sum += static_cast<double>(grad * one.scale);
  if (!inside) zero_point_sum += static_cast<double>(grad * one.zero_point);
  return inside ? grad : T{0};
}

/// Backward of the learnable form: dst = gradient for x; the sums of each channel's gradients go to
/// scale_grad[channels] and zero_point_grad[channels], in double and in an order that does not
/// depend on the number of threads.
template <typename T>
void learned_gradients(const T* x, const T* grad, const FakeQuantizeRows& rows,
                       const FakeQuantizeChannels& channels, T* dst, double* scale_grad,
                       double* zero_point_grad);

}  // namespace quanta::cpu
