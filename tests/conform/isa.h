#pragma once

#include <string>
#include <vector>

namespace quanta::conform {

/// Names that hold_isa_down takes: native, and those of ops/cpu/features.h.
const std::vector<std::string>& isa_names();
/// The same without what this machine lacks, and without plain code, which takes minutes.
std::vector<std::string> usable_isa_names();

/// Makes oneDNN and Quanta's own kernels use no instructions beyond the named set. To be called
/// before the first op.
void hold_isa_down(const std::string& name);

}  // namespace quanta::conform
