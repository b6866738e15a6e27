#pragma once

// Private: which instruction sets the kernels that include this are compiled for. Include it before
// any header of Highway.
//
// AVX2, AVX-512, AVX-512 with VNNI and VBMI (Ice Lake, Zen 4 and later), and plain code for
// whatever is older. SSE has no users left.

#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
