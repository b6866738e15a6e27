#pragma once

// Private: the hidden weight of a recurrent layer on CUDA devices.

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "quanta/ops/cpu/gemm/quantized_weight.h"
#include "quanta/ops/cuda/gate_weight.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::detail {

/// The packed weight on each device that a layer runs on: made when a step first runs there. Safe
/// from many threads.
class CudaGateWeight {
 public:
  /// `weight` [gates * units, depth] is the same in all calls.
  cuda::GateWeight on(Device device, const cpu::QuantizedWeight& weight, std::int64_t gates);

 private:
  struct Packed {
    cuda::GateWeight weight;
    cuda::Buffer codes, scales, sums, bias;
  };
  static Packed pack(Device device, const cpu::QuantizedWeight& weight, std::int64_t gates);

  std::mutex mutex_;
  std::map<std::pair<std::int8_t, std::int64_t>, Packed> packed_;  // by device and gates
};

}  // namespace quanta::detail
