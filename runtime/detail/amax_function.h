#pragma once

// Private: what the quantizers that are described by amax do with each element, for the CPU's loops
// and CUDA's kernels.

#include <cstdint>

#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/host_device.h"

namespace quanta::detail {

enum class AmaxStep : std::uint8_t {
  FakeTensorQuant,
  Codes,
  CodesInBFloat16,  ///< each amax is a scale
  ScaledE4M3,
  StaticFp4,  ///< each amax is a scale
  Scale,      ///< of each amax: what codes are multiplied with
  Divisor,    ///< and divided by
  IntCast,    ///< without amax, as the ones below
  FakeAffine,
  Round,   ///< x * scale in a small float format, times unscale
  Inside,  ///< 1 within the grid, else 0
};

struct AmaxFunction {
  AmaxStep step = AmaxStep::FakeTensorQuant;
  math::AmaxGrid grid{};
  math::AffineRange affine{};  ///< FakeAffine only
  // Round only.
  math::FloatFormat format{};
  float scale = 1.0F;
  float unscale = 1.0F;
};

template <AmaxStep kStep>
QUANTA_HOST_DEVICE inline float apply_amax(const AmaxFunction& function, float x, float amax) {
  const math::AmaxGrid& grid = function.grid;
  switch (kStep) {
    case AmaxStep::FakeTensorQuant:
      return math::fake_tensor_quant(x, amax, grid);
    case AmaxStep::Codes:
      return math::amax_code(x, math::amax_scale(amax, grid.max), grid);
    case AmaxStep::CodesInBFloat16:
      return math::amax_code_bfloat16(x, amax, grid);
    case AmaxStep::ScaledE4M3:
      return math::scaled_e4m3(x, amax);
    case AmaxStep::StaticFp4:
      return math::static_fp4(x, amax);
    case AmaxStep::Scale:
      return math::amax_scale(amax, grid.max);
    case AmaxStep::Divisor:
      return math::amax_divisor(amax, math::amax_scale(amax, grid.max));
    case AmaxStep::IntCast:
      return math::amax_code(x, 1.0F, grid);
    case AmaxStep::FakeAffine:
      return math::fake_affine(x, function.affine);
    case AmaxStep::Round:
      return math::round_to_format(x * function.scale, function.format) * function.unscale;
    case AmaxStep::Inside:
      return grid.min <= x && x <= grid.max ? 1.0F : 0.0F;
  }
  return x;
}

}  // namespace quanta::detail
