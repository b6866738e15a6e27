#include "isa.h"

#include <hwy/targets.h>

#include <cstdint>
#include <cstdlib>

namespace quanta::conform {
namespace {

// Every x86 target of Highway that needs more than the set. A better target has a lower bit.
constexpr std::int64_t targets_beyond(std::int64_t best) { return best - 1; }

void set_onednn_isa(const char* name) { setenv("ONEDNN_MAX_CPU_ISA", name, 1); }

}  // namespace

const std::vector<std::string>& isa_names() {
  static const std::vector<std::string> names{"native", "avx2", "avx512", "vnni"};
  return names;
}

void hold_isa_down(const std::string& name) {
  if (name == "avx2") {
    set_onednn_isa("AVX2");
    hwy::DisableTargets(targets_beyond(HWY_AVX2));
  } else if (name == "avx512") {
    set_onednn_isa("AVX512_CORE");
    hwy::DisableTargets(targets_beyond(HWY_AVX3));
  } else if (name == "vnni") {
    set_onednn_isa("AVX512_CORE_VNNI");
    hwy::DisableTargets(targets_beyond(HWY_AVX3_DL));
  }
}

}  // namespace quanta::conform
