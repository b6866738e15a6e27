#pragma once

// Private: where the results of a plan's steps lie in its block of memory.

#include <cstddef>
#include <span>

#include "quanta/runtime/detail/forks.h"
#include "quanta/runtime/detail/replay_steps.h"

namespace quanta::replay::detail {

/// Lets steps write where they read, where they may.
void reuse_inputs(Program& program);
/// Lays the Arena buffers into one block; returns its size. What is needed at the same time lies
/// apart: lanes of a fork run at the same time, forks and the steps between them one after the other.
std::size_t place_buffers(Program& program, std::span<const Fork> forks = {});

}  // namespace quanta::replay::detail
