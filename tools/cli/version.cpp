#include "version.h"

#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.h>

#include <string_view>

#include "quanta/ops/cpu/features.h"
#include "quanta_revision.h"

namespace quanta::cli {

std::string instruction_set() {
  std::string_view name = "plain";
  for (const cpu::InstructionSet& set : cpu::kInstructionSets) {
    if (cpu::can_run(set)) name = set.name;
  }
  return std::string(name);
}

std::string version_text() {
  const dnnl_version_t& onednn = *dnnl_version();
  const std::string_view revision = QUANTA_REVISION;
  return fmt::format("quanta {}{}\noneDNN {}.{}.{}\ninstructions {}", QUANTA_VERSION,
                     revision.empty() ? "" : fmt::format(" (revision {})", revision), onednn.major,
                     onednn.minor, onednn.patch, instruction_set());
}

}  // namespace quanta::cli
