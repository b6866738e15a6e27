// Blocks that an SM of an A100 (sm_80) or an H100 (sm_90) has room for. Reads lines "architecture
// threads registers shared", prints a number for each. For tools/gpu/check_kernels.

#include <cuda_occupancy.h>

#include <cstdio>

int main() {
  int arch = 0;
  int threads = 0;
  int registers = 0;
  int shared = 0;
  while (std::scanf("%d %d %d %d", &arch, &threads, &registers, &shared) == 4) {
    const bool is_hopper = arch >= 90;
    cudaOccDeviceProp device;
    device.computeMajor = arch / 10;
    device.computeMinor = arch % 10;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = 2048;
    device.regsPerBlock = 65536;
    device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 * 1024;
    device.sharedMemPerMultiprocessor = (is_hopper ? 228 : 164) * 1024;
    device.sharedMemPerBlockOptin = (is_hopper ? 227 : 163) * 1024;
    device.reservedSharedMemPerBlock = 1024;
    device.numSms = is_hopper ? 132 : 108;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = threads;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = 0;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = static_cast<size_t>(shared);
    kernel.numBlockBarriers = 1;
    const cudaOccDeviceState state;
    cudaOccResult result;
    const cudaOccError status = cudaOccMaxActiveBlocksPerMultiprocessor(
        &result, &device, &kernel, &state, threads, static_cast<size_t>(shared));
    std::printf("%d\n", status == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : 0);
  }
}
