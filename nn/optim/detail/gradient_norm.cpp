#include "quanta/nn/optim/detail/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "quanta/nn/optim/cuda/kernels.h"
#include "quanta/nn/optim/detail/update_math.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/sum_terms.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::optim {
namespace {

double power_on_cpu(const Tensor& given, double norm_type) {
  const Tensor dense = given.contiguous();
  return detail::visit_floats(dense.dtype(), [&](auto zero) {
    const auto* values = dense.data<decltype(zero)>();
    if (!std::isinf(norm_type)) {
      return detail::sum_terms(dense.numel(), [&](std::int64_t i) {
        return norm_term(static_cast<double>(values[i]), norm_type);
      });
    }
    double largest = 0.0;
    for (std::int64_t i = 0; i < dense.numel(); ++i) {
      largest = larger_size(largest, std::fabs(static_cast<double>(values[i])));
    }
    return largest;
  });
}

// Puts those of the tensors on this device in their places.
void powers_on_cuda(const std::vector<Tensor>& tensors, Device device, double norm_type,
                    std::vector<double>& powers) {
  const cuda::Buffer totals(device, tensors.size() * sizeof(double));
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    if (tensors[k].device() != device) continue;
    const Tensor dense = tensors[k].contiguous();
    const std::int64_t parts = ceil_div(dense.numel(), detail::kBlockTerms);
    const cuda::Buffer memory(device, static_cast<std::size_t>(parts + 1) * sizeof(double));
    const cuda::GradientSizeParams params{
        .count = dense.numel(),
        .norm_type = norm_type,
        .is_largest = std::isinf(norm_type),
        .gradient = reinterpret_cast<const float*>(dense.device_ptr()),
        .parts = memory.as<double>(),
        .total = totals.as<double>() + k};
    if (parts > 0) cuda::sum_gradient_sizes(device, params);
    cuda::join_gradient_sizes(device, params);
  }
  std::vector<double> copies(tensors.size());
  cuda::driver(device).copy_to_host(copies.data(), totals.as<void>(), totals.bytes());
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    if (tensors[k].device() == device) powers[k] = copies[k];
  }
}

}  // namespace

std::vector<double> powers_of_norms(const std::vector<Tensor>& tensors, double norm_type) {
  std::vector<double> powers(tensors.size());
  std::vector<Device> devices;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    const Device device = tensors[k].device();
    if (device.is_cpu()) {
      powers[k] = power_on_cpu(tensors[k], norm_type);
    } else if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
      devices.push_back(device);
      powers_on_cuda(tensors, device, norm_type, powers);
    }
  }
  return powers;
}

double gradient_norm(const std::vector<Tensor>& parameters, double norm_type) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  double total = 0.0;
  for (const double power : powers_of_norms(gradients, norm_type)) {
    total = std::isinf(norm_type) ? larger_size(total, power) : total + power;
  }
  return std::isinf(norm_type) ? total : std::pow(total, 1.0 / norm_type);
}

}  // namespace quanta::optim
