#pragma once

#include <span>
#include <string_view>

#include "quanta/runtime/device.h"
#include "quanta/runtime/dtype.h"

/// What can run on which device with which dtype. Nothing here throws, and many threads may ask at
/// once.
namespace quanta {

/// One row of the table of what can run: torch's op name, where it is declared, device and dtype.
struct OpSupport {
  std::string_view op;
  std::string_view header;
  DeviceType device;
  DType dtype;
};

/// Every op with every device and dtype that has a kernel.
std::span<const OpSupport> op_table();

/// Whether `op` (torch's snake_case name, "conv2d") has a kernel for inputs of `dtype` on
/// `device`. Unknown names are false.
bool supports(std::string_view op, Device device, DType dtype);

}  // namespace quanta
