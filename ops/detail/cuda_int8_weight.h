#pragma once

// Private: a quantized weight on CUDA devices.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "quanta/ops/cpu/conv_shape.h"
#include "quanta/ops/cpu/gemm/quantized_weight.h"
#include "quanta/ops/cuda/int8_product.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::detail {

/// The sizes of a convolution whose input is `x`, and how that is copied.
void set_shape(cuda::ProductParams& params, const cpu::ConvShape& shape, const void* x);

/// How the sums of one call end.
struct ProductCall {
  cpu::CallQParams qparams{};
  cuda::ProductEnd end = cuda::ProductEnd::Codes;
  bool relu = false;  ///< cuda::ProductEnd::Codes: none below the zero point
  cuda::ProductFunction function = cuda::ProductFunction::None;
  float negative_slope = 0.0F;
  /// cuda::ProductFunction::Steps: the code of a sum in real units, which never falls.
  std::int32_t (*code)(float value, const cpu::CallQParams& qparams) = nullptr;
  cuda::ProductAddend addend{};
  const std::array<std::uint8_t, 256>* table = nullptr;
};

/// How the sums of one call end whose input has other parameters each time: as floats.
struct DynamicCall {
  float src_scale = 1.0F;
  std::int32_t src_zero_point = 0;
  const float* src_scale_at = nullptr;  ///< both on the device instead, if not null
  const std::uint8_t* src_zero_point_at = nullptr;
  bool on_grid = false;  ///< rounded to the input's codes, as ConvDynamic has it
  cuda::ProductFunction function = cuda::ProductFunction::None;  ///< ReLU or Gelu, if any
  const float* addend = nullptr;  ///< on the device, of the result's sizes; null: nothing
};

/// The packed weight of a convolution or linear layer on each device that it is used on: made when
/// an input first comes from there. Safe from many threads.
class CudaInt8Weight {
 public:
  /// y = the convolution of the codes x, of these sizes; both channels-last on `device`. `weight`
  /// and the shape but for sizes of the image are the same in all calls.
  void run(Device device, const cpu::QuantizedWeight& weight, const cpu::ConvShape& shape,
           const ProductCall& call, const void* x, void* y);
  /// The same as floats, channels-last.
  void run_dynamic(Device device, const cpu::QuantizedWeight& weight, const cpu::ConvShape& shape,
                   const DynamicCall& call, const void* x, float* y);
  /// y = the linear layer of `rows` rows of the codes x, as floats.
  void run_dynamic(Device device, const cpu::QuantizedWeight& weight, std::int64_t rows,
                   const DynamicCall& call, const void* x, float* y);

 private:
  struct Packed {
    cuda::Buffer codes;
    int depth = 0;
    int parts = 1;
    std::vector<std::int64_t> channel_sums;  // of w - (zero point of w)
  };
  // What depends on the quantization parameters of a call.
  struct Terms {
    cpu::CallQParams qparams;
    cuda::ProductEnd end = cuda::ProductEnd::Codes;
    decltype(ProductCall::code) code = nullptr;
    cuda::Buffer pad, compensation, multiplier, bias, steps;
    float bias_factor = 1.0F;
    bool has_bias = false;
  };
  // What dynamic calls need, whatever their parameters.
  struct DynamicTerms {
    cuda::Buffer weight_sums, scales, bias;
    cuda::Buffer pads;  // 16 bytes for each zero point; empty for a weight without taps
    bool has_bias = false;
    bool has_integer_bias = false;
  };
  struct OnDevice {
    Packed packed;
    std::shared_ptr<const DynamicTerms> dynamic;      // null before the first such call
    std::vector<std::shared_ptr<const Terms>> terms;  // the latest calls', oldest first
  };
  static Packed pack(Device device, const cpu::QuantizedWeight& weight,
                     const cpu::ConvShape& shape);
  // That of the device, packed now if it is not yet; under mutex_.
  OnDevice& on_device(Device device, const cpu::QuantizedWeight& weight,
                      const cpu::ConvShape& shape);
  static std::shared_ptr<const DynamicTerms> make_dynamic_terms(Device device,
                                                                const cpu::QuantizedWeight& weight,
                                                                const Packed& packed,
                                                                bool with_pads);
  static std::shared_ptr<const Terms> make_terms(Device device, const cpu::QuantizedWeight& weight,
                                                 const Packed& packed, const ProductCall& call);

  std::mutex mutex_;
  std::map<std::int8_t, OnDevice> devices_;
};

}  // namespace quanta::detail
