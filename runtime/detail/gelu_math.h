#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "quanta/runtime/detail/exp_math.h"
#include "quanta/runtime/host_device.h"

// gelu and erf of floats, once for the CPU's vector code, which is tested against this, and for CUDA
// kernels. The floats are the same on every machine, as those of exp_math.h are. NaN stays. Nothing
// throws, and many threads may call it at once.

namespace quanta::math {

/// The normal distribution's tail Q(a) = erfc(a / sqrt(2)) / 2 in pieces.
///
/// Piece k is a polynomial in t = a - k * kStep for |t| <= kStep / 2 that meets Q at the six
/// Chebyshev nodes: within 7e-9 of Q near 0 and within a few units in the fifth digit of Q far out.
/// The last piece is 0, where Q is below 4e-9.
struct GeluTable {
  static constexpr float kStep = 0.4F;
  static constexpr float kZeroFrom = 6.0F;  ///< the middle of the last piece
  static constexpr int kTerms = 6;
  static constexpr int kPieces = 16;
  /// Coefficients of t^5, t^4 and so on for each piece.
  alignas(64) float coefficients[kTerms][kPieces];
};

// Within a function, so that the device has it as well.
QUANTA_HOST_DEVICE inline const GeluTable& gelu_table() {
  static constexpr GeluTable kTable{{
      {-9.902628e-03F, -6.3034124e-03F, 1.0119022e-03F, 5.7212934e-03F, 5.342449e-03F,
       2.256594e-03F, -2.8531995e-04F, -1.1397903e-03F, -9.2066167e-04F, -4.7688227e-04F,
       -1.8331509e-04F, -5.5125834e-05F, -1.3309804e-05F, -2.6194223e-06F, -4.2430025e-07F, 0.0F},
      {0.0F, -1.7267518e-02F, -2.2615783e-02F, -1.50945075e-02F, -3.3130127e-03F, 4.4185715e-03F,
       6.138668e-03F, 4.4658845e-03F, 2.3124577e-03F, 9.2396286e-04F, 2.9492765e-04F, 7.661486e-05F,
       1.6381038e-05F, 2.904249e-06F, 4.29196e-07F, 0.0F},
      {6.648932e-02F, 5.1557284e-02F, 1.7381899e-02F, -1.4239564e-02F, -2.8839048e-02F,
       -2.6995586e-02F, -1.7766574e-02F, -9.023759e-03F, -3.6715185e-03F, -1.2197e-03F,
       -3.3455258e-04F, -7.631282e-05F, -1.4547402e-05F, -2.3257212e-06F, -3.1264477e-07F, 0.0F},
      {0.0F, 7.3651575e-02F, 1.1587402e-01F, 1.1651085e-01F, 8.8737555e-02F, 5.3992175e-02F,
       2.6874067e-02F, 1.1081687e-02F, 3.8143757e-03F, 1.1012766e-03F, 2.675859e-04F,
       5.4846318e-05F, 9.499534e-06F, 1.3921849e-06F, 1.7281089e-07F, 0.0F},
      {-3.989423e-01F, -3.6827013e-01F, -2.8969154e-01F, -1.9418605e-01F, -1.1092083e-01F,
       -5.3990964e-02F, -2.2394529e-02F, -7.91545e-03F, -2.3840878e-03F, -6.1190187e-04F,
       -1.3383024e-04F, -2.4942488e-05F, -3.961306e-06F, -5.3610546e-07F, -6.182661e-08F, 0.0F},
      {0.5F, 3.4457827e-01F, 2.118554e-01F, 1.15069665e-01F, 5.479929e-02F, 2.2750128e-02F,
       8.197534e-03F, 2.5551298e-03F, 6.871382e-04F, 1.5910888e-04F, 3.16714e-05F, 5.4126026e-06F,
       7.933447e-07F, 9.964796e-08F, 1.0718257e-08F, 0.0F},
  }};
  return kTable;
}

/// x * (1 + erf(x / sqrt(2))) / 2 within 5e-7: x times a share that is symmetric to 1/2, whose
/// smaller half is known without the cancellation of 1 + erf.
QUANTA_HOST_DEVICE inline float gelu_float(float x) {
  const float size = fabsf(x);
  const float a = GeluTable::kZeroFrom < size ? GeluTable::kZeroFrom : size;
  // Adding 1.5 * 2^23 rounds and leaves the integer in the low bits.
  constexpr float kMagic = 12582912.0F;
  const float shifted = fmaf(a, 1.0F / GeluTable::kStep, kMagic);
  const std::uint32_t piece = std::bit_cast<std::uint32_t>(shifted) & 15U;
  const float t = fmaf(shifted - kMagic, -GeluTable::kStep, a);
  const GeluTable& table = gelu_table();
  float below = table.coefficients[0][piece];
  for (int i = 1; i < GeluTable::kTerms; ++i) below = fmaf(below, t, table.coefficients[i][piece]);
  return x * (x < 0.0F ? below : 1.0F - below);
}

/// x (1 + tanh(u)) / 2 = x / (1 + exp(-2u)), the share from its smaller half, with
/// u = sqrt(2 / pi) (x + 0.044715 x^3).
QUANTA_HOST_DEVICE inline float gelu_tanh_float(float x) {
  const float cube = x * x * x;
  const float u = 0.79788456080286535588F * (x + 0.044715F * cube);
  const float decay = exp_float(-2.0F * fabsf(u));
  const float below = decay / (1.0F + decay);
  return x * (x < 0.0F ? below : 1.0F - below);
}

/// erf(x). Below 1 x times a polynomial in x^2; above it 1 - exp(-x^2) P(1 / x) / x, as Cephes' erfc
/// has it for float.
QUANTA_HOST_DEVICE inline float erf_float(float x) {
  if (x != x) return x;
  const float a = fabsf(x);
  if (a < 1.0F) {
    const float square = x * x;
    float p = 7.853861353153693e-5F;
    p = p * square + -8.010193625184903e-4F;
    p = p * square + 5.188327685732524e-3F;
    p = p * square + -2.685381193529856e-2F;
    p = p * square + 1.128358514861418e-1F;
    p = p * square + -3.761262582423300e-1F;
    p = p * square + 1.128379165726710e0F;
    return x * p;
  }
  const float q = 1.0F / a;
  const float y = q * q;
  float share = 0.0F;
  if (a < 2.0F) {
    share = 2.326819970068386e-2F;
    share = share * y + -1.387039388740657e-1F;
    share = share * y + 3.687424674597105e-1F;
    share = share * y + -5.824733027278666e-1F;
    share = share * y + 6.210004621745983e-1F;
    share = share * y + -4.944515323274145e-1F;
    share = share * y + 3.404879937665872e-1F;
    share = share * y + -2.741127028184656e-1F;
    share = share * y + 5.638259427386472e-1F;
  } else {
    share = -1.047766399936249e+1F;
    share = share * y + 1.297719955372516e+1F;
    share = share * y + -7.495518717768503e+0F;
    share = share * y + 2.921019019210786e+0F;
    share = share * y + -1.015265279202700e+0F;
    share = share * y + 4.218463358204948e-1F;
    share = share * y + -2.820767439740514e-1F;
    share = share * y + 5.641895067754075e-1F;
  }
  // Beyond 4 erf rounds to 1; the limit keeps the square finite.
  const float limited = a < 12.0F ? a : 12.0F;
  const float decay = exp_float(-(limited * limited));
  return copysignf(1.0F - decay * q * share, x);
}

}  // namespace quanta::math
