#include "quanta/nn/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "quanta/nn/optim/cuda_kernels.h"
#include "quanta/nn/optim/update_math.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/sum_terms.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::optim {
namespace {

// The sum of a gradient's sizes to the power of norm_type, or the largest size.
double size_on_cpu(const Tensor& given, double norm_type) {
  const Tensor gradient = given.contiguous();
  return detail::visit_floats(gradient.dtype(), [&](auto zero) {
    const auto* values = gradient.data<decltype(zero)>();
    if (!std::isinf(norm_type)) {
      return detail::sum_terms(gradient.numel(), [&](std::int64_t i) {
        return norm_term(static_cast<double>(values[i]), norm_type);
      });
    }
    double largest = 0.0;
    for (std::int64_t i = 0; i < gradient.numel(); ++i) {
      largest = larger_size(largest, std::fabs(static_cast<double>(values[i])));
    }
    return largest;
  });
}

// Puts those of the gradients on this device in their places.
void sizes_on_cuda(const std::vector<Tensor>& gradients, Device device, double norm_type,
                   std::vector<double>& sizes) {
  const cuda::Buffer totals(device, gradients.size() * sizeof(double));
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    if (gradients[k].device() != device) continue;
    const Tensor gradient = gradients[k].contiguous();
    const std::int64_t parts = ceil_div(gradient.numel(), detail::kBlockTerms);
    const cuda::Buffer memory(device, static_cast<std::size_t>(parts + 1) * sizeof(double));
    const cuda::GradientSizeParams params{
        .count = gradient.numel(),
        .norm_type = norm_type,
        .is_largest = std::isinf(norm_type),
        .gradient = reinterpret_cast<const float*>(gradient.device_ptr()),
        .parts = memory.as<double>(),
        .total = totals.as<double>() + k};
    if (parts > 0) cuda::sum_gradient_sizes(device, params);
    cuda::join_gradient_sizes(device, params);
  }
  std::vector<double> copies(gradients.size());
  cuda::driver(device).copy_to_host(copies.data(), totals.as<void>(), totals.bytes());
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    if (gradients[k].device() == device) sizes[k] = copies[k];
  }
}

}  // namespace

double gradient_norm(const std::vector<Tensor>& parameters, double norm_type) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  std::vector<double> sizes(gradients.size());
  std::vector<Device> devices;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    const Device device = gradients[k].device();
    if (device.is_cpu()) {
      sizes[k] = size_on_cpu(gradients[k], norm_type);
    } else if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
      devices.push_back(device);
      sizes_on_cuda(gradients, device, norm_type, sizes);
    }
  }
  double total = 0.0;
  for (const double size : sizes) {
    total = std::isinf(norm_type) ? larger_size(total, size) : total + size;
  }
  return std::isinf(norm_type) ? total : std::pow(total, 1.0 / norm_type);
}

}  // namespace quanta::optim
