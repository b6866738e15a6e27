#include "quanta/fusion/distributed/detail/gradient_buckets.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace quanta::distributed::detail {
namespace {

constexpr const char* kPlace = "DataParallel: gradients";

// The gradient in the memory order of its parameter, on the CPU.
Tensor arrange_like(const Tensor& gradient, const Tensor& parameter) {
  const Tensor here = gradient.cpu();
  if (here.strides() == parameter.strides()) return here;
  const Tensor result = parameter.detach().cpu().clone(MemoryFormat::Preserve);
  result.copy_(here);
  return result;
}

const float* floats_of(const Tensor& dense) { return static_cast<const float*>(dense.data_ptr()); }

bool all_finite(const float* values, std::size_t count) {
  return std::all_of(values, values + count, [](float value) { return std::isfinite(value); });
}

}  // namespace

GradientBuckets::GradientBuckets(std::vector<nn::Module::NamedTensor> parameters,
                                 std::size_t bucket_bytes, const Communicator& comm)
    : parameters_(std::move(parameters)), comm_(comm), places_(parameters_.size()) {
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    const auto count = static_cast<std::size_t>(parameters_[i].tensor.numel());
    const bool is_new =
        buckets_.empty() || (buckets_.back().values.size() + count) * sizeof(float) >
                                std::max(bucket_bytes, sizeof(float));
    if (is_new) buckets_.emplace_back();
    Bucket& bucket = buckets_.back();
    places_[i] = {buckets_.size() - 1, bucket.values.size()};
    bucket.parameters.push_back(i);
    bucket.values.resize(bucket.values.size() + count);
  }
}

std::span<float> GradientBuckets::values_of(std::size_t number) {
  const Place& place = places_[number];
  return std::span(buckets_[place.bucket].values)
      .subspan(place.offset, static_cast<std::size_t>(parameters_[number].tensor.numel()));
}

bool GradientBuckets::add(std::size_t number, const Tensor& gradient) {
  const Tensor arranged = arrange_like(gradient, parameters_[number].tensor);
  const std::span<float> values = values_of(number);
  const float* given = floats_of(arranged);
  if (!all_finite(given, values.size())) return false;
  Place& place = places_[number];
  if (place.filled) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += given[i];
  } else if (!values.empty()) {
    std::memcpy(values.data(), given, values.size_bytes());
  }
  place.filled = true;
  if (by_itself_) {
    --buckets_[place.bucket].missing;
    start_complete();
  }
  return true;
}

bool GradientBuckets::is_used(const Bucket& bucket, const std::vector<char>& used) const {
  return std::ranges::any_of(bucket.parameters, [&](std::size_t i) { return used[i] != 0; });
}

void GradientBuckets::start(Bucket& bucket) {
  for (const std::size_t i : bucket.parameters) {
    if (!places_[i].filled) std::ranges::fill(values_of(i), 0.0F);
  }
  bucket.sum = comm_.start_sum(bucket.values, kPlace);
}

void GradientBuckets::start_complete() {
  while (started_ < order_.size() && buckets_[order_[started_]].missing == 0) {
    start(buckets_[order_[started_]]);
    ++started_;
  }
}

void GradientBuckets::start_when_complete(std::span<const std::size_t> expected,
                                          const std::vector<char>& used) {
  for (Bucket& bucket : buckets_) bucket.missing = 0;
  for (const std::size_t number : expected) ++buckets_[places_[number].bucket].missing;
  order_.clear();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (is_used(buckets_[i], used)) order_.push_back(i);
  }
  by_itself_ = true;
  start_complete();
}

void GradientBuckets::start_all(const std::vector<char>& used) {
  if (!by_itself_) start_when_complete({}, used);
  // Of what was expected, some may have got no gradient.
  for (; started_ < order_.size(); ++started_) start(buckets_[order_[started_]]);
}

void GradientBuckets::finish(double factor, const std::vector<char>& used) {
  for (const std::size_t number : order_) {
    Bucket& bucket = buckets_[number];
    bucket.sum.wait();
    for (const std::size_t i : bucket.parameters) {
      if (used[i] == 0) continue;
      const Tensor& parameter = parameters_[i].tensor;
      const std::span<const float> values = values_of(i);
      Tensor gradient = parameter.detach().cpu().clone(MemoryFormat::Preserve);
      const Tensor before = parameter.grad();
      const Tensor kept = before.defined() ? arrange_like(before, parameter) : Tensor();
      auto* to = gradient.mutable_data<float>();
      for (std::size_t k = 0; k < values.size(); ++k) {
        const auto mean = static_cast<float>(static_cast<double>(values[k]) * factor);
        to[k] = kept.defined() ? floats_of(kept)[k] + mean : mean;
      }
      parameter.set_grad(gradient.to(parameter.device()));
    }
  }
}

void GradientBuckets::clear() noexcept {
  for (Bucket& bucket : buckets_) bucket.sum = PendingSum();
  for (Place& place : places_) place.filled = false;
  order_.clear();
  started_ = 0;
  by_itself_ = false;
}

}  // namespace quanta::distributed::detail
