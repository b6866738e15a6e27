#pragma once

#include <string>
#include <vector>

namespace quanta::conform {

/// Names that hold_isa_down takes: native, avx2, avx512, vnni.
const std::vector<std::string>& isa_names();

/// Makes oneDNN and Quanta's own kernels use no instructions beyond the named set. To be called
/// before the first op.
void hold_isa_down(const std::string& name);

}  // namespace quanta::conform
