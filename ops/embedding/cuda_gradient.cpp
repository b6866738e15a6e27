#include "quanta/ops/embedding/cuda_gradient.h"

#include "quanta/ops/cuda/runs.h"
#include "quanta/ops/embedding/gradient.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::embeddings {
namespace {

Tensor zeros_like(const Tensor& x) {
  const Tensor zeros = Tensor::empty(x.sizes(), x.dtype(), MemoryFormat::Contiguous, x.device());
  zeros.fill_(0.0);
  return zeros;
}

cuda::Buffer numbers(Device device, std::int64_t count, std::size_t bytes) {
  return {device, static_cast<std::size_t>(count) * bytes};
}

}  // namespace

std::vector<Tensor> bag_gradients_on_device(const Tensor& given, const Tensor& weight,
                                            const Tensor& weights, const cuda::BagRows& bags,
                                            cuda::BagMode mode, bool wants_factors) {
  const Device device = given.device();
  const Tensor gradient = given.contiguous();
  const Tensor table = weight.contiguous();
  const Tensor factors = weights.defined() ? weights.contiguous() : weights;
  std::vector<Tensor> results{zeros_like(table), wants_factors ? zeros_like(factors) : Tensor()};
  if (bags.bags == 0 || bags.count == 0) return results;

  cuda::BagGradientParams params;
  params.bags = bags;
  params.mode = mode;
  params.dtype = table.dtype();
  params.table = table.device_ptr();
  params.gradient = gradient.device_ptr();
  params.columns = table.sizes()[1];
  if (factors.defined()) params.factors = factors.device_ptr();
  cuda::RunParams sum;
  sum.dtype = table.dtype();
  sum.how = math::Combine::Add;
  sum.from = gradient.device_ptr();
  sum.to = results[0].device_ptr();
  if (mode == cuda::BagMode::Max) {
    const cuda::Buffer largest = numbers(device, gradient.numel(), sizeof(std::int64_t));
    params.largest = largest.as<std::int64_t>();
    cuda::find_largest_rows(device, params);
    sum.targets = params.largest;
    sum.updates = gradient.numel();
    sum.slices = table.numel();
    sum.length = 1;
    cuda::combine_updates(device, sum);
    return results;
  }
  const cuda::Buffer used = numbers(device, bags.bags, sizeof(std::int32_t));
  const cuda::Buffer rows = numbers(device, bags.count, sizeof(std::int64_t));
  const cuda::Buffer sources = numbers(device, bags.count, sizeof(std::int64_t));
  const cuda::Buffer shares = numbers(device, bags.count, item_size(table.dtype()));
  params.rows = rows.as<std::int64_t>();
  params.sources = sources.as<std::int64_t>();
  params.shares = shares.as<void>();
  if (mode == cuda::BagMode::Mean) {
    cuda::driver(device).fill(used.as<void>(), 0, used.bytes());
    params.used = used.as<std::int32_t>();
    cuda::count_used_indices(device, params);
  }
  cuda::share_bags(device, params);
  sum.targets = params.rows;
  sum.updates = bags.count;
  sum.slices = bags.rows;
  sum.length = params.columns;
  sum.sources = params.sources;
  sum.factors = params.shares;
  cuda::combine_updates(device, sum);
  if (wants_factors) {
    params.factor_gradients = results[1].device_ptr();
    cuda::sum_factor_gradients(device, params);
  }
  return results;
}

}  // namespace quanta::embeddings
