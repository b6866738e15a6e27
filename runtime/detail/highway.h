#pragma once

// Private: which instruction sets the kernels that include this are compiled for, and how a kernel
// file asks which of them it is being compiled for. Include it before any header of Highway.
//
// AVX2, AVX-512, AVX-512 with VNNI and VBMI (Ice Lake, Zen 4 and later), and plain code for
// whatever is older. SSE has no users left.

#define HWY_WANT_AVX3_DL
// Later versions of Highway have SSE2 as well, bit 14, and more than AVX3_DL, in the bits below it.
#define QUANTA_UNUSED_TARGETS ((HWY_AVX3_DL - 1) | HWY_SSE4 | HWY_SSSE3 | (1LL << 14))
#ifdef QUANTA_WITHOUT_AVX512  // a build with sanitizers, which takes a third of the time so
#define HWY_DISABLED_TARGETS (QUANTA_UNUSED_TARGETS | HWY_AVX3_DL | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS QUANTA_UNUSED_TARGETS
#endif
// Plain code is HWY_SCALAR with every compiler; with some, Highway would emulate vectors of 16
// bytes instead.
#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 1
#endif

#include <hwy/base.h>

// Highway 1.0 lets the compiler use AVX-VNNI in code for AVX3_DL, and takes that code on Zen 4 and
// Ice Lake, which do not have it. Compilers find a use for it on their own: a sum of products.
#if HWY_ARCH_X86 && HWY_COMPILER_CLANG
#undef HWY_PUSH_ATTRIBUTES
#define HWY_PUSH_ATTRIBUTES(targets) \
  HWY_PRAGMA(                        \
      clang attribute push(__attribute__((target(targets ",no-avxvnni"))), apply_to = function))
#elif HWY_ARCH_X86 && HWY_COMPILER_GCC
#undef HWY_PUSH_ATTRIBUTES
#define HWY_PUSH_ATTRIBUTES(targets) \
  HWY_PRAGMA(GCC push_options) HWY_PRAGMA(GCC target targets ",no-avxvnni")
#endif

/// In HWY_ATTR's place behind a lambda's parameters: the instruction sets of the code around it. With
/// one more, AVX-VNNI, no compiler makes the lambda a part of that code.
#if HWY_ARCH_X86
#define QUANTA_ATTR HWY_CONCAT(QUANTA_ATTR_, HWY_NAMESPACE)
#define QUANTA_ATTR_N_AVX3_DL __attribute__((target(HWY_TARGET_STR ",no-avxvnni")))
#define QUANTA_ATTR_N_AVX3 QUANTA_ATTR_N_AVX3_DL
#define QUANTA_ATTR_N_AVX2 QUANTA_ATTR_N_AVX3_DL
#define QUANTA_ATTR_N_EMU128
#define QUANTA_ATTR_N_SCALAR
#else
#define QUANTA_ATTR HWY_ATTR
#endif
/// Of a lambda within a loop: what it adds to stays in registers.
#define QUANTA_INLINED QUANTA_ATTR __attribute__((always_inline))

/// 1 while a file is compiled for vectors, 0 for plain code.
#define QUANTA_VECTORS (HWY_TARGET != HWY_SCALAR)
/// 1 for vectors of 64 bytes and 32 registers; else vectors have 32 bytes and 16 registers.
#define QUANTA_AVX512 (HWY_TARGET <= HWY_AVX3)
/// 1 for AVX-512 with VNNI, VBMI and BITALG.
#define QUANTA_AVX512_VBMI (HWY_TARGET == HWY_AVX3_DL)
