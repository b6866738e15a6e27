#include "on_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/recorder.h"

namespace quanta::cli {
namespace {

bool has_kernel(const replay::Step& step) {
  if (step.inputs.empty() || !step.inputs[0].defined()) return true;
  return std::ranges::find(step.operation->cuda_dtypes(), step.inputs[0].dtype()) !=
         step.operation->cuda_dtypes().end();
}

}  // namespace

Device device_option(const std::string& text) {
  const Device device = text.empty() ? Device::cpu() : Device::parse(text);
  device_name(device);
  return device;
}

std::string missing_kernels(const nn::Module& model, const Tensor& x, Device device) {
  if (device.is_cpu()) return {};
  const autograd::NoGradGuard no_grad;
  const replay::Recording recording({&x, 1});
  static_cast<void>(model(x));
  std::vector<std::string> ops;
  std::vector<std::string> texts;
  for (const replay::Step& step : recording.steps()) {
    if (has_kernel(step)) continue;
    const std::string op =
        fmt::format("{} ({})", step.operation->name(), to_string(step.inputs[0].dtype()));
    if (std::ranges::find(ops, op) != ops.end()) continue;
    ops.push_back(op);
    texts.push_back(step.path.empty() ? op : fmt::format("{} in '{}'", op, step.path));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

void move_to_device(std::string_view command, nn::Module& model, const Tensor& x, Device device) {
  if (device.is_cpu()) return;
  const std::string missing = missing_kernels(model, x, device);
  if (!missing.empty()) {
    throw UnsupportedError(
        fmt::format("{}: --device: expected a network whose operations have kernels on {}, got one "
                    "with operations that have none: {}",
                    command, to_string(device), missing));
  }
  model.to(device);
}

}  // namespace quanta::cli
