#include "quanta/runtime/device.h"

#include <charconv>

#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/verbose.h"

namespace quanta {

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "cuda") return cuda();
  if (text == "cuda:emulated") return cuda_emulated();
  constexpr std::string_view kPrefix = "cuda:";
  std::int8_t index = -1;
  if (text.starts_with(kPrefix)) {
    const std::string_view number = text.substr(kPrefix.size());
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error != std::errc{} || end != number.data() + number.size() || number[0] == '-') {
      index = -1;
    }
  }
  QUANTA_CHECK(index >= 0,
               "Device::parse: text: expected cpu, cuda, cuda:0 to cuda:127 or cuda:emulated, got "
               "{}",
               text);
  return cuda(index);
}

std::string to_string(Device device) {
  if (device.is_cpu()) return "cpu";
  if (device.is_emulated()) return "cuda:emulated";
  return fmt::format("cuda:{}", device.index);
}

int cuda_device_count() noexcept { return cuda::real_device_count(); }

std::string device_name(Device device) {
  return device.is_cpu() ? "CPU" : cuda::driver(device).name();
}

void synchronize(Device device) {
  if (device.is_cpu()) return;
  cuda::driver(device).synchronize();
  if (detail::ops_are_watched()) detail::print_waiting_lines();
}

namespace cuda {

Driver& driver(Device device) {
  QUANTA_CHECK(device.is_cuda(), "cuda::driver: device: expected one of CUDA, got {}",
               to_string(device));
  return device.is_emulated() ? emulated_driver() : real_driver(device.index);
}

}  // namespace cuda
}  // namespace quanta
