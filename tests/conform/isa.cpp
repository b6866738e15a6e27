#include "isa.h"

#include <hwy/targets.h>

#include <cstdint>
#include <cstdlib>

#include "quanta/ops/cpu/features.h"

namespace quanta::conform {
namespace {

using cpu::kInstructionSets;

constexpr const char* kNative = "native";

// Every x86 target of Highway that needs more than the set. A better target has a lower bit.
constexpr std::int64_t targets_beyond(std::int64_t best) { return best - 1; }

}  // namespace

const std::vector<std::string>& isa_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all{kNative};
    for (const cpu::InstructionSet& set : kInstructionSets) all.emplace_back(set.name);
    return all;
  }();
  return names;
}

std::vector<std::string> usable_isa_names() {
  std::vector<std::string> usable{kNative};
  for (const cpu::InstructionSet& set : kInstructionSets) {
    if (set.code != cpu::Code::Plain && cpu::can_run(set)) usable.emplace_back(set.name);
  }
  return usable;
}

void hold_isa_down(const std::string& name) {
  for (const cpu::InstructionSet& set : kInstructionSets) {
    if (set.name != name) continue;
    setenv("ONEDNN_MAX_CPU_ISA", std::string(set.onednn).c_str(), 1);
    hwy::DisableTargets(targets_beyond(cpu::highway_target(set.code)));
  }
}

}  // namespace quanta::conform
