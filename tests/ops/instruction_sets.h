#pragma once

// Shared by tests of kernels: every instruction set that there are kernels for.

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <string>

#include "quanta/ops/cpu/features.h"

namespace quanta::test {

/// Runs `body` held down to each instruction set that this machine has.
template <typename Body>
void for_each_instruction_set(const Body& body) {
  for (const cpu::InstructionSet& set : cpu::kInstructionSets) {
    if (!cpu::can_run(set)) continue;
    CAPTURE(std::string(set.name));
    hwy::SetSupportedTargetsForTest(cpu::highway_target(set.code));
    {
      const cpu::FeatureLimit limit(set.features);
      body();
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

/// The same for kernels that no feature makes a difference to: once for each code.
template <typename Body>
void for_each_code(const Body& body) {
  for (const cpu::Code code :
       {cpu::Code::Avx512Vbmi, cpu::Code::Avx512, cpu::Code::Avx2, cpu::Code::Plain}) {
    const std::int64_t target = cpu::highway_target(code);
    if (code != cpu::Code::Plain && (hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    CAPTURE(std::string(hwy::TargetName(target)));
    body();
    hwy::SetSupportedTargetsForTest(0);
  }
}

}  // namespace quanta::test
