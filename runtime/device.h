#pragma once

#include <cstdint>
#include <string>

/// Devices. Plain values: nothing here throws, and threads may share what none of them changes.
namespace quanta {

enum class DeviceType : std::uint8_t { CPU, CUDA };

/// Where a tensor lives. Kernels are there for the CPU.
struct Device {
  DeviceType type = DeviceType::CPU;
  std::int8_t index = 0;

  static constexpr Device cpu() noexcept { return {DeviceType::CPU, 0}; }
  static constexpr Device cuda(std::int8_t index = 0) noexcept { return {DeviceType::CUDA, index}; }
  bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:0".
std::string to_string(Device device);

}  // namespace quanta
