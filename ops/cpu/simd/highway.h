#pragma once

// Private: the instruction sets that kernels are compiled for (QUANTA_VECTORS, QUANTA_AVX512 and
// QUANTA_AVX512_VBMI say which it is at the moment). Include it before any header of Highway.

#include "quanta/runtime/detail/highway.h"
