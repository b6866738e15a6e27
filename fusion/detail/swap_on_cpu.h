#pragma once

#include <memory>

#include "quanta/nn/module.h"

namespace quanta {

/// The device of the module's tensors: that of the first one which is not on the CPU.
inline Device device_of(const nn::Module& module) {
  for (const auto& [path, tensor] : module.named_parameters()) {
    if (!tensor.device().is_cpu()) return tensor.device();
  }
  for (const auto& [path, tensor] : module.named_buffers()) {
    if (!tensor.device().is_cpu()) return tensor.device();
  }
  return Device::cpu();
}

/// swap(module), a module in its place. Weights are quantized and packed on the CPU, where they
/// stay for files: of a module on a device a copy is swapped, and what comes out is put there.
template <typename Swap>
std::shared_ptr<nn::Module> swap_on_cpu(const std::shared_ptr<nn::Module>& module,
                                        const Swap& swap) {
  const Device device = device_of(*module);
  if (device.is_cpu()) return swap(module);
  const std::shared_ptr<nn::Module> here = module->clone();
  here->to(Device::cpu());
  const std::shared_ptr<nn::Module> swapped = swap(here);
  swapped->to(device);
  return swapped;
}

}  // namespace quanta
