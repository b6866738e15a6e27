#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/modelopt/calibrator.h"
#include "quanta/observers/other_observers.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/random.h"
#include "support/capture_binding.h"

namespace quanta::test {

using CollectorPtr = std::shared_ptr<Collector>;

inline Tensor batch(std::uint64_t seed, double spread = 1.0) {
  Generator generator(seed);
  const Tensor x = randn({6, 40}, generator);
  auto* values = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) values[i] *= static_cast<float>(spread);
  return x;
}

// Those that search with a quantization function get one; all others are made by name alone.
inline CollectorPtr fresh(const CollectorKind& kind) {
  const modelopt::MseCalibrator::Options search{
      .quant_func = [](const Tensor& x, const Tensor& amax) {
        return fake_tensor_quant(x, amax, {{4, false, false}});
      }};
  if (kind.name == "MseCalibrator") {
    return std::make_shared<modelopt::MseCalibrator>(Tensor::scalar(3.0), search);
  }
  if (kind.name == "NvFp4MseCalibrator") {
    return std::make_shared<modelopt::NvFp4MseCalibrator>(Tensor::scalar(3.0), Tensor::scalar(4.0),
                                                          search);
  }
  return kind.make({});
}

inline bool takes_anything(const Collector& collector) {
  return dynamic_cast<const MarkingObserver*>(&collector) != nullptr ||
         dynamic_cast<const FixedQParamsObserver*>(&collector) != nullptr;
}

inline bool takes_one_batch(const Collector& collector) {
  return dynamic_cast<const modelopt::NvFp4MseCalibrator*>(&collector) != nullptr;
}

inline StateDict state_of(const Collector& collector) {
  StateDict state;
  collector.save_state(state, "x.");
  return state;
}

inline void check_equal(const StateDict& got, const StateDict& expected) {
  CHECK(got.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    CAPTURE_BINDING(name);
    REQUIRE(got.contains(name));
    CHECK(got.at(name).dtype() == tensor.dtype());
    CHECK(got.at(name).equal(tensor));
  }
}

}  // namespace quanta::test
