#include "quanta/ops/cpu/features.h"

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/features.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/simd/target.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

Code ThisCode() { return kCode; }

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quanta::cpu {

HWY_EXPORT(ThisCode);

namespace {

bool onednn_includes(dnnl_cpu_isa_t wanted) {
  const auto effective = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  return (effective & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

bool may_use_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  if (!onednn_includes(dnnl_cpu_isa_avx512_core_amx)) return false;
  // Linux wants to be asked before a process uses the tiles' registers.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool has_avx_vnni() {
#if defined(__x86_64__)
  // Bit 4 of EAX, leaf 7, subleaf 1. __builtin_cpu_supports does not know it with every compiler.
  constexpr unsigned kAvxVnni = 1U << 4U;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __builtin_cpu_supports("avx2") != 0 &&
         __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnni) != 0;
#else
  return false;
#endif
}

Features machine_features() {
  Features result;
  result.vnni =
      onednn_includes(dnnl_cpu_isa_avx512_core_vnni) || onednn_includes(dnnl_cpu_isa_avx2_vnni);
  result.avx_vnni = result.vnni && has_avx_vnni();
  result.tiles = result.vnni && may_use_tiles();
  return result;
}

const Features& whole_machine() {
  static const Features value = machine_features();
  return value;
}

std::atomic<const Features*> limited{nullptr};

/// The most that kernels may be compiled to where oneDNN is held down to `isa`, in its words.
Code most_code(std::string isa) {
  std::transform(isa.begin(), isa.end(), isa.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (isa == "sse41" || isa == "avx") return Code::Plain;
  if (isa.starts_with("avx2")) return Code::Avx2;
  return isa == "avx512_core" ? Code::Avx512 : Code::Avx512Vbmi;
}

// Before the first kernel is chosen. oneDNN itself is not asked: whoever wants to hold it down may
// do so until it is.
const bool kHeldDown = [] {
  for (const char* variable : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr) continue;
    const Code most = most_code(value);
    // A better target of Highway has a lower bit.
    if (most != Code::Avx512Vbmi) hwy::DisableTargets(highway_target(most) - 1);
    return true;
  }
  return false;
}();

}  // namespace

Code running_code() { return HWY_DYNAMIC_DISPATCH(ThisCode)(); }

std::int64_t highway_target(Code code) {
  switch (code) {
    case Code::Plain:
      break;
    case Code::Avx2:
      return HWY_AVX2;
    case Code::Avx512:
      return HWY_AVX3;
    case Code::Avx512Vbmi:
      return HWY_AVX3_DL;
  }
  return HWY_SCALAR;
}

bool can_run(const InstructionSet& set) {
  const std::int64_t supported = hwy::SupportedTargets();
  // That has chosen kernels too, the machine's best whatever it is held down to.
  hwy::GetChosenTarget().Update(supported);
  const bool has_code = set.code == Code::Plain || (supported & highway_target(set.code)) != 0;
  return has_code && whole_machine().includes(set.features);
}

const Features& features() {
  const Features* limit = limited.load(std::memory_order_acquire);
  return limit != nullptr ? *limit : whole_machine();
}

FeatureLimit::FeatureLimit(const Features& most) {
  static Features value;
  const Features& machine = whole_machine();
  value = {.vnni = machine.vnni && most.vnni,
           .avx_vnni = machine.avx_vnni && most.avx_vnni,
           .tiles = machine.tiles && most.tiles};
  limited.store(&value, std::memory_order_release);
}

FeatureLimit::~FeatureLimit() { limited.store(nullptr, std::memory_order_release); }

}  // namespace quanta::cpu
#endif  // HWY_ONCE
