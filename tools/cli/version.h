#pragma once

#include <string>

namespace quanta::cli {

/// Three lines: Quanta's version with git's revision, if it was built from git; oneDNN's version;
/// the instructions that kernels use on this machine.
std::string version_text();
/// "amx": the last of the instruction sets for which there are kernels that this machine has,
/// within ONEDNN_MAX_CPU_ISA.
std::string instruction_set();

}  // namespace quanta::cli
