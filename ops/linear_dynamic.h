#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"
#include "quanta/runtime/tensor.h"

/// Linear layers with int8 or float16 weights whose activations are float.
///
/// All throw ArgumentError for an x that is not Float32 or whose last size is not K. Many threads
/// may call them at once while nobody writes to the arguments; packed weights are immutable.
namespace quanta {
class Operation;
}

namespace quanta::quantized {

/// Whether the codes of an activation use 7 bits only (0..127), as torch's dynamic modules do.
enum class ReduceRange : bool { No, Yes };

/// A linear layer whose activation is quantized anew in each call: Float32 x [..., K] to [..., N].
///
///   scale, zero point = choose_qparams(min(x), max(x))      over the whole of x, QUInt8
///   y = float(sum of code products) * (x scale * weight scale[n]) + bias[n]
///
/// An empty x gives an empty result. Throws ArgumentError for NaN and infinities in x; on a CUDA
/// device, which does not wait to look, they make the whole result NaN.
Tensor linear_dynamic(const Tensor& x, const LinearPackedParams& packed,
                      ReduceRange reduce_range = ReduceRange::No);
/// The same with relu at the end.
Tensor linear_relu_dynamic(const Tensor& x, const LinearPackedParams& packed,
                           ReduceRange reduce_range = ReduceRange::No);

/// The product of codes [..., K] that were chosen elsewhere (ops/quantize_linear.h), UInt8, with
/// one Float32 scale and one UInt8 zero point, which may be others in each call; the bias is Float32
/// or none:
///
///   y = float(sum of (code - zero_point) * weight codes) * (scale * weight scale[n]) + bias[n]
Tensor linear_of_codes(const Tensor& codes, const Tensor& scale, const Tensor& zero_point,
                       const LinearPackedParams& packed);

/// A Float16 weight [N, K] and Float32 bias of a linear layer, packed once.
class LinearPackedParamsFp16 {
 public:
  LinearPackedParamsFp16() = default;
  /// `weight` is Float32 (values beyond +-65504 saturate, then round to nearest even) or Float16.
  LinearPackedParamsFp16(const Tensor& weight, const Tensor& bias);
  bool defined() const noexcept { return impl_ != nullptr; }
  /// A copy, Float16 [N, K].
  Tensor weight() const;
  const Tensor& bias() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// Float32 `x` times the Float16 weight, summed in Float32, plus bias; with relu where the name says
// so.
Tensor linear_dynamic_fp16(const Tensor& x, const LinearPackedParamsFp16& packed);
Tensor linear_relu_dynamic_fp16(const Tensor& x, const LinearPackedParamsFp16& packed);

// What a call of these functions multiplies with, for files: int8 weights (several where calls of one
// input were joined; none for another operation), and halves (null for another operation).
std::vector<LinearPackedParams> dynamic_params_of(const Operation& operation);
const LinearPackedParamsFp16* fp16_params_of(const Operation& operation);

}  // namespace quanta::quantized
