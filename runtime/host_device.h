#pragma once

/// What marks a function that CUDA kernels call as well as the CPU's; nothing for a compiler that
/// does not know CUDA. Nothing here throws, and what is so marked threads may call at once.
#if defined(__CUDACC__)
#define QUANTA_HOST_DEVICE __host__ __device__
#else
#define QUANTA_HOST_DEVICE
#endif
