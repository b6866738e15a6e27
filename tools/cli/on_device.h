#pragma once

#include <string>
#include <string_view>

#include "quanta/nn/module.h"
#include "quanta/runtime/device.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cli {

/// What the option `--device` says; "" is the CPU. Throws ArgumentError for another text and
/// BackendError for a device that is not there: now, not after minutes.
Device device_option(const std::string& text);

/// The operations of a network that have no kernel on the device, as "softmax (Float32) in 'head'",
/// one after the other; "" where all have one. Runs the network once, on the CPU. Throws
/// UnsupportedError for a network whose steps depend on values, of which one run tells too little.
std::string missing_kernels(const nn::Module& model, const Tensor& x, Device device);

/// Moves the network. Throws UnsupportedError that lists what has no kernel there, before anything
/// has moved. Nothing to do for the CPU.
void move_to_device(std::string_view command, nn::Module& model, const Tensor& x, Device device);

}  // namespace quanta::cli
