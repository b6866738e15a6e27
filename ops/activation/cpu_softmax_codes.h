#pragma once

// Private: softmax of rows of 8-bit codes, without a row of floats where tables are cheaper.

#include <cstdint>
#include <vector>

#include "quanta/ops/cpu/elementwise_kernels.h"

namespace quanta::cpu {

/// What softmax reads: bytes, of a signed dtype the bits of its codes.
struct SoftmaxSource {
  float scale;
  std::int32_t zero_point;
  bool is_signed;
  bool operator==(const SoftmaxSource&) const = default;
};

/// Rows of one thread. Whatever the lengths of rows and their order, and on every instruction set,
/// the codes are those of dequantize, softmax_row and quantize one after the other.
class SoftmaxCodes {
 public:
  explicit SoftmaxCodes(const SoftmaxSource& source);
  /// The calling thread's, which keeps the tables of the source that it had last: up to 256 KiB.
  static SoftmaxCodes& of_thread(const SoftmaxSource& source);

  /// count >= 1; `src` may be `dst`.
  void row(const std::uint8_t* src, std::int64_t count, const QuantizeArgs& out, std::uint8_t* dst);

  const SoftmaxSource& source() const { return source_; }
  /// exp(dequantize(code) - dequantize(largest)) for each code, a table for each `largest`. It is
  /// made once enough elements have asked for it, null before.
  const float* exponentials(std::uint8_t largest, std::int64_t count);
  /// A row of so many floats.
  float* floats(std::int64_t count);

 private:
  SoftmaxSource source_;
  std::vector<std::vector<float>> tables_;
  std::vector<std::int64_t> asked_;
  std::vector<float> floats_;
};

}  // namespace quanta::cpu
