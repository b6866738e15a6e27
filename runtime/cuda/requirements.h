#pragma once

// Private: what a machine must have for its GPUs to be used. Plain numbers in, so that the answers
// are tested without a GPU.

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace quanta::cuda {

/// The driver's version as CUDA has it (1000 * major + 10 * minor) that CUDA 13.0 runs on: 580.
inline constexpr int kOldestDriver = 13000;
/// Of the compute capability; kernels are built for 8.0 and later.
inline constexpr int kOldestMajor = 8;

/// Why a driver of this version cannot be used, or nothing. 0: there is none.
inline std::string fault_of_driver(int version) {
  if (version == 0) return "expected an NVIDIA driver (580 or later), got none";
  if (version >= kOldestDriver) return {};
  return fmt::format("expected an NVIDIA driver for CUDA 13.0 (580 or later), got one for {}.{}",
                     version / 1000, version % 1000 / 10);
}

/// Why a GPU of this compute capability cannot be used, or nothing.
inline std::string fault_of_gpu(std::string_view name, int major, int minor) {
  if (major >= kOldestMajor) return {};
  return fmt::format(
      "expected compute capability 8.0 or later (A100, RTX 30 and what came after), got {} with "
      "{}.{}",
      name, major, minor);
}

}  // namespace quanta::cuda
