#pragma once

// Private: simt.h for nvcc.

#include <cuda_runtime.h>

#include "quanta/runtime/cuda/cudart.h"

#define SIMT_DEVICE __device__ __forceinline__
// Before a loop over values that are to stay in registers.
#define SIMT_UNROLL _Pragma("unroll")
// Before a loop that is to stay one, as what is in it is much code that seldom runs.
#define SIMT_LOOP _Pragma("unroll 1")
#define QUANTA_SIMT_BACKEND real

namespace quanta::simt {

SIMT_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
SIMT_DEVICE int threads() { return static_cast<int>(blockDim.x); }
SIMT_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
SIMT_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
SIMT_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }

/// All threads of the block meet.
SIMT_DEVICE void sync() { __syncthreads(); }

/// 4, 8 or 16 bytes from global to shared memory, both aligned to as many; there after wait().
template <int kBytes>
SIMT_DEVICE void copy_async(void* shared, const void* global) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;\n" ::"r"(to), "l"(global), "n"(kBytes)
                 : "memory");
  }
}
/// The copies since the last one are a group.
SIMT_DEVICE void commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
/// Waits until at most so many of this thread's groups are on their way; sync() shows it to others.
template <int kPending>
SIMT_DEVICE void wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

/// Four 8x8 matrices of 16-bit words: lane i gives the address of row i % 8 of matrix i / 8, and
/// gets words 2 * (i % 4) and 2 * (i % 4) + 1 of row i / 4 of each.
SIMT_DEVICE void load_matrix_x4(std::uint32_t (&r)[4], const void* row) {
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

/// sums[i][j] += a[i] * b[j]: kRows x kColumns products of 16x32 unsigned by 32x8 signed bytes,
/// exact. b holds two registers for each j.
template <int kRows, int kColumns>
SIMT_DEVICE void multiply_u8s8(std::int32_t (&sums)[kRows][kColumns][4],
                               const std::uint32_t (&a)[kRows][4],
                               const std::uint32_t (&b)[kColumns][2]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      asm volatile(
          "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
          "{%8,%9}, {%0,%1,%2,%3};\n"
          : "+r"(sums[i][j][0]), "+r"(sums[i][j][1]), "+r"(sums[i][j][2]), "+r"(sums[i][j][3])
          : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]), "r"(b[j][1]));
    }
  }
}

/// sum + the products of four unsigned by four signed bytes.
SIMT_DEVICE std::int32_t dot_u8s8(std::uint32_t a, std::uint32_t b, std::int32_t sum) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;\n" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}

/// The larger of each two unsigned bytes.
SIMT_DEVICE std::uint32_t max_bytes(std::uint32_t a, std::uint32_t b) { return __vmaxu4(a, b); }

/// The Float16 number with these bits, exact.
SIMT_DEVICE float half_to_float(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;\n" : "=f"(value) : "h"(bits));
  return value;
}

/// The bits of the nearest Float16 number, in ties the even one; some NaN for NaN.
SIMT_DEVICE std::uint16_t float_to_half(float value) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;\n" : "=h"(bits) : "f"(value));
  return bits;
}

/// What the lane whose number differs in the bits of `mask` gives.
template <typename T>
SIMT_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffU, value, mask);
}

SIMT_DEVICE void atomic_add(std::int32_t* to, std::int32_t value) { atomicAdd(to, value); }
SIMT_DEVICE void atomic_add(unsigned long long* to, unsigned long long value) {
  atomicAdd(to, value);
}
SIMT_DEVICE void atomic_min(std::int32_t* to, std::int32_t value) { atomicMin(to, value); }
SIMT_DEVICE void atomic_max(std::int32_t* to, std::int32_t value) { atomicMax(to, value); }

/// A value of 1 to 16 bytes, aligned to as many.
template <typename T>
SIMT_DEVICE T load(const void* from) {
  return *static_cast<const T*>(from);
}
template <typename T>
SIMT_DEVICE void store(void* to, const T& value) {
  *static_cast<T*>(to) = value;
}

/// Registers are allotted so that as many blocks share a multiprocessor; 0: as the compiler likes.
template <typename Kernel>
constexpr int blocks_wanted() {
  if constexpr (requires { Kernel::kBlocks; }) {
    return Kernel::kBlocks;
  } else {
    return 0;
  }
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, blocks_wanted<Kernel>())
    kernel(const __grid_constant__ typename Kernel::Params params) {
  extern __shared__ __align__(1024) unsigned char shared[];
#ifdef QUANTA_CHECK_KERNELS  // what tools/gpu/check_kernels reads in the PTX
  asm volatile("// quanta: threads %0 shared %1" ::"n"(Kernel::kThreads), "n"(Kernel::kShared));
#endif
  Kernel::run(params, shared);
}

/// Starts the kernel on the device's stream; without blocks there is nothing to do.
template <typename Kernel>
void launch(Device device, Grid grid, const typename Kernel::Params& params) {
  static_assert(Kernel::kTogether || Kernel::kShared == 0,
                "shared memory is for threads that meet");
  if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return;
  const cudaStream_t stream = ::quanta::cuda::stream_of(device);
  constexpr std::size_t kDefaultShared = 48 * 1024;
  if constexpr (Kernel::kShared > kDefaultShared) {
    cudaFuncSetAttribute(kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         Kernel::kShared);
  }
  const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                    static_cast<unsigned>(grid.z));
  kernel<Kernel><<<blocks, Kernel::kThreads, Kernel::kShared, stream>>>(params);
  ::quanta::cuda::check_launch(device, Kernel::kName);
}

}  // namespace quanta::simt
