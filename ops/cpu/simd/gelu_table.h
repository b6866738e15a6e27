#pragma once

// Private: the normal distribution's tail Q(a) = erfc(a / sqrt(2)) / 2 in pieces, for gelu.
//
// Piece k is a polynomial in t = a - k * step for |t| <= step / 2 that meets Q at the six Chebyshev
// nodes: within 7e-9 of Q near 0 and within a few units in the fifth digit of Q far out. The last
// piece is 0, where Q is below 4e-9.

namespace quanta::cpu {

inline constexpr float kGeluStep = 0.4F;
/// The middle of the last piece.
inline constexpr float kGeluZeroFrom = 6.0F;
inline constexpr int kGeluTerms = 6;
/// Coefficients of t^5, t^4 and so on for the 16 pieces.
alignas(64) inline constexpr float kGeluTable[kGeluTerms][16] = {
    {-9.902628e-03F, -6.3034124e-03F, 1.0119022e-03F, 5.7212934e-03F, 5.342449e-03F, 2.256594e-03F,
     -2.8531995e-04F, -1.1397903e-03F, -9.2066167e-04F, -4.7688227e-04F, -1.8331509e-04F,
     -5.5125834e-05F, -1.3309804e-05F, -2.6194223e-06F, -4.2430025e-07F, 0.0F},
    {0.0F, -1.7267518e-02F, -2.2615783e-02F, -1.50945075e-02F, -3.3130127e-03F, 4.4185715e-03F,
     6.138668e-03F, 4.4658845e-03F, 2.3124577e-03F, 9.2396286e-04F, 2.9492765e-04F, 7.661486e-05F,
     1.6381038e-05F, 2.904249e-06F, 4.29196e-07F, 0.0F},
    {6.648932e-02F, 5.1557284e-02F, 1.7381899e-02F, -1.4239564e-02F, -2.8839048e-02F,
     -2.6995586e-02F, -1.7766574e-02F, -9.023759e-03F, -3.6715185e-03F, -1.2197e-03F,
     -3.3455258e-04F, -7.631282e-05F, -1.4547402e-05F, -2.3257212e-06F, -3.1264477e-07F, 0.0F},
    {0.0F, 7.3651575e-02F, 1.1587402e-01F, 1.1651085e-01F, 8.8737555e-02F, 5.3992175e-02F,
     2.6874067e-02F, 1.1081687e-02F, 3.8143757e-03F, 1.1012766e-03F, 2.675859e-04F, 5.4846318e-05F,
     9.499534e-06F, 1.3921849e-06F, 1.7281089e-07F, 0.0F},
    {-3.989423e-01F, -3.6827013e-01F, -2.8969154e-01F, -1.9418605e-01F, -1.1092083e-01F,
     -5.3990964e-02F, -2.2394529e-02F, -7.91545e-03F, -2.3840878e-03F, -6.1190187e-04F,
     -1.3383024e-04F, -2.4942488e-05F, -3.961306e-06F, -5.3610546e-07F, -6.182661e-08F, 0.0F},
    {0.5F, 3.4457827e-01F, 2.118554e-01F, 1.15069665e-01F, 5.479929e-02F, 2.2750128e-02F,
     8.197534e-03F, 2.5551298e-03F, 6.871382e-04F, 1.5910888e-04F, 3.16714e-05F, 5.4126026e-06F,
     7.933447e-07F, 9.964796e-08F, 1.0718257e-08F, 0.0F},
};

}  // namespace quanta::cpu
