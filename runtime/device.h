#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Devices. Plain values: threads may share what none of them changes.
namespace quanta {

enum class DeviceType : std::uint8_t { CPU, CUDA };

/// Where a tensor lives: the CPU, an NVIDIA GPU by its number, or the emulated CUDA device.
///
/// The emulated device runs the kernels of the CUDA backend on the CPU, thread by thread, in memory
/// that host code cannot touch. It is there in every build, to test what has no GPU to run on; it is
/// thousands of times slower than one.
struct Device {
  DeviceType type = DeviceType::CPU;
  std::int8_t index = 0;

  static constexpr std::int8_t kEmulated = -1;

  static constexpr Device cpu() noexcept { return {DeviceType::CPU, 0}; }
  static constexpr Device cuda(std::int8_t index = 0) noexcept { return {DeviceType::CUDA, index}; }
  static constexpr Device cuda_emulated() noexcept { return {DeviceType::CUDA, kEmulated}; }
  /// "cpu", "cuda" (the first one), "cuda:1", "cuda:emulated". Throws ArgumentError for another
  /// text; whether there is such a device is asked when it is used.
  static Device parse(std::string_view text);

  constexpr bool is_cpu() const noexcept { return type == DeviceType::CPU; }
  constexpr bool is_cuda() const noexcept { return type == DeviceType::CUDA; }
  constexpr bool is_emulated() const noexcept { return is_cuda() && index == kEmulated; }
  bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:0", "cuda:emulated".
std::string to_string(Device device);

/// The NVIDIA GPUs that can be used; 0 without a driver, or in a build without CUDA. The emulated
/// device does not count. Throws nothing.
int cuda_device_count() noexcept;
inline bool cuda_is_available() noexcept { return cuda_device_count() > 0; }
/// "NVIDIA H200"; the emulated device and the CPU have names of ours. Throws BackendError for a
/// device that is not there, with the reason.
std::string device_name(Device device);
/// Waits until the device has done all that it was asked for; nothing to do on the CPU. Throws
/// BackendError for a device that is not there or that a kernel has broken.
void synchronize(Device device);

}  // namespace quanta
