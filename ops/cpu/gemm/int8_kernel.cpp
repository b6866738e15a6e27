#include "quanta/ops/cpu/gemm/int8_kernel.h"

#include "quanta/ops/cpu/features.h"

namespace quanta::cpu {

bool has_exact_onednn(bool weight_zero_points) { return !weight_zero_points && features().vnni; }

bool has_gemm_codes(std::int64_t in_features) {
  return in_features > 0 && in_features % 4 == 0 && features().has_dot_product(running_code());
}

Int8Kernel choose_kernel(const Int8Convolution& convolution) {
  // oneDNN's depthwise kernels are slow here, and wrong on AVX2.
  if (convolution.depthwise) return convolution.codes ? Int8Kernel::Depthwise : Int8Kernel::Exact;
  if (convolution.transposed || !has_exact_onednn(convolution.weight_zero_points)) {
    return Int8Kernel::Exact;
  }
  if (!convolution.codes) return Int8Kernel::OneDnn;
  if (convolution.pointwise && has_gemm_codes(convolution.in_channels)) return Int8Kernel::Codes;
  if (convolution.gathers) return Int8Kernel::Gather;
  return convolution.implicit ? Int8Kernel::Implicit : Int8Kernel::OneDnn;
}

Int8Kernel choose_kernel(const Int8Linear& linear) {
  // Up to so many rows the weight in panels is read in about the time of its products, without what
  // a call of oneDNN costs; with tiles oneDNN's products take less.
  const std::int64_t few = features().tiles ? 3 : 8;
  if (linear.rows <= few && !linear.weight_zero_points) return Int8Kernel::FewRows;
  if (!has_exact_onednn(linear.weight_zero_points)) return Int8Kernel::Exact;
  const bool is_ours = linear.codes && running_code() >= Code::Avx512;
  return is_ours && has_gemm_codes(linear.in_features) ? Int8Kernel::Codes : Int8Kernel::OneDnn;
}

Int8Kernel choose_kernel(const DynamicLinear& linear) {
  // oneDNN's kernel is faster than the weight as it is from about two rows on when that lies in the
  // caches, from six when not, and faster than panels from about sixteen; the exact one is from
  // sixteen.
  const bool onednn = has_exact_onednn(linear.weight_zero_points);
  const std::int64_t few = !onednn ? kMaxFewRows : (linear.panels ? 12 : 4);
  if (linear.rows <= few) return Int8Kernel::FewRows;
  if (!linear.weight_zero_points) {
    if (gemm_int8_uses_tiles(linear.rows, linear.in_features)) return Int8Kernel::Floats;
    if (running_code() >= Code::Avx512 && features().vnni) return Int8Kernel::Floats;
  }
  return onednn ? Int8Kernel::OneDnn : Int8Kernel::Exact;
}

bool gemm_codes_uses_tiles(bool weight_tiles, std::int64_t rows) {
  return weight_tiles && rows >= 5;
}

bool gemm_int8_uses_tiles(std::int64_t rows, std::int64_t in_features) {
  return rows >= 12 && in_features % kTileBytes == 0 && features().tiles;
}

bool gate_step_uses_tiles(bool weight_tiles, std::int64_t rows) {
  return weight_tiles && rows >= 4;
}

}  // namespace quanta::cpu
