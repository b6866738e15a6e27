#pragma once

#include <cstdint>

// Private: SIMD kernels over contiguous rows of elements, for AVX2, AVX-512 and plain code, chosen
// at run time. Each gives the integers of the scalar functions in runtime/quant_math.h, which they
// also use for the elements that do not fill a vector. Not one checks its arguments.

namespace quanta::cpu {

/// Whether results go through the caches or past them. Streaming saves the read of the line that
/// is written, which pays for results that no cache holds; `dst` is then aligned to 64 bytes.
enum class Store : std::uint8_t { Cached, Streaming };

/// Whether the right operand has an element for each of the left one, or one for all.
enum class Rhs : std::uint8_t { Row, Scalar };

/// code = clamp(zero_point + round(x * inv_scale), min, max), `nan_code` for NaN (add and mul:
/// max).
struct QuantizeArgs {
  float inv_scale;
  std::int32_t zero_point;
  std::int32_t min;
  std::int32_t max;
  std::int32_t nan_code;
};

void quantize(const float* src, std::uint8_t* dst, std::int64_t count, const QuantizeArgs& args,
              Store store);
void quantize(const float* src, std::int8_t* dst, std::int64_t count, const QuantizeArgs& args,
              Store store);

/// (q - zero_point) * scale.
void dequantize(const std::uint8_t* src, float* dst, std::int64_t count, float scale,
                std::int32_t zero_point, Store store);
void dequantize(const std::int8_t* src, float* dst, std::int64_t count, float scale,
                std::int32_t zero_point, Store store);

/// The loops above with a scale and zero point for each of the neighbouring channels of dense rows:
/// quantize with `inv_scales`, where NaN gives code 0, and (q - zero_point) * scale in double.
void quantize_rows(const float* src, std::uint8_t* dst, std::int64_t rows, std::int64_t channels,
                   const float* inv_scales, const float* zero_points);
void quantize_rows(const float* src, std::int8_t* dst, std::int64_t rows, std::int64_t channels,
                   const float* inv_scales, const float* zero_points);
void dequantize_row(const std::uint8_t* src, float* dst, std::int64_t count, const double* scales,
                    const double* zero_points, Rhs kind);
void dequantize_row(const std::int8_t* src, float* dst, std::int64_t count, const double* scales,
                    const double* zero_points, Rhs kind);

// With two inputs and a result of bytes, streaming was slower than writing through the caches, so
// neither of these has it. `dst` is no operand. In the forms for channels the right operand has one
// code for each, and the left one `rows` dense rows of them. `out.max` is the dtype's largest code.

/// Quantized sum: both sides dequantized with one fma, added, quantized. A relu is a `min` of the
/// zero point.
struct AddArgs {
  float lhs_scale;
  float lhs_offset;  ///< math::dequantize_offset
  float rhs_scale;
  float rhs_offset;
  QuantizeArgs out;
};
void add(const std::uint8_t* lhs, const std::uint8_t* rhs, std::uint8_t* dst, std::int64_t count,
         const AddArgs& args, Rhs kind);
void add(const std::int8_t* lhs, const std::int8_t* rhs, std::int8_t* dst, std::int64_t count,
         const AddArgs& args, Rhs kind);
void add_channels(const std::uint8_t* lhs, const std::uint8_t* rhs, std::uint8_t* dst,
                  std::int64_t rows, std::int64_t channels, const AddArgs& args);
void add_channels(const std::int8_t* lhs, const std::int8_t* rhs, std::int8_t* dst,
                  std::int64_t rows, std::int64_t channels, const AddArgs& args);

/// Quantized product: (lhs - zero) * (rhs - zero), exact, then quantized with the multiplier
/// lhs_scale * rhs_scale / scale as `out.inv_scale`.
struct MulArgs {
  std::int32_t lhs_zero_point;
  std::int32_t rhs_zero_point;
  QuantizeArgs out;
};
void mul(const std::uint8_t* lhs, const std::uint8_t* rhs, std::uint8_t* dst, std::int64_t count,
         const MulArgs& args, Rhs kind);
void mul(const std::int8_t* lhs, const std::int8_t* rhs, std::int8_t* dst, std::int64_t count,
         const MulArgs& args, Rhs kind);
void mul_channels(const std::uint8_t* lhs, const std::uint8_t* rhs, std::uint8_t* dst,
                  std::int64_t rows, std::int64_t channels, const MulArgs& args);
void mul_channels(const std::int8_t* lhs, const std::int8_t* rhs, std::int8_t* dst,
                  std::int64_t rows, std::int64_t channels, const MulArgs& args);

/// The same with one in place of rhs - zero where lhs is above its zero point.
struct PReluArgs {
  std::int32_t lhs_zero_point;
  std::int32_t rhs_zero_point;
  std::int32_t one;
  QuantizeArgs out;
};
void prelu(const std::uint8_t* lhs, const std::uint8_t* rhs, std::uint8_t* dst, std::int64_t count,
           const PReluArgs& args, Rhs kind);
void prelu(const std::int8_t* lhs, const std::int8_t* rhs, std::int8_t* dst, std::int64_t count,
           const PReluArgs& args, Rhs kind);
void prelu_channels(const std::uint8_t* lhs, const std::uint8_t* rhs, std::uint8_t* dst,
                    std::int64_t rows, std::int64_t channels, const PReluArgs& args);
void prelu_channels(const std::int8_t* lhs, const std::int8_t* rhs, std::int8_t* dst,
                    std::int64_t rows, std::int64_t channels, const PReluArgs& args);

/// min(max(q, low), high). `src` may be `dst`.
void clamp_codes(const std::uint8_t* src, std::uint8_t* dst, std::int64_t count, std::uint8_t low,
                 std::uint8_t high, Store store);
void clamp_codes(const std::int8_t* src, std::int8_t* dst, std::int64_t count, std::int8_t low,
                 std::int8_t high, Store store);

enum class FloatBinary : std::uint8_t { Add, Sub, Mul, Div, AddReLU };
void float_binary(FloatBinary op, const float* lhs, const float* rhs, float* dst,
                  std::int64_t count, Rhs kind, Store store);

/// min(max(x, low), high); NaN stays NaN. `src` may be `dst`.
void float_clamp(const float* src, float* dst, std::int64_t count, float low, float high,
                 Store store);

/// Smallest and largest of `count` > 0 elements; NaN, NaN when there is a NaN.
struct FloatRange {
  float min;
  float max;
};
FloatRange float_range(const float* src, std::int64_t count);

}  // namespace quanta::cpu
