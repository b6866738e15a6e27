#include "quanta/ops/cpu/features.h"

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <cstdlib>

namespace quanta {
namespace {

TEST_CASE("can_run: kernels stay within what the process is held down to") {
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr || std::getenv("DNNL_MAX_CPU_ISA") != nullptr) {
    MESSAGE("skipped: the process is held down already");
    return;
  }
  const cpu::Code best = cpu::running_code();
  for (const cpu::Code most : {cpu::Code::Plain, cpu::Code::Avx2, cpu::Code::Avx512}) {
    if (most > best) continue;
    hwy::DisableTargets(cpu::highway_target(most) - 1);
    CHECK(cpu::running_code() == most);
    for (const cpu::InstructionSet& set : cpu::kInstructionSets) {
      CHECK((!cpu::can_run(set) || set.code <= most));
    }
    CHECK(cpu::running_code() == most);
  }
  hwy::DisableTargets(0);
  CHECK(cpu::running_code() == best);
}

}  // namespace
}  // namespace quanta
