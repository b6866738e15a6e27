#pragma once

#include <cstdint>

#include "quanta/runtime/cuda/emulation.h"

namespace quanta::test {

/// The order in which the emulated device's threads run, while this lives.
class ScheduleScope {
 public:
  ScheduleScope(cuda::emulation::Schedule schedule, std::uint64_t seed) {
    cuda::emulation::set_schedule(schedule, seed);
  }
  ~ScheduleScope() { cuda::emulation::set_schedule(cuda::emulation::Schedule::Lockstep, 0); }
  ScheduleScope(const ScheduleScope&) = delete;
  ScheduleScope& operator=(const ScheduleScope&) = delete;
};

}  // namespace quanta::test
